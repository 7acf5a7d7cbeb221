"""Convolutions and linear layers that reuse the outputs of acting, so that learning need not compute them again.

A forward pass receives a dict. It fills an empty dict with layer outputs, and reads the outputs from a filled one. The
gradients equal those of the pass that filled it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

ActivationCache = dict[str, Tensor]
"""Outputs [N, ...] by layer, not copied: a later operation may change them in place if it is idempotent (a ReLU)."""

Pair = tuple[int, int]


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, stride: Pair,
                padding: Pair) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias, ctx.stride, ctx.padding = bias is not None, stride, padding
        return out.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, [weight.shape[0]] if ctx.bias else None, ctx.stride, ctx.padding, (1, 1), False,
            (0, 0), 1, (ctx.needs_input_grad[0], True, ctx.bias))
        return *gradients, None, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bias = bias is not None
        return out.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x, gradient.sum(0) if ctx.bias else None, None


def conv2d(x: Tensor, weight: Tensor, bias: Tensor | None, stride: Pair, padding: Pair, cache: ActivationCache | None,
           name: str) -> Tensor:
    """`torch.nn.functional.conv2d` that stores its output in the cache as `name`, or reads it from there."""
    if cache is not None and name in cache:
        return _Conv.apply(x, weight, bias, cache[name], stride, padding)  # type: ignore[no-any-return,no-untyped-call]
    out = F.conv2d(x, weight, bias, stride, padding)
    if cache is not None:
        cache[name] = out
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, cache: ActivationCache | None, name: str) -> Tensor:
    """`torch.nn.functional.linear` that stores its output in the cache as `name`, or reads it from there."""
    if cache is not None and name in cache:
        return _Linear.apply(x, weight, bias, cache[name])  # type: ignore[no-any-return,no-untyped-call]
    out = F.linear(x, weight, bias)
    if cache is not None:
        cache[name] = out
    return out


def images_last(x: Tensor) -> Tensor:
    """[..., C, H, W] as [..., H, W, C], without a copy; vectors [N, F] unchanged."""
    return x.permute(0, 2, 3, 1) if x.dim() == 4 else x


def flatten_steps(cache: ActivationCache) -> ActivationCache:
    """The cache of several steps, parts [T, B, H, W, C] or [T, B, F], as the cache of one pass over T * B rows."""
    rows = {name: part.flatten(0, 1) for name, part in cache.items()}
    return {name: part.permute(0, 3, 1, 2) if part.dim() == 4 else part for name, part in rows.items()}
