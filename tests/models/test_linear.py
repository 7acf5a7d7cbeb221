"""Fully connected layers by oneDNN: products and gradients are those of torch's float64."""

from __future__ import annotations

import platform

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vantage.models import linear as linear_module
from vantage.models.linear import LEAST_PRODUCTS, Linear, by_onednn, linear

LARGE, SMALL = (48, 512, 128), (3, 40, 16)


def layer(shape: tuple[int, int, int], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs [N, K] that lie transposed in memory, weights [M, K], biases, and a gradient of the outputs [N, M]."""
    generator = torch.Generator().manual_seed(0)
    n, k, m = shape
    draws = [torch.randn(size, generator=generator, dtype=dtype) for size in ((k, n), (m, k), (m,), (n, m))]
    return draws[0].t(), draws[1] / 20, draws[2], draws[3]


@pytest.fixture(params=[True, False], ids=["avx512", "avx2"])
def has_avx512(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether oneDNN computes large layers, on whatever processor the test has."""
    monkeypatch.setattr(linear_module, "_IS_FASTER", request.param)
    return bool(request.param)


@pytest.mark.usefixtures("has_avx512")
@pytest.mark.parametrize("shape", [LARGE, SMALL])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_and_its_first_and_second_derivatives_are_those_of_float64(
        shape: tuple[int, int, int], has_bias: bool) -> None:
    x, weight, bias, gradient = layer(shape)
    results, second_derivatives = [], []
    for function, dtype in ((linear, torch.float32), (F.linear, torch.float64)):
        inputs = [part.to(dtype).requires_grad_() for part in (x, weight, *([bias] if has_bias else []))]
        arguments = [*inputs, *([] if has_bias else [None])]
        out = function(*arguments)
        results.append([out, *torch.autograd.grad(out, inputs, gradient.to(dtype))])
        first = torch.autograd.grad(function(*arguments).sigmoid().sum(), inputs, create_graph=True)
        second_derivatives.append(torch.autograd.grad(sum(part.square().sum() for part in first), inputs))
        with torch.no_grad():
            assert torch.equal(function(*arguments), out)
    for (ours, theirs), tolerance in ((results, 1e-4), (second_derivatives, 1e-3)):
        for actual, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=tolerance)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkldnn.is_available(),
                    reason="oneDNN is for x86 alone")
def test_large_layers_of_float32_take_onednn_if_there_is_avx512(has_avx512: bool) -> None:
    (x, weight, *_), (small_x, small_weight, *_) = layer(LARGE), layer(SMALL)
    assert x.numel() * len(weight) >= LEAST_PRODUCTS > small_x.numel() * len(small_weight)
    assert by_onednn(x, weight) == has_avx512
    assert not by_onednn(small_x, small_weight)
    assert not by_onednn(x.double(), weight.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not by_onednn(x, weight)
        assert linear(x, weight, None).dtype == torch.bfloat16


@pytest.mark.usefixtures("has_avx512")
def test_frozen_weights_and_inputs_get_no_gradient() -> None:
    x, weight, _, gradient = layer(LARGE)
    trained = Linear(weight.shape[1], weight.shape[0])
    trained.weight.requires_grad_(False)
    trained(x).backward(gradient)
    assert trained.weight.grad is None and x.grad is None and trained.bias.grad is not None
    torch.testing.assert_close(trained.bias.grad, gradient.sum(0))


@pytest.mark.usefixtures("has_avx512")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_layer_computes_the_same() -> None:
    x, weight, *_ = layer(LARGE)
    trained = Linear(weight.shape[1], weight.shape[0])
    traced = torch.jit.trace(trained, x)
    torch.testing.assert_close(traced(x), trained(x), rtol=1e-4, atol=1e-5)
