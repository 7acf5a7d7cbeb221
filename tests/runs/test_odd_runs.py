"""Runs that were cut short, moved or crafted: each is continued where that is possible, or refused in one line."""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import torch as safetensors

import vantage
from vantage.cli import main
from vantage.errors import CheckpointError, ConfigError
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.metrics import read_metrics
from vantage.training import train_updates

NETWORK = """
import torch
class Net(torch.nn.Linear):
    def __init__(self, shape):
        super().__init__(shape[0], {width})
"""


def config(**options: Any) -> vantage.Config:
    return vantage.configure("a2c", **({"env": "CartPole-v1", "threads": 1, "tensorboard": False, "eval_every": 0,
                                        "num_envs": 2, "hidden": "8", "rollout_length": 4, "steps": 80,
                                        "save_every": 40, "log_every_seconds": 1000} | options))


def train(run: str, **options: Any) -> Path:
    *_, last = vantage.train(config(**options), run=run)
    assert last.status == "done"
    return Path(run)


def replace_file(checkpoint: Path, name: str, data: bytes) -> None:
    """Replace a file of a checkpoint, with the right hash in its manifest."""
    (checkpoint / name).write_bytes(data)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("options", [{}, {"init_from": "source"}], ids=["new", "init_from"])
def test_a_run_without_a_checkpoint_begins_at_step_0(
        options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    train("source", seed=1)
    whole, run = train("whole", **options), train("run", **options)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(CheckpointError, match="no valid checkpoint"):  # its metrics say that it has learned something
        next(vantage.resume(run))
    (run / "metrics.jsonl").unlink()
    *_, last = vantage.resume(run)
    assert (last.status, last.step) == ("done", 80) and "it begins at step 0" in caplog.text
    ours, theirs = (load_latest(path).tensors["model"] for path in (run, whole))
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's writer
@pytest.mark.parametrize("renamed", [False, True])
def test_a_run_that_is_deleted_or_renamed_while_it_trains_is_saved_beside(
        renamed: bool, caplog: pytest.LogCaptureFixture) -> None:
    run, recovered = Path("runs/one"), Path("runs/one-recovered")
    with closing(train_updates(config(steps=10**6, log_every_seconds=0, tensorboard=True), run=run)) as updates:
        for report in updates:
            if report is not None and report.step == 64:
                _ = run.rename("runs/two") if renamed else shutil.rmtree(run)
            if report is not None and report.step >= 200:
                break
    assert report is not None and report.run == str(recovered) and not run.exists()
    [message] = [message for message in caplog.messages if "one-recovered" in message]
    assert "runs/one was deleted or renamed" in message
    assert newest_step(recovered) == 200 and [line["step"] for line in read_metrics(recovered)][-1] == 200
    *_, last = vantage.resume(recovered, steps=240)
    assert last.status == "done"


def test_an_edited_network_is_named_with_the_tensors_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    Path("own_net.py").write_text(NETWORK.format(width=5))
    run = train("run", network="own_net:Net", memory="lstm", memory_size=4)
    monkeypatch.delitem(__import__("sys").modules, "own_net")
    Path("own_net.py").write_text(NETWORK.format(width=7) + "# edited")
    message = (r"does not fit the class network=own_net:Net, as if that had been edited since: "
               r"actor\.torsos\.0\.network\.weight is \[5, 4\] there, \[7, 4\] here, "
               r"actor\.torsos\.0\.network\.bias is \[5\] there, \[7\] here, .*; restore it$")
    for use in (lambda: vantage.load(run), lambda: next(vantage.resume(run, steps=160))):
        with pytest.raises(ConfigError, match=message):
            use()


def test_crafted_checkpoints_are_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run", keep_checkpoints=1)
    path = load_latest(run).path
    saved = json.loads((path / "state.json").read_text())
    weights = safetensors.load_file(path / "model.safetensors")
    for name, data, says in (
            ("acting.safetensors", safetensors.save({}), "cannot be continued: KeyError: 'generator'"),
            ("model.safetensors", safetensors.save(weights | {"value_head.bias": torch.tensor([torch.nan])}),
             "value_head.bias has values that are not finite"),
            ("state.json", json.dumps(saved | {"state": {}}).encode(), "progress is None")):
        replace_file(path, name, data)
        for command in (["resume", "--steps", "160"], ["evaluate", "--episodes", "1"])[:1 + (name[:2] != "ac")]:
            assert main([command[0], str(run), *command[1:]]) == 1
            assert says in capsys.readouterr().err


@pytest.mark.parametrize("best_return", [None, 3])
def test_a_best_checkpoint_is_evaluated_without_its_score_too(best_return: float | None) -> None:
    run = train("run", eval_every=40, eval_episodes=1)
    saved = json.loads((run / "best" / "state.json").read_text())
    saved["state"]["progress"]["best_return"] = best_return
    replace_file(run / "best", "state.json", json.dumps(saved).encode())
    assert vantage.load(run).scores.get("eval/mean_reward") == best_return


def test_a_network_beyond_any_memory_is_refused_before_it_is_allocated(capsys: pytest.CaptureFixture[str]) -> None:
    run = train("run")
    file = run / "config.json"
    file.write_text(file.read_text().replace('"hidden": "8"', '"hidden": "65536,65536,65536"'))
    for command in (["evaluate", str(run)], ["resume", str(run), "--steps", "160"],
                    ["train", "a2c", "--env", "CartPole-v1", "--memory", "lstm", "--memory-size", "65536"]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert "the network would have" in error and "give smaller ones" in error and "Traceback" not in error
