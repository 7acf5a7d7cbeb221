"""Weights that many learn on: what a shared learner does to them is what a lone one does to its own."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

import pytest
import torch

import vantage
from vantage.learning.learner import Learner
from vantage.learning.optimizers import STATISTICS
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.models.actor_critic import ActorCritic, make_model
from vantage.models.normalization import ObsNormalizer, merge_stats
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights, _merge
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.types import Rollout

SPEC = EnvSpec(ArraySpec("vector", (3,)), ActionSpec("discrete", (4,)))
T, B = 5, 2


def configure(**options: Any) -> vantage.Config:
    return vantage.configure("a3c", env="CartPole-v1", **({"num_workers": 2, "num_envs": B, "hidden": "8"} | options))


def model(config: vantage.Config) -> ActorCritic:
    torch.manual_seed(0)
    return make_model(config.policy, SPEC, critic=config.algorithm.needs.critic)


def share(config: vantage.Config) -> SharedWeights:
    first = model(config)
    shared = SharedWeights(first, config, multiprocessing.get_context("spawn"))
    HogwildWeights(shared, Learner(first, config), 0).push()
    return shared


def worker_of(shared: SharedWeights, config: vantage.Config, worker: int = 0) -> tuple[Learner, HogwildWeights]:
    learner = Learner(model(config), config)
    return learner, HogwildWeights(shared, learner, worker)


def rollouts(count: int) -> list[Rollout]:
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    false = torch.zeros(T, B, dtype=torch.bool)
    return [Rollout(obs=normal(T + 1, B, 3), is_first=torch.zeros(T + 1, B, dtype=torch.bool),
                    actions=torch.randint(4, (T, B), generator=generator), rewards=normal(T, B), terminated=false,
                    valid=~false, action_mask=None, behaviour=torch.zeros(T, B, 4), state=()) for _ in range(count)]


@pytest.mark.parametrize("optimizer", STATISTICS)
def test_each_update_moves_the_shared_weights_as_it_would_move_a_lone_learners(optimizer: str) -> None:
    """Also the regression test for a shared gradient that stays what the first update left in it."""
    config = configure(optimizer=optimizer, num_workers=1)
    shared = share(config)
    lone = Learner(model(config), config)
    one_of_many, weights = worker_of(shared, config)
    for k, rollout in enumerate(rollouts(20)):
        weights.pull()
        metrics = one_of_many.update(rollout, k)
        shared.count(0, T * B, 1)
        lone.update(rollout, k)
        assert torch.equal(shared.vector, lone.flat.vector), k
        assert metrics["train/policy_lag"] == 0
    assert not torch.equal(one_of_many.flat.vector, shared.vector), "only a pull moves the copy"


@pytest.mark.parametrize("optimizer", STATISTICS)
def test_two_learners_that_take_turns_are_one_optimiser_on_their_gradients(optimizer: str) -> None:
    config = configure(optimizer=optimizer, obs_norm=False, reward_norm=False)
    shared = share(config)
    workers = [worker_of(shared, config, worker) for worker in range(2)]
    learners = [learner for learner, _ in workers]
    lone = Learner(model(config), config)
    for k, rollout in enumerate(rollouts(10)):
        workers[k % 2][1].pull()
        learners[k % 2].update(rollout, k)
        lone.update(rollout, k)
        assert torch.equal(shared.vector, lone.flat.vector), k


def test_private_statistics_are_moved_by_their_own_worker_alone() -> None:
    for shared_statistics, slots in ((True, 1), (False, 2)):
        config = configure(optimizer="adam", shared_statistics=shared_statistics)
        shared = share(config)
        learner, weights = worker_of(shared, config, 1)
        weights.pull()
        learner.update(rollouts(1)[0], 0)
        moved = [bool(row.any()) for row in shared.all_statistics()["exp_avg"]]
        assert moved == ([True] if slots == 1 else [False, True])
        assert shared.all_statistics()["step"].tolist() == ([1.0] if slots == 1 else [0.0, 1.0])


def test_statistics_survive_a_change_of_the_number_of_workers() -> None:
    config = configure(optimizer="adam", shared_statistics=False)
    shared = share(config)
    for row, value in zip(shared.all_statistics()["exp_avg"], (1.0, 2.0), strict=True):
        row.fill_(value)
    more = share(configure(optimizer="adam", shared_statistics=False, num_workers=3))
    more.load_statistics({name: x.clone() for name, x in shared.all_statistics().items()})
    assert more.all_statistics()["exp_avg"][:, 0].tolist() == [1.0, 2.0, 1.0]


def test_an_optimiser_whose_state_is_unknown_is_refused() -> None:
    with pytest.raises(vantage.ConfigError, match="adam"):
        share(configure(optimizer="Adagrad"))


def test_the_lag_counts_the_updates_of_others_since_the_pull() -> None:
    config = configure()
    shared = share(config)
    learner, weights = worker_of(shared, config, 0)
    weights.pull()
    for _ in range(3):
        shared.count(1, 10, 1)
    assert learner.update(rollouts(1)[0], 0)["train/policy_lag"] == 3
    assert shared.steps == 30


def test_with_the_lock_a_step_waits_for_its_turn() -> None:
    config = configure(lock=True)
    shared = share(config)
    assert shared.lock is not None
    learner, weights = worker_of(shared, config, 0)
    weights.pull()
    before = shared.vector.clone()
    thread = threading.Thread(target=learner.update, args=(rollouts(1)[0], 0))
    with shared.lock:
        thread.start()
        thread.join(0.5)
        assert thread.is_alive() and torch.equal(shared.vector, before)
    thread.join(10)
    assert not torch.equal(shared.vector, before)


def test_only_a_lock_that_a_dead_worker_held_is_released_for_it() -> None:
    shared = share(configure(lock=True))
    assert shared.lock is not None and not shared.end_turn_of(0)
    with shared.turn(1):
        assert not shared.end_turn_of(0), "the other has it, and is alive"
        assert not shared.lock.acquire(block=False)
    shared.lock.acquire()  # and killed before it could say so
    assert shared.end_turn_of(0)
    shared.lock.acquire()
    shared._memory["turn"][0] = 0  # and killed in its turn
    assert shared.end_turn_of(0) and shared.lock.acquire(block=False)


def test_normalisers_use_what_all_workers_have_seen() -> None:
    config = configure(obs_norm=True, reward_norm=True)
    shared = share(config)
    workers = [worker_of(shared, config, worker) for worker in range(2)]
    learners = [learner for learner, _ in workers]
    alone, rewards = ObsNormalizer(3), RewardNormalizer(B, torch.device("cpu"))
    for k, rollout in enumerate(rollouts(6)):
        workers[k % 2][1].pull()
        learners[k % 2].update(rollout, k)
        learners[k % 2].observe(rollout, k)
        alone.update(rollout.obs)  # type: ignore[arg-type]
        if k % 2 == 0:
            rewards.update(rollout.rewards, rollout.is_first, config.at("gamma", k))
    workers[0][1].pull()
    merged = learners[0].model.normalizers["0"]
    for name in ("mean", "var", "count"):
        torch.testing.assert_close(getattr(merged, name), getattr(alone, name), rtol=1e-4, atol=1e-4)
    ours = learners[0].reward_normalizer
    assert ours is not None and torch.equal(ours.local_stats, rewards.stats), "each worker updates its own statistics"
    assert ours.stats[0] > 1.9 * rewards.stats[0], "but scales by those of both"


@pytest.mark.parametrize("shape", [(), (3,)], ids=["rewards", "observations"])
def test_what_workers_have_seen_merges_as_two_by_two(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    counts = torch.rand(5, generator=generator, dtype=torch.float64) * 1e6
    means, variances = (torch.rand(5, *shape, generator=generator, dtype=torch.float64) * 9 for _ in range(2))
    expected = counts[0], means[0], variances[0]
    for row in zip(counts[1:], means[1:], variances[1:], strict=True):
        expected = merge_stats(*expected, *row)
    for ours, theirs in zip(_merge(counts, means, variances), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)


def test_a_single_workers_normalisers_are_a_lone_learners_bit_for_bit() -> None:
    config = configure(obs_norm=True, reward_norm=True, num_workers=1)
    shared = share(config)
    lone = Learner(model(config), config)
    one, weights = worker_of(shared, config)
    for k, rollout in enumerate(rollouts(6)):
        weights.pull()
        for learner in (one, lone):
            learner.update(rollout, k)
            learner.observe(rollout, k)
    weights.pull()
    for name, tensor in lone.model.state_dict().items():
        assert torch.equal(one.model.state_dict()[name], tensor), name
    assert torch.equal(one.tensors()["rewards"]["moments"], lone.tensors()["rewards"]["moments"])
