"""An actor-learner's environments, and what it takes from its replay: how often, from when, how much, which weights."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
import torch
from rollouts import begun

import vantage
from vantage.errors import ConfigError
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.shared_memory import HogwildWeights, SharedWeights
from vantage.types import Rollout

T, B = 5, 2


def configure(**options: Any) -> vantage.Config:
    return vantage.configure("acer", **({"env": "CartPole-v1", "num_envs": B, "rollout_length": T, "replay_start": 0,
                                         "replay_size": 1_000, "hidden": "8"} | options))


def counted(actor_learner: ActorLearner, advances: int, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """How many updates from the replay follow each rollout."""
    seen: list[bool] = []

    def update(rollout: Rollout, step: int, *, replayed: bool = False) -> dict[str, float]:
        seen.append(replayed)
        return {}

    monkeypatch.setattr(actor_learner.learner, "update", update)
    counts = []
    for _ in range(advances):
        seen.clear()
        actor_learner.advance(lambda: 0)
        assert seen[0] is False and all(seen[1:])
        counts.append(float(len(seen) - 1))
    return torch.tensor(counts)


def test_updates_from_the_replay_are_poisson_draws_of_the_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean and variance are the ratio; half of them is another ratio, and a constant has no variance."""
    with begun(configure(replay_ratio=1.5, rollout_length=1, num_envs=1)) as actor_learner:
        counts = counted(actor_learner, 800, monkeypatch)
    assert abs(counts.mean() - 1.5) < 0.2 and abs(counts.var() - 1.5) < 0.4


@pytest.mark.parametrize(("num_workers", "advances"), [(0, 10), (2, 5)])
def test_the_replay_is_learnt_from_when_each_worker_has_its_share_of_the_start(
        num_workers: int, advances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configure(runtime="hogwild", num_envs=0, envs_per_worker=B, num_workers=num_workers,
                       replay_ratio=50, replay_start=10 * T * B)
    with begun(config) as actor_learner:
        counts = counted(actor_learner, advances, monkeypatch)
    assert (counts[:-1] == 0).all() and counts[-1] > 0


def test_the_replay_is_split_among_workers() -> None:
    for num_workers, capacity in ((0, 200), (1, 200), (3, 67)):
        config = configure(runtime="hogwild", num_envs=0, envs_per_worker=B, num_workers=num_workers)
        with begun(config) as actor_learner:
            assert actor_learner.replay is not None and actor_learner.replay.capacity == capacity


def test_the_replay_may_take_half_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(configure()) as actor_learner:
        assert actor_learner.replay is not None
        needed = actor_learner.replay.nbytes
    monkeypatch.setattr("vantage.runtimes.actor_learner.free_memory", lambda: 2 * needed)
    with begun(configure()):
        pass
    monkeypatch.setattr("vantage.runtimes.actor_learner.free_memory", lambda: 2 * needed - 2)
    with pytest.raises(ConfigError, match="half the free memory"), begun(configure()):
        pass


def test_a_worker_pulls_before_each_update_from_the_replay_and_moves_the_average_once_after_each_step(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Towards the shared weights, from which its own copy may be far; an average that each worker moves is a defect."""
    config = configure(runtime="hogwild", average_decay=0.75, replay_ratio=20).change(num_workers=2)
    with begun(config) as first:
        shared = SharedWeights(first.learner, config, multiprocessing.get_context("spawn"))
        HogwildWeights(shared, first.learner, 0).push()
    with begun(config, shared=shared) as worker:
        learner, updates = worker.learner, 0
        assert worker.hogwild is not None
        worker.hogwild.pull()
        assert learner.average is not None
        own, average, update = learner.flat.vector, learner.average.vector, learner.update

        def checked(rollout: Rollout, step: int, *, replayed: bool = False) -> dict[str, float]:
            nonlocal updates
            assert torch.equal(own, shared.vector) and torch.equal(average, shared.average)
            before = shared.average.clone()
            metrics = update(rollout, step, replayed=replayed)
            torch.testing.assert_close(shared.average, 0.75 * before + 0.25 * shared.vector)
            assert not torch.equal(shared.average, before)
            updates += 1
            return metrics

        monkeypatch.setattr(learner, "update", checked)
        worker.advance(lambda: 0)
        assert updates > 2
