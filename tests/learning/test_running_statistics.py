"""Running statistics of observations: what they count while a policy trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import Tiny

import vantage


class Clock(Tiny):
    """The observation is the time, up to 4, where the game ends."""

    def play(self, action: Any) -> tuple[float, bool]:
        return 0.0, self.t == 4

    def obs(self) -> np.ndarray:
        return np.full(1, self.t, np.float32)


@pytest.mark.parametrize("length", [1, 5, 20])
def test_each_observation_counts_once_in_the_running_statistics(length: int, tmp_path: Path) -> None:
    """With the reset step, games have 5 steps: rollouts of as many end in the same observation each time."""
    trainer = vantage.Trainer("a2c", env=Clock, num_envs=2, steps=400, rollout_length=length, obs_norm=True, threads=1,
                              num_workers=1, eval_every=0, tensorboard=False, run=tmp_path / "run")
    list(trainer)
    (_, stats), = vantage.load(tmp_path / "run", env=Clock).model.running_stats()
    assert float(stats.count) == pytest.approx(400, abs=1)
    assert (float(stats.mean), float(stats.var)) == pytest.approx((2, 2), abs=0.01)
