"""Memory of a policy between steps: frame stacks, and LSTM or GRU cells. Torsos and heads are in other modules.

`is_first[t]` marks obs[t] as the first of an episode: the state is cleared before it.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from vantage.models.initialization import initialise_gates
from vantage.types import State


def push_frame(obs: Shaped[Tensor, "B ..."], is_first: Bool[Tensor, " B"], frames: Shaped[Tensor, "B K ..."],
               *, pad: str) -> tuple[Shaped[Tensor, "B ..."], Shaped[Tensor, "B K ..."]]:
    """One step of `stack_frames` with fewer operations: the stack [B, k*C, ...] and the next `frames`."""
    newest = obs.unsqueeze(1)
    first = is_first.view(-1, *(1,) * obs.dim())
    if pad == "repeat":
        frames = torch.where(first, newest, frames)
    elif obs.dtype == torch.uint8:
        frames = frames * ~first  # ten times faster than masked_fill, which took a tenth of acting
    else:
        frames = frames.masked_fill(first, 0)
    stack = torch.cat([frames, newest], 1)
    return stack.flatten(1, 2), stack[:, 1:]


def stack_frames(obs: Shaped[Tensor, "T B ..."], is_first: Bool[Tensor, "T B"],
                 frames: Shaped[Tensor, "B K ..."], *, pad: str,
                 ) -> tuple[Shaped[Tensor, "T B ..."], Shaped[Tensor, "B K ..."]]:
    """Each observation after the k-1 before it, oldest first, along its first axis: [T, B, k*C, ...].

    `frames` [B, k-1, ...] are the observations before obs[0]. In place of observations of the previous episode, the
    stack holds zeros (`pad="zeros"`) or the episode's first observation ("repeat"), like Gymnasium's
    FrameStackObservation with padding_type "zero" and "reset". The second result is `frames` for the next step.
    """
    (num_steps, batch), shape, k = is_first.shape, obs.shape[2:], frames.shape[1] + 1
    device = obs.device
    t = torch.arange(num_steps, device=device).view(-1, 1, 1)
    source = t + torch.arange(1 - k, 1, device=device)                            # [T, 1, k]
    opened = torch.where(is_first.unsqueeze(-1), t, -k).cummax(0).values          # [T, B, 1] first step of the episode
    # One gather of whole frames from a table: the k-1 before, the rollout, a row of zeros.
    table = torch.cat([frames.transpose(0, 1).flatten(0, 1), obs.flatten(0, 1), obs.new_zeros(1, *shape)])
    row = (torch.maximum(source, opened) + (k - 1)) * batch + torch.arange(batch, device=device).view(1, -1, 1)
    if pad == "zeros":
        row = torch.where(source < opened, table.shape[0] - 1, row)
    stacks = table.flatten(1).index_select(0, row.flatten()).view(num_steps, batch, k, *shape)
    return stacks.flatten(2, 3), stacks[-1, :, 1:]


class Recurrent(nn.Module):
    """A layer with the equations of torch.nn.LSTM or torch.nn.GRU whose state is cleared at the start of an episode.

    Its state is (h, c) or (h,), each [B, H]. `bptt=False` detaches the state between steps, for one-step gradients.
    """

    def __init__(self, kind: str, in_features: int, size: int, *, bptt: bool, init: str) -> None:
        super().__init__()
        self.is_lstm, self.out_features, self.bptt = kind == "lstm", size, bptt
        gates = 4 if self.is_lstm else 3
        self.weight_ih = nn.Parameter(torch.empty(gates * size, in_features))
        self.weight_hh = nn.Parameter(torch.empty(gates * size, size))
        self.bias_ih = nn.Parameter(torch.empty(gates * size))
        self.bias_hh = nn.Parameter(torch.empty(gates * size))
        initialise_gates(self._weights[:2], self._weights[2:], size=size, lstm=self.is_lstm, init=init)

    @property
    def _weights(self) -> list[Tensor]:
        return [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]

    @property
    def num_states(self) -> int:
        return 2 if self.is_lstm else 1

    def step(self, x: Float[Tensor, "B F"], is_first: Bool[Tensor, " B"],
             state: State) -> tuple[Float[Tensor, "B H"], State]:
        """The output of one step and the state after it."""
        state = self._clear(state, is_first)
        state = (torch.lstm_cell(x, state, *self._weights) if self.is_lstm else
                 (torch.gru_cell(x, state[0], *self._weights),))
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
                outputs.append(output.unsqueeze(0))
            else:
                output, state = self._run(x[start:end], self._clear(state, is_first[start]))
                outputs.append(output)
        return torch.cat(outputs)

    def _run(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        weights, grad = self._weights, torch.is_grad_enabled()
        layers = tuple(part.unsqueeze(0) for part in state)
        # cuDNN requires the weights in a block of memory of their own. It warns and copies them at every call if they
        # are part of the learner's flat vector; torch's own fused kernels do not.
        with torch.backends.cudnn.flags(enabled=False) if x.is_cuda else nullcontext():
            if self.is_lstm:
                output, *after = torch.lstm(x, layers, weights, True, 1, 0.0, grad, False, False)
            else:
                output, *after = torch.gru(x, layers[0], weights, True, 1, 0.0, grad, False, False)
        return output, tuple(part.squeeze(0) for part in after)

    @staticmethod
    def _clear(state: State, is_first: Tensor) -> State:
        first = is_first.unsqueeze(-1)
        return tuple(part.masked_fill(first, 0) for part in state)
