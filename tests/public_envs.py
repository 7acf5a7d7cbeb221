"""More environments after bug reports about other libraries, and networks; see `public_cases`."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from tiny import Bandit, Info, Tiny
from torch import Tensor, nn


class OffsetBandit(Tiny):
    """Arm 1 pays 1 more than arm 0, which pays `offset`."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset

    def play(self, action: Any) -> tuple[Any, bool]:
        return self.offset + (action == 1), True


class AnyActions(Tiny):
    """Pays 1 a step for two steps, whatever the actions; `space` is the action space."""

    limit = 2

    def __init__(self, space: str) -> None:
        super().__init__()
        self.action_space = {
            "empty box": lambda: spaces.Box(-1, 1, (0,)),
            "box without rows": lambda: spaces.Box(-1, 1, (0, 3)),
            "empty multi-discrete": lambda: spaces.MultiDiscrete(np.zeros(0, np.int64)),
            "one": lambda: spaces.Discrete(1),
            "many": lambda: spaces.Discrete(10_000),
            "long box": lambda: spaces.Box(-1, 1, (300,)),
        }[space]()

    def play(self, action: Any) -> tuple[Any, bool]:
        assert self.action_space.contains(action)
        return 1, False


class Counted(gym.Env[np.ndarray, Any]):
    """Pays 1, 2, 3, ... and ends after `length` frames; a frame after the end is an error."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012

    def __init__(
        self, length: int, truncates: bool = False, render_mode: str | None = None
    ) -> None:
        self.observation_space, self.action_space = (
            spaces.Box(0, 99, (1,), np.float32),
            spaces.Discrete(2),
        )
        self.length, self.truncates, self.render_mode, self.frame = (
            length,
            truncates,
            render_mode,
            0,
        )

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.frame = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        assert self.frame < self.length, "a frame after the end"
        self.frame += 1
        ends = self.frame == self.length
        return (
            self.observe(),
            float(self.frame),
            ends and not self.truncates,
            ends and self.truncates,
            {},
        )

    def observe(self) -> np.ndarray:
        return np.array([self.frame], np.float32)

    def render(self) -> np.ndarray:
        return np.full((20, 20, 3), 5 * self.frame, np.uint8)


class OneStep(Tiny):
    """Pays 1; one step is the time limit."""

    limit = 1

    def play(self, action: Any) -> tuple[Any, bool]:
        return 1, False


class Network(nn.Module):
    """A linear layer, whose output the classes below change."""

    out_features = 8

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.Linear(shape[0], 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.change(torch.tanh(self.linear(x)))

    def change(self, features: Tensor) -> Tensor:
        return features[:, :8]


class Half(Network):
    def change(self, features: Tensor) -> Tensor:
        return features[:, :8].half()


class Double(Network):
    def change(self, features: Tensor) -> Tensor:
        return features[:, :8].double()


class Strided(Network):
    def change(self, features: Tensor) -> Tensor:
        return features[:, ::2]


class HalfWeights(Network):
    """Weights in half precision."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.linear.half()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.half())


class Locked(Network):
    """An attribute that cannot be copied."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.lock = threading.Lock()


class Frozen(Network):
    """A first layer that is not trained, and one that is."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.linear.requires_grad_(False)
        self.last = nn.Linear(16, 8)

    def change(self, features: Tensor) -> Tensor:
        out: Tensor = self.last(features)
        return out


class Tied(Network):
    """Two layers with one weight."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape)
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)
        self.second.weight = self.first.weight

    def change(self, features: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(features))[:, :8]
        return out


class Lazy(nn.Module):
    """A layer that infers its size at the first observation."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(8)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        return out


class SlowBandit(Bandit):
    """A bandit whose constructor sees in which thread it is built."""

    def __init__(self) -> None:
        super().__init__()
        assert threading.current_thread() is not threading.main_thread()


class Fading(Counted):
    """Shows an image that gets darker with every frame: 190, 180, ..."""

    def __init__(
        self, length: int, truncates: bool = False, render_mode: str | None = None
    ) -> None:
        super().__init__(length, truncates, render_mode)
        self.observation_space = spaces.Box(0, 255, (24, 24, 1), np.uint8)

    def observe(self) -> np.ndarray:
        return np.full((24, 24, 1), 200 - 10 * self.frame, np.uint8)


class Meddling(Bandit):
    """Changes something of the whole process, in its constructor or at its sixth step."""

    def __init__(self, what: str, at: int = 6, render_mode: str | None = None) -> None:
        super().__init__()
        self.what, self.at, self.steps, self.render_mode = what, at, 0, render_mode
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
        if not at:
            self.meddle()

    def play(self, action: Any) -> tuple[Any, bool]:
        self.steps += 1
        if self.steps == self.at:
            self.meddle()
        return super().play(action)

    def meddle(self) -> None:
        match self.what:
            case "working directory":
                os.chdir(tempfile.gettempdir())
            case "gradients":
                torch.set_grad_enabled(False)

    def render(self) -> np.ndarray:
        return np.zeros((20, 20, 3), np.uint8)


class Overwriting(Tiny):
    """Overwrites the actions that it receives, after it has noted them."""

    limit = 5
    received: list[list[float]] = []  # noqa: RUF012

    def __init__(self, space: str) -> None:
        super().__init__()
        self.action_space = {
            "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "bounded": spaces.Box(-9, 9, (2,), np.float32),
            "multi-discrete": spaces.MultiDiscrete([5, 5]),
        }[space]

    def play(self, action: Any) -> tuple[Any, bool]:
        self.received.append(action.tolist())
        action[:] = 7
        return 1, False


class Exhausted(Bandit):
    """Has data for 50 steps, and raises StopIteration then."""

    def __init__(self) -> None:
        super().__init__()
        self.data = iter(range(50))

    def play(self, action: Any) -> tuple[Any, bool]:
        next(self.data)
        return super().play(action)


class Differentiating(Tiny):
    """Pays the derivative of 3 x, by a gradient of its own, at every reset and step."""

    limit = 3

    def begin(self) -> None:
        self.derivative()

    def derivative(self) -> float:
        x = torch.ones((), requires_grad=True)
        (3 * x).backward()
        assert x.grad is not None
        return x.grad.item()

    def play(self, action: Any) -> tuple[Any, bool]:
        return self.derivative(), False
