"""The memory that a config names, and its steps over a rollout."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from vantage.errors import ConfigError
from vantage.keys.import_paths import load_class
from vantage.keys.objects import line_of
from vantage.models.config import PolicyConfig
from vantage.models.memory.gru import Gru
from vantage.models.memory.gtrxl import Gtrxl
from vantage.models.memory.interface import Memory
from vantage.models.memory.lstm import Lstm
from vantage.models.memory.trial import NotAMemoryError, try_memory
from vantage.types import State

_BUILT_IN: dict[str, Callable[..., Memory]] = {"lstm": Lstm, "gru": Gru}


def make_memory(policy: PolicyConfig, input_size: int) -> Memory:
    """The memory of `policy` for features [B, F]; ConfigError for a class that is no `Memory`."""
    sizes = {"input_size": input_size, "memory_size": policy.memory_size}
    if policy.memory in _BUILT_IN:
        return _BUILT_IN[policy.memory](**sizes, init=policy.init)
    if policy.memory == "gtrxl":
        return Gtrxl(**sizes, window=policy.memory_window, num_layers=policy.memory_layers,
                     num_heads=policy.memory_heads, init=policy.init)
    target = load_class(policy.memory, what="memory")
    try:
        memory = target if isinstance(target, nn.Module) else target(**sizes)
        # A function may return the same module again, for the critic and for evaluations.
        memory = memory if isinstance(target, type) else copy.deepcopy(memory)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            try_memory(memory, input_size)
    except Exception as error:
        reason = str(error)
        if not isinstance(error, NotAMemoryError):
            reason = (f"{error!r}{line_of(error, policy.memory)}; it must be an nn.Module with "
                      "initial_state(batch) and step(features, is_first, state), or a class or "
                      "function that is called with input_size= and memory_size= and returns one")
        raise ConfigError(f"memory={policy.memory!r} cannot be used on {input_size} features: "
                          f"{reason}") from error
    return cast(Memory, memory)


def unroll(memory: Memory, features: Tensor, is_first: Tensor, state: State, *,
           bptt: bool) -> Tensor:
    """The outputs [T, B, H] for features [T, B, F].

    Without `bptt`, no gradient flows between steps.
    """
    if bptt and hasattr(memory, "unroll"):
        return memory.unroll(features, is_first, state)
    outputs = []
    for row, first in zip(features, is_first, strict=True):
        if not bptt:
            state = tuple(part.detach() for part in state)
        output, state = memory.step(row, first, state)
        outputs.append(output)
    return torch.stack(outputs)
