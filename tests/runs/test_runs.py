"""Run directories: numbering, what they hold, and the errors where one is missing or broken."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vantage.config.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import RunDirectory
from vantage.runs.names import directory_name


def create(tmp_path: Path, **kwargs: Any) -> RunDirectory:
    return RunDirectory.create(Config(), **{"root": tmp_path / "runs", **kwargs})


@pytest.mark.parametrize(("env", "name"), [
    ("ALE/Pong-v5", "ALE-Pong-v5"), ("my.module:Cls", "my.module-Cls"), ("../..", "env"), ("/etc/x", "etc-x")])
def test_an_environment_is_one_directory_name(env: str, name: str) -> None:
    assert directory_name(env) == name


def test_concurrent_creations_get_different_numbers_from_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: create(tmp_path).path, range(24)))
    assert {path.name for path in paths} == {f"a2c-{number}" for number in range(1, 25)}
    assert all((path / "config.json").is_file() for path in paths)


def test_meta_names_versions_command_and_commit_and_no_environment_variable(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANTAGE_TEST_TOKEN", "s3cr3t-value")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    run = create(tmp_path, argv=["vantage", "train", "a2c"])
    text, meta = (run.path / "meta.json").read_text(), run.read_meta()
    assert meta["argv"] == ["vantage", "train", "a2c"] and meta["git_commit"] is None
    assert set(meta["versions"]) == {"python", "vantage", "torch", "numpy", "gymnasium", "ale_py"}
    assert {"host", "platform", "cores", "device", "created"} < set(meta)
    assert not [value for value in os.environ.values() if len(value) > 30 and json.dumps(value) in text]
    assert "s3cr3t-value" not in text
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="1234abcd\n"))
    assert create(tmp_path).read_meta()["git_commit"] == "1234abcd"


def test_a_missing_run_names_the_nearest(tmp_path: Path) -> None:
    run = create(tmp_path)
    for wrong in ("../a2c-l", "best", "nothing/there", "config.json"):
        with pytest.raises(ConfigError, match=rf"not? .*run directory.*did you mean {run.path}\?"):
            RunDirectory.open(Path(os.path.normpath(run.path / wrong)))
    for outside in (run.path.parent, run.path.parents[1]):
        with pytest.raises(ConfigError, match=rf"not a run directory.*; give one of the runs in it: {run.path}$"):
            RunDirectory.open(outside)
    for wrong in ("../no-such", "../../../x/y"):
        with pytest.raises(ConfigError, match="no such run directory; start a run with `vantage train`"):
            RunDirectory.open(Path(os.path.normpath(run.path / wrong)))


@pytest.mark.parametrize(("content", "message"), [
    (b"", "config.json is not JSON"), (b"[1]", "holds list"), (b"\xff\xfe\xfd", "cannot read"), (None, "cannot read"),
    (b'{"algo": "a2c", "env": {"id": "CartPole-v1"}}', "config.json is damaged: it lacks steps, seed"),
    ({"algorithm": {"lrr": "1e-3"}}, "unknown key 'lrr'; did you mean lr"),
    ({"algorithm": {"gamma": "2"}}, "above 1"), ({"polcy": {}}, "unknown key 'polcy'; did you mean policy")])
def test_a_broken_config_is_named_with_a_remedy(
        tmp_path: Path, content: bytes | dict[str, Any] | None, message: str) -> None:
    run = create(tmp_path)
    path = run.path / "config.json"
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        values = json.loads(path.read_text())
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(
            values | {group: values.get(group, {}) | keys for group, keys in content.items()}).encode())
    with pytest.raises(ConfigError, match=rf"(?s)(?=.*{message})(?=.*config\.json).*restore it"):
        RunDirectory.open(run.path)


@pytest.mark.parametrize("wrote", ["99.1", None])
def test_a_key_that_this_version_lacks_is_answered_with_the_version_that_wrote_it(
        wrote: str | None, tmp_path: Path) -> None:
    run = create(tmp_path)
    path, meta = run.path / "config.json", run.path / "meta.json"
    path.write_text(path.read_text().replace('"gamma"', '"discount_of_tomorrow"'))
    if wrote is not None:
        meta.write_text(json.dumps(run.read_meta() | {"versions": {"vantage": wrote}}))
    says = "it was written by Vantage 99.1, and this is .*: install that version$" if wrote else "restore it or correct"
    with pytest.raises(ConfigError, match=f"unknown key 'discount_of_tomorrow'.*; .*{says}"):
        RunDirectory.open(run.path)


def test_an_algorithm_that_cannot_be_imported_is_not_blamed_on_the_config(tmp_path: Path) -> None:
    run = create(tmp_path)
    (run.path / "config.json").write_text(run.config.to_json().replace('"a2c"', '"missing:Algorithm"'))
    with pytest.raises(ConfigError, match=r"'missing' cannot be imported.*in the folder that contains it$"):
        RunDirectory.open(run.path, trust=True)


def test_an_edited_or_damaged_config_is_named_where_the_run_goes_on(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = create(tmp_path)
    config = run.path / "config.json"
    RunDirectory.open(run.path, runs_code=True)
    assert not caplog.messages
    config.write_text(config.read_text().replace('"seed": 0', '"seed": 4'))
    assert RunDirectory.open(run.path, runs_code=True).config.run.seed == 4
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"{config} is not as Vantage wrote it on this machine"]


def test_a_config_without_a_key_has_its_default(tmp_path: Path) -> None:
    run = create(tmp_path)
    former = run.config.flat()
    del former["log_weights"]
    (run.path / "config.json").write_text(json.dumps(former, default=lambda schedule: schedule.text))
    assert RunDirectory.open(run.path).config == run.config


def test_a_run_opens_as_it_was_created_and_is_not_created_twice(tmp_path: Path) -> None:
    config = Config().change(env="ALE/Pong-v5", seed=7, stop_at_return=18.5, lr="linear:7e-4:0", bptt=False)
    run = RunDirectory.create(config, path=tmp_path / "mine")
    with pytest.raises(ConfigError, match=rf"mine exists.*vantage.resume\('{run.path}'\), choose another run, or"):
        create(tmp_path, path=run.path)
    (run.path / "meta.json").unlink()
    assert RunDirectory.open(run.path) == run
    with pytest.raises(ConfigError, match=r"meta\.json: No such.*restore it"):
        run.read_meta()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_creation_leaves_no_directory(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(error))
    with pytest.raises(ConfigError if isinstance(error, OSError) else KeyboardInterrupt):
        create(tmp_path)
    assert list((tmp_path / "runs/CartPole-v1").iterdir()) == []


def test_a_run_that_cannot_be_removed_whole_can_still_be_resumed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(tmp_path)
    (run.path / "checkpoints").mkdir()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", fail)
        run.remove()
    assert RunDirectory.open(run.path) == run
    run.remove()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("point", ["fsync", "replace"])
def test_a_summary_reads_back_and_a_failed_one_leaves_the_former(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    run = create(tmp_path)
    assert run.read_summary() == {}
    run.write_summary({"return_mean": float("nan"), "best_return": 1.5})
    with monkeypatch.context() as patch:
        patch.setattr(os, point, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(VantageError, match="No space left"):
            run.write_summary({"steps": 2})
    assert run.read_summary() == {"return_mean": None, "best_return": 1.5}
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json", "meta.json", "summary.json"]
    (run.path / "summary.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"holds list.*summary\.json.*restore it"):
        run.read_summary()
