"""The interface of a memory: a module that carries a state from step to step of an episode."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from vantage.types import State


class Memory(Protocol):
    """An `nn.Module` between torso and heads, built as `Class(input_size=F, memory_size=M)`.

    B environments, T steps, F features of the torso, M the key memory_size, H outputs, which may
    differ from M. A state is a tuple of one or more tensors [B, ...] whose shapes and types never
    change; `step` returns new tensors. Each row depends on its own row of the arguments alone.
    Where `is_first` is True, an episode begins: ignore the state there, which belongs to the
    previous episode, and start from `initial_state`.

    `out_features` is H. A user-defined class may omit it: Vantage then takes it from `step`. It may
    also omit `unroll`, which then calls `step` T times. With `bptt=False`, `step` is always called,
    on a detached state.
    """

    out_features: int

    def initial_state(self, batch: int) -> State:
        """The state [batch, ...] before an episode. It is moved to the model's device."""

    def step(self, features: Tensor, is_first: Tensor, state: State) -> tuple[Tensor, State]:
        """Outputs [B, H] and the next state for features [B, F] and is_first [B] bool."""

    def unroll(self, features: Tensor, is_first: Tensor, state: State) -> Tensor:
        """Outputs [T, B, H] for features [T, B, F] and is_first [T, B] bool.

        They equal those of T calls of `step`. `state` is the state before the first step.
        Gradients flow through all steps.
        """
