"""A drone that chooses a tool and how hard to push: a Dict of discrete and continuous actions.

Train it in seconds with

    python hybrid_actions.py

or with `vantage train ppo --env hybrid_actions:Drone --steps 40k` in the directory of this file.
The policy has a head for each part, and the log-probability of an action is the sum over its parts.
`info["action_mask"]` is nested like the action space; parts without a mask may choose anything.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import vantage

TOOLS = ("drill", "camera", "claw")


class Drone(gym.Env[np.ndarray, dict[str, Any]]):
    """Reach the place at 0 within 10 steps, then use the tool that the task asks for.

    Pushing costs energy.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = spaces.Dict({
            "push": spaces.Box(-50, 50, (1,), np.float32),  # newtons; the policy acts from -1 to 1
            "tool": spaces.Discrete(3),
            # use the tool; two lights
            "switches": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))),
        })

    def reset(self, *, seed: int | None = None,
              options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = float(self.np_random.uniform(-2, 2))
        self.task = int(self.np_random.integers(3))
        self.steps = 0
        return self.observe(), self.masks()

    def step(self, action: dict[str, Any]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        use, lights = action["switches"]
        self.place += float(action["push"][0]) / 50
        self.steps += 1
        reward = -0.05 * abs(self.place) - 0.05 * float(lights.sum())
        if use:
            reward += 1.0 if action["tool"] == self.task and abs(self.place) < 0.5 else -1.0
        return self.observe(), reward, bool(use), self.steps >= 10, self.masks()

    def observe(self) -> np.ndarray:
        return np.array([self.place, *(np.arange(3) == self.task)], np.float32)

    def masks(self) -> dict[str, Any]:
        """Far from the place, the tool cannot be used; everything else is always allowed."""
        near = abs(self.place) < 1
        return {"action_mask": {"switches": (np.array([True, near]), None)}}


def main() -> None:
    agent = vantage.train("ppo", env=Drone, steps=40_000, seed=100, threads=1)
    env = Drone()
    obs, info = env.reset(seed=1)
    over = False
    while not over:
        # as env.action_space.sample() would be
        action, _ = agent.act(obs, action_mask=info["action_mask"])
        obs, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        print(f"push {action['push'][0]:+.1f}, {TOOLS[action['tool']]}, "
              f"switches {action['switches']}: {reward:+.2f}")


if __name__ == "__main__":
    main()
