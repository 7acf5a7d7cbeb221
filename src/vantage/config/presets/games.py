"""Presets of Vantage's own, each tuned for one environment. No other environment has these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class GamePreset:
    """An algorithm, the environment that it is tuned for, and its values there."""

    title: str
    algo: str
    env: str
    values: Mapping[str, Any]
    source: str


GAMES: Mapping[str, GamePreset] = {
    "pong-fast": GamePreset(
        "PPO for Pong in minutes: small images, an entropy bonus that ends late", "ppo", "Pong",
        {"steps": 1_200_000, "screen_size": "64", "memory": "none", "frame_stack": 2,
         "rollout_length": 64, "epochs": 3, "minibatch_size": 256, "short_episode_steps": 100,
         "lr": "linear:5e-4:0", "gae_lambda": 0.95, "advantage_norm": True, "value_coef": 1.0,
         "entropy_coef": "piecewise:0=0.02,20%=0.012,50%=0.008,75%=0.002,100%=0"},
        "measured on ten seeds, results/ppo-Pong. The entropy bonus stays until the policy has "
        "found a shot that the opponent cannot return; where it ends earlier, some seeds only keep "
        "the ball in play"),
}


def env_of_preset(algo: str) -> str:
    """The environment that a preset implies; '' for anything else."""
    return GAMES[algo].env if algo in GAMES else ""
