"""What goes from model and rollout into ACER's losses: whose parameters, which Q of which actions, the config's values.

The losses themselves are tested in test_acer.py and test_acer_continuous.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from rollouts import random_rollout
from torch import Tensor

import vantage
from vantage.algorithms.acer_losses import continuous_acer_loss, discrete_acer_loss
from vantage.algorithms.interface import Update
from vantage.config.flat import of_run
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

T, B, A = 5, 3, 4
DISCRETE = EnvSpec(ArraySpec("vector", (6,)), ActionSpec("discrete", (A,)), masked=True)
BOX = EnvSpec(ArraySpec("vector", (6,)), ActionSpec("box", (2,), (-1.0,) * 2, (1.0,) * 2))
SWITCHES: dict[str, Any] = {"truncation": 1.2, "bias_correction": True, "trust_region": 0.05, "value_coef": 0.75,
                            "entropy_coef": 0.125, "gamma": 0.5}
BOUNDS_COEF = 0.25
CHANGES: list[dict[str, Any]] = [{}, {"truncation": None}, {"bias_correction": False}, {"trust_region": None}]


class Case:
    """A random rollout by a policy of its own, and the models of ACER, which have an LSTM."""

    def __init__(self, spec: EnvSpec, **options: Any) -> None:
        config = vantage.configure("acer", env="CartPole-v1", memory="lstm", **SWITCHES)
        self.config = config.change(**options)
        self.model, self.average = (make_model(self.config.policy, spec, critic="action") for _ in range(2))
        rollout = random_rollout(self.model, T, B, masked=spec.masked)
        self.rollout = replace(rollout, behaviour=rollout.behaviour + 0.5 * torch.randn_like(rollout.behaviour))
        with torch.no_grad():
            for parameter in self.average.parameters():  # so far away that the trust region acts
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
        self.average_params = self.unrolled(self.average)[0][:-1].detach()

    def unrolled(self, model: ActorCritic) -> tuple[Tensor, Tensor]:
        """Parameters and the critic's features of the rollout, from the state that it began in."""
        rollout = self.rollout
        return model.unroll_features(rollout.obs, rollout.is_first, rollout.state, rollout.action_mask)

    def assert_loss_is(self, expected: Tensor) -> None:
        """Also the gradients; the average policy has none."""
        generator = torch.Generator().manual_seed(5)
        loss, _ = self.config.algorithm.loss(self.model, self.rollout, Update(0, 100, self.average, generator))
        parameters = list(self.model.parameters())
        ours, theirs = (torch.autograd.grad(each, [*parameters, *self.average.parameters()], allow_unused=True)
                        for each in (loss, expected))
        torch.testing.assert_close((loss, ours[:len(parameters)]), (expected, theirs[:len(parameters)]))
        assert not any(gradient is not None for gradient in ours[len(parameters):])


@pytest.mark.parametrize("options", CHANGES, ids=str)
def test_a_categorical_loss_has_what_the_rollout_and_both_models_say(options: dict[str, Any]) -> None:
    case = Case(DISCRETE, **options)
    params, features = case.unrolled(case.model)
    rollout = case.rollout
    case.assert_loss_is(discrete_acer_loss(
        rollout.behaviour, case.average_params, params, case.model.action_values(features), rollout.actions,
        rollout.rewards, rollout.terminated, rollout.keep, rollout.valid, **SWITCHES | options)[0])


def test_v_is_the_expectation_of_q_under_the_policy() -> None:
    model = make_model(vantage.configure("acer", env="CartPole-v1").policy, DISCRETE, critic="action")
    features, params = torch.randn(B, model.value_head.in_features), torch.randn(B, A)
    expected = [sum(p * q for p, q in zip(torch.softmax(row, -1), model.action_values(x), strict=True))
                for row, x in zip(params, features, strict=True)]
    torch.testing.assert_close(model.state_values(features, params), torch.stack(expected))


@pytest.mark.parametrize(("options", "critic_samples", "std"), [
    *[(options, 5, "free") for options in CHANGES], ({}, 1, "state"), ({}, 5, "fixed")], ids=str)
def test_the_dueling_critic_is_v_plus_the_advantage_less_its_mean_over_draws_from_the_policy(
        options: dict[str, Any], critic_samples: int, std: str) -> None:
    """Q̃(x, a) = V(x) + A(x, a) - 1/n Σ_i A(x, u_i), u_i ~ π; a' is a further draw, so that Q̃(x, a') has no bias.

    With std=fixed the trust region leaves the deviation out.
    """
    case = Case(BOX, critic_samples=critic_samples, std=std, bounds_coef=BOUNDS_COEF, **options)
    model, rollout = case.model, case.rollout
    with torch.no_grad():
        model.policy_head.linear.weight.mul_(300)  # means beyond the bounds
    params, features = case.unrolled(model)
    values, params, features = model.state_values(features, params), params[:-1], features[:-1]
    drawn, *others = model.distribution.sample(params.expand(critic_samples + 1, *params.shape),
                                               torch.Generator().manual_seed(5))
    base = values[:-1] - sum(model.action_advantages(features, other) for other in others) / critic_samples
    q_taken, q_drawn = (base + model.action_advantages(features, actions) for actions in (rollout.actions, drawn))
    case.assert_loss_is(continuous_acer_loss(
        model.distribution, params, case.average_params, rollout.behaviour, values, q_taken, q_drawn, rollout.actions,
        drawn, rollout.rewards, rollout.terminated, rollout.keep, rollout.valid, bounds_coef=BOUNDS_COEF,
        fixed_deviation=std == "fixed",
        **SWITCHES | options)[0])


def test_an_older_run_goes_on_without_the_term_that_its_loss_did_not_have() -> None:
    acer, a2c = (vantage.configure(algo, env="Pendulum-v1").flat() for algo in ("acer", "a2c"))
    assert acer.pop("bounds_coef") == 0.5 and of_run(acer)["bounds_coef"] == 0
    assert "bounds_coef" not in of_run(a2c) and "bounds_coef" not in of_run(a2c | {"critic_samples": 3})
