"""Initial weights by the config's `init`; the table of all is in docs/networks.md.

A row holds the weights of one output; in the 2016 A3C scripts it is a column
(normalized_columns_initializer of openai/universe-starter-agent). Kaiming's gain is √2 for elu and
silu, which torch.nn.init.calculate_gain does not list: He et al. 2015, arXiv:1502.01852. Xavier has
no gain: Glorot and Bengio 2010, eq. 16.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_GAINS = {"elu": ("relu", 0.0), "silu": ("relu", 0.0), "leaky_relu": ("leaky_relu", 0.25)}


@torch.no_grad()
def initialise(module: nn.Module, *, init: str, activation: str = "linear",
               scale: float = 1.0) -> None:
    """Initialise the layers in `module`.

    The activation "linear" is for heads, whose orthogonal gain or row norm is `scale`.
    """
    for layer in module.modules():
        if init != "torch" and isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            fill(layer.weight, init, activation=activation, scale=scale)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def fill(weight: Tensor, init: str, *, activation: str = "linear", scale: float = 1.0) -> None:
    """Initialise the weights [outputs, ...] of one layer or gate."""
    if init == "orthogonal":
        nn.init.orthogonal_(weight, scale if activation == "linear" else math.sqrt(2))
    elif init == "columns":
        norms = nn.init.normal_(weight).flatten(1).norm(dim=1)
        weight.mul_((scale / norms).view(-1, *(1,) * (weight.dim() - 1)))
    elif init == "kaiming":
        nonlinearity, slope = _GAINS.get(activation, (activation, 0.0))
        nn.init.kaiming_uniform_(weight, slope, nonlinearity=nonlinearity)  # type: ignore[arg-type]
    else:
        nn.init.xavier_uniform_(weight)
