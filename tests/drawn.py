"""Environments that can be seen."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

Info = dict[str, Any]


class Drawn(gym.Env[np.ndarray, Any]):
    """Ends after five steps; its picture has the step as its colour. `bad` is how it draws wrongly."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012  as gymnasium has it

    def __init__(self, render_mode: str | None = None, bad: str = "", numbers: int = 0) -> None:
        self.render_mode, self._bad, self._t = render_mode, bad, 0
        self.observation_space: spaces.Space[Any] = spaces.Box(-10, 10, (3,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1, 3, (numbers,)) if numbers else spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._t = 0
        return self.obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        self._t += 1
        return self.obs(), 1.5, self._t == 5, False, {}

    def obs(self) -> Any:
        return np.full(3, self._t, np.float32)

    def render(self) -> Any:
        if self._bad == "raises":
            raise RuntimeError("no canvas")
        return np.zeros((3, 4, 2)) if self._bad == "shape" else np.full((40, 30, 3), 10 * self._t, np.uint8)


class Parts(Drawn):
    """A picture and numbers at once."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = spaces.Dict({"eye": spaces.Box(0, 255, (40, 30, 3), np.uint8),
                                              "ear": spaces.Box(-10, 10, (3,), np.float32)})

    def obs(self) -> Any:
        return {"eye": self.render(), "ear": super().obs()}


class Codes(Drawn):
    """A picture whose numbers end at 5, the step."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(None)
        self.observation_space = spaces.Box(0, 5, (12, 12, 3), np.uint8)

    def obs(self) -> Any:
        return np.full((12, 12, 3), self._t, np.uint8)


class Careless(Drawn):
    """Takes a render mode and forgets it."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(None)
