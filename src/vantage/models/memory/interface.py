"""What a memory is: a module that carries a state from step to step of an episode."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from vantage.types import State


class Memory(Protocol):
    """An `nn.Module` between the torso and the heads, built as `Class(input_size=F, memory_size=H)`.

    B environments, T steps, F features of the torso, H outputs. A state is a tuple of one or more tensors [B, ...]
    whose shapes and types never change. Where `is_first` is True, an episode begins: the state there is of another
    episode, and the memory starts from `initial_state` instead.

    `out_features` is H. A class of the user's own may leave out `out_features`, which is then that of `step`, and
    `unroll`, which is then T calls of `step`; so it is with `bptt=False`, which detaches the state before each step.
    """

    out_features: int

    def initial_state(self, batch: int) -> State:
        """The state [batch, ...] before an episode. It is moved to the model's device."""

    def step(self, features: Tensor, is_first: Tensor, state: State) -> tuple[Tensor, State]:
        """Outputs [B, H] and the next state, of features [B, F], is_first [B] bool and the state before them."""

    def unroll(self, features: Tensor, is_first: Tensor, state: State) -> Tensor:
        """Outputs [T, B, H] equal to those of T calls of `step`, of features [T, B, F] and is_first [T, B] bool.

        `state` is that before the first step. Gradients flow through all steps.
        """
