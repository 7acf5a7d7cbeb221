"""Long short-term memory: Hochreiter and Schmidhuber 1997, with the gates of torch.nn.LSTM."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vantage.models.memory.cells import cell_weights, clear, fused_layer, unroll_cells
from vantage.types import State


class Lstm(nn.Module):
    """One layer of torch.nn.LSTM, whose state is (h, c), each [B, H]."""

    state_names = ("lstm_h", "lstm_c")

    def __init__(self, *, input_size: int, memory_size: int, init: str) -> None:
        super().__init__()
        self.out_features = memory_size
        weights = cell_weights(input_size, memory_size, gates=4, init=init)
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = weights
        if init != "torch":
            # Forget gate open at first: Jozefowicz et al. 2015, section 5.
            self.bias_ih.data[memory_size:2 * memory_size] = 1

    def initial_state(self, batch: int) -> State:
        zeros = self.weight_hh.new_zeros(batch, self.out_features)
        return zeros, zeros.clone()

    def step(self, features: Float[Tensor, "B F"], is_first: Bool[Tensor, " B"],
             state: State) -> tuple[Float[Tensor, "B H"], State]:
        return self._cell(features, clear(state, is_first))

    def unroll(self, features: Float[Tensor, "T B F"], is_first: Bool[Tensor, "T B"],
               state: State) -> Float[Tensor, "T B H"]:
        return unroll_cells(self._cell, self._layer, features, is_first, state)

    def _cell(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = torch.lstm_cell(features, state, *self._weights)
        return h, (h, c)

    def _layer(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        layers = tuple(part.unsqueeze(0) for part in state)
        output, h, c = fused_layer(torch.lstm, features, layers, self._weights)
        return output, (h.squeeze(0), c.squeeze(0))

    @property
    def _weights(self) -> list[Tensor]:
        return [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
