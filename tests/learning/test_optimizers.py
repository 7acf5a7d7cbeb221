"""TensorFlow's RMSProp, torch's optimisers of one vector, and optimisers by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import vantage
from vantage.errors import ConfigError
from vantage.learning.config import OPTIMIZERS, OptimizerConfig
from vantage.learning.optimizers import STATISTICS, Optimizer, make_optimizer, within


def optimizer_of(name: str, vector: torch.Tensor, *, eps: float, decay: float) -> Optimizer:
    return make_optimizer(OptimizerConfig(name, optimizer_eps=eps, optimizer_decay=decay), vector)


def test_rmsprop_tf_equals_the_papers_recursion() -> None:
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    vector = x.clone()
    optimizer = optimizer_of("rmsprop_tf", vector, eps=0.01, decay=0.9)
    square = torch.ones_like(x)
    for k in range(5):
        gradient = torch.tensor([0.3 * k, -1.0], dtype=torch.float64)
        optimizer.step(gradient, lr=0.1)
        square = 0.9 * square + 0.1 * gradient**2
        x = x - 0.1 * gradient / (square + 0.01) ** 0.5
    torch.testing.assert_close(vector, x, atol=1e-14, rtol=0)


TORCHS = {
    "rmsprop": lambda x: torch.optim.RMSprop([x], alpha=0.9, eps=1e-3),
    "adam": lambda x: torch.optim.Adam([x], eps=1e-3, fused=True),
    "amsgrad": lambda x: torch.optim.Adam([x], eps=1e-3, amsgrad=True, fused=True),
    "AdamW": lambda x: torch.optim.AdamW([x], eps=1e-3),
}


def gradients() -> list[torch.Tensor]:
    """They shrink, so that the largest second moments are not the last ones."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(100, generator=generator) / (k + 1) for k in range(20)]


@pytest.mark.parametrize("name", TORCHS)
def test_torchs_optimisers_move_a_vector_to_the_same_bits(name: str) -> None:
    parameter, vector = nn.Parameter(torch.zeros(100)), torch.zeros(100)
    torchs, ours = TORCHS[name](parameter), optimizer_of(name, vector, eps=1e-3, decay=0.9)
    for k, gradient in enumerate(gradients()):
        lr = 0.1 / (k + 1)
        parameter.grad, torchs.param_groups[0]["lr"] = gradient.clone(), lr
        torchs.step()
        ours.step(gradient, lr)
        assert torch.equal(vector, parameter.data), k
    state = torchs.state_dict()["state"][0]
    assert state.keys() == ours.tensors().keys()
    assert all(torch.equal(value, state[key]) for key, value in ours.tensors().items())


@pytest.mark.parametrize("name", [*STATISTICS, "AdamW", "SGD", "NAdam", "Adafactor"])
def test_an_optimiser_descends_and_goes_on_from_its_tensors(name: str) -> None:
    vector = torch.zeros(100)
    optimizer = optimizer_of(name, vector, eps=1e-3, decay=0.9)
    assert not optimizer.tensors()
    for number, gradient in enumerate(gradients()[:10]):
        optimizer.step(gradient, lr=0.1)
        assert number or gradient @ vector < 0
    copy, tensors = vector.clone(), {key: value.clone() for key, value in optimizer.tensors().items()}
    resumed = optimizer_of(name, copy, eps=1e-3, decay=0.9)
    resumed.load(tensors)
    for gradient in gradients()[10:]:
        optimizer.step(gradient, lr=0.1)
        resumed.step(gradient, lr=0.1)
    assert torch.equal(copy, vector)


@pytest.mark.parametrize(("name", "message"), [
    ("adamm", "did you mean"), ("LBFGS", "flat vector"), ("SparseAdam", "flat vector"), ("Optimizer", "not known")])
def test_optimizers_that_cannot_be_used_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        optimizer_of(name, torch.zeros(1), eps=1e-5, decay=0.9)


def test_the_config_knows_which_optimisers_can_be_shared() -> None:
    assert set(OPTIMIZERS) == set(STATISTICS)


@pytest.mark.parametrize("name", STATISTICS)
def test_a_scaled_rate_moves_the_critic_as_an_optimiser_of_its_own(name: str) -> None:
    config = OptimizerConfig(name, critic_lr_scale=0.25)
    whole = torch.zeros(100)
    scaled = make_optimizer(config, whole, [slice(10, 30), slice(90, 100)])
    apart = torch.zeros(100)
    pieces = [(slice(0, 10), 1), (slice(10, 30), 0.25), (slice(30, 90), 1), (slice(90, 100), 0.25)]
    own = [make_optimizer(OptimizerConfig(name), apart[place]) for place, _ in pieces]
    for gradient in gradients():
        scaled.step(gradient, lr=0.1)
        for (place, scale), each in zip(pieces, own, strict=True):
            each.step(gradient[place], lr=0.1 * scale)
    torch.testing.assert_close(whole, apart)
    part = slice(20, 95)
    assert within([slice(10, 30), slice(90, 100)], part) == [slice(0, 10), slice(70, 75)]
    assert within([slice(0, 5)], part) == []


def test_a_scaled_rate_needs_an_optimiser_of_ours() -> None:
    with pytest.raises(ConfigError, match="critic_lr_scale has no effect on optimizer=AdamW"):
        vantage.configure("ppo", env="CartPole-v1", optimizer="AdamW", critic_lr_scale=0.5)
