"""Environments whose observations differ in form from what a policy takes; each draws pictures of its own kind."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SPACES: dict[str, gym.Space[Any]] = {
    "vector": spaces.Box(-1, 1, (4,), np.float64), "matrix": spaces.Box(-1, 1, (2, 3), np.float32),
    "image": spaces.Box(0, 255, (12, 13, 3), np.uint8), "float image": spaces.Box(0, 1, (3, 12, 13), np.float32),
    "discrete": spaces.Discrete(5, start=2), "choices": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3), "text": spaces.Dict({"mission": spaces.Text(9), "at": spaces.Box(-1, 1, (2,))}),
    "nested": spaces.Dict({"robot": spaces.Dict({"camera": spaces.Box(0, 255, (11, 12, 3), np.uint8),
                                                 "arm": spaces.Box(-9, 9, (2,))}),
                           "cell": spaces.Discrete(4)}),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32)))}


class Raw(gym.Env[Any, Any]):
    """Observes random points of a space; its two actions need what `masked` says."""

    def __init__(self, space: str = "vector", masked: bool = False) -> None:
        self.observation_space = SPACES[space]
        self.action_space = spaces.MultiDiscrete([2, 3]) if masked else spaces.Discrete(3)
        self.info = {"action_mask": (np.array([0, 1], np.int8), np.array([0, 0, 1], np.int8))} if masked else {}
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), self.info

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 5, False, self.info


GRAY = np.arange(80, dtype=np.uint8).reshape(8, 10)
RGB = np.stack([GRAY, GRAY + 1, GRAY + 2], axis=2)

PICTURES: dict[str, Any] = {
    "rgb": RGB, "rgba": np.concatenate([RGB, np.full((8, 10, 1), 9, np.uint8)], axis=2), "gray": GRAY,
    "gray channel": GRAY[..., None], "floats": RGB / 255, "float bytes": RGB.astype(np.float64),
    "ints": RGB.astype(np.int64), "list": [GRAY, RGB], "bools": GRAY > 40, "None": None, "text": "picture",
    "empty list": [], "channels first": RGB.transpose(2, 0, 1), "negative": RGB - 5.0, "nan": RGB * np.nan,
    "nothing": np.zeros((0, 10, 3), np.uint8), "vector": np.zeros(3)}


class Drawn(Raw):
    """Renders one of PICTURES, or for "grows" a larger one at each step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, picture: str = "rgb", fps: Any = 10, render_mode: str | None = None) -> None:
        super().__init__()
        self.picture, self.render_mode = picture, render_mode
        self.metadata = {**Drawn.metadata, "render_fps": fps}

    def render(self) -> Any:
        return np.full((8 + 2 * self.t, 10, 3), 99, np.uint8) if self.picture == "grows" else PICTURES[self.picture]
