"""Fully connected layers by oneDNN on CPUs with AVX-512.

torch takes MKL for products of float32, which does not use AVX-512 on every processor: on one core
of an AMD EPYC (Zen 5) it computes the layer from 2,592 to 256 features at 120 GFLOP/s, and oneDNN
at 260. With AVX2 alone MKL is the faster one: 89 to 70 from 1,152 to 256 features (Zen 3).
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

LEAST_PRODUCTS = 2_000_000
"""Number of multiplications in a layer above which oneDNN is at least as fast as MKL. A call of
oneDNN costs 10 microseconds more."""

# The operation that torch.compile uses for linear layers. It has no gradient of its own.
_PRODUCT: Any = (getattr(torch.ops.mkldnn, "_linear_pointwise", None)
                 if torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
                 and platform.machine() in ("x86_64", "AMD64") else None)
_IS_FASTER = "AVX512" in torch.backends.cpu.get_cpu_capability()


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN computes x Wᵀ."""
    is_traced = torch._C._get_tracing_state() is not None or torch.compiler.is_compiling()
    if _PRODUCT is None or not _IS_FASTER or is_traced:
        return False
    return (x.dim() == 2 and x.numel() * len(weight) >= LEAST_PRODUCTS
            and x.dtype == weight.dtype == torch.float32
            and x.device.type == weight.device.type == "cpu"
            and not torch.is_autocast_enabled("cpu"))


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    # oneDNN's product cannot be differentiated; in a backward pass gradients are enabled by
    # create_graph=True.
    if not torch.is_grad_enabled() and by_onednn(x, weight):
        out: Tensor = _PRODUCT(x, weight, bias, "none", [], "")
        return out
    return F.linear(x, weight, bias)


def linear_gradients(gradient: Float[Tensor, "N M"], x: Float[Tensor, "N K"],
                     weight: Float[Tensor, "M K"],
                     needs: Sequence[bool]) -> list[Tensor | None]:
    """The gradients of x, W and b, where `needs` says so, from that of x Wᵀ + b."""
    return [_product(gradient, weight.t()) if needs[0] else None,
            _product(gradient.t(), x.t()) if needs[1] else None,
            gradient.sum(0) if needs[2] else None]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return tuple(linear_gradients(gradient, x, weight, ctx.needs_input_grad))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b, as `F.linear`."""
    if torch.is_grad_enabled() and by_onednn(x, weight):
        return _Linear.apply(x, weight, bias)  # type: ignore[no-any-return,no-untyped-call]
    return _product(x, weight, bias)


class Linear(nn.Linear):
    """`nn.Linear` by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
