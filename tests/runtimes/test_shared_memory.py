"""Weights that workers share: an update through shared memory is what a lone learner does to its own weights."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import threading
from typing import Any

import pytest
import torch
from rollouts import random_rollout

import vantage
from vantage.learning.learner import Learner
from vantage.learning.optimizers import STATISTICS
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.learning.running_statistics import observe, seen
from vantage.models.normalization import ObsNormalizer
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights
from vantage.runtimes.startup import new_model
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.types import Rollout

SPEC = EnvSpec(ArraySpec("vector", (3,)), ActionSpec("discrete", (4,)))
T, B = 5, 2


def configure(**options: Any) -> vantage.Config:
    return vantage.configure("a3c", env="CartPole-v1",
                             **({"num_workers": 2, "envs_per_worker": B, "hidden": "8"} | options))


def share(config: vantage.Config) -> SharedWeights:
    learner = Learner(new_model(config, SPEC), config)
    shared = SharedWeights(learner, config, multiprocessing.get_context("spawn"))
    HogwildWeights(shared, learner, 0).push()
    return shared


def worker_of(shared: SharedWeights, config: vantage.Config, worker: int = 0) -> tuple[Learner, HogwildWeights]:
    """The learner of a worker, with the shared weights, and its sink."""
    learner = Learner(new_model(config, SPEC), config)
    weights = HogwildWeights(shared, learner, worker)
    weights.pull()
    return learner, weights


def rollouts(count: int) -> list[Rollout]:
    model = new_model(configure(), SPEC)
    return [random_rollout(model, T, B, seed=seed) for seed in range(count)]


@pytest.mark.parametrize("optimizer", STATISTICS)
def test_workers_that_take_turns_are_one_optimizer_on_their_gradients(optimizer: str) -> None:
    """A shared gradient that keeps its first value, or statistics that are not shared, would fail this too."""
    config = configure(optimizer=optimizer, obs_norm=False, reward_norm=False)
    shared = share(config)
    sharing = [worker_of(shared, config, worker) for worker in range(2)]
    lone = Learner(new_model(config, SPEC), config)
    for k, rollout in enumerate(rollouts(10)):
        learner, weights = sharing[k % 2]
        weights.pull()
        before = learner.flat.vector.clone()
        assert learner.update(rollout, k)["train/policy_lag"] == 0
        shared.workers["updates"][k % 2] += 1
        lone.update(rollout, k)
        assert torch.equal(shared.vector, lone.flat.vector), k
        assert torch.equal(learner.flat.vector, before), "only a pull moves the copy"


@pytest.mark.parametrize(("shared_statistics", "steps"), [(True, [1]), (False, [0, 1])])
def test_statistics_are_updated_by_all_workers_or_by_their_own_alone(
        shared_statistics: bool, steps: list[int]) -> None:
    config = configure(optimizer="adam", shared_statistics=shared_statistics)
    shared = share(config)
    learner, _ = worker_of(shared, config, 1)
    learner.update(rollouts(1)[0], 0)
    assert shared.statistics["exp_avg"].any(1).int().tolist() == shared.statistics["step"].int().tolist() == steps


def test_statistics_survive_a_change_of_the_number_of_workers() -> None:
    weights = []
    for workers in (2, 3):
        config = configure(optimizer="adam", shared_statistics=False, num_workers=workers)
        weights.append(worker_of(share(config), config)[1])
    for row, value in zip(weights[0].optimizer_tensors()["exp_avg"], (1.0, 2.0), strict=True):
        row.fill_(value)
    weights[1].load_optimizer(weights[0].optimizer_tensors())
    assert weights[1].optimizer_tensors()["exp_avg"][:, 0].tolist() == [1.0, 2.0, 1.0]


def test_the_lag_counts_the_updates_of_others_since_the_pull() -> None:
    config = configure()
    shared = share(config)
    shared.workers["updates"][1] = 2
    learner, _ = worker_of(shared, config)
    shared.workers["updates"][1] += 3
    assert learner.update(rollouts(1)[0], 0)["train/policy_lag"] == 3


def test_with_the_lock_an_update_waits_for_its_turn_until_the_process_that_has_it_dies() -> None:
    config = configure(lock=True)
    shared = share(config)
    assert shared._lock is not None
    learner, _ = worker_of(shared, config)
    before = shared.vector.clone()
    locked, wait = os.pipe(), os.pipe()
    if (holder := os.fork()) == 0:
        fcntl.lockf(shared._lock.fileno(), fcntl.LOCK_EX)
        os.write(locked[1], b"!")
        os.read(wait[0], 1)
        os._exit(0)
    os.read(locked[0], 1)
    update = threading.Thread(target=learner.update, args=(rollouts(1)[0], 0))
    update.start()
    update.join(0.3)
    assert update.is_alive() and torch.equal(shared.vector, before)
    os.kill(holder, 9)
    os.waitpid(holder, 0)
    update.join(10)
    assert not torch.equal(shared.vector, before)
    with shared.turn():
        pass
    for end in (*locked, *wait):
        os.close(end)


def test_normalizers_use_what_all_workers_have_seen() -> None:
    config = configure(obs_norm=True, reward_norm=True)
    shared = share(config)
    workers = [worker_of(shared, config, worker) for worker in range(2)]
    alone, rewards = ObsNormalizer(3), RewardNormalizer(B, torch.device("cpu"))
    for k, rollout in enumerate(rollouts(6)):
        learner, weights = workers[k % 2]
        weights.pull()
        learner.update(rollout, k)
        observe(learner, rollout, k)
        alone.merge(*alone.batch(seen(rollout)))  # type: ignore[arg-type]
        if k % 2 == 0:
            rewards.merge(*rewards.batch(rollout.rewards, rollout.is_first, rollout.resets, config.at("gamma", k)))
    learner, weights = workers[0]
    weights.pull()
    merged, ours = learner.model.normalizers["0"], learner.reward_normalizer
    for name in ("mean", "var", "count"):
        torch.testing.assert_close(getattr(merged, name), getattr(alone, name), rtol=1e-4, atol=1e-4)
    assert ours is not None and ours.local_stats is not None
    assert all(map(torch.equal, ours.local_stats, rewards.stats)), "each worker updates its own statistics"
    assert ours.count > 1.9 * rewards.count, "but scales by those of both"
