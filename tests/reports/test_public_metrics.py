"""Reports on logged numbers: explained variance of equal targets, and means over all minibatches.

github.com/openai/baselines/issues/454, github.com/DLR-RM/stable-baselines3/issues/149; minibatches of one step:
github.com/jolibrain/wheatley/pull/93.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vantage
from vantage.algorithms.losses import explained_variance


@pytest.mark.parametrize("targets", [[1.0] * 4, [1.0, 1 + 1e-6, 1 - 1e-6, 1.0], [1e6, 1e6 + 0.5, 1e6, 1e6]])
def test_equal_targets_leave_nothing_to_explain(targets: list[float]) -> None:
    values = torch.tensor([targets]) + torch.tensor([[0.0, 0.3, -0.2, 0.1]])
    assert explained_variance(values, torch.tensor([targets]), torch.ones(1, 4, dtype=torch.bool)).item() == 0


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_critic_that_explains_three_quarters_says_so_at_any_scale(scale: float) -> None:
    targets = scale * torch.tensor([[-1.0, 1.0, -1.0, 1.0]])
    explained = explained_variance(targets / 2, targets, torch.ones(1, 4, dtype=torch.bool))
    assert explained.item() == pytest.approx(0.75, abs=1e-4)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_minibatches_that_do_not_divide_the_rollout_leave_every_loss_finite(size: int, tmp_path: Path) -> None:
    config = vantage.configure("ppo", env="tiny:Bandit", steps=40, num_envs=2, rollout_length=5, minibatch_size=size,
                               epochs=2, advantage_norm_over="minibatch", eval_every=0, tensorboard=False, threads=1,
                               log_every_seconds=0)
    reports = list(vantage.train(config, run=tmp_path / "run"))
    losses = [report.metrics["train/value_loss"] for report in reports if "train/value_loss" in report.metrics]
    assert len(losses) >= 4
    assert torch.tensor(losses).isfinite().all()
