"""What files of someone else reach through each command: no code, no other file, no other machine."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import vantage
from vantage.cli import main
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runs.files import whole_file
from vantage.runs.policy_file import read_policy, write_weights
from vantage.runs.trust import connections
from vantage.tools.report import report

CODE = {"function": {"env": "os:system", "env_kwargs": json.dumps({"command": "touch executed"})},
        "environment": {"env": "stranger:Thing"}, "network": {"network": "stranger:Thing"},
        "algorithm": {"algo": "stranger:Thing"}}
"""Flat config keys that name code, of the standard library or of a module beside the run."""


@pytest.fixture
def run(cartpole_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of someone else: this user has another key from now on."""
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("another-user").absolute()))
    return Path(shutil.copytree(cartpole_run, "run"))


def change_config(run: Path, **keys: str) -> dict[str, object]:
    """Change keys of config.json; returns the flat config."""
    config = json.loads((run / "config.json").read_text())
    for key, value in keys.items():
        group, name = {"env": ("env", "id"), "env_kwargs": ("env", "env_kwargs"), "network": ("policy", "network"),
                       "init_from": ("policy", "init_from"), "track": ("run", "track")}.get(key, (None, key))
        (config if group is None else config[group])[name] = value
    (run / "config.json").write_text(json.dumps(config))
    return {"algo": config["algo"], "env": config["env"]["id"], "env_kwargs": config["env"]["env_kwargs"],
            "network": config["policy"]["network"]}


@pytest.mark.parametrize(("command", "code"), [*((command, "environment") for command in (
    "evaluate run", "watch run", "record run -o game.mp4", "report run", "resume run --steps 500", "push run me/policy",
    "export run --format onnx", "evaluate policy.safetensors", "record policy.safetensors -o game.mp4",
    "train --from-search run", "train a2c --config run/config.json", "preview --config run/config.json -o shot.png")),
    *((command, code) for command in ("evaluate run", "resume run --steps 500") for code in CODE
      if code != "environment")])
