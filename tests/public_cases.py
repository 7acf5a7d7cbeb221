"""Environments after bug reports about other libraries, each with one property; all are reproducible by their seed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from tiny import Bandit, Info, Tiny

ACTION_SPACES: dict[str, Callable[[], spaces.Space[Any]]] = {
    "discrete from -1": lambda: spaces.Discrete(3, start=-1),
    "multi-discrete with starts": lambda: spaces.MultiDiscrete([2, 3], start=[0, 25]),
    "multi-discrete of int32": lambda: spaces.MultiDiscrete([2, 3], dtype=np.int32),
    "column of multi-discrete": lambda: spaces.MultiDiscrete([[2], [3]]),
    "table with starts": lambda: spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 2], [-3, 4]]),
    "binary table": lambda: spaces.MultiBinary([3, 2]),
    "box of int64": lambda: spaces.Box(-10, 10, (3,), np.int64),
    "box of int8": lambda: spaces.Box(0, 1, (1,), np.int8),
    "box of uint8": lambda: spaces.Box(0, 20, (2,), np.uint8),
    "box of float64": lambda: spaces.Box(-1, 1, (2, 2), np.float64),
    "box of float16": lambda: spaces.Box(-1, 1, (2,), np.float16),
    "box without axes": lambda: spaces.Box(-1, 1, (), np.float32),
    "box without bounds": lambda: spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "box bounded on one side": lambda: spaces.Box(np.array([0, -np.inf], np.float32),
                                                  np.array([np.inf, 3], np.float32)),
}


class Contains(Tiny):
    """Raises unless the action, as it arrives, is in the action space."""

    def __init__(self, space: str) -> None:
        super().__init__()
        self.action_space = ACTION_SPACES[space]()

    def play(self, action: Any) -> tuple[Any, bool]:
        if not self.action_space.contains(action):
            raise ValueError(f"{action!r} is outside {self.action_space}")
        return 1, True


class SampledSpaces(Tiny):
    """Observes a sample of its observation space; pays a sample of its action space."""

    limit = 4

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"a": spaces.Box(-1, 1, (3,)), "b": spaces.Discrete(5)})
        self.action_space = spaces.Discrete(1000)

    def obs(self) -> Any:
        return self.observation_space.sample()

    def play(self, action: Any) -> tuple[Any, bool]:
        return self.action_space.sample(), False


class OneArray(Tiny):
    """Writes every observation, the step's number, into the same array."""

    limit = 50

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 50, (1,), np.float32)
        self.array = np.zeros(1, np.float32)

    def obs(self) -> Any:
        self.array[0] = self.t
        return self.array

    def play(self, action: Any) -> tuple[Any, bool]:
        return self.t, False


class RichInfo(OneArray):
    """Its info has what cannot be pickled, and arrays whose sizes change."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        *rest, _ = super().step(action)
        return *rest, {"lock": threading.Lock(), "function": lambda: 1, "path": np.zeros(self.t)}


class GlobalNumbers(RichInfo):
    """Observes numbers of NumPy's global generator, which no seed of an episode reaches."""

    def obs(self) -> Any:
        return np.array([np.random.rand()], np.float32)


class UnsortedKeys(Tiny):
    """Returns the parts of its Dict in another order than the space's, and one that the space lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"a": spaces.Box(0, 9, (1,)), "b": spaces.Box(0, 9, (2,))})

    def obs(self) -> Any:
        return {"c": "text", "b": np.full(2, 2, np.float32), "a": np.ones(1, np.float32)}

    def play(self, action: Any) -> tuple[Any, bool]:
        return 1, True


class MaskedTimeLimit(Tiny):
    """Pays 1 a step; one arm is never allowed, `late` not from the third step on; five steps are the time limit.

    `last` is the mask of the time limit's observation: "right", "missing" or "none allowed".
    """

    arms, limit = 3, 5

    def __init__(self, last: str = "right") -> None:
        super().__init__()
        self.last = last

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        obs, _ = super().reset(seed=seed, options=options)
        return obs, {"action_mask": np.array([1, 0, 1], np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        *rest, _ = super().step(action)
        mask = np.array([1, 0, self.t < 3], np.int8)
        if self.t == self.limit and self.last != "right":
            return *rest, {} if self.last == "missing" else {"action_mask": 0 * mask}
        return *rest, {"action_mask": mask}

    def play(self, action: Any) -> tuple[Any, bool]:
        return 1, False


def normalised_observations() -> gym.Env[Any, Any]:
    """An environment in Gymnasium's wrapper with statistics of its own."""
    return gym.wrappers.NormalizeObservation(Bandit())


def normalised_rewards() -> gym.Env[Any, Any]:
    """The same for rewards."""
    return gym.wrappers.NormalizeReward(Bandit())


class HalvedReward(gym.RewardWrapper):
    """Halves the rewards."""

    def reward(self, reward: Any) -> float:
        return float(reward) / 2


def halved() -> gym.Env[Any, Any]:
    """Pays the halves of 1 to 50 in 50 steps: 637.5."""
    return HalvedReward(OneArray())


class Counting(OneArray):
    """Observes the step's number in a new array each time; Gymnasium's wrappers do not copy what they keep."""

    def obs(self) -> Any:
        return super().obs().copy()


def stacked() -> gym.Env[Any, Any]:
    """The last three observations, in Gymnasium's wrapper."""
    return gym.wrappers.FrameStackObservation(Counting(), 3)


def delayed() -> gym.Env[Any, Any]:
    """The observation of two steps before."""
    return gym.wrappers.DelayObservation(Counting(), 2)


def timed() -> gym.Env[Any, Any]:
    """The observation and the number of the step, in one vector."""
    limited = gym.wrappers.TimeLimit(Counting(), 50)
    return gym.wrappers.TimeAwareObservation(limited, flatten=True, normalize_time=False)


class PaysAction(Tiny):
    """Pays the action, from 100 to 200."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(100, 200, (1,), np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        return action[0], True


def rescaled() -> gym.Env[Any, Any]:
    """The same for actions from -1 to 1."""
    return gym.wrappers.RescaleAction(PaysAction(), np.float32(-1), np.float32(1))
