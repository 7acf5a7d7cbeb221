"""Reports on logged numbers: explained variance of equal targets, and means over all minibatches.

github.com/openai/baselines/issues/454, github.com/DLR-RM/stable-baselines3/issues/149; minibatches of one step:
github.com/jolibrain/wheatley/pull/93.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from environments import make

import vantage
from vantage.algorithms.losses import explained_variance
from vantage.learning.collect import Position, collect
from vantage.learning.learner import Learner
from vantage.learning.step_metrics import LOSS
from vantage.models.build import make_model


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
    reports = list(vantage.Trainer(config, run=tmp_path / "run"))
    losses = [report.metrics["train/value_loss"] for report in reports if "train/value_loss" in report.metrics]
    assert len(losses) >= 4
    assert torch.tensor(losses).isfinite().all()


def test_logged_shares_are_means_over_all_minibatches_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    config = vantage.configure("ppo", env="tiny:Bandit", num_envs=2, minibatch_size=4, epochs=3, threads=1)
    envs = make("tiny:Bandit", 2)
    learner = Learner(make_model(config.policy, envs.spec, critic="state"), config)
    position = Position.after(envs.reset(), learner.model.initial_state(2), torch.device("cpu"))
    rollout = collect(learner.model, envs, position, length=8, generator=torch.Generator().manual_seed(0),
                      values=True).rollout
    shares = iter(range(12))  # of 4 minibatches in each of 3 epochs
    monkeypatch.setattr(learner, "_move", lambda *_: {
        "train/clip_fraction": float(next(shares)), "train/grad_norm": 0.0, LOSS: 0.0})
    assert learner.update(rollout, 0)["train/clip_fraction"] == 5.5
