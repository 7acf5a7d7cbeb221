"""What goes from model and rollout into ACER's losses: whose parameters, which Q of which actions, the config's values.

The losses themselves are tested in test_acer.py.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import vantage
from vantage.algorithms import acer_losses
from vantage.algorithms.interface import Update
from vantage.models.actor_critic import ActorCritic, make_model
from vantage.specs import ActionSpec, ArraySpec, EnvSpec
from vantage.types import Rollout

T, B, A, D = 5, 3, 4, 2
DISCRETE = EnvSpec(ArraySpec("vector", (6,)), ActionSpec("discrete", (A,)), masked=True)
BOX = EnvSpec(ArraySpec("vector", (6,)), ActionSpec("box", (D,), (-1.0,) * D, (1.0,) * D))
SWITCHES: dict[str, Any] = {"truncation": 3.5, "bias_correction": False, "trust_region": 0.25, "value_coef": 0.75,
                            "entropy_coef": 0.125, "gamma": 0.5}


SIGNATURES = {name: inspect.signature(getattr(acer_losses, name))
              for name in ("discrete_acer_loss", "continuous_acer_loss")}


def randoms(*shape: int) -> Tensor:
    return torch.randn(*shape)


class Passed:
    """What `ACER.loss` gives to the loss of a random rollout, by name."""

    def __init__(self, spec: EnvSpec, monkeypatch: pytest.MonkeyPatch, burn_in: int = 0, **options: Any) -> None:
        self.config = vantage.configure("acer", **({"env": "CartPole-v1", "burn_in": burn_in} | SWITCHES | options))
        self.model, self.average = (make_model(self.config.policy, spec, critic="action") for _ in range(2))
        discrete = spec.action.kind == "discrete"
        mask = torch.ones(T + 1, B, A, dtype=torch.bool)
        mask[:, :, 0] = False
        actions = torch.randint(1, A, (T, B)) if discrete else randoms(T, B, D)
        self.rollout = Rollout(
            randoms(T + 1, B, 6), torch.rand(T + 1, B) < 0.3, actions, randoms(T, B), torch.rand(T, B) < 0.3,
            torch.rand(T, B) < 0.8, mask if discrete else None,
            randoms(T, B, self.model.distribution.num_params), self.model.initial_state(B))
        loss_of = "discrete_acer_loss" if discrete else "continuous_acer_loss"
        signature = SIGNATURES[loss_of]
        self.given: dict[str, Any] = {}

        def loss(*values: Any, **keywords: Any) -> tuple[Tensor, dict[str, Tensor]]:
            self.given |= signature.bind(*values, **keywords).arguments
            return torch.zeros(()), {}

        monkeypatch.setattr(acer_losses, loss_of, loss)
        self.run_loss(self.rollout)

    def run_loss(self, rollout: Rollout) -> None:
        generator = torch.Generator().manual_seed(5)
        self.config.algorithm.loss(self.model, rollout, Update(0, 100, self.average, generator, replayed=True))

    def unrolled(self, model: ActorCritic) -> tuple[Tensor, Tensor]:
        """Parameters and the critic's features of the rollout."""
        rollout = self.rollout
        return model.unroll_features(rollout.obs, rollout.is_first, rollout.state, rollout.action_mask)

    def assert_given(self, **expected: Tensor) -> None:
        for name, value in expected.items():
            assert torch.allclose(self.given[name], value, rtol=0, atol=1e-6), name


def test_a_categorical_loss_has_what_the_rollout_and_both_models_say(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Passed(DISCRETE, monkeypatch)
    params, features = passed.unrolled(passed.model)
    rollout = passed.rollout
    passed.assert_given(
        behaviour_logits=rollout.behaviour, average_logits=passed.unrolled(passed.average)[0][:-1], logits=params,
        q_values=passed.model.action_values(features), actions=rollout.actions, rewards=rollout.rewards,
        terminated=rollout.terminated, keep=rollout.keep, valid=rollout.valid)
    assert not passed.given["average_logits"].requires_grad


def test_v_is_the_expectation_of_q_under_the_policy() -> None:
    model = make_model(vantage.configure("acer", env="CartPole-v1").policy, DISCRETE, critic="action")
    features, params = randoms(B, model.value_head.in_features), randoms(B, A)
    expected = [sum(p * q for p, q in zip(torch.softmax(row, -1), model.action_values(x), strict=True))
                for row, x in zip(params, features, strict=True)]
    torch.testing.assert_close(model.state_values(features, params), torch.stack(expected))


@pytest.mark.parametrize("critic_samples", [1, 5])
def test_the_dueling_critic_is_v_plus_the_advantage_less_its_mean_over_draws_from_the_policy(
        critic_samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q̃(x, a) = V(x) + A(x, a) - 1/n Σ_i A(x, u_i), u_i ~ π; a' is a further draw, so that Q̃(x, a') has no bias."""
    passed = Passed(BOX, monkeypatch, critic_samples=critic_samples)
    model, rollout = passed.model, passed.rollout
    params, features = passed.unrolled(model)
    values, params, features = model.state_values(features, params), params[:-1], features[:-1]
    draws = model.distribution.sample(params.expand(critic_samples + 1, *params.shape),
                                      torch.Generator().manual_seed(5))
    mean = sum(model.action_advantages(features, u) for u in draws[1:]) / critic_samples
    passed.assert_given(
        params=params, average_params=passed.unrolled(passed.average)[0][:-1], behaviour_params=rollout.behaviour,
        values=values, q_taken=values[:-1] + model.action_advantages(features, rollout.actions) - mean,
        q_drawn=values[:-1] + model.action_advantages(features, draws[0]) - mean, actions=rollout.actions,
        drawn=draws[0], rewards=rollout.rewards, terminated=rollout.terminated, keep=rollout.keep, valid=rollout.valid)
    assert passed.given["q_taken"].requires_grad and not passed.given["average_params"].requires_grad


@pytest.mark.parametrize("spec", [DISCRETE, BOX], ids=["discrete", "continuous"])
def test_the_loss_has_the_switches_of_the_config(spec: EnvSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (SWITCHES, {"truncation": None, "bias_correction": True, "trust_region": None}):
        given = Passed(spec, monkeypatch, **options).given
        assert {name: given[name] for name in options} == options


@pytest.mark.parametrize("std", ["fixed", "free", "state"])
def test_only_a_fixed_deviation_is_none_of_the_statistics(std: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Passed(BOX, monkeypatch, std=std).given["fixed_deviation"] == (std == "fixed")


def test_burn_in_takes_the_first_steps_out_of_the_loss_and_leaves_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Passed(DISCRETE, monkeypatch, burn_in=2, memory="gru")
    assert not passed.given["valid"][:2].any()
    assert torch.equal(passed.given["valid"][2:], passed.rollout.valid[2:]) and passed.rollout.valid[:2].any()


@pytest.mark.parametrize("spec", [DISCRETE, BOX], ids=["discrete", "continuous"])
def test_a_replayed_rollout_is_unrolled_from_the_state_that_it_began_in(spec: EnvSpec,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    passed = Passed(spec, monkeypatch, memory="lstm", memory_size=8)
    name = "logits" if spec is DISCRETE else "params"
    begun = replace(passed.rollout, is_first=torch.zeros(T + 1, B, dtype=torch.bool))
    given = []
    for state in (begun.state, tuple(randoms(*part.shape) for part in begun.state)):
        passed.run_loss(replace(begun, state=state))
        given.append(passed.given[name])
    assert (given[0] != given[1]).any()
