"""Memory of a policy between steps: frame stacks, and LSTM or GRU cells."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from vantage.models.initialization import fill
from vantage.types import State


def push_frame(obs: Shaped[Tensor, "B ..."], is_first: Bool[Tensor, " B"], frames: Shaped[Tensor, "B K ..."],
               *, pad: str) -> tuple[Shaped[Tensor, "B ..."], Shaped[Tensor, "B K ..."]]:
    """One step of `stack_frames` with fewer operations: the stack [B, k*C, ...] and the next `frames`."""
    newest, first = obs.unsqueeze(1), is_first.view(-1, *(1,) * obs.dim())
    if pad == "repeat":
        frames = torch.where(first, newest, frames)
    elif obs.dtype == torch.uint8:
        frames = frames * ~first  # ten times faster than masked_fill, which took a tenth of acting
    else:
        frames = frames.masked_fill(first, 0)
    stack = torch.cat([frames, newest], 1)
    return stack.flatten(1, 2), stack[:, 1:]


def stack_frames(obs: Shaped[Tensor, "T B ..."], is_first: Bool[Tensor, "T B"], frames: Shaped[Tensor, "B K ..."],
                 *, pad: str) -> Shaped[Tensor, "T B ..."]:
    """Each observation after the k-1 before it, oldest first, along its first axis: [T, B, k*C, ...].

    `frames` [B, k-1, ...] are the observations before obs[0]. In place of observations of the previous episode, the
    stack holds zeros (`pad="zeros"`) or the episode's first observation ("repeat"), like Gymnasium's
    FrameStackObservation with padding_type "zero" and "reset".
    """
    (num_steps, batch), shape, k = is_first.shape, obs.shape[2:], frames.shape[1] + 1
    t = torch.arange(num_steps, device=obs.device).view(-1, 1, 1)
    source = t + torch.arange(1 - k, 1, device=obs.device)                        # [T, 1, k]
    opened = torch.where(is_first.unsqueeze(-1), t, -k).cummax(0).values          # [T, B, 1] first step of the episode
    # One gather of whole frames from a table: the k-1 before, the rollout, a row of zeros.
    table = torch.cat([frames.transpose(0, 1).flatten(0, 1), obs.flatten(0, 1), obs.new_zeros(1, *shape)])
    row = (torch.maximum(source, opened) + (k - 1)) * batch + torch.arange(batch, device=obs.device).view(1, -1, 1)
    if pad == "zeros":
        row = torch.where(source < opened, table.shape[0] - 1, row)
    return table.flatten(1).index_select(0, row.flatten()).view(num_steps, batch, k * shape[0], *shape[1:])


class Recurrent(nn.Module):
    """torch.nn.LSTM or torch.nn.GRU whose state, (h, c) or (h,), each [B, H], is cleared at the start of an episode.

    `bptt=False` detaches the state between steps, for one-step gradients.
    """

    def __init__(self, kind: str, in_features: int, size: int, *, bptt: bool, init: str) -> None:
        super().__init__()
        self.is_lstm, self.bptt = kind == "lstm", bptt
        self.num_states, gates = (2, 4) if self.is_lstm else (1, 3)
        self.weight_ih = nn.Parameter(torch.empty(gates * size, in_features))
        self.weight_hh = nn.Parameter(torch.empty(gates * size, size))
        self.bias_ih = nn.Parameter(torch.empty(gates * size))
        self.bias_hh = nn.Parameter(torch.empty(gates * size))
        for parameter in self._weights:
            nn.init.uniform_(parameter, -(size ** -0.5), size ** -0.5)  # the default of torch.nn.LSTM
        if init != "torch":
            for gate in (*self.weight_ih.data.chunk(gates), *self.weight_hh.data.chunk(gates)):
                fill(gate, init)
            nn.init.zeros_(self.bias_ih)
            nn.init.zeros_(self.bias_hh)
            if self.is_lstm:
                self.bias_ih.data[size:2 * size] = 1  # forget gate open at first: Jozefowicz et al. 2015, section 5

    @property
    def _weights(self) -> list[Tensor]:
        return [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]

    def step(self, x: Float[Tensor, "B F"], is_first: Bool[Tensor, " B"],
             state: State) -> tuple[Float[Tensor, "B H"], State]:
        """The output of one step and the state after it."""
        state, weights = _clear(state, is_first), self._weights
        state = torch.lstm_cell(x, state, *weights) if self.is_lstm else (torch.gru_cell(x, state[0], *weights),)
        return state[0], state

    def unroll(self, x: Float[Tensor, "T B F"], is_first: Bool[Tensor, "T B"], state: State) -> Float[Tensor, "T B H"]:
        """The outputs of T steps.

        torch's fused layer runs each stretch in which no episode starts, and the cell runs single steps. Learning at
        21 x 16 with 256 cells takes 5 ms with an LSTM (11 with cells only) and 7 ms with a GRU (8).
        """
        opens = is_first.any(1).tolist()
        starts = [t for t, opened in enumerate(opens) if t == 0 or opened or not self.bptt]
        outputs = []
        for start, end in pairwise([*starts, len(opens)]):
            if not self.bptt:
                state = tuple(part.detach() for part in state)
            if end - start == 1:
                output, state = self.step(x[start], is_first[start], state)
            else:
                output, state = self._run(x[start:end], _clear(state, is_first[start]))
            outputs.append(output.view(end - start, *output.shape[-2:]))
        return torch.cat(outputs)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        layers = tuple(part.unsqueeze(0) for part in state)
        options = (self._weights, True, 1, 0.0, torch.is_grad_enabled(), False, False)
        # cuDNN requires the weights in a block of memory of their own. It warns and copies them at every call if they
        # are part of the learner's flat vector; torch's own fused kernels do not.
        with torch.backends.cudnn.flags(enabled=False) if x.is_cuda else nullcontext():
            output, *after = torch.lstm(x, layers, *options) if self.is_lstm else torch.gru(x, layers[0], *options)
        return output, tuple(part.squeeze(0) for part in after)


def _clear(state: State, is_first: Tensor) -> State:
    first = is_first.unsqueeze(-1)
    return tuple(part.masked_fill(first, 0) for part in state)
