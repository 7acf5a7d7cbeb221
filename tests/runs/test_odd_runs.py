"""Runs that were cut short, moved or crafted: each is continued where that is possible, or refused in one line."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import replace_file
from safetensors import torch as safetensors
from tiny import Bandit

import vantage
from vantage.cli import main
from vantage.errors import CheckpointError, ConfigError
from vantage.runs.checkpoint import load, load_latest
from vantage.runs.policy_file import read_policy
from vantage.runtimes.training import train_updates

NETWORK = """
import torch
class Net(torch.nn.Linear):
    def __init__(self, shape):
        super().__init__(shape[0], {width})
"""


def config(**options: Any) -> vantage.Config:
    layers = {} if "network" in options else {"hidden": "8"}
    return vantage.configure("a2c", **({"env": "CartPole-v1", "threads": 1, "tensorboard": False, "eval_every": 0,
                                        "num_envs": 2, "rollout_length": 4, "steps": 80, "save_every": 40,
                                        "log_every_seconds": 1000} | layers | options))


def train(run: str, **options: Any) -> Path:
    *_, last = vantage.Trainer(config(**options), run=run)
    assert last.status == "done"
    return Path(run)


@pytest.mark.parametrize("options", [{}, {"init_from": "source"}], ids=["new", "init_from"])
def test_a_run_without_a_checkpoint_begins_at_step_0(
        options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    train("source", seed=1)
    whole, run = train("whole", **options), train("run", **options)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError, match="no valid checkpoint"):  # its metrics say that it has learned something
        next(vantage.Trainer.resume(run))
    (run / "metrics.jsonl").unlink()
    *_, last = vantage.Trainer.resume(run)
    assert (last.status, last.step) == ("done", 80) and "it begins at step 0" in caplog.text
    ours, theirs = (load_latest(path).tensors["model"] for path in (run, whole))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's writer
@pytest.mark.parametrize("renamed", [False, True])
def test_a_run_that_is_deleted_or_renamed_while_it_trains_ends_with_the_remedy(
        renamed: bool, caplog: pytest.LogCaptureFixture) -> None:
    run = Path("runs/one")
    updates = train_updates(config(steps=10**6, log_every_seconds=0, tensorboard=True), run=run)
    message = r"runs/one was deleted or renamed .* step \d+; .*`vantage resume NEW_NAME`"
    with pytest.raises(CheckpointError, match=message):
        for report in updates:
            if report is not None and report.step == 64:
                _ = run.rename("runs/two") if renamed else shutil.rmtree(run)
    assert not run.exists()
    assert not [message for message in caplog.messages if "summary" in message], "the error is enough"
    if renamed:
        *_, last = vantage.Trainer.resume("runs/two", steps=240, extend_schedule=True)
        assert last.status == "done"


class Deleting(Bandit):
    """Deletes all runs at its 20th step."""

    steps = 0

    def play(self, action: Any) -> tuple[Any, bool]:
        self.steps += 1
        if self.steps == 20:
            shutil.rmtree("runs")
        return super().play(action)


def test_the_command_names_no_run_that_was_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--steps 1k --save-every 40 --num-envs 2 --hidden 4 --threads 1 --no-tensorboard --eval-every 0"
    assert main(["train", "a2c", "--env", f"{__name__}:Deleting", *flags.split()]) == 1
    out, err = capsys.readouterr()
    assert "was deleted or renamed" in err and "vantage resume runs" not in out + err
    assert not Path("runs").exists()


def test_an_edited_network_is_named_with_the_tensors_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    Path("own_net.py").write_text(NETWORK.format(width=5))
    run = train("run", network="own_net:Net", memory="lstm", memory_size=4)
    monkeypatch.delitem(__import__("sys").modules, "own_net")
    Path("own_net.py").write_text(NETWORK.format(width=7) + "# edited")
    message = (r"does not fit the class network=own_net:Net, as if that had been edited since: "
               r"actor\.torsos\.0\.network\.weight is \[5, 4\] in the file, \[7, 4\] in the network, "
               r"actor\.torsos\.0\.network\.bias is \[5\] in the file, \[7\] in the network, .*; "
               r"give the network that it was trained with$")
    for use in (lambda: vantage.load(run), lambda: next(vantage.Trainer.resume(run, steps=160, extend_schedule=True))):
        with pytest.raises(ConfigError, match=message):
            use()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one checkpoint; to be copied."""
    return train(str(tmp_path_factory.mktemp("runs") / "trained"), keep_checkpoints=1, memory="lstm", memory_size=4)


