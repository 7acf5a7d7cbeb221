"""benchmarks/run_queue.py: a queue that is paused and killed loses nothing, and a run is done once its results are."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from processes import wait_for
from zygote import Command

import vantage
from vantage.runs.checkpoint import load_latest
from vantage.runs.lock import locked

pytestmark = pytest.mark.integration

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# At the lowest priority the runs would wait for the tests beside them.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import run_queue
run_queue.lowest_priority = lambda: None
run_queue.POLL_SECONDS = 0.05
sys.exit(run_queue.main())
"""
KEYS = {"num_envs": 2, "rollout_length": 5, "threads": 1, "eval_every": 0, "tensorboard": "false",
        "log_every_seconds": 0.05}
STEPS = 5_000  # some seconds, so that the pause comes before the end


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    lines = ["[[runs]]", 'algo = "a2c"', 'env = "tiny:Bandit"', "seed = 1", f"steps = {STEPS}",
             *(f"{name} = {json.dumps(value)}" for name, value in KEYS.items())]
    (tmp_path / "plan.toml").write_text("\n".join(lines))
    return tmp_path / "plan.toml"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("run_queue")


@pytest.fixture
def queue(plan: Path, tmp_path: Path, script: Any) -> Any:
    """A queue of one run."""
    return script.Queue(script.read_plan(plan, tmp_path / "runs"), tmp_path / "pause", tmp_path / "results", 1)


def start(plan: Path) -> subprocess.Popen[str]:
    folder = plan.parent
    return Command(["-c", PROGRAM, BENCHMARKS, plan, "--root", folder / "runs", "--results", folder / "results"])


def test_a_queue_paused_then_killed_ends_with_the_weights_of_an_uninterrupted_run(plan: Path, tmp_path: Path,
                                                                                   script: Any) -> None:
    run, = script.read_plan(plan, tmp_path / "runs")
    killed = start(plan)
    wait_for(lambda: run.step() > 0)
    (tmp_path / "pause").touch()
    wait_for(lambda: run.status() == "interrupted" and len(psutil.Process(killed.pid).children()) == 1)  # its zygote
    assert 0 < run.step() < STEPS
    killed.kill()
    killed.wait()
    (tmp_path / "pause").unlink()
    assert start(plan).wait(60) == 0

    config = vantage.configure("a2c", env="tiny:Bandit", seed=1, steps=STEPS, **KEYS)  # type: ignore[arg-type]
    for _ in vantage.Trainer(config, run=tmp_path / "alone", argv=()):
        pass
    ours, alone = (load_latest(path).tensors["model"] for path in (run.path, tmp_path / "alone"))
    assert all(torch.equal(tensor, alone[name]) for name, tensor in ours.items())
    with (tmp_path / "results" / run.group / "scores.csv").open() as file:
        assert [row["seed"] for row in csv.DictReader(file) if row["checkpoint"] == "latest"] == ["1"]
    assert (tmp_path / "results" / f"{run.group}-minutes" / "curve.csv").exists()


@pytest.mark.parametrize(("algo", "keys", "flags"), [
    ("a2c", (), ["--threads", "2"]), ("a3c", (), ["--num-workers", "2"]), ("a2c", (("threads", "1"),), [])])
def test_one_of_two_runs_begins_with_half_of_the_cores(algo: str, keys: tuple[tuple[str, str], ...], flags: list[str],
                                                       tmp_path: Path, script: Any,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the plan says otherwise; `vantage resume` takes them from the run."""
    monkeypatch.setattr("vantage.runtimes.machine.available_cores", lambda: 4)
    monkeypatch.setattr("vantage.tools.child_runs.available_cores", lambda: 4)
    run = script.Run(algo, "Pong", 1, 100, keys, tmp_path / "run")
    assert run.command(2) == [*run.train_command(), *flags, "--run", str(run.path)]
    assert run.command(1) == [*run.train_command(), "--run", str(run.path)]
    run.path.mkdir()
    assert run.command(2) == ["vantage", "resume", str(run.path)]


def test_a_run_that_a_process_still_trains_is_waited_for(queue: Any, script: Any,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of a killed queue saves while the next queue starts; `vantage resume` would refuse, and the run fail."""
    run, = queue.runs
    run.path.mkdir(parents=True)
    held = locked(run.path)
    held.__enter__()
    polls: list[float] = []

    def sleep(seconds: float) -> None:
        polls.append(seconds)
        if len(polls) == 3:
            held.__exit__(None, None, None)

    def begin(run: Any) -> None:
        queue.failed.add(run)  # ends the loop
        assert len(polls) == 3

    monkeypatch.setattr(script.time, "sleep", sleep)
    monkeypatch.setattr(queue, "_begin", begin)
    assert queue.run() == 1


def test_a_second_queue_on_the_same_runs_is_refused(plan: Path, tmp_path: Path, script: Any,
                                                    monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    monkeypatch.setattr(sys, "argv", ["run_queue.py", str(plan), "--root", str(root)])
    monkeypatch.setattr(script, "HANDOVER_SECONDS", 0.2)
    monkeypatch.setattr(script.Queue, "run", lambda self: 0)
    with locked(root):
        assert script.main() == 2
    assert f"another queue uses {root}; stop that one first" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "status", "step", "outcome"), [
    (0, "done", 400, "evaluated"), (2, "done", 400, "evaluated"), (2, "running", 300, "failed"),
    (143, "interrupted", 100, "waiting"), (-9, "running", 300, "waiting"), (-9, "running", 100, "failed")])
def test_what_becomes_of_a_run_whose_process_has_ended(code: int, status: str, step: int, outcome: str, queue: Any,
                                                       script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that dies without progress would be begun again for ever."""
    run, = queue.runs
    evaluated: list[Any] = []
    monkeypatch.setattr(script.Run, "status", lambda run: status)
    monkeypatch.setattr(script, "newest_step", lambda path: step)
    monkeypatch.setattr(queue, "_evaluate", evaluated.append)
    queue.processes[run], queue.begun[run] = SimpleNamespace(returncode=code, poll=lambda: code), 100
    queue._reap()
    assert not queue.processes
    assert (bool(evaluated), run in queue.failed) == (outcome == "evaluated", outcome == "failed")


def test_a_run_whose_curves_failed_is_not_done(queue: Any, script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start of the queue evaluates it again, and the rest of the plan goes on."""
    run, = queue.runs

    def fail(*args: Any, **options: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(script, "score", lambda path: [])
    monkeypatch.setattr(script, "write_results", lambda *args, **options: "")
    monkeypatch.setattr(script, "plot", fail)
    run.path.parent.mkdir(parents=True)
    queue._evaluate(run)
    assert not run.done and queue.failed == {run}
