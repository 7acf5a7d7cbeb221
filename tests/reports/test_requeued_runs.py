"""A job that is requeued in a fresh container, with another home directory, goes on with the key that it is given."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import train_shortly

import vantage
from vantage.cli import main

Container = Callable[[], None]


@pytest.fixture
def fresh_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Container:
    """Gives this process a home directory that has never been used."""
    count = iter(range(100))

    def enter() -> None:
        home = tmp_path / f"home-{next(count)}"
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    monkeypatch.delenv("VANTAGE_KEY", raising=False)
    enter()
    return enter


def test_a_requeued_run_of_ones_own_environment_goes_on_with_the_given_key(
        fresh_container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "keys" / "vantage"
    monkeypatch.setenv("VANTAGE_KEY", str(key))
    run = train_shortly(tmp_path / "run", "tiny:Bandit")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    fresh_container()
    assert main(["resume", str(run), "--steps", "500"]) == 0
    assert main(["evaluate", str(run), "--episodes", "2"]) == 0
    monkeypatch.delenv("VANTAGE_KEY")
    capsys.readouterr()
    assert main(["evaluate", str(run), "--episodes", "2"]) == 2
    error = capsys.readouterr().err
    assert "imports tiny:Bandit" in error and "VANTAGE_KEY" in error and error.count("\n") == 1


def test_runs_from_before_the_key_was_given_stay_ones_own(
        fresh_container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_shortly(tmp_path / "run", "tiny:Bandit")
    monkeypatch.setenv("VANTAGE_KEY", str(tmp_path / "key"))
    for _ in vantage.Trainer.resume(run, steps=500):
        pass
    fresh_container()
    assert vantage.evaluate(run, episodes=2).episodes == 2


def test_a_run_from_elsewhere_is_refused_beside_any_key(
        fresh_container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANTAGE_KEY", str(tmp_path / "theirs"))
    run = train_shortly(tmp_path / "run", "tiny:Bandit")
    fresh_container()
    for folder in (run, tmp_path):  # a key that comes with a run is no key of this user
        (folder / "key").write_bytes((tmp_path / "theirs").read_bytes())
    monkeypatch.setenv("VANTAGE_KEY", str(tmp_path / "mine"))
    with pytest.raises(vantage.ConfigError, match="not written by you"):
        vantage.evaluate(run, episodes=1)
    monkeypatch.setenv("VANTAGE_KEY", "key")
    with pytest.raises(vantage.ConfigError, match=r"VANTAGE_KEY='key' cannot be used: the path is not absolute"):
        vantage.evaluate(run, episodes=1)


@pytest.mark.parametrize(("content", "why"), [
    (b"short", "it has 5 bytes, a key has 32"), (None, "Is a directory")])
@pytest.mark.usefixtures("fresh_container")
def test_a_key_that_cannot_be_used_is_named(
        content: bytes | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "key"
    key.mkdir() if content is None else key.write_bytes(content)
    monkeypatch.setenv("VANTAGE_KEY", str(key))
    assert main(["train", "a2c", "--env", "CartPole-v1", "--steps", "10", "--run", "run", "--eval-every", "0"]) == 2
    error = capsys.readouterr().err
    assert f"VANTAGE_KEY={str(key)!r} cannot be used: {why}; " in error and not Path("run").exists()


@pytest.mark.usefixtures("fresh_container")
def test_meta_json_does_not_hold_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANTAGE_KEY", str(tmp_path / "key"))
    run = train_shortly(tmp_path / "run", "tiny:Bandit")
    meta = json.dumps(json.loads((run / "meta.json").read_text()))
    assert (tmp_path / "key").read_bytes().hex() not in meta