@pytest.mark.parametrize(("name", "value"), [
    ("progress", None),
    ("progress.step", "9"),
    ("progress.solved", "yes"),
    ("progress.seconds", float("nan")),
    ("progress.recent", [["a", 1]]),
    ("progress.best_return", "high"),
    ("workers_started", "all"),
    ("spec.obs", {}),
    ("spec.obs.shape", [4, 4]),
    ("spec.action.kind", "leap"),
    ("spec.action", {"kind": "box", "sizes": [2], "low": [0], "high": [1]}),
])
def test_a_state_that_no_run_writes_is_refused_in_one_line(trained: Path, name: str, value: Any) -> None:
    path = load_latest(Path(shutil.copytree(trained, "run"))).path
    saved = json.loads((path / "state.json").read_text())
    *groups, last = name.split(".")
    entry = saved["state"]
    for group in groups:
        entry = entry[group]
    entry[last] = value
    replace_file(path, "state.json", json.dumps(saved).encode())
    with pytest.raises(CheckpointError, match=rf"step-000000000080 .*: {name.split('.')[0]}[ .]") as error:
        load(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize(("name", "change", "says", "commands"), [
    ("acting", {}, "there is no 'generator'", ["resume"]),
    ("model", {"value_head.bias": torch.tensor([torch.nan])}, "value_head.bias has values that are not finite",
     ["resume", "evaluate"]),
    ("model", {"value_head.bias": torch.tensor([torch.inf])}, "not finite", ["evaluate"])])
def test_crafted_tensors_are_refused_in_one_line(
        name: str, change: dict[str, torch.Tensor], says: str, commands: list[str], trained: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    path = load_latest(Path(shutil.copytree(trained, "run"))).path
    tensors = safetensors.load_file(path / f"{name}.safetensors") | change if change else {}
    replace_file(path, f"{name}.safetensors", safetensors.save(tensors))
    for command in commands:
        assert main([command, "run", *(["--steps", "160", "--extend-schedule"] if command == "resume" else [])]) == 1
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(("group", "name", "value", "says"), [
    ("acting", "generator", torch.zeros(5056), "ByteTensor"),
    ("acting", "generator", torch.full((5056,), 255, dtype=torch.uint8), "mt19937"),
    ("acting", "state_0", None, "state of the policy is"),
    ("acting", "state_1", torch.zeros(2, 4).double(), "float64"),
    ("acting", "state_0", torch.full((2, 4), torch.nan), "not finite"),
    ("envs", "action_counts", None, "the snapshot holds"),
    ("envs", "action_counts", torch.tensor([2**40, 1]), "action_counts"),
    ("envs", "action_counts", torch.tensor([torch.nan, 1]), "action_counts"),
    ("envs", "actions", torch.full((160,), 77, dtype=torch.int8), "actions"),
    ("envs", "actions", torch.zeros(160, dtype=torch.bfloat16), "BFloat16"),
    ("envs", "score", torch.tensor([torch.nan, 0]).double(), "score"),
    ("envs", "episode", torch.tensor([0.5, torch.inf]), "episode"),
    ("envs", "over", torch.zeros(2), "over"),
    ("envs", "length", torch.zeros(2, 10**6, dtype=torch.int64), "the snapshot holds"),
])
def test_crafted_environments_and_states_are_refused_in_one_line(
        group: str, name: str, value: torch.Tensor | None, says: str, trained: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    path = load_latest(Path(shutil.copytree(trained, "run"))).path
    tensors = safetensors.load_file(path / f"{group}.safetensors")
    if name == "actions" and value is not None:
        value = value[:len(tensors[name])]
    tensors = {key: tensor for key, tensor in (tensors | {name: value}).items() if tensor is not None}
    replace_file(path, f"{group}.safetensors", safetensors.save(tensors))
    other_env = says == "the snapshot holds"
    assert main(["resume", "run", "--steps", "160", "--extend-schedule"]) == (2 if other_env else 1)
    lines = [line for line in capsys.readouterr().err.splitlines() if "schedule" not in line]
    assert len(lines) == 1 and says in lines[0] and len(lines[0]) < 700
    assert other_env or "checkpoints/step-000000000080 cannot be continued" in lines[0]


@pytest.mark.parametrize("command", ["evaluate run", "record run -o game.gif"])
def test_a_policy_is_not_played_in_an_environment_of_another_kind(
        command: str, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(shutil.copytree(trained, "run")) / "config.json"
    path.write_text(path.read_text().replace("CartPole-v1", "Pendulum-v1"))
    assert main(command.split()) == 2
    assert "vantage: the environment has observations vector [3], the policy was" in capsys.readouterr().err


@pytest.mark.parametrize("header", [
    {"scores": '{"a": []}'},
    {"step": "9" * 5000},
    {"checkpoint": "best\nmean 500"},
], ids=str)
def test_a_header_that_no_export_writes_is_refused_in_one_line(header: dict[str, str], trained: Path) -> None:
    policy = read_policy(Path(trained))
    values = {"format": "pt", **policy.description.to_header(), **header}
    safetensors.save_file(dict(policy.tensors), "policy.safetensors", values)
    with pytest.raises(CheckpointError, match="step, checkpoint or scores") as error:
        vantage.load("policy.safetensors")
    assert str(error.value).isprintable() and len(str(error.value)) < 500


def test_a_summary_that_cannot_be_written_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with closing(train_updates(config(steps=400), run=Path("run"))) as updates:
        next(updates)
        (Path("run") / "summary.json").unlink(missing_ok=True)
        (Path("run") / "summary.json").mkdir()
        list(updates)
    assert len([message for message in caplog.messages if "summary.json" in message]) == 1


@pytest.mark.parametrize("best_return", [None, 3])
def test_a_best_checkpoint_is_evaluated_without_its_score_too(best_return: float | None) -> None:
    run = train("run", eval_every=40, eval_episodes=1)
    saved = json.loads((run / "best" / "state.json").read_text())
    saved["state"]["progress"]["best_return"] = best_return
    replace_file(run / "best", "state.json", json.dumps(saved).encode())
    assert vantage.load(run).scores.get("eval/mean_reward") == best_return


def test_a_network_beyond_any_memory_is_refused_before_it_is_allocated(
        trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(shutil.copytree(trained, "run")) / "config.json"
    config = json.loads(file.read_text())
    config["policy"]["hidden"] = [65_536] * 3
    file.write_text(json.dumps(config))
    for command in ("evaluate run", "resume run --steps 160 --extend-schedule",
                    "train a2c --env CartPole-v1 --memory lstm --memory-size 65536"):
        assert main(command.split()) == 2
        error = capsys.readouterr().err
        assert "the network would have" in error and "give smaller ones" in error and "Traceback" not in error
