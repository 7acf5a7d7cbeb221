"""Batch normalisation: acting and learning use the same function, and the gradient flows through the batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from stopping import stop_after
from torch import Tensor

import vantage
from vantage.config import Config
from vantage.errors import ConfigError
from vantage.learning.learner import AveragePolicy
from vantage.models import ActorCritic, make_model
from vantage.models.normalization import EPSILON, RATE, BatchNorm
from vantage.runs.checkpoint import load_latest
from vantage.tools.export import export
from vantage.types import ActionSpec, ArraySpec, EnvSpec, Rollout

VECTOR, IMAGE = ArraySpec("vector", (3,)), ArraySpec("image", (1, 44, 44))
DISCRETE = ActionSpec("discrete", (4,))
T, B = 6, 5


def data(*shape: int, seed: int = 0) -> Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x * torch.linspace(0.5, 4, shape[1]).view(-1, *(1,) * (len(shape) - 2)) + 2


def learn_from(norm: BatchNorm, x: Tensor) -> None:
    norm(x.clone().requires_grad_())
    norm.update()


def model(obs: ArraySpec, **keys: Any) -> ActorCritic:
    torch.manual_seed(0)
    config = Config().change(**({"norm": "batch", "hidden": "16,8"} | keys))
    return make_model(config.policy, EnvSpec(obs, DISCRETE), critic=config.algorithm.needs.critic)


def norms(net: ActorCritic) -> list[BatchNorm]:
    layers = [module for _, module in net.running() if isinstance(module, BatchNorm)]
    assert layers
    return layers


def rollouts(obs: ArraySpec, net: ActorCritic) -> Iterator[Rollout]:
    source = torch.Generator().manual_seed(1)
    false = torch.zeros(T, B, dtype=torch.bool)
    while True:
        batch = (torch.randint(256, (T + 1, B, *obs.shape), dtype=torch.uint8, generator=source)
                 if obs.kind == "image" else 3 * torch.randn(T + 1, B, *obs.shape, generator=source) + 1)
        yield Rollout(obs=batch, is_first=torch.rand(T + 1, B, generator=source) < 0.2,
                      actions=torch.randint(4, (T, B), generator=source),
                      rewards=torch.randn(T, B, generator=source), terminated=false, valid=~false, action_mask=None,
                      behaviour=torch.randn(T, B, 4, generator=source), state=net.initial_state(B))


def third_rollout(obs: ArraySpec, net: ActorCritic) -> Rollout:
    """A fresh rollout, after two whose statistics `net` has observed."""
    source = rollouts(obs, net)
    for _ in range(2):
        rollout = next(source)
        net.unroll(rollout.obs, rollout.is_first, rollout.state)
        net.observe(rollout.obs)
    return next(source)


# One layer


@pytest.mark.parametrize("shape", [(20, 3), (20, 3, 5), (20, 3, 5, 4)])
def test_the_output_is_the_same_with_and_without_gradients(shape: tuple[int, ...]) -> None:
    norm, x = BatchNorm(3), data(*shape)
    for seed in (1, 2):
        with torch.no_grad():
            acted = norm(x)
        torch.testing.assert_close(norm(x), acted, rtol=1e-4, atol=1e-5)
        learn_from(norm, data(*shape, seed=seed))


@pytest.mark.parametrize("shape", [(20, 3), (20, 3, 5, 4)])
def test_the_gradient_is_that_of_the_paper_with_constant_corrections(shape: tuple[int, ...]) -> None:
    norm, x, weight = BatchNorm(3).double(), data(*shape).double(), data(*shape, seed=9).double()
    learn_from(norm, data(*shape, seed=1).double())
    dims = [0, *range(2, len(shape))]
    view = (1, 3, *(1,) * (len(shape) - 2))

    def slow(x: Tensor) -> Tensor:
        mean, deviation = x.mean(dims, keepdim=True), (x.var(dims, correction=0, keepdim=True) + EPSILON).sqrt()
        running = (norm.var + EPSILON).sqrt().view(view)
        r, d = (deviation / running).detach(), ((mean - norm.mean.view(view)) / running).detach()
        return (x - mean) / deviation * r + d

    gradients = []
    for function in (norm, slow):
        leaf = x.clone().requires_grad_()
        gradient, = torch.autograd.grad((function(leaf) * weight).sum(), leaf)
        gradients.append(gradient)
    torch.testing.assert_close(*gradients)
    frozen = weight / (norm.var + EPSILON).sqrt().view(view)
    assert not torch.allclose(gradients[0], frozen, rtol=0.1)


def test_statistics_start_as_those_of_the_first_batch_and_a_new_batch_weighs_at_least_the_rate() -> None:
    norm, x = BatchNorm(3), data(20, 3)
    learn_from(norm, x)
    torch.testing.assert_close(norm.mean, x.mean(0), rtol=1e-3, atol=0)
    torch.testing.assert_close(norm.var, x.var(0, correction=0), rtol=1e-3, atol=0)
    for _ in range(300):
        learn_from(norm, x)
    before = norm.mean.clone()
    learn_from(norm, x + 10)
    torch.testing.assert_close(norm.mean - before, torch.full((3,), 10 * RATE), rtol=1e-2, atol=0)


def test_statistics_change_only_in_update_and_by_the_last_batch_with_gradients() -> None:
    norm, x = BatchNorm(3), data(20, 3)
    with torch.no_grad():
        norm(x)
    norm.update()
    assert torch.equal(norm.mean, torch.zeros(3))
    norm(x + 5)
    norm(x)
    assert torch.equal(norm.mean, torch.zeros(3))
    norm.update()
    norm.update()
    torch.testing.assert_close(norm.mean, x.mean(0), rtol=1e-3, atol=0)
    assert norm.count.item() == pytest.approx(20, rel=1e-4)


def test_a_constant_channel_stays_finite_and_a_far_value_is_clipped() -> None:
    norm = BatchNorm(1)
    for _ in range(5):
        learn_from(norm, torch.full((20, 1), 3.0))
    x = torch.full((20, 1), 3.0, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert y.abs().max() < 0.1 and x.grad is not None and x.grad.isfinite().all()
    assert norm(torch.tensor([[4.0], [1e6]])).flatten().tolist() == [10, 10]


# In a policy


@pytest.mark.parametrize(("obs", "keys"), [
    (VECTOR, {"memory": "lstm", "memory_size": 4, "separate": True, "frame_stack": 2, "stack_pad": "repeat"}),
    (VECTOR, {"network": "conv1d", "memory": "gru", "memory_size": 4, "bptt": False}),
    (IMAGE, {"network": "a3c", "frame_stack": 2}), (IMAGE, {"network": "maxpool", "image_norm": True})],
    ids=["mlp", "conv1d", "a3c", "maxpool"])
def test_unrolls_with_gradients_equal_single_steps_without(obs: ArraySpec, keys: dict[str, Any]) -> None:
    net = model(obs, **keys)
    rollout = third_rollout(obs, net)
    assert isinstance(rollout.obs, Tensor)
    params, values = net.unroll(rollout.obs, rollout.is_first, rollout.state)
    assert params.requires_grad and all(norm.mean.abs().sum() > 0 for norm in norms(net))
    state = rollout.state
    with torch.no_grad():
        for t in range(T + 1):
            step_params, value, state = net.step_with_values(rollout.obs[t], rollout.is_first[t], state)
            torch.testing.assert_close(params[t], step_params, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(values[t], value, rtol=1e-3, atol=1e-4)


def test_half_precision_torsos_normalise_in_full() -> None:
    net = model(IMAGE, network="a3c", precision="bfloat16")
    rollout = next(rollouts(IMAGE, net))
    params, _ = net.unroll(rollout.obs, rollout.is_first, rollout.state)
    params.square().sum().backward()
    assert params.dtype == torch.float32 and all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    assert all(norm.batch is not None and norm.batch[1].dtype == torch.float32 for norm in norms(net))


def test_acers_average_policy_has_its_own_weights_and_shares_the_statistics() -> None:
    net = model(VECTOR, algo="acer")
    average = AveragePolicy(net, 0.99)
    rollout = next(rollouts(VECTOR, net))
    net.unroll(rollout.obs, rollout.is_first, rollout.state)
    net.observe(rollout.obs)
    for ours, theirs in zip(norms(average.model), norms(net), strict=True):
        assert torch.equal(ours.mean, theirs.mean) and ours.mean.abs().sum() > 0
        assert ours.weight is not theirs.weight
    with torch.no_grad():
        for norm in norms(net):
            norm.weight.mul_(2)
    assert all((norm.weight == 1).all() for norm in norms(average.model))
    assert dict(average.model.named_buffers()).keys() == dict(net.named_buffers()).keys()


# In runs


QUIET = {"threads": 1, "tensorboard": False, "log_every_seconds": 1000, "eval_every": 0, "num_envs": 2, "hidden": "8",
         "rollout_length": 4, "steps": 160, "save_every": 10_000, "norm": "batch",
         "obs_norm": False}


@pytest.mark.parametrize(("algo", "options"), [("a2c", {"rollouts_per_update": 2, "memory": "gru", "memory_size": 4}),
                                               ("acer", {"replay_start": 40, "replay_size": 400})])
def test_a_stopped_and_resumed_run_equals_the_uninterrupted_bit_for_bit(algo: str, options: dict[str, Any]) -> None:
    config = vantage.configure(algo, env="CartPole-v1", **QUIET, **options)
    *_, last = vantage.train(config, run="whole")
    assert stop_after(4, Path("parts"), config) < last.step
    *_, _ = vantage.resume("parts")
    ours, theirs = (load_latest(Path(run)).tensors for run in ("parts", "whole"))
    for group in theirs:
        assert all(torch.equal(ours[group][name], tensor) for name, tensor in theirs[group].items()), group
    assert theirs["model"]["actor.torsos.0.norms.0.mean"].abs().sum() > 0


@pytest.mark.parametrize("format", ["onnx", "safetensors"])
def test_exports_carry_the_statistics(format: str) -> None:
    *_, _ = vantage.train(vantage.configure("a2c", env="CartPole-v1", **QUIET), run="run")
    exported = export("run", format=format)  # compares the outputs
    assert exported.difference < 1e-5
    if format == "safetensors":
        ours, theirs = vantage.load(exported.path).model.state_dict(), load_latest(Path("run")).tensors["model"]
        assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_a_batch_that_leaves_no_gradient_is_refused() -> None:
    vantage.configure("a2c", env="CartPole-v1", norm="batch", num_envs=1, rollout_length=3)
    with pytest.raises(ConfigError, match="norm=batch lets no gradient through a batch of 2; give a larger"):
        vantage.configure("a2c", env="CartPole-v1", norm="batch", num_envs=1, rollout_length=2)
