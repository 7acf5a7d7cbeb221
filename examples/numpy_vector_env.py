"""CartPole for many environments at once in NumPy: an example of a vector environment of your own. Train on it with

    vantage train a2c --env numpy_vector_env:NumpyCartPole --num-envs 64 --steps 500k

in the directory of this file. The class takes `num_envs` and has NEXT_STEP autoreset (the step after an end only
resets). Its metadata declares that `reset` takes a list of seeds with a `reset_mask`, so that Vantage can resume a run
exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MAX_POSITION, MAX_ANGLE, MAX_STEPS = 2.4, 12 * np.pi / 180, 500


class NumpyCartPole(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Barto, Sutton and Anderson 1983, as Gymnasium's CartPole-v1: pays 1 a step, for at most 500 steps."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "reset_mask": True}  # noqa: RUF012  as Gymnasium declares it

    def __init__(self, num_envs: int, max_steps: int = MAX_STEPS) -> None:
        self.num_envs, self.max_steps = num_envs, max_steps
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.generators = [np.random.default_rng() for _ in range(num_envs)]
        self.state = np.zeros((num_envs, 4))  # position, velocity, angle, angular velocity
        self.steps = np.zeros(num_envs, np.int64)
        self.over = np.zeros(num_envs, bool)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        which = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is not None:
            for i in np.flatnonzero(which):
                self.generators[i] = np.random.default_rng(seeds[i])
        self.begin(which)
        return self.state.astype(np.float32), {}

    def begin(self, which: np.ndarray) -> None:
        for i in np.flatnonzero(which):
            self.state[i] = self.generators[i].uniform(-0.05, 0.05, 4)
        self.steps[which], self.over[which] = 0, False

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        resetting = self.over.copy()
        _, velocity, angle, spin = self.state.T
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (np.where(actions == 1, FORCE, -FORCE) + POLE * HALF_LENGTH * spin**2 * sine) / (CART + POLE)
        turn = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4 / 3 - POLE * cosine**2 / (CART + POLE)))
        pull = push - POLE * HALF_LENGTH * turn * cosine / (CART + POLE)
        self.state = self.state + SECONDS * np.stack([velocity, pull, spin, turn], axis=1)
        self.steps += 1
        self.begin(resetting)
        fallen = (abs(self.state[:, 0]) > MAX_POSITION) | (abs(self.state[:, 2]) > MAX_ANGLE)
        terminated, truncated = fallen & ~resetting, ~fallen & (self.steps >= self.max_steps)
        self.over = terminated | truncated
        return self.state.astype(np.float32), (~resetting).astype(np.float64), terminated, truncated, {}
