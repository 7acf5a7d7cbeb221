"""What a worker of the asynchronous runtime has for its own, what all go by, and what becomes of silent ones.

Most run what a worker runs in this process; `test_hogwild` has the runs of real ones.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import closing
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from test_actor_learner import begun

import vantage
from vantage.errors import EnvError
from vantage.learning.learner import Learner
from vantage.runs.checkpoint import load_latest
from vantage.runs.metrics import read_metrics
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.evaluator import Evaluated, Evaluator, evaluate_policy
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights
from vantage.runtimes.worker import Process, start, work
from vantage.training import train_updates
from vantage.types import Episode, Rollout

B = 2
CONTEXT = multiprocessing.get_context("spawn")


def configure(**options: Any) -> vantage.Config:
    return vantage.configure("a3c", **({"env": "tiny:Bandit", "num_workers": 2, "num_envs": B, "threads": 1,
                                        "hidden": "8", "tensorboard": False, "eval_every": 0} | options))


def share(config: vantage.Config) -> tuple[SharedWeights, ActorLearner]:
    """What workers of `config` share, as at the beginning of a run, and an actor-learner without it."""
    with begun(config) as lone:
        shared = SharedWeights(lone.model, config, CONTEXT)
        HogwildWeights(shared, Learner(lone.model, config), 0).push()
    return shared, lone


class Heard:
    """The main process's side of a worker that runs in this process: keeps what it says."""

    def __init__(self) -> None:
        self.messages: list[Advance] = []

    def send(self, message: Advance) -> None:
        self.messages.append(message)


@pytest.fixture
def importable_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)


# What is a worker's own


@pytest.mark.parametrize(("worker", "index", "length"), [(0, 0, 4), (1, 1, 6), (2, 2, 8), (3, 3, 4), (1, 5, 6)])
def test_rollout_lengths_are_dealt_out_by_place_which_a_replaced_worker_inherits(
        worker: int, index: int, length: int) -> None:
    with begun(configure(num_workers=4, rollout_length="4,6,8"), worker=worker, index=index) as actor_learner:
        assert actor_learner.advance(lambda: 0).steps == B * length


def test_devices_are_dealt_out_by_place_which_a_replaced_worker_inherits() -> None:
    """Two names of the only device that every machine has."""
    names = []
    for worker, index in [(0, 0), (1, 1), (2, 2), (3, 3), (1, 4), (0, 5)]:
        with begun(configure(num_workers=4, device="cpu,cpu:0"), worker=worker, index=index) as actor_learner:
            names.append(str(actor_learner.device))
    assert names == ["cpu", "cpu:0", "cpu", "cpu:0", "cpu:0", "cpu"]


FIRST_SECOND_AND_ITS_REPLACEMENT = [(0, 0), (1, 1), (1, 2)]


def test_workers_and_those_that_replace_them_see_different_episodes() -> None:
    seen = []
    for worker, index in FIRST_SECOND_AND_ITS_REPLACEMENT:
        with begun(configure(env="CartPole-v1"), worker=worker, index=index) as actor_learner:
            assert isinstance(actor_learner.position.obs, torch.Tensor)
            seen.append(actor_learner.position.obs)
    assert len(torch.cat(seen).unique(dim=0)) == 3 * B


def test_workers_and_those_that_replace_them_draw_different_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bandit shows all of them the same, and they begin with the same policy."""
    drawn: list[torch.Tensor] = []

    def update(rollout: Rollout, step: int) -> dict[str, float]:
        drawn.append(rollout.actions.flatten())
        return {}

    for worker, index in FIRST_SECOND_AND_ITS_REPLACEMENT:
        with begun(configure(rollout_length=30), worker=worker, index=index) as actor_learner:
            monkeypatch.setattr(actor_learner.learner, "update", update)
            actor_learner.advance(lambda: 0)
    assert len(torch.stack(drawn).unique(dim=0)) == 3


@pytest.mark.parametrize("threads", [1, 3])
def test_a_worker_runs_with_the_threads_of_the_config(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the process begins with, which is as many as there are cores."""
    acting, learning = set(), set()
    step, update = tiny.Bandit.step, Learner.update

    def watched_step(env: tiny.Bandit, action: Any) -> Any:
        acting.add(torch.get_num_threads())
        return step(env, action)

    def watched_update(learner: Learner, *args: Any) -> dict[str, float]:
        learning.add(torch.get_num_threads())
        return update(learner, *args)

    monkeypatch.setattr(tiny.Bandit, "step", watched_step)
    monkeypatch.setattr(Learner, "update", watched_update)
    config = configure(threads=threads, num_workers=1, steps=20)
    shared, _ = share(config)
    torch.set_num_threads(2)
    work(Heard(), config, 0, 0, shared, 0)  # type: ignore[arg-type]
    assert acting == learning == {threads}


# Schedules go by the steps of all