def test_no_command_runs_code_that_only_a_file_names(
        command: str, code: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("stranger.py").write_text('open("executed", "a").close()\nclass Thing:\n    pass\n')
    if "policy" in command.split()[1]:
        policy = read_policy(run)
        description = replace(policy.description, config=policy.description.config.change(**CODE[code]))
        write_weights(Path("policy.safetensors"), policy.tensors, description)
        shutil.rmtree(os.environ["XDG_STATE_HOME"])
    else:
        flat = change_config(run, **CODE[code])
        (run / "best.json").write_text(json.dumps({"trial": 1, "value": 1.0, "objective": "mean", "config": flat}))
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert "was not written by you on this machine and imports" in error and error.count("\n") == 1
    assert not Path("executed").exists()


def test_code_of_a_file_is_imported_where_the_command_line_names_it_or_the_user_wrote_the_file(
        run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("net.py").write_text("import torch\nclass Net(torch.nn.Linear):\n"
                              "    def __init__(self, shape): super().__init__(shape[0], 5)\n")
    change_config(run, network="net:Net")
    config = ["train", "a2c", "--config", "run/config.json", "--dry-run"]
    assert main(config) == 2
    assert "name it on the command line too, as ALGO or by --env, --network" in capsys.readouterr().err
    assert main([*config, "--network", "net:Net"]) == 0
    RunDirectory.open(run).change_config(RunDirectory.open(run).config)  # signed by this user
    assert main(config) == 0


def test_no_file_beside_a_run_takes_the_place_of_a_library(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.getcwd()
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder not in ("", here)])
    for env in ("CartPole-v1", "gymnasium.envs.classic_control:CartPoleEnv"):
        change_config(run, env=env)
        vantage.evaluate("run", episodes=1)
        assert here not in sys.path


def test_a_class_that_is_no_environment_is_not_built(run: Path) -> None:
    Path("built_once.py").write_text("class Thing:\n    def __init__(self): open('built', 'w').close()\n")
    for name in ("built_once:Thing", "vantage.runs.tracking:Wandb"):
        with pytest.raises(ConfigError, match=r"is a \w+, not a gymnasium\.Env"):
            next(vantage.Trainer(vantage.configure("a2c", env="CartPole-v1").change(env=name), run="new"))
    assert not Path("built").exists() and not Path("new").exists()


@pytest.mark.parametrize(("keys", "connects"), [
    ({"track": "wandb"}, "track=wandb"), ({"init_from": "hf://someone/policy"}, "init_from=hf://someone/policy"),
    ({"runtime": {"kind": "ray", "rollout_length": "5", "ray_address": "evil.test:6379"}},
     "ray_address=evil.test:6379")])
def test_a_resume_connects_to_no_machine_that_only_the_run_names(
        keys: dict[str, str], connects: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_config(run, **keys)
    shutil.rmtree(run / "checkpoints")
    assert main(["resume", "run", "--steps", "500"]) == 2
    error = capsys.readouterr().err
    assert f"connects by {connects}; if you trust that connection, give --trust" in error
    assert RunDirectory.open(run, trust=True, trains=True).path == run
    if "runtime" in keys:
        assert main(["train", "a2c", "--config", "run/config.json", "--run", "new"]) == 2
        assert f"connects by {connects}" in capsys.readouterr().err


def test_nothing_connects_by_default() -> None:
    assert connections(json.loads(vantage.configure("a2c", env="CartPole-v1").to_json())) == []
    assert connections({"ray_address": "auto", "run": {"track": "none"}, "init_from": None}) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("how", ["link", "pipe"])
@pytest.mark.parametrize(("name", "command"), [
    ("config.json", "evaluate"), ("meta.json", "report"), ("summary.json", "report"),
    ("metrics.jsonl", "plot"), ("metrics.jsonl", "resume"), (".lock", "resume"), ("manifest.json", "evaluate"),
    ("state.json", "evaluate"), ("model.safetensors", "evaluate"), ("acting.safetensors", "resume")])
def test_a_link_or_a_pipe_in_any_place_is_named_and_neither_followed_nor_waited_for(
        name: str, command: str, how: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in [*run.glob(f"checkpoints/*/{name}"), *run.glob(f"best/{name}")] or [run / name]:
        secret = Path(f"secret-{path.parent.name}").absolute()
        secret.write_bytes(path.read_bytes())
        path.unlink()
        _ = path.symlink_to(secret) if how == "link" else os.mkfifo(path)
    before = secret.read_bytes()
    more = {"resume": ["--steps", "500"], "plot": ["-o", "plot.png"], "report": ["--no-video", "--episodes", "1"]}
    assert main([command, "run", *more.get(command, [])]) in (1, 2)
    error = capsys.readouterr().err
    assert f"{name} is a {'symbolic link' if how == 'link' else 'pipe'}" in error and "Traceback" not in error
    assert secret.read_bytes() == before


def test_an_output_in_a_run_is_not_written_through_a_link(run: Path) -> None:
    Path("precious").write_text("text")
    for name in ("report.html", f".report.{os.getpid()}.html"):
        (run / name).symlink_to(Path("precious").absolute())
    with whole_file(run / "report.html", ".html") as page:
        page.write_text("page")
    assert Path("precious").read_text() == "text" and (run / "report.html").read_text() == "page"


@pytest.mark.usefixtures("one_curve")
def test_numbers_that_no_figure_can_show_are_left_out(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        for number in (10**400, -1e308):
            line = {"step": 401, "seconds": 1, "rollout/ep_rew_mean": number}
            file.write(f"{json.dumps(line)}\n{json.dumps(line | {'step': number})}\n")
    report(run, episodes=1, video=False)
    [group] = vantage.plot(run, "curve.png", csv="curve.csv")
    assert all(0 < value <= 500 for value in group.middle)
