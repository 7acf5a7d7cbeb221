"""Deep sea: a dive that pays only in one corner, for algorithms that explore.

    cd examples
    vantage train ppo --env deep_sea:DeepSea --curiosity rnd

Osband et al. 2020, arXiv:1908.03568 (bsuite). Each of `size` steps sinks a row, and moves left or right; which action
does is drawn for each cell once. Right costs 0.01 / size; right in all steps ends at the treasure, worth 1. A random
policy gets there once in 2^size games.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class DeepSea(gym.Env[int, int]):
    def __init__(self, size: int = 12) -> None:
        self.size = size
        self.observation_space = gym.spaces.Discrete(size * (size + 1))
        self.action_space = gym.spaces.Discrete(2)
        self.right = np.random.default_rng(size).integers(2, size=(size, size))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.row = self.column = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        reward = 0.0
        if action == self.right[self.row, self.column]:
            reward = -0.01 / self.size
            if self.column == self.size - 1:
                reward += 1
            self.column = min(self.column + 1, self.size - 1)
        else:
            self.column = max(self.column - 1, 0)
        self.row += 1
        return self.row * self.size + self.column, reward, self.row == self.size, False, {}
