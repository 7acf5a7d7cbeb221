"""Run directories: numbering, what they hold, and what is said when one is missing or broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vantage.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import RunDirectory, directory_name


def create(tmp_path: Path, **kwargs: Any) -> RunDirectory:
    return RunDirectory.create(Config(), **{"env_name": "CartPole-v1", "root": tmp_path / "runs", **kwargs})


@pytest.mark.parametrize(("env", "name"), [
    ("ALE/Pong-v5", "ALE-Pong-v5"), ("my.module:Cls", "my.module-Cls"), ("../..", "env"), ("/etc/x", "etc-x")])
def test_an_environment_is_one_directory_name(env: str, name: str) -> None:
    assert directory_name(env) == name


def test_runs_are_numbered_from_one_and_a_number_is_not_taken_twice(tmp_path: Path) -> None:
    assert [create(tmp_path).path.name for _ in range(3)] == ["a2c-1", "a2c-2", "a2c-3"]
    (tmp_path / "runs/CartPole-v1/a2c-10").mkdir()
    assert create(tmp_path).path == tmp_path / "runs/CartPole-v1/a2c-11"


def test_concurrent_creations_get_different_numbers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: create(tmp_path).path, range(24)))
    assert len(set(paths)) == 24
    assert all((path / "config.json").is_file() for path in paths)


def test_a_run_opens_with_the_config_it_was_created_with(tmp_path: Path) -> None:
    config = Config().change(env="ALE/Pong-v5", seed=7, stop_at_return=18.5, lr="linear:7e-4:0", bptt=False)
    run = RunDirectory.create(config, env_name="ALE/Pong-v5", root=tmp_path)
    assert RunDirectory.open(run.path) == run


def test_meta_names_versions_and_command_and_no_environment_variable(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VANTAGE_TEST_TOKEN", "s3cr3t-value")
    run = create(tmp_path, argv=["vantage", "train", "a2c"])
    text = (run.path / "meta.json").read_text()
    meta = json.loads(text)
    assert meta["argv"] == ["vantage", "train", "a2c"]
    assert set(meta["versions"]) == {"python", "vantage", "torch", "numpy", "gymnasium", "ale_py"}
    assert {"git_commit", "host", "platform", "cores", "device", "created"} < set(meta)
    assert "s3cr3t-value" not in text
    assert not [value for value in os.environ.values() if len(value) > 30 and json.dumps(value) in text]


def test_the_git_commit_is_that_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert json.loads((create(tmp_path).path / "meta.json").read_text())["git_commit"] is None
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "init", "-q", "."], check=True)
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    commit = json.loads((create(tmp_path).path / "meta.json").read_text())["git_commit"]
    assert len(commit) == 40


def test_a_run_that_exists_names_resume(tmp_path: Path) -> None:
    run = create(tmp_path, path=tmp_path / "mine")
    with pytest.raises(ConfigError, match=rf"mine exists.*`vantage resume {run.path}`"):
        create(tmp_path, path=run.path)
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="other exists; choose another --run"):
        create(tmp_path, path=tmp_path / "other")


@pytest.mark.parametrize("path", ["file", "file/run", "file/deeper/run"])
def test_a_file_in_the_way_is_an_error_with_words(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--run"):
        create(tmp_path, path=tmp_path / path)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_creation_leaves_no_directory(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError if isinstance(error, OSError) else KeyboardInterrupt):
        create(tmp_path)
    assert list((tmp_path / "runs/CartPole-v1").iterdir()) == []


def test_a_missing_run_names_the_nearest(tmp_path: Path) -> None:
    run = create(tmp_path)
    for wrong in (run.path.with_name("a2c-l"), run.path / "best", run.path / "nothing/there"):
        with pytest.raises(ConfigError, match=f"did you mean {run.path}"):
            RunDirectory.open(wrong)
    with pytest.raises(ConfigError, match="start one with `vantage train`"):
        RunDirectory.open(tmp_path / "x/y/z/w")


def test_a_name_like_no_other_suggests_no_run(tmp_path: Path) -> None:
    run = create(tmp_path, path=tmp_path / "ac1")
    for wrong in ("no-such", "runs/no-such"):
        with pytest.raises(ConfigError, match=r"no-such: no such run directory; no run beside it has a similar name"):
            RunDirectory.open(tmp_path / wrong)
    with pytest.raises(ConfigError, match=f"did you mean {run.path}"):
        RunDirectory.open(tmp_path / "ac2")


def test_a_file_is_called_one(tmp_path: Path) -> None:
    run = create(tmp_path, path=tmp_path / "run")
    (tmp_path / "rum").touch()
    with pytest.raises(ConfigError, match=r"rum is a file, not a run directory; name the directory"):
        RunDirectory.open(tmp_path / "rum")
    with pytest.raises(ConfigError, match=f"is a file, not a run directory; did you mean {run.path}"):
        RunDirectory.open(run.path / "config.json")


@pytest.mark.parametrize(("content", "message"), [
    (b"", "config.json is not JSON"), (b"[1]", "holds list"), (b"\xff\xfe\xfd", "cannot read"),
    (b"{}", "config.json is damaged: it lacks algo, env, steps"),
    ({"algorithm": {"lrr": "1e-3"}}, "unknown key 'lrr'; did you mean lr"),
    ({"algorithm": {"gamma": "2"}}, "above 1"), ({"polcy": {}}, "unknown group 'polcy'; did you mean policy")])
def test_a_broken_config_is_named_with_a_remedy(
        tmp_path: Path, content: bytes | dict[str, Any], message: str) -> None:
    run = create(tmp_path)
    if isinstance(content, dict):
        values = json.loads(run.config.to_json())
        merged = {group: values.get(group, {}) | keys for group, keys in content.items()}
        content = json.dumps(values | merged).encode()
    (run.path / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        RunDirectory.open(run.path)
    assert "config.json" in str(caught.value)
    assert "restore it" in str(caught.value)


def test_a_config_of_the_first_edition_without_a_key_has_its_default(tmp_path: Path) -> None:
    run = create(tmp_path)
    former = run.config.flat()
    del former["log_weights"]
    (run.path / "config.json").write_text(json.dumps(former))
    assert RunDirectory.open(run.path).config == run.config


def test_a_config_that_is_a_directory_is_an_error_with_words(tmp_path: Path) -> None:
    run = create(tmp_path)
    (run.path / "config.json").unlink()
    (run.path / "config.json").mkdir()
    with pytest.raises(ConfigError, match="cannot read"):
        RunDirectory.open(run.path)


def test_a_summary_reads_back_and_is_valid_json(tmp_path: Path) -> None:
    run = create(tmp_path)
    assert run.read_summary() == {}
    run.write_summary({"status": "done", "return_mean": float("nan"), "returns": [1.5, float("-inf")]})
    assert run.read_summary() == {"status": "done", "return_mean": None, "returns": [1.5, None]}
    (run.path / "summary.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot read"):
        run.read_summary()


@pytest.mark.parametrize(("content", "message"), [
    (b"\xff", "cannot read"), (b"[]", "holds list"), (b'{"steps"', "not JSON"), (b"9" * 5_000, "not JSON"),
    (b'{"steps": "x"}', "steps='x' is not a number"), (b'{"steps": null}', "steps=None"),
    (b'{"seconds": null}', "seconds=None"), (b'{"seconds": NaN}', "seconds=nan"), (b'{"episodes": -1}', "episodes=-1"),
    (b'{"steps": 1' + b"0" * 400 + b"}", "steps=1")])
def test_a_damaged_summary_is_named_with_a_remedy(tmp_path: Path, content: bytes, message: str) -> None:
    run = create(tmp_path)
    (run.path / "summary.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        run.read_summary()
    assert str(run.path / "summary.json") in str(caught.value) and "restore it" in str(caught.value)
    (run.path / "summary.json").write_text("{}")
    assert run.read_summary() == {}


@pytest.mark.parametrize(("content", "message"), [(b"\xff", "cannot read"), (b"[]", "holds list"), (None, "No such")])
def test_a_damaged_meta_is_named_with_a_remedy(tmp_path: Path, content: bytes | None, message: str) -> None:
    run = create(tmp_path)
    if content is None:
        (run.path / "meta.json").unlink()
    else:
        (run.path / "meta.json").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{message}.*restore it"):
        run.read_meta()


@pytest.mark.parametrize("point", ["fsync", "replace"])
def test_a_failed_summary_leaves_the_former_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    run = create(tmp_path)
    run.write_summary({"steps": 1})

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, point, fail)
        with pytest.raises(VantageError, match="No space left"):
            run.write_summary({"steps": 2})
    assert run.read_summary() == {"steps": 1}
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json", "meta.json", "summary.json"]


def test_a_run_directory_needs_no_torch() -> None:
    script = "import sys, vantage.runs.directory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
