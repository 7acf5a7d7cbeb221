"""Environments that show one of two observations, and pay for the action that belongs to it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

CLOCK = 1_700_000_000


class Shown(gym.Env[Any, Any]):
    """Shows one of two observations, which says which of two actions pays; an episode has ten steps."""

    zero: Any
    one: Any

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def draw(self) -> Any:
        self.side = int(self.np_random.integers(2))
        return self.one if self.side else self.zero

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.side)
        self.t += 1
        return self.draw(), reward, False, self.t >= 10, {}


class Pixels(Shown):
    """A uint8 image of the size of MiniGrid's, half of whose pixels are dark or bright."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(0, 255, (7, 7, 3), np.uint8))
        self.zero = np.zeros((7, 7, 3), np.uint8)
        self.one = self.zero.copy()
        self.one[:3] = 255


class Clock(Shown):
    """A number of seconds since 1970, ten seconds later where action 1 pays."""

    def __init__(self, dtype: str = "float64") -> None:
        kind = np.dtype(dtype).type
        low, high = (-np.inf, np.inf) if dtype == "float64" else (0, 2**62)
        super().__init__(spaces.Box(low, high, (2,), kind))
        self.zero, self.one = np.array([CLOCK, 3], kind), np.array([CLOCK + 10, 3], kind)


class Map(Shown):
    """A camera, a map whose numbers are floats, a position and a text."""

    def __init__(self) -> None:
        super().__init__(spaces.Dict({"camera": spaces.Box(0, 255, (84, 84, 3), np.uint8),
                                      "map": spaces.Box(0.0, 1.0, (12, 12)), "mission": spaces.Text(5),
                                      "position": spaces.Box(-1.0, 1.0, (2,))}))
        self.zero = self.one = {"camera": np.zeros((84, 84, 3), np.uint8), "map": np.full((12, 12), 0.3, np.float32),
                                "position": np.zeros(2, np.float32), "mission": "go"}
