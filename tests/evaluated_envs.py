"""Environments for the tests of evaluations, each with one property. They write what happens to a file in `folder`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from tiny import Bandit, Tiny

Info = dict[str, Any]


class Licensed(Bandit):
    """Appends a letter to files in `folder` where it is built and closed."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.write("built")

    def close(self) -> None:
        self.write("closed")

    def write(self, name: str) -> None:
        with (Path(self.folder) / name).open("a") as file:
            file.write(".")


class Logged(Tiny):
    """Ends after 3 to 7 steps; appends the seed of each reset to `folder`/seeds."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder, self.end = folder, 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        with (Path(self.folder) / "seeds").open("a") as file:
            file.write(f"{seed}\n")
        return super().reset(seed=seed)

    def begin(self) -> None:
        self.end = int(self.np_random.integers(3, 8))

    def play(self, action: Any) -> tuple[Any, bool]:
        return self.np_random.normal(), self.t >= self.end


class Balanced(CartPoleEnv):
    """CartPole in which a test decides how long a step takes."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        self.pass_time()
        return super().step(action)

    def pass_time(self) -> None:
        """Nothing, unless a test replaces it."""


class NoOptions(Bandit):
    """Its reset takes a seed alone; without a time limit."""

    def reset(self, seed: int | None = None) -> tuple[Any, Info]:  # type: ignore[override]
        return super().reset(seed=seed)


class NoOptionsShown(NoOptions):
    """The same, with pictures."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:  # type: ignore[override]
        return np.zeros((8, 10, 3), np.uint8)


class NoSeed(Bandit):
    """Its reset takes nothing."""

    def reset(self) -> tuple[Any, Info]:  # type: ignore[override]
        return super().reset()


class NoOptionsWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper whose reset takes a seed alone."""

    def reset(self, seed: int | None = None) -> tuple[Any, Info]:  # type: ignore[override]
        return self.env.reset(seed=seed)


def wrapped() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(NoOptionsWrapper(NoOptions()), 5)


class Twelve(VectorEnv):
    """Twelve games and no other number; game i lasts i + 1 steps and pays 1 a step. Its reset takes no options."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  as Gymnasium declares it
    num_envs = 12

    def __init__(self, num_envs: int) -> None:
        if num_envs != self.num_envs:
            raise ValueError(f"{num_envs} environments, must be 12")
        self.single_observation_space = spaces.Box(-1, 1, (1,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.t = np.zeros(12, np.int64)

    def reset(self, seed: int | None = None) -> tuple[Any, Info]:  # type: ignore[override]
        self.t[:] = 0
        return np.zeros((12, 1), np.float32), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        assert actions.shape == (12,)
        resetting = self.t > np.arange(12)
        self.t = np.where(resetting, 0, self.t + 1)
        over = self.t > np.arange(12)
        return np.zeros((12, 1), np.float32), np.where(resetting, 0.0, 1.0), over, np.zeros(12, bool), {}


class FourAtOnce(Bandit):
    """Cannot be built while four others are open."""

    open = 0

    def __init__(self) -> None:
        super().__init__()
        if FourAtOnce.open == 4:
            raise RuntimeError("no more than 4 at once")
        FourAtOnce.open += 1

    def close(self) -> None:
        FourAtOnce.open -= 1
