"""The A2C loss: its value by hand, the signs of its gradients, what its options change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from rollouts import random_rollout
from torch import Tensor

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Update
from vantage.algorithms.losses import a2c_loss, explained_variance, masked_mean
from vantage.models.build import make_model
from vantage.specs import ActionSpec, ArraySpec, EnvSpec


def column(*values: float, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None].requires_grad_(grad)


def flags(*values: bool) -> Tensor:
    return torch.tensor(values)[:, None]


def loss_of(log_probs: Tensor, values: Tensor, rewards: Tensor, *, entropies: Tensor | None = None,
            terminated: Tensor | None = None, keep: Tensor | None = None, valid: Tensor | None = None,
            **options: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The loss of valid steps without entropy in the middle of a game, where nothing else is given."""
    yes = torch.ones_like(rewards, dtype=torch.bool)
    return a2c_loss(log_probs, torch.zeros_like(rewards) if entropies is None else entropies, values, rewards,
                    ~yes if terminated is None else terminated, yes if keep is None else keep,
                    yes if valid is None else valid,
                    **{"gamma": 0.5, "gae_lambda": 1.0, "value_coef": 0.5, "entropy_coef": 0.1} | options)


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(loss, leaf, retain_graph=True)[0]


def test_the_loss_of_two_steps_by_hand() -> None:
    loss, metrics = loss_of(column(-1.0, -2.0), column(1.0, 2.0, 4.0), column(1.0, 0.0), entropies=column(0.5, 0.7))
    targets = [1 + 0.5 * (0.5 * 4), 0.5 * 4]  # 2 and 2
    policy = -((targets[0] - 1) * -1.0 + (targets[1] - 2) * -2.0) / 2
    value = 0.5 * ((targets[0] - 1) ** 2 + (targets[1] - 2) ** 2) / 2
    assert metrics["train/policy_loss"] == policy
    assert metrics["train/value_loss"] == value
    torch.testing.assert_close(loss, torch.tensor(policy + 0.5 * value - 0.1 * 0.6, dtype=torch.float64))


def test_a_better_arm_becomes_more_probable_and_its_value_rises() -> None:
    logits, values = torch.zeros(2, dtype=torch.float64, requires_grad=True), column(0.0, 0.0, grad=True)
    loss, _ = loss_of(logits.log_softmax(0)[1].reshape(1, 1), values, column(1.0), terminated=flags(True))
    of_logits, of_values = gradient(loss, logits), gradient(loss, values)
    assert of_logits[1] < 0 < of_logits[0] and of_values[0, 0] < 0
    assert of_values[1, 0] == 0, "the bootstrap value is a constant"


def test_the_entropy_bonus_flattens_the_policy() -> None:
    logits = torch.tensor([2.0, 0.0], dtype=torch.float64, requires_grad=True)
    p = torch.softmax(logits, 0)
    entropy = -(p * p.log()).sum().reshape(1, 1)
    slopes = gradient(loss_of(column(0.0), column(0.0, 0.0), column(0.0), entropies=entropy)[0], logits)
    assert slopes[0] > 0 > slopes[1]


def test_invalid_steps_weigh_nothing() -> None:
    log_probs, values = column(-1.0, -5.0, grad=True), column(0.0, 3.0, 0.0, grad=True)
    loss, _ = loss_of(log_probs, values, column(1.0, 0.0), entropies=column(0.0, 9.0), keep=flags(False, True),
                      valid=flags(True, False))
    assert gradient(loss, log_probs)[1] == 0 != gradient(loss, log_probs)[0] and gradient(loss, values)[1, 0] == 0


def test_a_rollout_of_resets_gives_zero_and_no_nan() -> None:
    loss, metrics = loss_of(column(float("-inf")), column(0.0, 0.0), column(0.0), valid=flags(False))
    assert loss == 0 and all(torch.isfinite(v) for v in metrics.values())


def test_normalised_advantages_ignore_the_scale_of_rewards() -> None:
    log_probs = column(-1.0, -2.0, -0.5, grad=True)
    small, large = (gradient(loss_of(log_probs, column(0.0, 0.0, 0.0, 0.0), column(1.0, -2.0, 0.5) * scale,
                                     terminated=flags(True, True, True), advantage_norm=True)[0], log_probs)
                    for scale in (1.0, 100.0))
    torch.testing.assert_close(small, large, atol=1e-6, rtol=0)
    assert small.any()


