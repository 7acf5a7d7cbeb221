"""Observations in odd memory: backwards, read-only, shared, of other types and byte orders."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import environments
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from vantage.envs.spaces import make_observer


class Strided(VectorEnv[Any, Any, Any]):
    """A vector whose observations, rewards and masks run backwards in memory or are read-only."""

    def __init__(self, num_envs: int = 1, fault: str = "") -> None:
        self.num_envs, self.fault, self.metadata = num_envs, fault, {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = spaces.Dict({"x": spaces.Box(-9, 99, (3,)),
                                                     "i": spaces.Box(0, 255, (84, 84, 1), np.uint8)})
        self.single_action_space = spaces.Discrete(2)
        self.t = 0

    def odd(self, array: Any) -> Any:
        if self.fault == "backwards":
            return np.ascontiguousarray(array[::-1])[::-1]
        array = array.copy()
        array.flags.writeable = False
        return array

    def obs(self) -> Any:
        x = np.arange(3 * self.num_envs, dtype=np.float32).reshape(-1, 3) + self.t
        images = np.arange(self.num_envs, dtype=np.uint8)[:, None, None, None] + np.zeros((84, 84, 1), np.uint8)
        return {"x": self.odd(x), "i": self.odd(images)}

    def info(self) -> Any:
        return {"action_mask": self.odd(np.array([[1, 0]] * self.num_envs, np.int8))}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return self.obs(), self.info()

    def step(self, actions: Any) -> Any:
        self.t += 1
        ends = self.odd(np.zeros(self.num_envs, bool))
        return self.obs(), self.odd(np.arange(self.num_envs) * 1.0), ends, ends, self.info()


@pytest.mark.parametrize("fault", ["backwards", "read-only"])
def test_arrays_that_run_backwards_or_are_read_only_are_read(fault: str) -> None:
    with closing(environments.make("test_memory_of_arrays:Strided", 3, options={"fault": fault})) as envs:
        first, step = envs.reset(), envs.step(np.zeros(3, int))
        for t, obs in enumerate((first.obs, step.obs)):
            assert torch.from_numpy(obs["x"]).tolist() == [[t, t + 1, t + 2], [t + 3, t + 4, t + 5],
                                                           [t + 6, t + 7, t + 8]]
            assert torch.from_numpy(obs["i"])[:, 0, 5, 6].tolist() == [0, 1, 2]
        assert torch.from_numpy(step.rewards).tolist() == [0, 1, 2]
        assert torch.from_numpy(step.action_mask).tolist() == [[True, False]] * 3


class Shared(gym.Env[Any, Any]):
    """All environments write their observations to the same memory."""

    memory = np.zeros(2, np.float32)
    count = 0

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Box(0, 99, (2,)), spaces.Discrete(2)
        Shared.count += 1
        self.number = Shared.count

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.memory[:] = self.number
        return self.memory, {}

    def step(self, action: Any) -> Any:
        self.memory[:] = self.number + 10
        return self.memory, 0.0, False, False, {}


def test_environments_that_share_memory_keep_their_own_observations() -> None:
    Shared.count = 0
    with closing(environments.make("test_memory_of_arrays:Shared", 3)) as envs:
        first = envs.reset().obs[:, 0]
        assert len(set(first.tolist())) == 3
        assert (envs.step(np.zeros(3, int)).obs[:, 0] == first + 10).all()


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i8", "f2", "f8", "i1"])
def test_numbers_of_any_size_and_byte_order_become_float32(dtype: str) -> None:
    _, observe = make_observer(spaces.Box(-9, 9, (3,)))
    read = observe(np.array([1, -2, 3], dtype))
    assert read.dtype == np.dtype(np.float32) and read.dtype.isnative
    assert torch.from_numpy(read).tolist() == [1, -2, 3]


def test_arrays_of_objects_are_refused_with_what_is_needed() -> None:
    with pytest.raises(ValueError, match=r"observation is object of shape .* it must be float or int"):
        make_observer(spaces.Box(-9, 9, (2,)))[1](np.array([1.0, None], object))
