"""Reports that normalised rewards are clipped to one value, and on constant or rare rewards.

Clipped around zero although the mean is far from it:
github.com/DLR-RM/stable-baselines3/issues/1447 and 348.
Division by a deviation of zero: github.com/pytorch/rl/pull/574,
github.com/modestyachts/ARS/issues/1.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vantage
from vantage.learning.reward_normalizer import RewardNormalizer


def after(rewards: list[float], *, gamma: float = 0.9, episode: int = 1) -> RewardNormalizer:
    """A normaliser that has seen `rewards`, in episodes of so many steps."""
    normalizer = RewardNormalizer(1, torch.device("cpu"))
    for start in range(0, len(rewards), episode):
        normalizer.returns.zero_()
        part = torch.tensor(rewards[start : start + episode]).view(-1, 1)
        is_first = torch.zeros(len(part) + 1, 1, dtype=torch.bool)
        normalizer.merge(*normalizer.batch(part, is_first, is_first[1:], gamma))
    return normalizer


@pytest.mark.parametrize("offset", [10.0, 100.0, 1000.0, -1000.0])
def test_rewards_that_differ_by_little_are_not_clipped_to_one_value(offset: float) -> None:
    scaled = after([offset, offset + 1] * 250).scale(torch.tensor([[offset, offset + 1]]))[0]
    mean = abs(offset + 0.5)
    expected = [5 * offset / mean, 5 * (offset + 1) / mean]
    assert scaled.tolist() == pytest.approx(expected, rel=1e-3)
    assert scaled[1] - scaled[0] == pytest.approx(5 / mean, rel=1e-2)


@pytest.mark.parametrize(
    ("rewards", "episode"), [([1.0, -1.0, 2.0, 0.5] * 100, 1), ([1.0] * 500, 500)]
)
def test_other_rewards_are_divided_by_the_deviation_of_the_return(
    rewards: list[float], episode: int
) -> None:
    """The second is a whole game of CartPole."""
    normalizer = after(rewards, gamma=0.99, episode=episode)
    deviation = normalizer.var.sqrt().item()
    assert normalizer.scale(torch.tensor([[1.0]])).item() == pytest.approx(1 / deviation, rel=1e-6)


def test_a_reward_that_is_always_the_same_becomes_5() -> None:
    assert after([7.0] * 300).scale(torch.tensor([[7.0]])).item() == pytest.approx(5, rel=1e-3)


def test_rewards_of_zero_stay_zero_and_the_first_other_one_is_clipped() -> None:
    scaled = after([0.0] * 500).scale(torch.tensor([[0.0, 1.0, -1.0]]))
    assert scaled.tolist() == [[0, 10, -10]]


def test_ppo_learns_to_earn_101_instead_of_100(tmp_path: Path) -> None:
    config = vantage.configure(
        "ppo",
        env="public_envs:OffsetBandit",
        env_kwargs={"offset": 100.0},
        steps=1280,
        lr="5e-3",
        hidden="16",
        rollout_length=16,
        minibatch_size=32,
        eval_every=0,
        tensorboard=False,
        threads=1,
    )
    assert config.env.reward_norm, "by default"
    list(vantage.Trainer(config, run=tmp_path / "run"))
    assert vantage.evaluate(tmp_path / "run", episodes=40, deterministic=False).return_mean > 100.9
