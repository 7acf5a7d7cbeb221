"""Laws of the policy's memory: frame stacks and recurrence equal plain loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from vantage.models.recurrent import Recurrent, push_frame, stack_frames


def stack_slowly(obs: Tensor, is_first: Tensor, frames: Tensor, pad: str) -> Tensor:
    """Gymnasium's FrameStackObservation with padding_type "zero" or "reset", one environment after another."""
    columns = []
    for b in range(obs.shape[1]):
        past, column = list(frames[b]), []
        for t in range(len(obs)):
            if is_first[t, b]:
                past = [obs[t, b] if pad == "repeat" else torch.zeros_like(obs[t, b])] * len(past)
            past.append(obs[t, b])
            column.append(torch.cat(past))
            past.pop(0)
        columns.append(torch.stack(column))
    return torch.stack(columns, 1)


@pytest.mark.parametrize("pad", ["zeros", "repeat"])
@pytest.mark.parametrize(("shape", "dtype", "k"), [((2, 3, 3), torch.uint8, 4), ((5,), torch.float32, 2)])
def test_stacks_hold_one_episode_however_the_steps_are_cut(
        pad: str, shape: tuple[int, ...], dtype: torch.dtype, k: int) -> None:
    obs, frames = (torch.randint(1, 256, (*size, *shape)).to(dtype) for size in ((30, 3), (3, k - 1)))
    is_first = torch.rand(30, 3) < 0.3
    expected = stack_slowly(obs, is_first, frames, pad)
    whole = stack_frames(obs, is_first, frames, pad=pad)
    assert torch.equal(whole, expected) and whole.dtype == dtype
    for t in range(30):
        if t % 7 == 0:
            piece = stack_frames(obs[t:t + 7], is_first[t:t + 7], frames, pad=pad)
            assert torch.equal(piece, expected[t:t + 7])
        stacked, frames = push_frame(obs[t], is_first[t], frames, pad=pad)
        assert torch.equal(stacked, expected[t])


def loop(memory: Recurrent, x: Tensor, is_first: Tensor, state: tuple[Tensor, ...]) -> Tensor:
    """One step after another, with torch's own cell."""
    cell = (nn.LSTMCell if memory.is_lstm else nn.GRUCell)(4, 6).to(x.dtype)
    del cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh
    for name, parameter in memory.named_parameters():
        setattr(cell, name, parameter)
    outputs = []
    for t in range(len(x)):
        state = tuple(torch.where(is_first[t, :, None], 0.0, part if memory.bptt else part.detach()) for part in state)
        state = cell(x[t], state) if memory.is_lstm else (cell(x[t], state[0]),)
        outputs.append(state[0])
    return torch.stack(outputs)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("reset", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("bptt", [True, False])
def test_unrolling_is_a_plain_loop_in_value_and_gradient(kind: str, reset: float, bptt: bool) -> None:
    torch.manual_seed(0)
    memory = Recurrent(kind, 4, 6, bptt=bptt, init="orthogonal").double()
    x = torch.randn(9, 3, 4, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(3, 6, dtype=torch.float64) for _ in range(memory.num_states))
    is_first = torch.rand(9, 3) < reset
    outputs, expected = memory.unroll(x, is_first, state), loop(memory, x, is_first, state)
    torch.testing.assert_close(outputs, expected, rtol=1e-10, atol=1e-10)
    weights = torch.randn(outputs.shape, dtype=torch.float64)
    gradients, references = (torch.autograd.grad((out * weights).sum(), [x, *memory.parameters()])
                             for out in (outputs, expected))
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-10)