def test_schedules_go_by_the_steps_of_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(lr="linear:1e-2:0", steps=400, rollout_length=5)
    shared, _ = share(config)
    shared.count(0, 100, 10)
    before = [100]

    class OtherWorkerGoesOn(Heard):
        """The other takes thirty steps while this one takes ten."""

        def send(self, message: Advance) -> None:
            super().send(message)
            shared.count(0, 30, 1)
            before.append(shared.steps)

    monkeypatch.setattr("vantage.runtimes.worker.REPORT_EVERY_SECONDS", 0.0)
    heard = OtherWorkerGoesOn()
    work(heard, config, 1, 1, shared, 0)  # type: ignore[arg-type]
    rates = [message.metrics["train/learning_rate"] for message in heard.messages if message.updates]
    assert before[:3] == [100, 140, 180] and len(rates) == 8
    assert rates == pytest.approx([1e-2 * (1 - step / 400) for step in before[:8]])


def in_this_process(context: Any, name: str, target: Any, *args: Any) -> Process:
    """In place of `start`: has run to the end of its work, and has ended, when this returns."""
    here, there = context.Pipe()
    target(there, *args)
    there.close()
    return Process(stand_in(exitcode=0), here)


def stand_in(exitcode: int | None) -> Any:
    """Of a process that has ended with `exitcode`, or with None neither ends nor can be killed."""
    never, open_end = CONTEXT.Pipe()

    def nothing(*timeout: float) -> None:
        pass

    return SimpleNamespace(pid=0, sentinel=never, open_end=open_end, exitcode=exitcode, kill=nothing, join=nothing,
                           is_alive=lambda: exitcode is None, close=nothing)


