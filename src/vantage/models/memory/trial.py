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
    initial: Any = cast(Any, memory).initial_state(_BATCH)
    _check_initial(initial)
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(_STEPS, _BATCH, input_size, generator=generator)
    going_on = torch.zeros(_STEPS, _BATCH, dtype=torch.bool)
    outputs, state = _steps(memory.eval(), features, going_on, initial, initial)
    in_training, _ = _steps(memory.train(), features, going_on, initial, initial)
    if not _equal(outputs, in_training):
        raise NotAMemoryError("it computes otherwise in training than in play, as dropout does")
    cast(Any, memory).out_features = outputs.shape[-1]
    afresh, _ = _step(memory, features[0], ~going_on[0], state, initial)
    if not _equal(afresh, outputs[0]):
        raise NotAMemoryError("where is_first is True, step does not begin from initial_state; it "
                          "has to forget the episode before")
    if hasattr(memory, "unroll"):
        is_first = going_on.clone()
        is_first[2, 0] = True
        _check_unroll(memory, features, is_first, state)


def _check_initial(initial: Any) -> None:
    tensors = isinstance(initial, tuple) and all(isinstance(part, Tensor) for part in initial)
    if not tensors or not initial:
        raise NotAMemoryError(f"initial_state(batch) returned {_kind(initial)}, and has to return "
                          "a tuple of one or more tensors [batch, ...]")
    if any(part.shape[:1] != (_BATCH,) for part in initial):
        raise NotAMemoryError(f"initial_state({_BATCH}) returned {_kinds(initial)}, and the first "
                          f"axis of each tensor has to be the batch, {_BATCH}")


def _steps(memory: Any, features: Tensor, is_first: Tensor, state: State,
           initial: State) -> tuple[Tensor, State]:
    """The outputs [T, B, H] of one step after another, and the last state."""
    outputs = []
    for row, first in zip(features, is_first, strict=True):
        output, state = _step(memory, row, first, state, initial)
        outputs.append(output)
    return torch.stack(outputs), state


def _step(memory: Any, features: Tensor, is_first: Tensor, state: State,
          initial: State) -> tuple[Tensor, State]:
    torch.manual_seed(0)
    result = memory.step(features, is_first, state)
    if not isinstance(result, tuple) or len(result) != 2:
        raise NotAMemoryError(f"step returned {_kind(result)}, and has to return the pair of "
                          "outputs [B, H] and the next state, a tuple")
    output, state = result
    width = getattr(memory, "out_features", None)
    fits = isinstance(output, Tensor) and output.dim() == 2 and output.shape[0] == _BATCH
    if not fits or (width is not None and output.shape[1] != width):
        raise NotAMemoryError(f"step returned outputs {_kind(output)} for a batch of {_BATCH}, "
                          f"expected [{_BATCH}, {'H' if width is None else width}]")
    if not output.is_floating_point():
        raise NotAMemoryError(f"step returned outputs of {output.dtype}, expected torch.float32")
    if not isinstance(state, tuple) or _kinds(state) != _kinds(initial):
        raise NotAMemoryError(f"step returned the state {_kinds(state)}, expected "
                          f"{_kinds(initial)} as of initial_state")
    return output, state


def _check_unroll(memory: Any, features: Tensor, is_first: Tensor, state: State) -> None:
    torch.manual_seed(0)
    output = memory.unroll(features, is_first, state)
    expected = [_STEPS, _BATCH, memory.out_features]
    if not isinstance(output, Tensor) or list(output.shape) != expected:
        raise NotAMemoryError(f"unroll returned {_kind(output)} for {_STEPS} steps of {_BATCH} "
                          f"environments, expected outputs {expected}")
    rows, _ = _steps(memory, features, is_first, state, state)
    if not _equal(output, rows):
        difference = float((output - rows).abs().max())
        raise NotAMemoryError(f"unroll differs by {difference:.2g} from as many calls of step; "
                          "correct it, or leave it out")


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)


def _kinds(parts: Any) -> str:
    """The types and shapes of a tuple of tensors, in words."""
    if not isinstance(parts, tuple):
        return _kind(parts)
    return f"({', '.join(_kind(part) for part in parts)})"


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"a {type(value).__name__}"
