"""Convolutions and linear layers that reuse their outputs from acting during learning.

A forward pass receives a dict. It fills an empty dict with layer outputs, and reads the outputs
from a filled one. The gradients equal those of the pass that filled it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vantage.models.linear import linear, linear_gradients

ActivationCache = dict[str, Tensor]
"""Outputs by layer, [N, H, W, C] or [N, F].

They are not copied: a later operation may change them in place if it is idempotent (a ReLU).
Outputs of several steps are [T, N, ...] in a rollout, and flattened before learning.
"""


class _Cached(torch.autograd.Function):
    """`out` as the output of `layer` with `weight`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor,
                layer: nn.Conv2d | nn.Linear) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.layer = layer
        return out.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        layer = ctx.layer
        has_bias = layer.bias is not None
        if isinstance(layer, nn.Linear):
            return *linear_gradients(gradient, x, weight, ctx.needs_input_grad), None, None
        gradients = torch.ops.aten.convolution_backward(
            gradient, x, weight, [weight.shape[0]] if has_bias else None, layer.stride,
            layer.padding, (1, 1), False, (0, 0), 1, (ctx.needs_input_grad[0], True, has_bias))
        return *gradients, None, None


def run_layer(layer: nn.Conv2d | nn.Linear, x: Tensor, weight: Tensor,
              cache: ActivationCache | None, name: str) -> Tensor:
    """The output of `layer` with `weight`: read from the cache under `name`, or stored there."""
    if cache is not None and name in cache:
        out = cache[name].permute(0, 3, 1, 2) if cache[name].dim() == 4 else cache[name]
        cached: Tensor = _Cached.apply(  # type: ignore[no-untyped-call]
            x, weight, layer.bias, out, layer)
        return cached
    if isinstance(layer, nn.Linear):
        out = linear(x, weight, layer.bias)
    else:
        out = F.conv2d(x, weight, layer.bias, layer.stride, layer.padding)
    if cache is not None:
        cache[name] = out.permute(0, 2, 3, 1) if out.dim() == 4 else out
    return out
