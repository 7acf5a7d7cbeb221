"""LSTM and GRU equal a plain loop over torch's own cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vantage.models.memory import unroll
from vantage.models.memory.gru import Gru
from vantage.models.memory.lstm import Lstm


def loop(memory: Any, x: Tensor, is_first: Tensor, state: tuple[Tensor, ...], *, bptt: bool) -> Tensor:
    """One step after another, with torch's own cell."""
    is_lstm = isinstance(memory, Lstm)
    cell = (nn.LSTMCell if is_lstm else nn.GRUCell)(4, 6).to(x.dtype)
    del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    for name, parameter in memory.named_parameters():
        setattr(cell, name, parameter)
    outputs = []
    for t in range(len(x)):
        state = tuple(torch.where(is_first[t, :, None], 0.0, part if bptt else part.detach()) for part in state)
        state = cell(x[t], state) if is_lstm else (cell(x[t], state[0]),)
        outputs.append(state[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("kind", [Lstm, Gru])
@pytest.mark.parametrize("reset", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("bptt", [True, False])
def test_unrolling_is_a_plain_loop_in_value_and_gradient(kind: Any, reset: float, bptt: bool) -> None:
    torch.manual_seed(0)
    memory = kind(input_size=4, memory_size=6, init="orthogonal").double()
    x = torch.randn(9, 3, 4, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn_like(part) for part in memory.initial_state(3))
    is_first = torch.rand(9, 3) < reset
    outputs = unroll(memory, x, is_first, state, bptt=bptt)
    expected = loop(memory, x, is_first, state, bptt=bptt)
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    weights = torch.randn(outputs.shape, dtype=torch.float64)
    gradients, references = (torch.autograd.grad((out * weights).sum(), [x, *memory.parameters()])
                             for out in (outputs, expected))
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-10)
