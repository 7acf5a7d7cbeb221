"""Environments with Dict and Tuple actions, nested, of discrete and continuous parts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

Info = dict[str, Any]

SPACE = spaces.Dict([
    ("throttle", spaces.Box(np.float32([100, -1]), np.float32([200, 1]))),
    ("gear", spaces.Discrete(3, start=1)),
    ("panel", spaces.Tuple([spaces.MultiBinary((2, 1)),
                            spaces.Dict({"dials": spaces.MultiDiscrete([2, 3], start=[4, 5])})]))])
"""Not in the order of its keys: columns of a row are throttle (2), gear, panel/0 (2), panel/1/dials (2)."""


class Panel(gym.Env[np.ndarray, Any]):
    """One step; each of four parts pays a quarter where it is what the observation asks for."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = SPACE

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.goal = int(self.np_random.integers(3))
        return self.obs(), self.info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        assert self.action_space.contains(action), action
        assert type(action["gear"]) is np.int64
        assert action["panel"][1]["dials"].dtype == np.int64
        self.taken.append(action)
        return self.obs(), self.pay(action), True, False, self.info()

    def obs(self) -> np.ndarray:
        return np.eye(3, dtype=np.float32)[self.goal]

    def pay(self, action: Any) -> float:
        bits, inner = action["panel"]
        throttle = (action["throttle"] - [130 + 20 * self.goal, 0]) / [50, 1]
        return float(np.mean([action["gear"] == 1 + self.goal, 1 - np.abs(throttle).mean(),
                              np.mean(bits.ravel() == [1, self.goal == 2]),
                              np.mean(inner["dials"] == [5, 5 + self.goal])]))

    def info(self) -> Info:
        return {}


class Masked(Panel):
    """Refuses the gear of the goal's number, and the first dial's 4; says so in masks, nested as the actions."""

    def info(self) -> Info:
        return {"action_mask": self.masks()}

    def masks(self) -> Any:
        gear = np.arange(3) != self.goal
        return {"gear": gear, "panel": (None, {"dials": (np.array([0, 1]), np.ones(3, int))})}

    def pay(self, action: Any) -> float:
        assert action["gear"] != 1 + self.goal, "a forbidden gear"
        assert action["panel"][1]["dials"][0] != 4, "a forbidden dial"
        return super().pay(action)


class MaskMethod(Masked):
    def info(self) -> Info:
        return {}

    def action_masks(self) -> Any:
        return self.masks()


class Lever(gym.Env[np.ndarray, Any]):
    """A Tuple of one choice and one number; the pay is highest at the number's upper bound."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Tuple([spaces.Discrete(2), spaces.Box(-1, 3, (1,))])

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        assert self.action_space.contains(action), action
        self.t += 1
        reward = 0.5 * float(action[0] == 1) + float(action[1][0] + 1) / 8
        return np.full(1, self.t / 4, np.float32), reward, False, self.t == 4, {}


def make_vector(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([MaskMethod] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class InTensors:
    """Panels that compute in torch; the mask of the gear is nested, and the action's types are checked."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = Panel.observation_space
        self.single_action_space = SPACE
        self.goal = torch.zeros(num_envs, dtype=torch.long)
        self.over = torch.zeros(num_envs, dtype=torch.bool)

    def reset(self, *, seed: int | None = None) -> tuple[torch.Tensor, Info]:
        self.goal = torch.arange(self.num_envs) % 3
        self.over.zero_()
        return self.obs(), self.info()

    def step(self, action: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, Info]:
        bits, inner = action["panel"]
        assert action["throttle"].shape == (self.num_envs, 2) and bits.shape == (self.num_envs, 2, 1)
        assert action["throttle"].dtype == torch.float32 and inner["dials"].dtype == torch.int64
        assert ((inner["dials"] >= torch.tensor([4, 5])) & (inner["dials"] <= torch.tensor([5, 7]))).all()
        assert ((action["throttle"][:, 0] >= 100) & (action["throttle"][:, 0] <= 200)).all()
        assert (action["gear"] != 1 + self.goal)[~self.over].all(), "a forbidden gear"
        reward = (bits.sum((1, 2)) == 2).float() * ~self.over
        self.over = ~self.over
        return self.obs(), reward, self.over.clone(), torch.zeros_like(self.over), self.info()

    def obs(self) -> torch.Tensor:
        return torch.eye(3)[self.goal]

    def info(self) -> Info:
        return {"action_mask": {"gear": torch.arange(3) != self.goal.unsqueeze(1)}}

    def close(self) -> None:
        pass
