"""Gradients that NumPy computes are those of autograd, for all policies that it is used for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rollouts import begun, random_rollout
from torch import Tensor

import vantage
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Update
from vantage.algorithms.ppo import PPO
from vantage.learning.array_update import ArrayUpdates
from vantage.learning.collect import Position, act, act_by_arrays, empty_rollout, in_arrays
from vantage.learning.minibatches import Pieces, minibatches
from vantage.learning.step_metrics import StepLoss
from vantage.learning.weights import FlatParameters
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model
from vantage.models.config import PolicyConfig
from vantage.models.mlp_arrays import MlpArrays
from vantage.types import ActionSpec, ArraySpec, EnvSpec

UPDATE = Update(0, 100)
DISCRETE = ActionSpec("discrete", (3,))
BOX = ActionSpec("box", (2,), low=(-1.0, -1.0), high=(1.0, 1.0))


def model_of(action: ActionSpec, **policy: Any) -> ActorCritic:
    config = vantage.Config.of("ppo").change(**{"hidden": (6, 5)} | policy)
    return make_model(config.policy, EnvSpec(ArraySpec("vector", (4,)), action), critic="state")


CASES: dict[str, tuple[ActionSpec, dict[str, Any], dict[str, Any], bool]] = {
    "discrete": (DISCRETE, {}, {}, False),
    "masked": (DISCRETE, {}, {}, True),
    "box": (BOX, {}, {"entropy_coef": 0.3}, False),
    "box with a floor of the deviation": (BOX, {"min_std": 1.0, "std_lr_scale": 2.0}, {}, False),
    "one trunk": (DISCRETE, {"separate": False, "activation": "relu"}, {}, False),
    "one trunk of the policy alone": (DISCRETE, {"separate": False, "detach_critic": True}, {}, False),
    "relu": (BOX, {"activation": "relu"}, {}, False),
    "one layer": (DISCRETE, {"hidden": (7,)}, {}, False),
    "clipped values": (DISCRETE, {}, {"value_clip": 0.1}, False),
    "large ratios": (BOX, {}, {"clip": 0.01}, False),
    "normalised values": (DISCRETE, {"value_norm": "popart"}, {}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_losses_and_metrics_are_those_of_autograd(case: str) -> None:
    action, policy, algorithm, masked = CASES[case]
    torch.manual_seed(0)
    model = model_of(action, **policy)
    ppo = replace(PPO(), **algorithm)
    rollout = random_rollout(model, 9, 4, masked=masked)
    rollout = replace(rollout, behaviour=rollout.behaviour + 0.1 * torch.randn_like(rollout.behaviour))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        if model.value_norm is not None:
            model.value_norm.mean.fill_(3.0)
            model.value_norm.var.fill_(4.0)
    flat = FlatParameters(model.parameters())
    arrays = ArrayUpdates(model, flat)
    assert arrays.supports(ppo, 36)
    advantages, targets, *_ = ppo.estimate(rollout, UPDATE)
    ours = arrays.of_minibatches(ppo, rollout, advantages, targets, Pieces(8, 2, torch.Generator().manual_seed(0)),
                                 UPDATE)
    theirs = minibatches(rollout, advantages, targets, model, Pieces(8, 2, torch.Generator().manual_seed(0)))
    count = 0
    for step, minibatch in zip(ours, theirs, strict=True):
        check(step, ppo.loss(model, minibatch, UPDATE), flat)
        assert step.num_valid == minibatch.valid.sum()
        count += 1
    assert count == 8, "36 steps in four minibatches, twice"


A2C_CASES: dict[str, tuple[ActionSpec, dict[str, Any], dict[str, Any], bool]] = {
    "discrete": (DISCRETE, {}, {}, False),
    "masked": (DISCRETE, {}, {"advantage_norm": True}, True),
    "box": (BOX, {"min_std": 1.0, "std_lr_scale": 2.0}, {"entropy_coef": 0.3, "gae_lambda": 0.9}, False),
    "one trunk": (DISCRETE, {"separate": False, "activation": "relu"}, {"value_target": "return"}, False),
    "one trunk of the policy alone": (BOX, {"separate": False, "detach_critic": True}, {}, False),
    "stacked frames": (DISCRETE, {"frame_stack": 2}, {"value_coef": 2.0}, False),
    "vtrace": (DISCRETE, {}, {"vtrace": True, "gae_lambda": 0.9}, True),
}


@pytest.mark.parametrize("case", A2C_CASES)
def test_the_gradient_of_a2c_is_that_of_autograd(case: str) -> None:
    action, policy, algorithm, masked = A2C_CASES[case]
    torch.manual_seed(0)
    model = model_of(action, **policy)
    a2c = A2C(**algorithm)
    rollout = random_rollout(model, 9, 4, masked=masked)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    flat = FlatParameters(model.parameters())
    arrays = ArrayUpdates(model, flat)
    assert arrays.supports(a2c, 36)
    step = arrays.of_rollout(a2c, rollout, UPDATE)
    check(step, a2c.loss(model, rollout, UPDATE), flat)
    assert step.num_valid == rollout.valid.sum()


def check(step: StepLoss, autograd: tuple[Tensor, Mapping[str, Tensor]], flat: FlatParameters) -> None:
    """Loss, metrics and gradient are those of autograd."""
    loss, metrics = autograd
    expected = torch.autograd.grad(loss, flat.parameters)
    for parameter, gradient in zip(flat.parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    assert step.value == pytest.approx(loss.item(), rel=1e-4, abs=1e-6)
    assert dict(step.metrics) == pytest.approx({name: x.item() for name, x in metrics.items()}, rel=1e-3, abs=1e-5)


def test_a_ratio_that_would_overflow_has_the_gradient_of_autograd() -> None:
    model = model_of(DISCRETE)
    flat = FlatParameters(model.parameters())
    arrays = ArrayUpdates(model, flat)
    rollout = random_rollout(model, 9, 4)
    # The policy that acted gave the first action taken a probability below exp(-100).
    behaviour = rollout.behaviour.clone()
    behaviour[0].scatter_(-1, rollout.actions[0].unsqueeze(-1), -200.0)
    far = replace(rollout, behaviour=behaviour, valid=torch.ones_like(rollout.valid))
    targets = torch.zeros_like(rollout.rewards)
    for advantage in (1.0, -1.0, 0.0):
        advantages = torch.full_like(rollout.rewards, advantage)
        whole = Pieces(36, 1, torch.Generator().manual_seed(0))
        assert arrays.supports(PPO(), 36)
        step, = arrays.of_minibatches(PPO(), far, advantages, targets, whole, UPDATE)
        whole = Pieces(36, 1, torch.Generator().manual_seed(0))
        minibatch, = minibatches(far, advantages, targets, model, whole)
        check(step, PPO().loss(model, minibatch, UPDATE), flat)
        assert np.isfinite(step.value)


def serves(algorithm: object, model: ActorCritic, num_steps: int) -> bool:
    return ArrayUpdates(model, FlatParameters(model.parameters())).supports(algorithm, num_steps)


@pytest.mark.parametrize("policy", [{"memory": "gru"}, {"norm": "layer"}, {"activation": "elu"}, {"hidden": (400, 300)},
                                    {"std": "state"}, {"squash_mean": True}])
def test_other_networks_are_left_to_torch(policy: dict[str, Any]) -> None:
    assert not serves(PPO(), model_of(BOX, **policy), 1024)
    assert not serves(A2C(), model_of(BOX, **policy), 1024)


@pytest.mark.parametrize("kind", [A2C, PPO])
def test_other_losses_are_left_to_torch(kind: Any) -> None:
    class Own(kind):  # type: ignore[misc]
        def loss(self, model: Any, data: Any, update: Any) -> Any:
            return super().loss(model, data, update)

    class Same(kind):  # type: ignore[misc]
        pass

    assert serves(Same(), model_of(DISCRETE), 1024)
    assert not serves(Own(), model_of(DISCRETE), 1024)


def test_large_batches_are_left_to_torch() -> None:
    model = model_of(DISCRETE)
    assert not serves(A2C(), model, 2048)
    large = replace(PPO(), minibatch_size=4096)
    assert not serves(large, model, 2048)
    assert serves(large, model, 512), "all of a small rollout"
    assert not serves(replace(PPO(), advantage_norm_over="minibatch"), model, 2048)


def test_weights_that_are_frozen_or_moved_between_updates_are_noticed() -> None:
    model = model_of(DISCRETE)
    flat = FlatParameters(model.parameters())
    arrays = ArrayUpdates(model, flat)
    rollout = random_rollout(model, 9, 4)
    assert arrays.supports(A2C(), 36)
    flat.move(torch.zeros_like(flat.vector), torch.full_like(flat.vector, torch.nan))
    arrays.of_rollout(A2C(), rollout, UPDATE)
    assert model.value_head.weight.grad is not None and model.value_head.weight.grad.isfinite().all()
    model.value_head.requires_grad_(False)
    assert not arrays.supports(A2C(), 36)


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_weights_after_updates_are_those_of_autograd_but_for_rounding(
        algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = []
    for written_out in (True, False):
        if not written_out:
            monkeypatch.setattr(ArrayUpdates, "supports", lambda *_: False)
        config = vantage.configure(algo, env="CartPole-v1", num_envs=2, rollout_length=32, threads=1, num_workers=1)
        with begun(config) as one:
            one.advance(lambda: 0)
            vectors.append(one.learner.flat.vector.clone())
    torch.testing.assert_close(vectors[0], vectors[1], rtol=1e-3, atol=1e-5)
    assert not torch.equal(vectors[0], vectors[1]), "one of them is computed by NumPy"


def test_numbers_beyond_the_range_raise_no_warnings_of_numpy() -> None:
    model = model_of(DISCRETE)
    arrays = ArrayUpdates(model, FlatParameters(model.parameters()))
    rollout = random_rollout(model, 9, 4, masked=True)
    far = replace(rollout, behaviour=rollout.behaviour * 1e4, rewards=rollout.rewards * torch.inf)
    advantages, targets, *_ = PPO().estimate(rollout, UPDATE)
    with np.errstate(all="raise"):
        steps = [*arrays.of_minibatches(PPO(), far, advantages, targets * torch.inf,
                                        Pieces(8, 1, torch.Generator().manual_seed(0)), UPDATE),
                 arrays.of_rollout(A2C(), far, UPDATE)]
    assert not np.isfinite([float(step.value) for step in steps]).any()


@pytest.mark.parametrize("action", [DISCRETE, BOX, ActionSpec("multi_discrete", (2, 3))],
                         ids=lambda action: action.kind)
@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("policy", [{"obs_norm": False}, {"obs_norm": True}])
def test_acting_by_arrays_is_acting(action: ActionSpec, values: bool, policy: dict[str, Any]) -> None:
    model = model_of(action, **policy)
    model.observe(3 + 2 * torch.randn(7, 5, 4))
    obs, is_first = 3 + 9 * torch.randn(5, 4), torch.zeros(5, dtype=torch.bool)
    mask = torch.rand(5, model.distribution.num_params) < 0.7 if action.kind == "discrete" else None
    if mask is not None:
        mask[:, 0] = True
    position = Position(obs, is_first, mask, ())
    rollouts = [empty_rollout(model, position, 1, values=values) for _ in range(2)]
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    with torch.no_grad():
        expected, _ = act(model, rollouts[0], 0, (), generators[0])
        actions = act_by_arrays(MlpArrays(model), in_arrays(rollouts[1]), 0, generators[1])
    assert torch.equal(*(generator.get_state() for generator in generators))
    torch.testing.assert_close(torch.from_numpy(actions), expected)
    torch.testing.assert_close(rollouts[1].actions[0], expected)
    torch.testing.assert_close(rollouts[1].behaviour, rollouts[0].behaviour)
    if values:
        torch.testing.assert_close(rollouts[1].values[0], rollouts[0].values[0])  # type: ignore[index]


def test_a_dict_of_one_vector_acts_as_the_vector() -> None:
    policy = PolicyConfig(hidden=(8,), obs_norm=True)
    vector = ArraySpec("vector", (3,))
    model = make_model(policy, EnvSpec({"at": vector}, DISCRETE), critic="state")
    obs = np.ones((2, 3), np.float32)
    assert MlpArrays(model).inputs({"at": obs}).tolist() == MlpArrays(
        make_model(policy, EnvSpec(vector, DISCRETE), critic="state")).inputs(obs).tolist()
