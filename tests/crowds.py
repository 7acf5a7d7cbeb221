"""Environments whose observations are sets of entities, with anything in the rows that do not exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tiny import Tiny

ROWS = 6
JUNK = np.float32([np.nan, np.inf, -1e30, 7])


class Crowd(Tiny):
    """Four steps; pays for the sign of the member with the largest second number, 1 without members."""

    limit = 4

    def __init__(self, mask: str = "units_mask") -> None:
        super().__init__()
        self.mask = mask
        self.observation_space = spaces.Dict({"units": spaces.Box(-2, 2, (ROWS, 2), np.float32),
                                              mask: spaces.MultiBinary(ROWS),
                                              "time": spaces.Box(0, 1, (1,), np.float32)})

    def obs(self) -> Any:
        units = self.np_random.uniform(-1, 1, (ROWS, 2)).astype(np.float32)
        exists = self.np_random.random(ROWS) < 0.5
        self.right = int(not exists.any() or units[exists][units[exists][:, 1].argmax(), 0] > 0)
        units[~exists] = self.np_random.choice(JUNK)
        return {"units": units, self.mask: exists.astype(np.int8), "time": np.float32([self.t / 4])}

    def play(self, action: Any) -> tuple[Any, bool]:
        return action == self.right, False


class Alone(Crowd):
    """The same without other parts."""

    def __init__(self) -> None:
        super().__init__()
        del self.observation_space.spaces["time"]

    def obs(self) -> Any:
        return {name: part for name, part in super().obs().items() if name != "time"}


class Everyone(Tiny):
    """A Box whose rows all exist."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-2, 2, (ROWS, 2), np.float32)

    def obs(self) -> Any:
        return np.full((ROWS, 2), self.t, np.float32)

    def play(self, action: Any) -> tuple[Any, bool]:
        return action, True


class Tensors:
    """`Crowd` without its task, as a vector environment in tensors."""

    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Crowd().observation_space

    def reset(self, *, seed: int | None = None) -> Any:
        self.rows = [Crowd() for _ in range(self.num_envs)]
        obs = [env.reset(seed=i)[0] for i, env in enumerate(self.rows)]
        self.obs = {name: torch.from_numpy(np.stack([each[name] for each in obs])) for name in obs[0]}
        return self.obs, {}

    def step(self, actions: torch.Tensor) -> Any:
        over = torch.zeros(self.num_envs, dtype=torch.bool)
        return self.obs, torch.zeros(self.num_envs), over, over, {}

    def close(self) -> None:
        """Nothing is open."""
