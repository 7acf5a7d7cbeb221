"""Large offsets that differ each time a vector environment is built, such as clocks: one run subtracts the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import vantage

BUILT: list[int] = []


class Clocks(VectorEnv):
    """Shows a clock that is ahead by a second with each instance; the reward is for the bit above it."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int) -> None:
        BUILT.append(1)
        self.num_envs = num_envs
        self.start = 1.7e9 + len(BUILT)
        self.single_observation_space = spaces.Box(0, 1e12, (1,), np.float64)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _observe(self) -> Any:
        return np.full((self.num_envs, 1), self.start + self.t)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        self.t += 1
        over = np.full(self.num_envs, self.t % 8 == 0)
        return self._observe(), np.ones(self.num_envs), over, np.zeros(self.num_envs, bool), {}


@pytest.mark.parametrize("algo", ["a2c", "acer"])
def test_evaluations_and_resumes_subtract_what_training_did(tmp_path: Path, algo: str) -> None:
    config = vantage.configure(algo, env="test_offsets_of_vectors:Clocks", num_envs=2, steps=128, eval_every=64,
                               eval_episodes=2, threads=1, tensorboard=False)
    for _ in vantage.Trainer(config, run=tmp_path / "run"):
        pass
    shift = vantage.load(tmp_path / "run").model.spec.shifts
    assert shift[""][0] == pytest.approx(1.7e9, abs=99)
    assert vantage.evaluate(tmp_path / "run", episodes=2).return_mean == 8
    for _ in vantage.Trainer.resume(tmp_path / "run", steps=256, extend_schedule=True):
        pass
    assert vantage.load(tmp_path / "run", checkpoint="latest").model.spec.shifts == shift
