"""Rewards that training learns from. Scores and evaluations use raw rewards."""

from __future__ import annotations

import numpy as np

from vantage.envs.config import EnvConfig
from vantage.envs.interface import Array


def keeps_rewards(config: EnvConfig) -> bool:
    """Whether training learns from raw rewards."""
    return config.reward == "raw" and config.reward_scale == 1.0 and config.reward_floor is None


def learnt_rewards(rewards: Array, config: EnvConfig) -> Array:
    """float32 rewards, clipped, then scaled, then floored."""
    if config.reward == "sign":
        rewards = np.sign(rewards)
    elif config.reward == "clip":
        rewards = np.clip(rewards, -1.0, 1.0)
    floor = -np.inf if config.reward_floor is None else config.reward_floor
    return np.maximum(rewards * config.reward_scale, floor).astype(np.float32)
