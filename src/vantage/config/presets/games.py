"""Presets of Vantage's own, each tuned for one environment. No other environment has these values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vantage.config.presets.measured import PONG_FAST


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
        PONG_FAST.values, PONG_FAST.source),
}


def env_of_preset(algo: str) -> str:
    """The environment that a preset implies; '' for anything else."""
    return GAMES[algo].env if algo in GAMES else ""
