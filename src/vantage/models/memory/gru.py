"""Gated recurrent unit: Cho et al. 2014, arXiv:1406.1078, with the gates of torch.nn.GRU."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from vantage.models.memory.cells import cell_weights, clear, fused_layer, unroll_cells
from vantage.types import State


class Gru(nn.Module):
    """One layer of torch.nn.GRU, whose state is (h,), [B, H]."""

    state_names = ("gru_h",)

    def __init__(self, *, input_size: int, memory_size: int, init: str) -> None:
        super().__init__()
        self.out_features = memory_size
        weights = cell_weights(input_size, memory_size, gates=3, init=init)
        self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh = weights

    def initial_state(self, batch: int) -> State:
        return (self.weight_hh.new_zeros(batch, self.out_features),)

    def step(self, features: Float[Tensor, "B F"], is_first: Bool[Tensor, " B"],
             state: State) -> tuple[Float[Tensor, "B H"], State]:
        return self._cell(features, clear(state, is_first))

    def unroll(self, features: Float[Tensor, "T B F"], is_first: Bool[Tensor, "T B"],
               state: State) -> Float[Tensor, "T B H"]:
        return unroll_cells(self._cell, self._layer, features, is_first, state)

    def _cell(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        h = torch.gru_cell(features, *state, *self._weights)
        return h, (h,)

    def _layer(self, features: Tensor, state: State) -> tuple[Tensor, State]:
        output, h = fused_layer(torch.gru, features, state[0].unsqueeze(0), self._weights)
        return output, (h.squeeze(0),)

    @property
    def _weights(self) -> list[Tensor]:
        return [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
