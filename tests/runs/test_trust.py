"""Code that a run names: this user's own runs import it, those of others only when they are trusted."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from checkpoints import save

import vantage
from vantage.cli import main
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.runs import trust
from vantage.runs.directory import RunDirectory
from vantage.runs.policy_file import read_policy, write_weights
from vantage.runs.trust import foreign_code

NETWORK = """
import torch
open("imported", "a").close()
class Net(torch.nn.Linear):
    def __init__(self, shape):
        super().__init__(shape[0], 5)
"""


def make_run(network: str = "stranger:Net") -> RunDirectory:
    """A run with one checkpoint, whose config names code of the current folder."""
    Path("stranger.py").write_text(NETWORK)
    run = RunDirectory.create(Config().change(network=network), path=Path("run"))
    save(run.path, 1)
    # As in another process: creating the run has imported its own code.
    sys.modules.pop("stranger", None)
    Path("imported").unlink(missing_ok=True)
    return run


def forget_key() -> None:
    shutil.rmtree(Path(os.environ["XDG_STATE_HOME"]))


@pytest.fixture(autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a key."""
    folder = tmp_path_factory.mktemp("state") / "home"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


@pytest.mark.parametrize(("values", "paths"), [
    ({"algo": "a2c", "env": {"id": "ALE/Pong-v5"}, "policy": {"network": "a3c"}}, []),
    ({"algo": "mine.algos:PPO", "env": {"id": "games:Maze"}, "policy": {"network": "nets:Big"}},
     ["mine.algos:PPO", "games:Maze", "nets:Big"]),
    ({"network": {"nets": 1}}, ['{"nets": 1}']),
    ({"algo": "mine.algos:PPO", "env": "games:Maze-v0", "network": "nets:Big"},
     ["mine.algos:PPO", "games:Maze-v0", "nets:Big"]),
    ({"env": {"id": "gymnasium.envs.classic_control:CartPoleEnv"}, "policy": {"network": "vantage.models.torsos:Mlp"}},
     []),
    ({"env": {"id": "ale_py:ALE/Pong-v5"}}, []),
    ({"algo": "gymnasium:Env"}, ["gymnasium:Env"]),
    # `Config.from_json` takes a key from any group and turns lists into text.
    ({"env": {}, "run": {"network": "nets:Big", "algo": "algos:PPO", "env": "games:Maze"}},
     ["algos:PPO", "games:Maze", "nets:Big"]),
    ({"env": {}, "policy": {"network": ["nets:Big"]}}, ['["nets:Big"]']),
    # What a module of Vantage imports is not its class.
    ({"env": {"id": "vantage.runs.directory:subprocess.Popen"}}, ["vantage.runs.directory:subprocess.Popen"]),
    ({"env": {"id": "gymnasium:make"}}, ["gymnasium:make"]),
    ({"env": {"id": "vantagepoint:Cls"}}, ["vantagepoint:Cls"])])
def test_foreign_code_is_every_path_that_a_config_would_import(values: dict[str, Any], paths: list[str]) -> None:
    assert foreign_code(values) == paths


def test_a_folder_in_place_of_a_library_that_is_not_installed_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "version_of", lambda package: None)
    assert foreign_code({"env": {"id": "ale_py.extra:Game"}}) == ["ale_py.extra:Game"]


def test_own_runs_import_their_code_with_a_warning_also_after_a_change(caplog: pytest.LogCaptureFixture) -> None:
    run = make_run()
    with caplog.at_level(logging.INFO):
        read_policy(Path("run"))
        read_policy(Path("run"))
    assert caplog.messages == ["using the code of stranger:Net, which run/config.json names"]
    assert run.change_config(run.config.change(steps=7)).config.run.steps == 7
    assert read_policy(Path("run")).description.config.run.steps == 7
    assert {"versions", "argv"} < run.read_meta().keys()


@pytest.mark.parametrize("change", ["key", "config", "signature", "meta"])
def test_the_code_of_others_is_refused_unless_it_is_trusted(change: str) -> None:
    make_run()
    config, meta = Path("run/config.json"), Path("run/meta.json")
    if change == "key":
        forget_key()
    elif change == "config":
        config.write_text(config.read_text().replace("stranger:Net", "stranger:Other"))
    elif change == "signature":
        meta.write_text(json.dumps(json.loads(meta.read_text()) | {"config_hmac": "\ud800"}))
    else:
        meta.unlink()
    message = r"run/config\.json was not written by you .* imports stranger:\w+; .*trust=True"
    for use in (lambda: read_policy(Path("run")), lambda: vantage.load("run"), lambda: vantage.Trainer.resume("run"),
                lambda: vantage.evaluate("run")):
        with pytest.raises(ConfigError, match=message):
            use()
    assert not Path("imported").exists()
    assert read_policy(Path("run"), trust=True).description.step == 1
    assert RunDirectory.open(Path("run")).config.policy.network.startswith("stranger")  # nothing is imported for it


def test_an_algorithm_of_others_is_not_imported_to_read_the_config() -> None:
    make_run("auto")
    path = Path("run/config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"algo": "stranger:Net"}))
    with pytest.raises(ConfigError, match="imports stranger"):
        RunDirectory.open(Path("run"))
    assert not Path("imported").exists()
    with pytest.raises(ConfigError, match="is not an algorithm"):
        RunDirectory.open(Path("run"), trust=True)
    assert Path("imported").exists()


def test_exported_files_are_ones_own_on_the_machine_that_wrote_them(
        caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    run, path = make_run(), Path("p.safetensors")
    policy = read_policy(run.path, runs_code=False)
    write_weights(path, policy.tensors, policy.description)
    caplog.clear()
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    assert read_policy(path).description == policy.description
    assert caplog.messages == ["using the code of stranger:Net, which p.safetensors names"]
    monkeypatch.setitem(sys.modules, "stranger", ModuleType("stranger"))
    caplog.clear()
    read_policy(path)
    assert not caplog.messages, "nothing is imported"
    forget_key()
    with pytest.raises(ConfigError, match=r"p\.safetensors was not written by you .* imports stranger"):
        read_policy(path)
    assert read_policy(path, trust=True).description == policy.description
    assert read_policy(path, runs_code=False).description.config == run.config


def test_tensors_alone_and_runs_without_foreign_code_need_no_trust() -> None:
    run = make_run()
    forget_key()
    read_policy(run.path, runs_code=False)
    shutil.rmtree("run")
    run = make_run("auto")
    forget_key()
    assert read_policy(run.path).description.step == 1
    assert not Path("imported").exists()


def test_the_key_is_secret_and_made_once_and_runs_without_one_are_not_ones_own(state_home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        first, = set(pool.map(lambda _: trust.signature("text"), range(24)))
    key = state_home / "vantage" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and list(key.parent.iterdir()) == [key]
    forget_key()
    assert trust.signature("text") != first
    forget_key()
    state_home.write_text("a file in the way")
    run = make_run()
    assert run.read_meta()["config_hmac"] is None
    with pytest.raises(ConfigError, match="trust=True"):
        read_policy(run.path)


@pytest.mark.parametrize(
    "command", ["evaluate", "resume", "watch", "record -o game.mp4", "report", "export --format onnx"])
def test_every_command_imports_foreign_code_with_trust(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_run("nowhere_to_be_found:Net")
    forget_key()
    assert main([*command.split(), "run", "--trust"]) == 2
    error = capsys.readouterr().err
    assert "nowhere_to_be_found" in error and "--trust" not in error
