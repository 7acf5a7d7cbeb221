"""A market whose profits are in the ten thousands, for measurements of the value function's scale.

    cd benchmarks; vantage train ppo --env market:Market --value-norm popart

The price of one asset returns to its mean: of a deviation d, a step leaves 0.8 d and adds noise of deviation 1. The
agent sees d and holds a position from -1 to 1; a step pays 10,000 times the position times the change of the price.
The best position is -sign(d). The stationary deviation is 1 / sqrt(1 - 0.8^2) = 1.667, the mean of |d| 1.330 and what
the best position earns 10,000 x 0.2 x 1.330 = 2,660 a step, 266,000 in an episode of 100.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

STAYS, PROFIT, STEPS = 0.8, 10_000.0, 100


class Market(gym.Env[np.ndarray, np.ndarray]):
    """A mean-reverting price; the action is a position."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = STEPS
        self._deviation = self.np_random.normal() / np.sqrt(1 - STAYS**2)
        return self._obs(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        before = self._deviation
        self._deviation = STAYS * before + self.np_random.normal()
        self._left -= 1
        reward = PROFIT * float(action[0]) * (self._deviation - before)
        return self._obs(), reward, False, self._left == 0, {}

    def _obs(self) -> np.ndarray:
        return np.array([self._deviation], np.float32)
