"""The flat vector behind a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vantage.learning.config import OptimizerConfig
from vantage.learning.gradients import backward, clip_gradient
from vantage.learning.optimizers import make_optimizer
from vantage.learning.weights import FlatParameters


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last), nn.ReLU(), nn.Flatten(),
                         nn.Linear(5 * 9, 2))


def test_flat_parameters_are_the_models_own() -> None:
    plain, flat_model = network(), network()
    flat = FlatParameters(flat_model.parameters())
    for a, b in zip(plain.parameters(), flat_model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert flat_model[0].weight.is_contiguous(memory_format=torch.channels_last)
    flat.vector.mul_(2)
    assert torch.equal(flat_model[3].bias, plain[3].bias * 2)


def test_training_flat_parameters_equals_training_each() -> None:
    plain, flat_model = network(), network()
    flat = FlatParameters(flat_model.parameters())
    each = torch.optim.Adam(plain.parameters(), lr=0.01)
    one = make_optimizer(OptimizerConfig("adam", optimizer_eps=1e-8), flat.vector)
    for seed in range(4):
        x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
        each.zero_grad()
        plain(x).square().sum().backward()
        backward(flat_model(x).square().sum(), flat.parameters)
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        assert clip_gradient(flat.gradient, 0.5) == pytest.approx(norm.item(), rel=1e-6)
        each.step()
        one.step(flat.gradient, lr=0.01)
    for a, b in zip(plain.parameters(), flat_model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_frozen_and_unused_parameters_have_zero_gradients() -> None:
    model = network()
    flat = FlatParameters(model.parameters())
    flat.gradient.fill_(3.0)
    model[3].bias.requires_grad_(False)
    backward(model[3](torch.ones(1, 45)).sum(), flat.parameters)
    assert not any(parameter.grad.any() for parameter in (*model[0].parameters(), model[3].bias))
    assert torch.equal(model[3].weight.grad, torch.ones(2, 45)), "the gradient is overwritten"


@pytest.mark.parametrize("limit", [0.0, 8.0])
def test_a_gradient_below_the_limit_is_not_clipped(limit: float) -> None:
    flat = FlatParameters(nn.Linear(2, 2).parameters())
    flat.gradient[:6] = 3.0
    before = flat.gradient.clone()
    assert clip_gradient(flat.gradient, limit) == pytest.approx(54**0.5)
    assert torch.equal(flat.gradient, before)
