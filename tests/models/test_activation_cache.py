"""Activation caches: the gradients of the plain pass, without computing the costly layers again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import vantage
from vantage.learning.collect import collect
from vantage.models.activation_cache import ActivationCache, conv2d, flatten_steps, images_last, linear
from vantage.runtimes.actor_learner import ActorLearner
from vantage.types import Rollout

T, B = 4, 2


def configure(algo: str = "a2c", **options: Any) -> vantage.Config:
    values: dict[str, Any] = {"env": "Pong", "num_envs": B, "rollout_length": T, "threads": 1, "memory": "none",
                              "norm": "none", "lr": 0.0, "memory_size": 8}
    return vantage.configure(algo, **(values | options))


def learn_once(config: vantage.Config) -> tuple[ActorLearner, Rollout]:
    """An actor-learner and the first rollout that it learns from."""
    one = ActorLearner(config)
    try:
        one.begin()
        rollouts: list[Rollout] = []
        loss = one.learner.loss

        def record(rollout: Rollout, *arguments: Any, **keys: Any) -> Any:
            cache = rollout.activation_cache
            rollouts.append(replace(rollout, activation_cache=None if cache is None else dict(cache)))
            return loss(rollout, *arguments, **keys)

        one.learner.loss = record  # type: ignore[method-assign]
        # The normalisers stay as they were while acting.
        one.learner.observe = lambda rollout, step: None  # type: ignore[method-assign]
        one.advance(lambda: 0)
        return one, rollouts[0]
    finally:
        one.close()


def gradient(one: ActorLearner, rollout: Rollout) -> tuple[float, Tensor]:
    loss, _ = one.learner.loss(rollout, 0)
    one.learner.flat.backward(loss)
    return loss.item(), one.learner.flat.gradient.clone()


@pytest.mark.parametrize("options", [
    {"network": "a3c"},
    {"network": "a3c", "memory": "lstm", "norm": "layer"},
    {"network": "nature", "frame_stack": 4},
    {"network": "nature", "frame_stack": 4, "stack_pad": "repeat", "separate": True},
    {"network": "maxpool"},
    {"network": "conv5", "memory": "gru", "bptt": False},
    {"network": "a3c", "obs_scale": "-1:1"},
    {"network": "a3c", "image_norm": True},
    {"network": "a3c", "vtrace": True},
    {"network": "a3c", "env": "vantage/Snake-v0", "vector": "async", "num_envs": 4, "screen_size": "32x32"},
], ids=str)
def test_gradients_are_those_of_the_plain_pass(options: dict[str, Any]) -> None:
    one, rollout = learn_once(configure(**options))
    assert rollout.activation_cache is not None and {"stack", "conv_0"} < rollout.activation_cache.keys()
    loss, actual = gradient(one, rollout)
    expected_loss, expected = gradient(one, replace(rollout, activation_cache=None))
    assert loss == pytest.approx(expected_loss, rel=1e-4, abs=1e-6)
    assert expected.norm() > 0
    assert (actual - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("options", [
    {"network": "universe"}, {"network": "impala"}, {"network": "mlp"}, {"network": "a3c", "norm": "batch"},
    {"network": "a3c", "precision": "bfloat16"}, {"network": "a3c", "rollouts_per_update": 2},
    {"env": "CartPole-v1", "network": "auto"}, {"algo": "acer", "network": "a3c"}], ids=str)
def test_other_networks_and_algorithms_have_no_cache(options: dict[str, Any]) -> None:
    _, rollout = learn_once(configure(**options))
    assert rollout.activation_cache is None


def test_two_updates_on_one_rollout_equal_those_of_an_uncached_model() -> None:
    """The cache is only valid for the weights that acted: the second pass must not use it."""
    weights = []
    for cached in (True, False):
        one = ActorLearner(configure(network="a3c", lr=0.0))
        try:
            one.begin()
            rollout = collect(one.model, one.groups, one.position, length=T, generator=one.generator,
                              activation_cache=cached).rollout
        finally:
            one.close()
        assert bool(rollout.activation_cache) is cached
        one.learner.config = one.learner.config.change(lr="0.01")
        for _ in range(2):
            one.learner.update(rollout, 0)
        weights.append(one.learner.flat.vector.clone())
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("stride", "padding", "bias"), [((1, 1), (0, 0), True), ((2, 2), (1, 1), False)])
def test_layers_give_what_torch_gives(stride: tuple[int, int], padding: tuple[int, int], bias: bool) -> None:
    """In float64, output and all gradients; a second pass reads the output from the cache."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"dtype": torch.float64, "requires_grad": True}
    x, weight = torch.randn(3, 2, 7, 7, **options), torch.randn(4, 2, 3, 3, **options)
    flat_weight, b = torch.randn(5, 2 * 49, **options), torch.randn(4, **options) if bias else None
    cache: ActivationCache = {}
    cases: list[tuple[str, Callable[[], Tensor], Callable[[], Tensor], list[Tensor]]] = [
        ("conv", lambda: conv2d(x, weight, b, stride, padding, cache, "conv"),
         lambda: F.conv2d(x, weight, b, stride, padding), [x, weight, *([b] if b is not None else [])]),
        ("fc", lambda: linear(x.flatten(1), flat_weight, None, cache, "fc"),
         lambda: F.linear(x.flatten(1), flat_weight), [x, flat_weight])]
    for name, layer, plain, parameters in cases:
        first, expected = layer(), plain()
        assert torch.equal(first, expected)
        by = torch.randn_like(expected)
        again = layer()
        assert again.data_ptr() == cache[name].data_ptr()
        reference = torch.autograd.grad(expected, parameters, by)
        for ours, theirs in zip(torch.autograd.grad(again, parameters, by), reference, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_steps_are_one_pass_over_all_of_them() -> None:
    images = torch.randn(T * B, 3, 5, 6).contiguous(memory_format=torch.channels_last)
    vectors = torch.randn(T * B, 7)
    cache = {name: part.reshape(T, B, *part.shape[1:])
             for name, part in (("conv", images_last(images)), ("fc", images_last(vectors)))}
    back = flatten_steps(cache)
    assert torch.equal(back["conv"], images) and torch.equal(back["fc"], vectors)
    assert back["conv"].is_contiguous(memory_format=torch.channels_last)
