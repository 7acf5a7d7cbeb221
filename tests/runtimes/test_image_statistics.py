"""Image statistics from random play: every runtime has them from its first step, and training leaves them alone."""

from __future__ import annotations

from pathlib import Path

import torch

import vantage
from vantage.runs.checkpoint import load_latest


def test_every_runtime_begins_with_the_same_frozen_statistics(tmp_path: Path) -> None:
    statistics = []
    for algo, workers in (("a2c", 1), ("a2c", 2), ("a3c", 2)):
        run = tmp_path / f"{algo}-{workers}"
        config = vantage.configure(algo, env="Pong", num_workers=workers, num_envs=2, rollout_length=5, steps=10,
                                   memory_size=8, image_norm="pixel", image_norm_steps=100, threads=1,
                                   tensorboard=False, eval_every=0)
        list(vantage.Trainer(config, run=run))
        model = load_latest(run).tensors["model"]
        statistics.append((model["normalizers.0.mean"], model["normalizers.0.var"]))
    for mean, variance in statistics:
        assert mean.max() > 50, "in units of pixels"
        torch.testing.assert_close((mean, variance), statistics[0])
