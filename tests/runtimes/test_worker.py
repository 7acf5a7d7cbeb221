"""A worker's own devices, lengths and random streams, and its schedules. Its faults are in test_worker_faults."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rollouts import begun

import vantage
from vantage.algorithms.ppo import PPO
from vantage.runs.checkpoint import load_latest
from vantage.runs.metrics import read_metrics
from vantage.runtimes import hogwild
from vantage.runtimes.child_processes import Process
from vantage.runtimes.hogwild import worker_main
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights

pytestmark = pytest.mark.integration

B = 2
CONTEXT = multiprocessing.get_context("spawn")


def configure(algo: str = "a3c", **options: Any) -> vantage.Config:
    num_envs = B * max(1, options.get("num_workers", 2))
    return vantage.configure(algo, **({"env": "tiny:Bandit", "num_workers": 2, "num_envs": num_envs,
                                       "threads": 1, "hidden": "8", "tensorboard": False, "eval_every": 0,
                                       "log_every_seconds": 0} | options))


def share(config: vantage.Config) -> SharedWeights:
    """What workers of `config` share at the start of a run."""
    with begun(config) as lone:
        shared = SharedWeights(lone.learner, config, CONTEXT)
        HogwildWeights(shared, lone.learner, 0).push()
    return shared


class Messages(list[Advance]):
    """The connection of a worker that runs in this process."""

    send = list.append

    def poll(self) -> bool:
        """No coefficient changes."""
        return False


# What belongs to one worker


def test_lengths_and_devices_are_assigned_by_place_which_a_replacement_takes_over() -> None:
    """Two names of the only device that every machine has."""
    config = configure(num_workers=4, rollout_length="4,6,8", device="cpu,cpu:0")
    assigned = []
    for worker, index in [(0, 0), (1, 1), (2, 2), (3, 3), (1, 4), (0, 5)]:
        with begun(config, worker=worker, index=index) as actor_learner:
            assigned.append((actor_learner.advance(lambda: 0).steps // B, str(actor_learner.device)))
    assert assigned == [(4, "cpu"), (6, "cpu:0"), (8, "cpu"), (4, "cpu:0"), (6, "cpu:0"), (4, "cpu")]


def test_workers_and_their_replacements_have_environments_and_random_draws_of_their_own() -> None:
    obs, draws = [], []
    for worker, index in [(0, 0), (1, 1), (1, 2)]:
        with begun(configure(env="CartPole-v1"), worker=worker, index=index) as one:
            assert isinstance(one.position.obs, torch.Tensor)
            obs.append(one.position.obs)
            draws += [torch.rand(9, generator=generator) for generator in (
                one.generator, one.replay_generator, one.learner.generator, one.learner.minibatch_generator)]
    assert len(torch.cat(obs).unique(dim=0)) == 3 * B
    assert len(torch.stack(draws).unique(dim=0)) == 3 * 4


def test_a_worker_runs_with_the_threads_of_the_config() -> None:
    config = configure(threads=3, num_workers=1, steps=20)
    worker_main(Messages(), config, 0, 0, 0, share(config), 0)  # type: ignore[arg-type]
    assert torch.get_num_threads() == 3


# Schedules


def test_schedules_follow_the_steps_of_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(lr="linear:1e-2:0", steps=400, rollout_length=5)
    shared = share(config)
    shared.workers["steps"][0] = 100
    before = [100]

    class OtherWorkerContinues(Messages):
        """The other takes thirty steps while this one takes ten."""

        def send(self, message: Advance) -> None:
            self.append(message)
            shared.workers["steps"][0] += 30
            before.append(int(shared.workers["steps"].sum()))

    monkeypatch.setattr("vantage.runtimes.hogwild.REPORT_EVERY_SECONDS", 0.0)
    messages = OtherWorkerContinues()
    worker_main(messages, config, 1, 1, 0, shared, 0)  # type: ignore[arg-type]
    rates = [message.metrics["train/learning_rate"] for message in messages if message.updates]
    assert before[:3] == [100, 140, 180] and len(rates) == 8
    assert rates == pytest.approx([1e-2 * (1 - step / 400) for step in before[:8]])


def in_this_process(context: Any, name: str, target: Callable[..., None], *args: Any) -> Process:
    """In place of `start`: has done all its work, and has ended, when this returns."""
    here, there = context.Pipe()
    target(there, *args)
    there.close()
    return Process(stand_in(exitcode=0), here)


def stand_in(exitcode: int | None) -> Any:
    """In place of a process that has ended with `exitcode`, or runs, with None, until it is killed."""
    sentinel, open_end = CONTEXT.Pipe()
    process = SimpleNamespace(pid=0, sentinel=sentinel, open_end=open_end, exitcode=exitcode, join=lambda *_: None,
                              close=lambda: None, is_alive=lambda: process.exitcode is None)
    process.kill = lambda: setattr(process, "exitcode", -9)
    return process


def test_a_resume_continues_the_schedules_from_the_steps_of_all(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hogwild, "start", in_this_process)
    config = configure(num_workers=1, steps=500, rollout_length=5, lr="linear:1e-2:0", log_every_seconds=60)
    *_, first = vantage.Trainer(config, run=tmp_path / "run")
    *_, last = vantage.Trainer.resume(tmp_path / "run", steps=1_000, extend_schedule=True)
    rates = {line["step"]: line["train/learning_rate"] for line in read_metrics(tmp_path / "run")}
    assert first.step == 500 and last.step == 1_000
    assert rates[500] == pytest.approx(fmean(1e-2 * (1 - step / 500) for step in range(0, 500, 10)))
    assert rates[1_000] == pytest.approx(fmean(1e-2 * (1 - step / 1_000) for step in range(500, 1_000, 10)))


class OwnPPO(PPO):
    """PPO itself is not offered under `hogwild`."""


@pytest.mark.parametrize("options", [
    {"memory": "lstm", "memory_size": 8},
    {"env": "Pendulum-v1", "obs_norm": True, "reward_norm": True, "optimizer": "rmsprop_tf", "norm": "batch"},
    {"algo": "acer", "steps": 20 * 8, "replay_start": 40, "env": "Pendulum-v1", "norm": "batch"},
    {"algo": "test_worker:OwnPPO", "steps": 20 * 8, "epochs": 2, "minibatch_size": 8},
    {"algo": "curious:CuriousA2C", "steps": 20 * 8},
    {"algo": "curious:CuriousACER", "steps": 20 * 8, "replay_start": 40},
], ids=["lstm", "gaussian-batch-norm", "acer", "own-algorithm-with-minibatches", "own-module",
        "own-module-and-average"])
def test_one_worker_is_sync_bit_for_bit(
        options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hogwild, "start", in_this_process)
    assert_one_worker_is_sync(tmp_path, **options)


def assert_one_worker_is_sync(folder: Path, algo: str | None = None, **options: Any) -> None:
    options = {"env": "CartPole-v1", "rollout_length": 4, "steps": 60 * 8, "log_every_seconds": 60} | options
    runs = {"sync": (algo or "a2c", {"num_workers": 0}), "hogwild": (algo or "a3c", {"runtime": "hogwild"})}
    for name, (name_of_algo, own) in runs.items():
        *_, last = vantage.Trainer(configure(name_of_algo, **({"num_workers": 1} | own | options)), run=folder / name)
        assert last.status == "done" and last.step == options["steps"]
    ours, theirs = (load_latest(folder / name).tensors for name in ("hogwild", "sync"))
    for group in ("model", "optimizer", "average", "module"):
        for name, tensor in theirs.get(group, {}).items():
            assert torch.equal(ours[group][name].flatten(), tensor.flatten()), (group, name)


def test_workers_share_the_mean_of_their_modules_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure("curious:CuriousA2C", runtime="hogwild")
    shared = share(config)
    with begun(config, shared=shared) as one, begun(config, worker=1, index=1, shared=shared) as two:
        for each in (one, two):
            assert each.hogwild is not None
            each.hogwild.pull()
            each.advance(lambda: 0)
        means = [each.learner.module.mean.clone() for each in (one, two)]  # type: ignore[union-attr, operator]
        assert not torch.equal(*means)
        for each in (one, two):
            each.hogwild.pull()  # type: ignore[union-attr]
            assert torch.equal(each.learner.module.mean, (means[0] + means[1]) / 2)  # type: ignore[union-attr]
