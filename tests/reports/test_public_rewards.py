"""Reports on reward statistics: steps that only reset are counted, and returns go on past a time limit.

github.com/Farama-Foundation/Gymnasium/issues/1451, 760 and 1507; wrapped rewards:
github.com/DLR-RM/stable-baselines3/issues/798 and 2159.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from environments import make

from vantage.learning.reward_normalizer import RewardNormalizer


def test_steps_that_only_reset_are_not_counted_in_the_return() -> None:
    normalizer = RewardNormalizer(1, torch.device("cpu"))
    # Games of one step that pay 1 or -1; every second step resets.
    rewards = torch.tensor([1.0, 0, -1, 0, 1, 0, -1, 0]).view(8, 1)
    is_first = torch.tensor([True, False] * 4 + [True]).view(9, 1)
    count, mean, variance = normalizer.batch(rewards, is_first, is_first[1:], 0.5)
    assert (count.item(), mean.item(), variance.item()) == (4, 0, 1)


def test_returns_begin_anew_after_a_time_limit_as_after_an_end() -> None:
    normalizer = RewardNormalizer(1, torch.device("cpu"))
    rewards = torch.tensor([1.0, 1, 0, 1]).view(4, 1)
    is_first = torch.tensor([True, False, False, True, False]).view(5, 1)
    _, mean, _ = normalizer.batch(rewards, is_first, is_first[1:], 0.5)
    assert mean.item() == pytest.approx((1 + 1.5 + 1) / 3)


def test_a_rollout_that_only_resets_changes_nothing() -> None:
    normalizer = RewardNormalizer(2, torch.device("cpu"))
    before = [part.clone() for part in normalizer.stats]
    is_first = torch.tensor([[False] * 2, [True] * 2])
    stats = normalizer.batch(torch.zeros(1, 2), is_first, is_first[1:], 0.9)
    normalizer.merge(*stats)
    assert [part.tolist() for part in normalizer.stats] == [part.tolist() for part in before]


def test_the_score_is_that_of_the_wrapped_reward() -> None:
    envs = make("public_cases:halved", 1)
    envs.reset()
    steps = [envs.step(np.zeros(1, np.int64)) for _ in range(50)]
    (episode,) = steps[-1].episodes
    assert (episode.score, episode.length) == (637.5, 50)


def test_the_score_is_raw_whatever_the_rewards_that_are_learned_from() -> None:
    envs = make("public_cases:OneArray", 1, reward="sign", reward_scale=0.1)
    envs.reset()
    steps = [envs.step(np.zeros(1, np.int64)) for _ in range(50)]
    assert {float(step.rewards[0]) for step in steps} == {float(np.float32(0.1))}
    assert steps[-1].episodes[0].score == 1275


@pytest.mark.parametrize(("env", "key"), [("normalised_observations", "obs_norm"),
                                          ("normalised_rewards", "reward_norm")])
def test_a_wrapper_whose_statistics_are_lost_is_named_with_the_key_instead(env: str, key: str) -> None:
    """github.com/Farama-Foundation/Gymnasium/issues/256, github.com/isaac-sim/IsaacLab/issues/2635."""
    assert [note for note in make(f"public_cases:{env}").notes if f"use {key}=true instead" in note]
    assert not [note for note in make("tiny:Bandit").notes if "_norm" in note]
