"""How the main process watches workers, here stand-ins of them: faults, silence, stops and evaluations meanwhile."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from test_worker import configure, stand_in

import vantage
from vantage.errors import EnvError, NonFiniteError, VantageError
from vantage.runs.checkpoint import load_latest, load_named
from vantage.runtimes import hogwild
from vantage.runtimes.child_processes import Process
from vantage.runtimes.evaluator import EvaluationResult, Evaluator
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import SharedWeights
from vantage.runtimes.training import train_updates


class StandIns:
    """In place of `start`: workers that send what `script` says, in the order of their start, and then run on.

    A script has `Advance`s, which count 10 steps and an update, errors, and exit statuses.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *script: list[Advance | VantageError | int]) -> None:
        self.script = list(script)
        self.places: list[tuple[int, int]] = []
        """Worker and index of each."""
        self.processes: list[Any] = []
        self.now = 0.0
        """Time in the main process; it passes when it is read."""
        monkeypatch.setattr(hogwild, "start", self.start)
        monkeypatch.setattr(hogwild, "monotonic", self.clock)
        monkeypatch.setattr(hogwild, "wait_for", lambda *_: None)

    def clock(self) -> float:
        self.now += 0.5
        return self.now

    def start(self, context: Any, name: str, target: Any, config: vantage.Config, worker: int, index: int, episode: int,
              shared: SharedWeights, replay_bytes: int) -> Process:
        here, there = context.Pipe()
        self.places.append((worker, index))
        self.processes.append(process := stand_in(None))
        self.shared, process.connection, process.own = shared, there, shared.workers[worker]
        for item in self.script.pop(0) if self.script else []:
            if isinstance(item, int):
                process.exitcode = item
            else:
                there.send(item)
                process.own["steps"] += 10 * isinstance(item, Advance)
                process.own["updates"] += isinstance(item, Advance)
        return Process(process, here)


@pytest.mark.parametrize(("script", "error", "message", "started"), [
    ([[EnvError("the simulator broke")]], EnvError, "^the simulator broke", 1),
    ([[Advance(updates=1), NonFiniteError("not finite")]], NonFiniteError, "^not finite", 1),
    ([[Advance(updates=1), EnvError("it broke")], [EnvError("it broke")]], EnvError,
     "1 were replaced already .max_restarts.: it broke", 2),
    ([[Advance(updates=1), 0], [0]], VantageError, "exit status 0, as where a simulator calls", 2),
    ([[Advance(updates=1), -9], [1]], VantageError, "exit status 1; .* __name__ == '__main__'", 2),
    ([[Advance(updates=1), -9], [-9]], VantageError, "killed by SIGKILL .out of memory", 2),
    ([[Advance(updates=1), -11], [-11]], VantageError, "killed by SIGSEGV, by native code", 2),
], ids=["nothing learned", "not finite", "raises", "exit", "no main guard", "killed", "segmentation fault"])
def test_a_failing_worker_is_replaced_within_the_budget_where_that_can_help(
        script: list[list[Any]], error: type[VantageError], message: str, started: int, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    stand_ins = StandIns(monkeypatch, *script)
    config = configure(num_workers=1, max_restarts=1)
    with pytest.raises(error, match=message):
        list(vantage.Trainer(config, run=tmp_path / "run"))
    assert stand_ins.places == [(0, 0), (0, 1)][:started]
    assert sum("worker 0 failed and is replaced (1 of 1)" in note for note in caplog.messages) == started - 1
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed" and summary["steps"] == load_latest(tmp_path / "run").step
    assert summary["steps"] == 10 * any(isinstance(item, Advance) for item in script[0]), "counted though it is lost"


@pytest.mark.parametrize("imported", [True, False], ids=["in-its-environment", "in-its-imports"])
def test_a_silent_worker_is_killed_and_replaced_even_before_it_learned(
        imported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins = StandIns(monkeypatch)
    with closing(train_updates(configure(env_timeout=10), run=tmp_path / "run")) as updates:
        next(updates)
        if imported:
            stand_ins.processes[0].own["heartbeat"] = stand_ins.now
        while len(stand_ins.places) == 2:
            stand_ins.processes[1].own["heartbeat"] = stand_ins.now
            next(updates)
        limit = 10 if imported else 10 + hogwild.START_SECONDS
        assert limit < stand_ins.now < limit + 4
        assert stand_ins.places == [(0, 0), (1, 1), (0, 2)] and stand_ins.processes[0].exitcode == -9
        stand_ins.now += 3600  # a caller that pauses: workers may have waited for it
        next(updates)
        assert len(stand_ins.places) == 3
    assert all(process.exitcode == -9 for process in stand_ins.processes)


def test_a_stop_waits_for_workers_that_learned_and_kills_the_others(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins = StandIns(monkeypatch, [], [Advance(updates=1)])
    killed_at: list[float] = []
    with closing(train_updates(configure(), run=tmp_path / "run")) as updates:
        next(updates)
        next(updates)
        for process in stand_ins.processes:
            process.kill = lambda process=process: (killed_at.append(stand_ins.now), setattr(process, "exitcode", -9))
        stopped_at = stand_ins.now
    assert killed_at[0] - stopped_at < 1 <= hogwild.STOP_SECONDS <= killed_at[1] - stopped_at < hogwild.STOP_SECONDS + 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_best_holds_the_evaluated_policy_though_workers_go_on_meanwhile(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[dict[str, torch.Tensor]] = []

    def evaluate(evaluator: Evaluator, model: Any, step: int,
                 **options: Any) -> Generator[None, None, EvaluationResult]:
        played.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        for _ in range(3):
            stand_ins.shared.vector.add_(1.0)
            yield
        return EvaluationResult({"eval/mean_reward": 1.0, "eval/deterministic": 1.0}, False, 1.0, 0)

    stand_ins = StandIns(monkeypatch, [Advance(updates=1)])
    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    config = configure(eval_every=10, num_workers=1, save_every=10, reward_norm=False)
    with closing(train_updates(config, run=tmp_path / "run")) as updates:
        while not (tmp_path / "run" / "best").exists():
            next(updates)
    best = load_named(tmp_path / "run", "best")
    assert best.step == 10 and set(best.tensors) == {"model"} and len(played) == 1
    for name, tensor in played[0].items():
        assert torch.equal(best.tensors["model"][name], tensor), name