def test_a_resume_goes_on_with_the_schedules_from_the_steps_of_all(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vantage.runtimes.hogwild.start", in_this_process)
    config = configure(num_workers=1, steps=500, rollout_length=5, lr="linear:1e-2:0")
    *_, first = vantage.train(config, run=tmp_path / "run")
    *_, last = vantage.resume(tmp_path / "run", steps=1_000, extend_schedule=True)
    rates = {line["step"]: line["train/learning_rate"] for line in read_metrics(tmp_path / "run")}
    assert first.step == 500 and last.step == 1_000
    # Each line has the mean of its updates. All reports are in before the first line.
    assert rates[500] == pytest.approx(fmean(1e-2 * (1 - step / 500) for step in range(0, 500, 10)))
    assert rates[1_000] == pytest.approx(fmean(1e-2 * (1 - step / 1_000) for step in range(500, 1_000, 10)))


# Evaluations


def test_best_holds_the_weights_that_were_evaluated_though_the_policy_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = CONTEXT.Pipe()
    monkeypatch.setattr("vantage.runtimes.evaluator.start", lambda *args: Process(stand_in(None), here))
    config = configure(eval_every=10)
    shared, lone = share(config)
    evaluator = Evaluator(config, lone.spec, shared, CONTEXT)
    assert not evaluator.idle()
    there.send(None)
    assert evaluator.receive() is None and evaluator.idle()

    policy = {"model": lone.model.state_dict(), "rewards": {"moments": torch.tensor([3.0, 1.0, 2.0])}}
    sent = {group: {name: x.clone() for name, x in tensors.items()} for group, tensors in policy.items()}
    assert evaluator.send(70, policy) is None and evaluator.busy
    for tensors in policy.values():
        for tensor in tensors.values():
            tensor.add_(1)
    step = there.recv()
    there.send((step, {"eval/mean_reward": 1.0}, False))
    said = evaluator.receive()
    assert isinstance(said, Evaluated) and said.step == 70 and not evaluator.busy
    assert_same(said.policy, sent)
    assert_same({"model": shared.frozen()}, {"model": sent["model"]})


def test_an_evaluator_that_is_stopped_stops_nobody_else(importable_in_workers: None) -> None:
    config = configure(hidden="512,512", eval_every=10)  # more than a pipe takes before it is read
    shared, lone = share(config)
    evaluator = Evaluator(config, lone.spec, shared, CONTEXT)
    evaluator.start()
    try:
        assert wait(evaluator.connections, 30) and evaluator.receive() is None and evaluator.idle()
        (process,) = multiprocessing.active_children()
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        sending = threading.Thread(target=evaluator.send, args=(70, {"model": lone.model.state_dict()}), daemon=True)
        sending.start()
        sending.join(10)
        assert not sending.is_alive() and evaluator.busy
    finally:
        evaluator.end()


def assert_same(policy: Any, expected: Any) -> None:
    assert policy.keys() == expected.keys()
    for group, tensors in expected.items():
        assert policy[group].keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(policy[group][name], tensor), (group, name)


@pytest.mark.parametrize(("goal", "games", "first", "rest", "played", "mean", "solved"), [
    (1.0, 100, 0.9, 2.0, [20], 0.9, False),
    (1.0, 100, 1.0, 1.0, [20, 80], 1.0, True),
    (1.0, 100, 2.0, 0.5, [20, 80], 0.8, False),
    (1.0, 20, 1.0, 0.0, [20], 1.0, True),
    (None, 100, 0.0, 1.0, [100], 0.8, False),
], ids=["falls short", "passes", "passes at first alone", "has no more games", "ends no run"])
def test_where_an_evaluation_ends_the_run_twenty_games_tell_whether_the_rest_is_played(
        goal: float | None, games: int, first: float, rest: float, played: list[int], mean: float, solved: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def play(*args: Any, episodes: int, **options: Any) -> Generator[None, None, list[Episode]]:
        """The first twenty games of an evaluation come to `first`, all others to `rest`."""
        before = sum(asked)
        asked.append(episodes)
        yield
        return [Episode(0, first if game < 20 else rest, 1) for game in range(before, before + episodes)]

    monkeypatch.setattr("vantage.runtimes.evaluator.play_games", play)
    config = configure(eval_every=1_000, eval_episodes=games, stop_at_eval=goal)
    _, lone = share(config)
    evaluation = evaluate_policy(lone.model, config, 0)
    with pytest.raises(StopIteration) as end:
        while True:
            next(evaluation)
    metrics, reached = end.value.value
    assert asked == played and metrics["eval/mean_reward"] == pytest.approx(mean) and reached is solved


# Silence


def test_a_worker_that_is_silent_before_it_ever_learned_is_replaced_by_one_of_a_new_index(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importable_in_workers: None,
        caplog: pytest.LogCaptureFixture) -> None:
    started: list[tuple[int, int]] = []

    def watched(context: Any, name: str, target: Any, config: vantage.Config, worker: int, index: int,
                *args: Any) -> Process:
        started.append((worker, index))
        return start(context, name, target, config, worker, index, *args)

    monkeypatch.setattr("vantage.runtimes.hogwild.start", watched)
    config = configure(env="tiny:Hanging", env_kwargs={"marker": str(tmp_path / "hangs")}, num_workers=1,
                       env_timeout=1, max_restarts=1)
    caplog.set_level("INFO", logger="vantage")
    with pytest.raises(EnvError, match=r"1 were replaced already(.|\n)*no update for 1 s"):
        list(vantage.train(config, run=tmp_path / "run"))
    assert sum("worker 0 failed and is replaced (1 of 1)" in note for note in caplog.messages) == 1
    assert started == [(0, 0), (0, 1)]


def test_an_evaluator_that_hangs_is_replaced_as_often_as_workers_may_be(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importable_in_workers: None,
        caplog: pytest.LogCaptureFixture) -> None:
    """With a worker that made one update and is never taken for silent."""
    said: list[Connection] = []

    def one_update(context: Any, name: str, target: Any, config: vantage.Config, worker: int, index: int,
                   shared: SharedWeights, replay_bytes: int) -> Process:
        here, there = context.Pipe()
        there.send(Advance(steps=10, updates=1))
        said.append(there)
        shared.beat(worker, math.inf)
        return Process(stand_in(None), here)

    monkeypatch.setattr("vantage.runtimes.hogwild.start", one_update)
    monkeypatch.setattr("vantage.runtimes.hogwild.STOP_SECONDS", 0.0)
    config = configure(env="tiny:Hanging", env_kwargs={"marker": str(tmp_path / "hangs")}, num_workers=1, eval_every=10,
                       env_timeout=1, max_restarts=1, log_every_seconds=0)
    caplog.set_level("INFO", logger="vantage")
    deadline = time.monotonic() + 60
    with pytest.raises(EnvError, match="no step for 1 s"):
        for _ in vantage.train(config, run=tmp_path / "run"):
            assert time.monotonic() < deadline
    replaced = [note for note in caplog.messages if "replaced" in note]
    assert len(replaced) == 1 and "the evaluator failed and is replaced (1 of 1)" in replaced[0]
    left = multiprocessing.active_children()
    for process in left:
        process.kill()  # else this process would wait for it at its end
    assert not left, "those that hung are killed"


def test_a_run_stops_at_once_while_its_workers_still_start(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importable_in_workers: None) -> None:
    monkeypatch.setattr("vantage.runtimes.hogwild.STOP_SECONDS", 60.0)
    marker = tmp_path / "hangs"
    config = configure(env="tiny:Hanging", env_kwargs={"marker": str(marker), "begins": False}, num_workers=1)
    with closing(train_updates(config, run=tmp_path / "run")) as updates:
        while not marker.exists():
            next(updates)
        asked = time.monotonic()
    assert time.monotonic() - asked < 30
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


def test_a_run_whose_worker_hangs_stops_within_six_seconds_of_sigint(
        tmp_path: Path, importable_in_workers: None) -> None:
    marker = tmp_path / "hangs"
    process = subprocess.Popen(
        [sys.executable, "-m", "vantage.cli", "train", "a3c", "--env", "tiny:Hanging", "--env-kwargs",
         json.dumps({"marker": str(marker), "well": 400}), "--num-workers", "1", "--eval-every", "0",
         "--no-tensorboard", "--run", "run"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not marker.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        signalled = time.monotonic()
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - signalled < 6
        assert process.returncode == 130 and "Traceback" not in err and "vantage resume" in out
        assert load_latest(tmp_path / "run").step > 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
