"""A lighthouse among a varying number of boats: observations that are sets, whose order means nothing.

Train it in a minute with

    python entities.py

or with `vantage train ppo --env entities:Lighthouse --steps 60k` in the directory of this file.
`boats` is a Box of shape (8, 2), and `boats_mask` beside it marks the rows in which there is a
boat, so Vantage takes them for a set: the network attends among the boats that exist. With
`--no-obs-sets` it sees 24 numbers in a row instead, and has to learn every row on its own.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import vantage

MOST_BOATS = 8
DARK = 4
"""The action that saves the oil: right where there is no boat."""


class Lighthouse(gym.Env[dict[str, np.ndarray], int]):
    """Ten nights: shine into the quarter (north, east, south, west) of the nearest boat, for 1 each.

    Always doing so, and staying dark without boats, scores 10. Chance scores 2.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Dict({
            "boats": spaces.Box(-1, 1, (MOST_BOATS, 2), np.float32),  # east, north
            "boats_mask": spaces.MultiBinary(MOST_BOATS),
        })
        self.action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None,
              options: Any = None) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self.nights = 0
        return self.night(), {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        reward = float(action == self.best)
        self.nights += 1
        return self.night(), reward, self.nights == 10, False, {}

    def night(self) -> dict[str, np.ndarray]:
        """Boats at new places, in rows of any order; other rows hold whatever was there before."""
        boats = self.np_random.uniform(-1, 1, (MOST_BOATS, 2)).astype(np.float32)
        number = self.np_random.integers(MOST_BOATS + 1)
        mask = self.np_random.permutation(np.arange(MOST_BOATS) < number)
        self.best = DARK
        if number:
            east, north = min(boats[mask], key=lambda boat: np.hypot(*boat))
            if abs(north) > abs(east):
                self.best = 0 if north > 0 else 2
            else:
                self.best = 1 if east > 0 else 3
        return {"boats": boats, "boats_mask": mask.astype(np.int8)}


def main() -> None:
    for sets in (True, False):
        agent = vantage.train("ppo", env=Lighthouse, obs_sets=sets, steps=60_000, seed=100,
                              threads=1)
        score = vantage.evaluate(agent, episodes=100).return_mean
        print(f"as a {'set' if sets else 'vector'}: {score:.1f} of 10")


if __name__ == "__main__":
    main()
