"""Initial weights of single layers and recurrent cells, by the config's `init`. No networks here.

    init        hidden layers                     policy head       other heads     each gate of an lstm or gru
    orthogonal  orthogonal, gain √2               orthogonal, 0.01  orthogonal, 1   orthogonal, gain 1
    columns     normal, rows of norm 1            norm 0.01         norm 1          rows of norm 1
    kaiming     U(±g √(3/fan_in))                 g = 1             g = 1           g = 1
    xavier      U(±√(6/(fan_in + fan_out)))       the same          the same        the same
    torch       PyTorch's default everywhere

A row holds the weights of one output; in the 2016 A3C scripts it is a column (normalized_columns_initializer of
openai/universe-starter-agent). Gain g is torch.nn.init.calculate_gain of the activation, and √2 for elu and silu, which
torch does not list: He et al. 2015, arXiv:1502.01852. Xavier has no gain: Glorot and Bengio 2010, eq. 16. Biases are 0,
and 1 for the forget gate of an lstm, except with "torch".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_GAINS = {"elu": ("relu", 0.0), "silu": ("relu", 0.0), "leaky_relu": ("leaky_relu", 0.25)}


@torch.no_grad()
def initialise(layer: nn.Linear | nn.Conv1d | nn.Conv2d, *, init: str, activation: str = "linear",
               scale: float = 1.0) -> None:
    """Initialise a layer before `activation`; "linear": a head, whose orthogonal gain or row norm is `scale`."""
    if init == "torch":
        return
    hidden = activation != "linear"
    _fill(layer.weight, init, gain=math.sqrt(2) if hidden else scale, norm=1.0 if hidden else scale,
          activation=activation)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


@torch.no_grad()
def initialise_gates(weights: list[Tensor], biases: list[Tensor], *, size: int, lstm: bool, init: str) -> None:
    """Initialise an lstm or gru of `size` cells: weights from the input and from the cells, gates stacked as rows."""
    for parameter in (*weights, *biases):
        nn.init.uniform_(parameter, -1 / math.sqrt(size), 1 / math.sqrt(size))  # the default of torch.nn.LSTM
    if init == "torch":
        return
    for weight in weights:
        for gate in weight.chunk(len(weight) // size):
            _fill(gate, init, gain=1.0, norm=1.0, activation="linear")
    for bias in biases:
        bias.zero_()
    if lstm:
        # Forget gate open at the start: Jozefowicz et al. 2015, section 5.
        biases[0][size:2 * size] = 1


def _fill(weight: Tensor, init: str, *, gain: float, norm: float, activation: str) -> None:
    if init == "orthogonal":
        nn.init.orthogonal_(weight, gain)
    elif init == "columns":
        nn.init.normal_(weight)
        norms = torch.linalg.vector_norm(weight, dim=tuple(range(1, weight.dim())), keepdim=True)
        weight.mul_(norm / norms)
    elif init == "kaiming":
        nonlinearity, slope = _GAINS.get(activation, (activation, 0.0))
        nn.init.kaiming_uniform_(weight, slope, nonlinearity=nonlinearity)  # type: ignore[arg-type]
    else:
        nn.init.xavier_uniform_(weight)
