"""Activation caches: the gradients of the plain pass, without computing the costly layers again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from rollouts import begun
from torch import Tensor, nn

import vantage
from vantage.learning.collect import collect
from vantage.learning.gradients import backward
from vantage.models.activation_cache import ActivationCache, run_layer
from vantage.runtimes.actor_learner import ActorLearner
from vantage.types import Rollout


def configure(**options: Any) -> vantage.Config:
    keys = {"algorithm": "a2c", "env": "Pong", "num_envs": 2, "rollout_length": 4, "threads": 1, "memory": "none",
            "norm": "none"} | options
    return vantage.configure(**keys | ({} if keys["memory"] == "none" else {"memory_size": 8}))


def act(*, cached: bool = True, **options: Any) -> tuple[ActorLearner, Rollout]:
    """An actor-learner, and a rollout that it collected."""
    with begun(configure(**options)) as one:
        return one, collect(one.model, one.envs, one.position, length=4, generator=one.generator,
                            activation_cache=cached).rollout


@pytest.mark.parametrize("options", [
    {"network": "a3c", "memory": "lstm", "norm": "layer"},
    {"network": "nature", "frame_stack": 4, "stack_pad": "repeat", "separate": True},
    {"network": "maxpool"}, {"network": "conv5", "memory": "gru", "bptt": False}, {"network": "a3c", "vtrace": True},
    {"network": "a3c", "obs_scale": "-1:1", "image_norm": "none"}, {"network": "a3c", "image_norm": "global"},
    {"network": "a3c", "env": "vantage/Snake-v0", "vector": "async", "num_envs": 4, "screen_size": "32x32"},
], ids=str)
def test_gradients_are_those_of_the_plain_pass(options: dict[str, Any]) -> None:
    one, rollout = act(**options)
    assert rollout.activation_cache is not None and {"stack", "conv_0"} < rollout.activation_cache.keys()
    results = []
    for each in (rollout, replace(rollout, activation_cache=None)):
        loss, _ = one.learner.loss(each, 0)
        backward(loss, one.learner.flat.parameters)
        results.append((loss.item(), one.learner.flat.gradient.clone()))
    (loss, actual), (expected_loss, expected) = results
    assert loss == pytest.approx(expected_loss, rel=1e-4, abs=1e-6)
    assert (expected.norm() * 1e-4 - (actual - expected).norm()) > 0


@pytest.mark.parametrize("options", [
    {"network": "universe"}, {"network": "impala"}, {"network": "mlp"}, {"network": "a3c", "norm": "batch"},
    {"network": "a3c", "precision": "bfloat16"}, {"env": "CartPole-v1", "network": "auto"}], ids=str)
def test_other_networks_have_no_cache(options: dict[str, Any]) -> None:
    assert act(**options)[1].activation_cache is None


@pytest.mark.parametrize(("options", "expected"), [({}, True), ({"rollouts_per_update": 2}, False),
                                                   ({"algorithm": "acer"}, False)])
def test_only_a_single_pass_over_a_fresh_rollout_uses_a_cache(options: dict[str, Any], expected: bool) -> None:
    with begun(configure(network="a3c", **options)) as one:
        uses, loss = [], one.learner.loss
        one.learner.loss = lambda rollout, *rest, **keys: (  # type: ignore[method-assign]
            uses.append(bool(rollout.activation_cache)) or loss(rollout, *rest, **keys))
        one.advance(lambda: 0)
    assert uses[0] is expected


def test_two_updates_on_one_rollout_equal_those_of_an_uncached_model() -> None:
    """The cache is only valid for the weights that acted: the second pass must not use it."""
    weights = []
    for cached in (True, False):
        one, rollout = act(cached=cached, network="a3c", lr="0.01")
        assert bool(rollout.activation_cache) is cached
        for _ in range(2):
            one.learner.update(rollout, 0)
        weights.append(one.learner.flat.vector.clone())
    torch.testing.assert_close(*weights, rtol=1e-5, atol=2e-5)  # lr is 0.01


@pytest.mark.parametrize(("make_layer", "shape"), [
    (lambda: nn.Conv2d(2, 4, 3), (3, 2, 7, 7)), (lambda: nn.Conv2d(2, 4, 3, 2, 1, bias=False), (3, 2, 7, 7)),
    (lambda: nn.Linear(9, 5), (3, 9)), (lambda: nn.Linear(9, 5, bias=False), (3, 9))])
def test_a_cached_layer_has_the_gradients_of_torchs(make_layer: Callable[[], Any], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer, cache = make_layer().double(), ActivationCache()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    expected = layer(x)
    assert torch.equal(run_layer(layer, x, layer.weight, cache, "layer"), expected)
    again = run_layer(layer, x, layer.weight, cache, "layer")
    assert again.data_ptr() == cache["layer"].data_ptr()
    gradients: list[tuple[Tensor, ...]] = [torch.autograd.grad(out.sin().sum(), [x, *layer.parameters()])
                                           for out in (again, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
