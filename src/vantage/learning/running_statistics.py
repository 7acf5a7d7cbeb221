"""The running statistics of a learner: which there are, and how a rollout updates them."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from vantage.learning.learner import Learner
from vantage.learning.present_agents import of_present, present
from vantage.models.normalization import RunningStats, merge_batches
from vantage.types import Obs, Rollout, map_parts


def running_stats(learner: Learner) -> Iterator[tuple[str, RunningStats]]:
    """All running statistics, by name: those of the model's normalisers and of returns."""
    yield from learner.model.running_stats()
    if learner.reward_normalizer is not None:
        yield "rewards", learner.reward_normalizer


def observe(learner: Learner, rollout: Rollout, step: int) -> None:
    """Update the running statistics of all normalisers by a new rollout, after its update.

    Ranks exchange those of their rollouts, so that all have the same, of all environments.
    """
    config = learner.config
    batches = learner.model.batches(seen(rollout))
    rewards = learner.reward_normalizer
    if rewards is not None:
        batches.append((rewards.merge, rewards.batch(rollout.rewards, rollout.is_first,
                                                     rollout.resets, config.at("gamma", step))))
    merge_batches(batches, learner.sink.all_gather)
    if config.policy.norm == "batch":
        learner.model.update_batch_norms()


def seen(rollout: Rollout) -> Obs:
    """The observations without those that stand in for agents that have left.

    The last ones are left out: they are the first of the next rollout.
    """
    obs = map_parts(lambda part: part[:-1], rollout.obs)
    return of_present(obs, present(rollout)[:-1])


def discounted_sums(learner: Learner) -> dict[str, Tensor]:
    """The discounted sums [B] of each environment, which continue in its next rollout, by name."""
    sums = {}
    if learner.reward_normalizer is not None:
        sums["returns"] = learner.reward_normalizer.returns
    if learner.curiosity is not None:
        sums["intrinsic_returns"] = learner.curiosity.returns.returns
    return sums
