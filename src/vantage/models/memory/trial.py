"""A trial of a user-defined memory: whether shapes and numbers agree with the interface."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from vantage.types import State


class NotAMemoryError(Exception):
    """What is wrong with the user's memory, in words."""


_STEPS = 4
_BATCH = 3
"""Sizes of the trial. They differ, so that swapped axes are noticed."""


def try_memory(memory: Any, input_size: int) -> None:
    """Raise NotAMemoryError unless `memory` behaves as a `Memory`; sets its `out_features`."""
    if not isinstance(memory, nn.Module):
        raise NotAMemoryError(f"it is a {type(memory).__name__}, not an nn.Module")
    if other := {weight.dtype for weight in memory.parameters()} - {torch.float32}:
        raise NotAMemoryError(f"its weights are {other.pop()}; keep them float32")
    for method in ("initial_state", "step"):
        if not callable(getattr(memory, method, None)):
            raise NotAMemoryError(f"it has no method {method}")
    initial: Any = cast(Any, memory).initial_state(_BATCH)
    _check_initial(initial)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(_STEPS, _BATCH, input_size, generator=generator)
    going_on = torch.zeros(_STEPS, _BATCH, dtype=torch.bool)
    outputs, state = _steps(memory.eval(), features, going_on, initial)
    cast(Any, memory).out_features = outputs.shape[-1]
    in_training, _ = _steps(memory.train(), features, going_on, initial)
    if not _equal(outputs, in_training):
        raise NotAMemoryError("step computes other outputs when it is called again with the same "
                              "arguments, in training: it has dropout or other randomness, or keeps "
                              "something on self that belongs into the state")
    _check_rows(memory, features[0], state, outputs[0])
    if hasattr(memory, "unroll"):
        is_first = going_on.clone()
        is_first[2, 0] = True
        _check_unroll(memory, features, is_first, state)


def _check_rows(memory: Any, features: Tensor, state: State, afresh: Tensor) -> None:
    """Raise NotAMemoryError unless each row of a batch depends on its own arguments alone.

    `afresh` [B, H] are the outputs that `features` have in a new episode.
    """
    none_first = torch.zeros(_BATCH, dtype=torch.bool)
    forgotten, _ = _step(memory, features, ~none_first, state)
    if not _equal(forgotten, afresh):
        raise NotAMemoryError("where is_first is True, step does not begin from initial_state; it "
                              "has to forget the episode before")
    going_on, _ = _step(memory, features, none_first, state)
    first_alone = none_first.clone()
    first_alone[0] = True
    mixed, _ = _step(memory, features, first_alone, state)
    if not _equal(mixed, torch.cat([afresh[:1], going_on[1:]])):
        raise NotAMemoryError("if is_first is True in one row of a batch, step changes the outputs "
                              "of others; each row is another environment")
    row = slice(_BATCH - 1, _BATCH)
    single, _ = _step(memory, features[row], none_first[row], tuple(part[row] for part in state))
    if not _equal(single, going_on[row]):
        raise NotAMemoryError("step computes other outputs for a batch of one than for the same row "
                              "of a larger batch; each row is another environment")


def _check_initial(initial: Any) -> None:
    tensors = isinstance(initial, tuple) and all(isinstance(part, Tensor) for part in initial)
    if not tensors or not initial:
        raise NotAMemoryError(f"initial_state(batch) returned {_kind(initial)}, and has to return "
                          "a tuple of one or more tensors [batch, ...]")
    if any(part.shape[:1] != (_BATCH,) for part in initial):
        raise NotAMemoryError(f"initial_state({_BATCH}) returned {_kinds(initial)}, and the first "
                          f"axis of each tensor has to be the batch, {_BATCH}")


def _steps(memory: Any, features: Tensor, is_first: Tensor, state: State) -> tuple[Tensor, State]:
    """The outputs [T, B, H] of one step after another, and the last state."""
    outputs = []
    for row, first in zip(features, is_first, strict=True):
        output, state = _step(memory, row, first, state)
        outputs.append(output)
    return torch.stack(outputs), state


def _step(memory: Any, features: Tensor, is_first: Tensor, state: State) -> tuple[Tensor, State]:
    """The outputs and the next state of one step, checked."""
    before = tuple(part.clone() for part in state)
    result = memory.step(features, is_first, state)
    if not all(map(torch.equal, before, state)):
        raise NotAMemoryError("step changes the tensors of the state that it is given; return new "
                              "ones, since a rollout keeps the old state")
    batch = len(features)
    if not isinstance(result, tuple) or len(result) != 2:
        raise NotAMemoryError(f"step returned {_kind(result)}, and has to return the pair of "
                          "outputs [B, H] and the next state, a tuple")
    output, state = result
    width = getattr(memory, "out_features", None)
    fits = isinstance(output, Tensor) and output.dim() == 2 and output.shape[0] == batch
    if not fits or (width is not None and output.shape[1] != width):
        raise NotAMemoryError(f"step returned outputs {_kind(output)} for a batch of {batch}, "
                          f"expected [{batch}, {'H' if width is None else width}]")
    if output.dtype != torch.float32:
        raise NotAMemoryError(f"step returned outputs of {output.dtype}, expected torch.float32")
    if not output.isfinite().all():
        raise NotAMemoryError("step returned outputs that are not finite for features of a normal "
                              "distribution")
    if not isinstance(state, tuple):
        raise NotAMemoryError(f"step returned the state as {_kind(state)}, and has to "
                              "return a tuple of tensors")
    if _kinds(state) != _kinds(before):
        raise NotAMemoryError(f"step returned the state {_kinds(state)}, expected "
                              f"{_kinds(before)} as of initial_state")
    return output, state


def _check_unroll(memory: Any, features: Tensor, is_first: Tensor, state: State) -> None:
    output = memory.unroll(features, is_first, state)
    expected = [_STEPS, _BATCH, memory.out_features]
    if not isinstance(output, Tensor) or list(output.shape) != expected:
        raise NotAMemoryError(f"unroll returned {_kind(output)} for {_STEPS} steps of {_BATCH} "
                          f"environments, expected outputs {expected}")
    rows, _ = _steps(memory, features, is_first, state)
    if not _equal(output, rows):
        difference = float((output - rows).abs().max())
        raise NotAMemoryError(f"unroll differs by {difference:.2g} from as many calls of step; "
                          "correct it, or leave it out")


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def _kinds(parts: tuple[Any, ...]) -> str:
    """The types and shapes of a tuple of tensors, in words."""
    return f"({', '.join(_kind(part) for part in parts)})"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"
