"""An environment that is solved by memory alone: a cue, a wait, then the choice that the cue named."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]


class Recall(gym.Env[Observation, int]):
    """The first observation shows the cue, [+1 or -1, 0]; after `wait` steps of [noise, 0], [noise, 1] asks for it.

    `noise` is the standard deviation of the noise.

    The answer, action 1 for +1 and 0 for -1, is paid with +1 or -1 and ends the episode. Chance scores 0; a policy
    without memory cannot do better.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, wait: int = 6, noise: float = 1) -> None:
        self.wait, self.noise, self.steps, self.cue = wait, noise, 0, 0

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.cue = 0, int(self.np_random.integers(2))
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self.steps > self.wait:
            return np.zeros(2, np.float32), 1.0 if action == self.cue else -1.0, True, False, {}
        self.steps += 1
        asked = float(self.steps > self.wait)
        return np.array([self.np_random.normal() * self.noise, asked], np.float32), 0.0, False, False, {}
