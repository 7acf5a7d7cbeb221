"""Finds state that an algorithm of the user's own holds beside its hyperparameters, which no checkpoint saves."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

_STATE = (nn.Module, torch.Tensor, torch.Generator, torch.optim.Optimizer, np.random.Generator, np.random.RandomState,
          random.Random)
_DEPTH = 3
"""Containers and objects within each other that are searched."""
_MOST_ITEMS = 100


class OwnState:
    """What `own_state` finds in the algorithm of one process, where it may appear while the process learns."""

    def __init__(self, algorithm: object) -> None:
        self._algorithm, self._calls = algorithm, 0

    def after_update(self) -> frozenset[str]:
        """Look for it after 1, 2, 4, 8, ... updates; otherwise nothing."""
        self._calls += 1
        return frozenset() if self._calls & (self._calls - 1) else own_state(self._algorithm)


def own_state(algorithm: object) -> frozenset[str]:
    """Modules, tensors, generators and optimisers that `algorithm` holds, as "predictor (Linear)".

    Searches the instance, its class and the globals of the class's module; Vantage's own algorithms have none. Tensors
    among the globals are taken for constants.
    """
    if _is_of_library(type(algorithm)):
        return frozenset()
    found: dict[str, str] = {}
    for kind in reversed([kind for kind in type(algorithm).__mro__ if not _is_of_library(kind)]):
        module = sys.modules.get(kind.__module__)
        for name, value in vars(module).items() if module else ():
            if isinstance(value, _STATE) and not isinstance(value, torch.Tensor):
                found[name] = type(value).__name__
        for name, value in vars(kind).items():
            found |= _search(name, value, _DEPTH)
    for name, value in _attributes(algorithm):
        found |= _search(name, value, _DEPTH)
    return frozenset(f"{name} ({kind})" for name, kind in found.items())


def _search(name: str, value: Any, depth: int) -> dict[str, str]:
    if isinstance(value, _STATE):
        return {name: type(value).__name__}
    if depth == 0 or isinstance(value, str | bytes | int | float | type | FunctionType | ModuleType | None):
        return {}
    parts: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        parts = [(f"{name}[{key!r:.40}]", part) for key, part in islice(value.items(), _MOST_ITEMS)]
    elif isinstance(value, Sequence | Set):
        parts = [(f"{name}[{i}]", part) for i, part in enumerate(islice(value, _MOST_ITEMS))]
    elif not _is_of_library(type(value)):
        parts = [(f"{name}.{key}", part) for key, part in _attributes(value)]
    found: dict[str, str] = {}
    for place, part in parts:
        found |= _search(place, part, depth - 1)
    return found


def _attributes(value: object) -> Iterator[tuple[str, Any]]:
    """The attributes that an object stores, without calling its properties."""
    yield from list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                yield name, getattr(value, name)


def _is_of_library(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("vantage", "builtins", "typing", "abc", "torch", "numpy")
