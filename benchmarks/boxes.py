"""What PPO, A2C and ACER reach by their defaults where an optimum lies inside Box actions of any bounds.

    python benchmarks/boxes.py --seeds 3 --out boxes.csv

One step pays 1 minus the mean distance from a target at 70% of the range, in half widths: 1 is the optimum, and about
0.55 what random actions earn. Trains 30,000 steps and plays 20 games by the most probable action. A line of CSV for
each run.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import vantage

STEPS, GAMES, PLACE = 30_000, 20, 0.7
COLUMNS = ("bounds", "algo", "seed", "return_mean")

BOUNDS: dict[str, tuple[Any, Any, str]] = {
    "[100, 200]": (100, 200, "float32"),
    "[0, 1000]": (0, 1000, "float32"),
    "±0.01": (-0.01, 0.01, "float32"),
    "[2, 3] x [-10, 90]": ([2, -10], [3, 90], "float32"),
    "[-1, 1]": (-1, 1, "float32"),
    "[-2, 2]": (-2, 2, "float32"),
    "[0, 1]": (0, 1, "float32"),
    "±10,000": (-1e4, 1e4, "float32"),
    "0 to 20, int64": (0, 20, "int64"),
    "[100, 200] x ±1e30": ([100, -1e30], [200, 1e30], "float64"),
    "2 x 2, four ranges": ([[0, -5], [10, -1]], [[1, 5], [1000, 1]], "float32"),
}
"""Lowest and highest actions, and their type."""


class Aim(gym.Env[np.ndarray, Any]):
    """One step that pays for a hit; the target of an unbounded dimension is 0.5."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, low: Any = -1, high: Any = 1, at: float = PLACE, dtype: str = "float32") -> None:
        low, high = np.atleast_1d(low).astype(dtype), np.atleast_1d(high).astype(dtype)
        self.action_space = spaces.Box(low, high, low.shape, np.dtype(dtype).type)
        width = np.asarray(high, np.float64) - low
        bounded = width < 1e9
        self._target = np.where(bounded, low + at * width, 0.5)
        self._half = np.where(bounded, width / 2, 1.0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        score = 1 - (abs(action - self._target) / self._half).mean()
        return np.zeros(1, np.float32), float(score), True, False, {}


@dataclass(frozen=True)
class Trial:
    """One training."""

    bounds: str
    algo: str
    seed: int

    def score(self, folder: Path) -> float:
        """The mean return of its last policy, by the most probable actions."""
        low, high, dtype = BOUNDS[self.bounds]
        config = vantage.configure(
            self.algo, env="boxes:Aim", env_kwargs={"low": low, "high": high, "dtype": dtype}, steps=STEPS,
            seed=self.seed, threads=1, eval_every=0, tensorboard=False)
        for _ in vantage.Trainer(config, run=folder / "run"):
            pass
        played = vantage.evaluate(folder / "run", episodes=GAMES, deterministic=True, checkpoint="latest")
        return played.return_mean


def trials(seeds: int, first_seed: int) -> Iterator[Trial]:
    for bounds in BOUNDS:
        for algo in ("ppo", "a2c", "acer"):
            for seed in range(first_seed, first_seed + seeds):
                yield Trial(bounds, algo, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("boxes.csv"))
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    with options.out.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for trial in trials(options.seeds, options.first_seed):
            with tempfile.TemporaryDirectory() as folder:
                row = (trial.bounds, trial.algo, trial.seed, round(trial.score(Path(folder)), 4))
            table.writerow(row)
            file.flush()
            print(*row, flush=True)


if __name__ == "__main__":
    main()