def test_vtrace_weights_of_an_unchanged_policy_change_nothing() -> None:
    arguments = column(-1.0, -2.0), column(1.0, 2.0, 4.0), column(1.0, 0.0)
    weighted, metrics = loss_of(*arguments, behaviour_log_probs=column(-1.0, -2.0))
    torch.testing.assert_close(loss_of(*arguments)[0], weighted)
    assert metrics["train/rho_mean"] == 1


def test_vtrace_halves_the_gradient_of_an_action_that_became_half_as_probable() -> None:
    log_probs = column(-1.0, grad=True)
    loss, _ = loss_of(log_probs, column(0.0, 0.0), column(1.0), terminated=flags(True),
                      behaviour_log_probs=column(-1.0 + math.log(2)))
    torch.testing.assert_close(gradient(loss, log_probs), column(-0.5))


def test_vtrace_gives_weight_1_to_an_action_that_the_environment_replaced() -> None:
    log_probs, values = column(-1.0, -2.0, -1.0, grad=True), column(1.0, 2.0, 3.0, 4.0, grad=True)
    loss, metrics = loss_of(log_probs, values, column(1.0, 0.0, 5.0), valid=flags(True, False, True),
                            behaviour_log_probs=column(-1.0, 0.0, -1.0))
    target = 1 + 0.5 * (0.5 * (5 + 0.5 * 4))  # the rewards after the replaced action count in full
    torch.testing.assert_close(gradient(loss, log_probs)[:2], column(-(target - 1.0) / 2, 0.0))
    torch.testing.assert_close(gradient(loss, values)[:2], column(0.5 * -(target - 1.0) / 2, 0.0))
    assert metrics["train/rho_mean"] == 1


def test_vtrace_of_an_action_that_the_acting_policy_hardly_took_has_finite_weights() -> None:
    log_probs = torch.tensor([[-1.0]], requires_grad=True)
    loss, metrics = loss_of(log_probs, torch.zeros(2, 1), torch.ones(1, 1),
                            behaviour_log_probs=torch.full((1, 1), -1e4))
    assert 1 < metrics["train/rho_mean"] < torch.inf
    assert gradient(loss, log_probs).isfinite().all()


def test_vtrace_compares_the_policy_with_the_one_that_acted() -> None:
    torch.manual_seed(0)
    spec = EnvSpec(ArraySpec("vector", (2,)), ActionSpec("discrete", (3,)))
    model = make_model(vantage.Config.of("a2c").policy, spec, critic="state")
    rollout, update = random_rollout(model, 6, 4), Update(0, 100)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        params, _ = model.unroll(rollout.obs, rollout.is_first, rollout.state)
    now, then = (each.softmax(-1).gather(-1, rollout.actions.unsqueeze(-1)).squeeze(-1)[rollout.valid]
                 for each in (params[:-1], rollout.behaviour))
    ratio = float(A2C(vtrace=True).loss(model, rollout, update)[1]["train/rho_mean"])
    assert ratio == pytest.approx(float((now / then).mean()), rel=1e-4) and abs(ratio - 1) > 1e-3
    assert "train/rho_mean" not in A2C().loss(model, rollout, update)[1]


def test_a_perfect_critic_explains_all_variance_and_a_constant_one_none() -> None:
    targets, valid = column(1.0, 2.0, 3.0), flags(True, True, True)
    assert explained_variance(targets, targets, valid) == 1
    assert explained_variance(column(2.0, 2.0, 2.0), targets, valid) == 0


def test_what_is_not_valid_has_no_part_in_a_mean() -> None:
    assert masked_mean(column(1.0, 100.0, 3.0), flags(True, False, True)) == 2


def test_the_target_of_the_critic_may_be_the_return_whatever_lambda_the_advantages_have() -> None:
    log_probs, values = column(-1.0, -2.0, grad=True), column(1.0, 3.0, 4.0, grad=True)

    def of(gae_lambda: float, value_target: str, behaviour: Tensor | None) -> tuple[Tensor, Tensor]:
        loss, _ = loss_of(log_probs, values, column(1.0, 0.0), gae_lambda=gae_lambda, value_target=value_target,
                          behaviour_log_probs=behaviour)
        return gradient(loss, log_probs), gradient(loss, values)

    for behaviour in (None, column(-0.5, -2.5)):
        mixed, low, high = of(0.3, "return", behaviour), of(0.3, "lambda", behaviour), of(1.0, "lambda", behaviour)
        assert torch.equal(mixed[0], low[0]) and not torch.equal(mixed[0], high[0])
        assert torch.equal(mixed[1], high[1]) and not torch.equal(mixed[1], low[1])
