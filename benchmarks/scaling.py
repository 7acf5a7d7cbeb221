"""How A3C's speed grows with its workers where the environment waits: a robot, a server, a slow simulator.

    .venv/bin/python benchmarks/scaling.py

The environment sleeps 5 ms a step, so that workers need the cores for little. Prints agent steps per second for 1, 2, 4
and 8 workers of one environment each, and the ratio to one worker.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import vantage


class Waiting(gym.Env[np.ndarray, Any]):
    """A random walk whose every step takes 5 ms; an episode is 100 steps."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.005)
        self.t += 1
        obs = self.np_random.normal(size=4).astype(np.float32)
        return obs, float(action), self.t == 100, False, {}


def rate(workers: int, seconds: float, folder: Path) -> float:
    """Agent steps per second of `workers`, after all have begun."""
    config = vantage.configure("a3c", env="scaling:Waiting", steps=10**9, num_workers=workers, num_envs=1, eval_every=0,
                               rollout_length=20, log_every_seconds=0.5, tensorboard=False)
    reports = vantage.train(config, run=folder / str(workers), argv=())
    start = next(reports)
    while start.step < 200 * workers:
        start = next(reports)
    begun, last = time.perf_counter(), start
    while time.perf_counter() - begun < seconds:
        last = next(reports)
    elapsed = time.perf_counter() - begun
    reports.close()
    return (last.step - start.step) / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each (default: 15)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rates = {workers: rate(workers, arguments.seconds, Path(folder)) for workers in arguments.workers}
    print("| workers | steps/s | to one worker |\n|---|---|---|")
    for workers, steps in rates.items():
        print(f"| {workers} | {steps:,.0f} | {steps / rates[arguments.workers[0]]:.2f} |")


if __name__ == "__main__":
    main()
