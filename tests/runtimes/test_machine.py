"""How many threads a process computes with by default."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import vantage
from vantage.runtimes import machine


class Pixels(gym.Env[np.ndarray, int]):
    """Images of `side` x `side`."""

    def __init__(self, side: int) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (side, side, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}


@pytest.mark.parametrize(("side", "limit", "threads"), [
    (20, None, 1), (36, None, 4), (36, "2", 2), (36, "3,2", 3), (36, "", 4), (36, "many", 4), (36, "0", 1)])
def test_small_images_take_one_thread_and_others_at_most_what_openmp_is_told(
        monkeypatch: pytest.MonkeyPatch, side: int, limit: str | None, threads: int) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if limit is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    config = vantage.configure("ppo", env=lambda: Pixels(side), obs_as="image", num_envs=2)
    assert machine.threads_of(config, processes=1) == threads
