"""A step limit for evaluation games: environments without a time limit may never end one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from vantage.envs.outcomes import check_step


@dataclass(slots=True)
class LongestGame:
    """Step limit that all environments of an evaluation share and that may change."""

    steps: int

    def change(self, steps: int) -> float:
        """Change the limit to `steps`; returns `steps`."""
        self.steps = steps
        return steps


class CutGames(gym.Wrapper[Any, Any, Any, Any]):
    """Truncates an episode after `longest.steps`."""

    def __init__(self, env: gym.Env[Any, Any], longest: LongestGame) -> None:
        super().__init__(env)
        self._longest = longest
        self._steps = 0

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = check_step(self.env.step(action))
        self._steps += 1
        return obs, reward, terminated, truncated or self._steps >= self._longest.steps, info


def build_cut(build: Callable[[], gym.Env[Any, Any]], longest: LongestGame) -> gym.Env[Any, Any]:
    """The environment that `build` returns, with its episodes cut."""
    return CutGames(build(), longest)
