r"""CartPole-v1 for many environments at once in torch: an example of an environment in tensors. Train on it with

    vantage train ppo --env torch_vector_env:TorchCartPole --num-envs 1024 --rollout-length 32 --minibatch-size 4096 \
        --epochs 1 --lr 2e-3 --separate false --steps 2M

in the directory of this file. Physics, episodes and the limit of 500 steps are those of Gymnasium's CartPole-v1, in
float64 as there. `snapshot` and `restore` make resumed runs exact.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MAX_POSITION, MAX_ANGLE, MAX_STEPS = 2.4, 12 * 2 * math.pi / 360, 500
TOTAL, POLE_LENGTH = CART + POLE, POLE * HALF_LENGTH


class TorchCartPole:
    """Barto, Sutton and Anderson 1983: pays 1 a step until the pole falls, for at most 500 steps."""

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(-math.inf, math.inf, (4,))
        self.single_action_space = spaces.Discrete(2)
        self.generator = torch.Generator(device)
        self.state = torch.zeros(4, num_envs, dtype=torch.float64, device=device)
        """Position, velocity, angle and angular velocity."""
        self.steps = torch.zeros(num_envs, dtype=torch.int64, device=device)
        self.over = torch.zeros(num_envs, dtype=torch.bool, device=device)

    def reset(self, *, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        if seed is not None:
            self.generator.manual_seed(seed)
        self.state = self.first_state()
        self.steps.zero_()
        self.over.zero_()
        return self.observe(), {}

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        resetting = self.over
        position, velocity, angle, spin = self.state
        sine, cosine = angle.sin(), angle.cos()
        push = (actions * 2 - 1) * FORCE
        push = (push + POLE_LENGTH * spin.square() * sine) / TOTAL
        turn = (GRAVITY * sine - cosine * push) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE * cosine.square() / TOTAL))
        pull = push - POLE_LENGTH * turn * cosine / TOTAL
        self.state = torch.stack([position + SECONDS * velocity, velocity + SECONDS * pull,
                                  angle + SECONDS * spin, spin + SECONDS * turn])
        self.steps = self.steps + 1
        if resetting.any():
            self.state = torch.where(resetting, self.first_state(), self.state)
            self.steps = torch.where(resetting, 0, self.steps)
        fallen = (self.state[0].abs() > MAX_POSITION) | (self.state[2].abs() > MAX_ANGLE)
        truncated = self.steps >= MAX_STEPS
        self.over = fallen | truncated
        return self.observe(), (~resetting).float(), fallen, truncated, {}

    def close(self) -> None:
        """Nothing is open."""

    def first_state(self) -> Tensor:
        """A first state [4, B] for every environment."""
        shape, device = self.state.shape, self.state.device
        return torch.rand(shape, generator=self.generator, dtype=torch.float64, device=device) * 0.1 - 0.05

    def observe(self) -> Tensor:
        return self.state.T.float()

    def snapshot(self) -> dict[str, Tensor]:
        return {"state": self.state, "steps": self.steps, "over": self.over,
                "generator": self.generator.get_state()}

    def restore(self, snapshot: dict[str, Tensor]) -> None:
        self.state = snapshot["state"]
        self.steps = snapshot["steps"]
        self.over = snapshot["over"]
        self.generator.set_state(snapshot["generator"])
