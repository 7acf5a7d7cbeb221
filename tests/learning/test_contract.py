"""What a user's algorithm returns is checked where it is called, and named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rollouts import begun

import vantage
from vantage.algorithms.ppo import PPO
from vantage.errors import ConfigError
from vantage.learning.contract import check_estimate, check_loss

A = torch.zeros(5, 3)


@pytest.mark.parametrize(("result", "says"), [
    (A, r"it returns a tensor \[5, 3\]"),
    ((A, A, {}, {}), "it returns 4 results"),
    ((A.T, A), r"its advantages are a tensor \[3, 5\]"),
    ((A.unsqueeze(-1), A), r"its advantages are a tensor \[5, 3, 1\]"),
    ((A, A[:-1]), r"its targets are a tensor \[4, 3\]"),
    ((A, None), "its targets are None"),
    ((A, A, None), "the third of its results is None"),
    ((A, A, {"x": 0.5}), "'x' is 0.5"),
    ((A, A, {"x": torch.zeros(6, 3)}), r"'x' is a tensor \[6, 3\]"),
    ((A, A, {"x": torch.zeros(15)}), r"'x' is a tensor \[15\]")])
def test_an_estimate_of_another_form_is_named_with_its_shape(result: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"here \[5, 3\].*{says}"):
        check_estimate(result, "mine:Mine", length=5, num_envs=3)


def test_an_estimate_may_add_tensors_of_more_axes() -> None:
    extra = {"x": torch.zeros(5, 3, 7)}
    assert check_estimate((A, A, extra), "mine:Mine", length=5, num_envs=3)[2] is extra
    assert check_estimate([A, A], "mine:Mine", length=5, num_envs=3)[2] == {}


@pytest.mark.parametrize(("result", "says"), [
    (A.sum(), r"not a tensor \[\]"),
    ((A, {}), r"the first of its results is a tensor \[5, 3\]"),
    ((A.sum(), [A.sum()]), "the second of its results is 1 results"),
    ((A.sum(), {"train/x": A}), r"'train/x' is a tensor \[5, 3\]: log its mean"),
    ((A.sum(), {"train/x": "high"}), "'train/x' is 'high'")])
def test_a_loss_of_another_form_is_named(result: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"must return a scalar tensor and a mapping.*{says}"):
        check_loss(result, "mine:Mine")


@pytest.mark.parametrize(("name", "says"), [
    ("step", "'step' cannot name a metric"), ("seconds", "'seconds' cannot name"), (3, "3 cannot name"),
    ("eval/mean_reward", "Vantage writes itself; log yours under another name, such as 'my/mean_reward'"),
    ("train/learning_rate", "Vantage writes itself")])
def test_a_metric_of_a_loss_has_a_name_of_its_own(name: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^the loss of algorithm=mine:Mine: .*{says}"):
        check_loss((A.sum(), {name: A.sum()}), "mine:Mine")


def test_a_loss_may_log_the_metrics_of_losses_and_numbers_of_numpy() -> None:
    metrics = {"train/entropy": A.sum(), "train/x": np.float32(2), "my/y": 1}
    assert check_loss((A.sum(), metrics), "mine:Mine")[1]["train/x"] == 2


class Detached(PPO):
    """PPO whose loss has no gradient."""

    def loss(self, *arguments: Any, **options: Any) -> Any:
        loss, metrics = super().loss(*arguments, **options)
        return loss.detach(), metrics


def test_a_loss_without_a_gradient_is_named() -> None:
    config = vantage.configure(Detached, env="CartPole-v1", num_envs=2, rollout_length=8, threads=1,
                               minibatch_size=16, network=lambda shape: torch.nn.Linear(shape[0], 4))
    with (begun(config) as one,
          pytest.raises(ConfigError, match=r"the loss has no gradient.*without detach\(\)")):
        one.advance(lambda: 0)


class Seen(PPO):
    """PPO that notes whether its estimate has gradients, and logs a number."""

    gradients = False

    def estimate(self, rollout: Any, update: Any) -> Any:
        Seen.gradients = torch.is_grad_enabled()
        return super().estimate(rollout, update)

    def loss(self, model: Any, minibatch: Any, update: Any) -> Any:
        loss, metrics = super().loss(model, minibatch, update)
        return loss, {**metrics, "train/half": 0.5}


def test_estimates_have_no_gradients_and_numbers_are_logged() -> None:
    config = vantage.configure(Seen, env="CartPole-v1", num_envs=2, rollout_length=8, threads=1, num_workers=1)
    Seen.gradients = True
    with begun(config) as one:
        metrics = one.advance(lambda: 0).metrics
    assert not Seen.gradients
    assert metrics["train/half"] == 0.5
