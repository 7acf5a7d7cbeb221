"""Environments with one property or one fault each, importable by worker processes."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Counter(gym.Env):
    """Observes [steps, seed, 0]; ends after `length` steps; pays the step number."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, length: int = 5, fault: str = "", at: int = 3, bad_init: bool = False) -> None:
        if bad_init:
            raise OSError("no simulator here")
        limit = 100 if fault == "far obs" else np.inf
        self.observation_space = spaces.Box(-limit, np.float64([limit, np.inf, np.inf]), (3,), np.float64)
        self.action_space = spaces.Discrete(2)
        self.length, self.fault, self.at = length, fault, at
        self.steps = 0

    def _obs(self) -> np.ndarray:
        return np.array([self.steps, self.seed_, 0.0])

    def reset(self, *, seed=None, options=None):
        self.steps, self.seed_ = 0, seed
        if self.fault == "reset":
            raise RuntimeError("reset failed at 100% of %s")
        return self._obs(), {"noise": "x" * 10}

    def step(self, action):
        self.steps += 1
        obs, reward, terminated = self._obs(), float(self.steps), self.steps >= self.length
        fault = self.fault if self.steps == self.at else ""
        if fault == "raise":
            raise KeyError("100% of %s")
        if fault == "die":
            os._exit(7)
        if fault in ("segfault", "oom"):
            os.kill(os.getpid(), signal.SIGSEGV if fault == "segfault" else signal.SIGKILL)
        if fault == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if fault == "old step":
            return obs, reward, terminated, {}
        obs = {"nan obs": obs * np.nan, "far obs": obs * 2, "shape": np.zeros(4),
               "text": np.array(["a", "b", "c"])}.get(fault, obs)
        reward = {"inf reward": np.inf, "reward": None, "large reward": -2e6}.get(fault, reward)
        return obs, reward, terminated, False, {}


class Drifting(Counter):
    """No two instances play alike, as where an environment draws from the machine's own randomness."""

    made = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self.made)

    def _obs(self) -> np.ndarray:
        return np.array([self.steps, self.seed_, self.number if self.steps > 1 else 0.0])


class TorchFree(Counter):
    """Observes whether its process has imported torch, and whether Vantage's training modules are there."""

    def _obs(self) -> np.ndarray:
        return np.array(["torch" in sys.modules, "vantage.types" in sys.modules, os.getpid()], np.float64)


class Odd(gym.Env):
    """Nested parts of every kind, actions that start at 5."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({
            "a": spaces.Discrete(3, start=1), "b": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
            "camera": spaces.Box(0, 255, (6, 7, 3), np.uint8), "flat": spaces.Box(-1, 1, (2, 2), np.float64)})
        self.action_space = spaces.Discrete(3, start=5)
        self.camera = np.arange(6 * 7 * 3, dtype=np.uint8).reshape(6, 7, 3)

    def _obs(self):
        return {"a": 3, "b": (np.array([1, 0], np.int8), np.array([1, 2])), "camera": self.camera,
                "flat": np.array([[1.0, 2], [3, 4]])}

    def reset(self, *, seed=None, options=None):
        return self._obs(), {}

    def step(self, action):
        return self._obs(), float(action), False, action == 7, {}


class Masked(gym.Env):
    """Allows action `steps % 3` alone, says so in `action_mask`; ends after 4 steps, then allows none."""

    def __init__(self, fault: str = "") -> None:
        self.observation_space, self.action_space = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(3)
        self.fault = fault

    def _answer(self):
        mask = np.arange(3) == self.steps % 3
        if self.steps == 4 or (self.fault == "none" and self.steps == 2):
            mask[:] = False
        if self.fault == "size" and self.steps == 2:
            mask = np.ones(4, bool)
        info = {} if self.fault == "absent" and self.steps == 2 else {"action_mask": mask}
        return np.array([self.steps], np.float32), info

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._answer()

    def step(self, action):
        assert action == self.steps % 3, "a masked action"
        self.steps += 1
        obs, info = self._answer()
        return obs, 1.0, self.steps == 4, False, info


class Echo(gym.Env):
    """Pays what arrived: the sum of the action; `kind` chooses the action space."""

    def __init__(self, kind: str = "box") -> None:
        self.observation_space = spaces.Box(-99, 99, (4,), np.float32)
        self.action_space = {
            "box": spaces.Box(np.array([[-1.0, 0.0]]), np.array([[2.0, np.inf]]), dtype=np.float64),
            "whole": spaces.Box(-3, 3, (2,), np.int32), "choices": spaces.MultiDiscrete([[2, 3]]),
            "bits": spaces.MultiBinary(2), "tuple of text": spaces.Tuple((spaces.Discrete(2), spaces.Text(2))),
            "text": spaces.Text(3), "many": spaces.Discrete(300)}[kind]  # more than a byte tells apart

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        obs = np.zeros(4, np.float32)
        obs[:2] = action.ravel()
        return obs, float(action.sum()), False, False, {}


class Sequences(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"words": spaces.Sequence(spaces.Discrete(3))})


class Resetting(Counter):
    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012  as Gymnasium declares it


class NotAnEnv:
    pass


class Spaceless(gym.Env):
    observation_space = gym.spaces.Discrete(2)


def make_counter(length: int = 2) -> gym.Env:
    return Counter(length=length)


gym.register(id="RegisteredByModule-v0", entry_point="faulty_envs:Counter", max_episode_steps=4)
