"""RMSProp as TensorFlow has it, optimisers by name, and the flat vector behind a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vantage.errors import ConfigError
from vantage.learning.optim import FlatParameters, RMSpropTF, make_optimizer


def test_rmsprop_tf_equals_the_papers_recursion() -> None:
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    parameter = nn.Parameter(x.clone())
    optimizer = RMSpropTF([parameter], lr=0.1, alpha=0.9, eps=0.01)
    square = torch.ones_like(x)
    for k in range(5):
        gradient = torch.tensor([0.3 * k, -1.0], dtype=torch.float64)
        parameter.grad = gradient.clone()
        optimizer.step()
        square = 0.9 * square + 0.1 * gradient**2
        x = x - 0.1 * gradient / (square + 0.01) ** 0.5
    torch.testing.assert_close(parameter.data, x, atol=1e-14, rtol=0)


def test_the_two_forms_of_rmsprop_differ_in_their_first_step() -> None:
    steps = []
    for name in ("rmsprop_tf", "rmsprop"):
        parameter = nn.Parameter(torch.zeros(1))
        optimizer = make_optimizer(name, [parameter], lr=1.0, eps=1e-5, decay=0.99)
        parameter.grad = torch.ones(1)
        optimizer.step()
        steps.append(-parameter.item())
    assert steps[0] == pytest.approx(1.0, abs=1e-4), "the accumulator starts at one"
    assert steps[1] == pytest.approx(10.0, abs=1e-2), "the accumulator starts at zero"


@pytest.mark.parametrize("name", ["rmsprop_tf", "rmsprop", "adam", "amsgrad", "AdamW", "SGD", "NAdam", "Adafactor"])
def test_every_optimizer_by_name_descends(name: str) -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = make_optimizer(name, [parameter], lr=0.01, eps=1e-5, decay=0.99)
    parameter.grad = torch.ones(1)
    optimizer.step()
    assert parameter.item() < 1.0


def test_amsgrad_keeps_the_largest_second_moment() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer("amsgrad", [parameter], lr=0.01, eps=1e-5, decay=0.99)
    for gradient in (10.0, 0.1):
        parameter.grad = torch.tensor([gradient])
        optimizer.step()
    assert "max_exp_avg_sq" in optimizer.state[parameter]


@pytest.mark.parametrize(("name", "says"), [("adamm", "did you mean"), ("LBFGS", "flat vector"),
                                              ("SparseAdam", "flat vector"),
                                              ("Optimizer", "not known")])
def test_an_optimizer_that_cannot_be_used_is_an_error_with_words(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_optimizer(name, [nn.Parameter(torch.zeros(1))], lr=0.1, eps=1e-5, decay=0.9)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last), nn.ReLU(), nn.Flatten(),
                         nn.Linear(5 * 9, 2))


def test_flat_parameters_are_the_models_own() -> None:
    plain, flat_model = network(), network()
    flat = FlatParameters(flat_model)
    for a, b in zip(plain.parameters(), flat_model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert flat_model[0].weight.is_contiguous(memory_format=torch.channels_last)
    flat.vector.data.mul_(2)
    assert torch.equal(flat_model[3].bias, plain[3].bias * 2)


def test_training_flat_parameters_equals_training_each() -> None:
    plain, flat_model = network(), network()
    flat = FlatParameters(flat_model)
    each = torch.optim.Adam(plain.parameters(), lr=0.01)
    one = torch.optim.Adam([flat.vector], lr=0.01)
    for seed in range(4):
        x = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
        each.zero_grad()
        plain(x).square().sum().backward()
        flat.gradient.zero_()
        flat_model(x).square().sum().backward()
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        torch.testing.assert_close(flat.clip_gradient(0.5), norm)
        each.step()
        one.step()
    for a, b in zip(plain.parameters(), flat_model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_limit_of_zero_does_not_clip() -> None:
    flat = FlatParameters(nn.Linear(2, 2))
    flat.gradient.fill_(3.0)
    before = flat.gradient.clone()
    flat.clip_gradient(0.0)
    assert torch.equal(flat.gradient, before)
