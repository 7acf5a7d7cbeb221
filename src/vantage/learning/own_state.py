"""Finds state of a user's algorithm that no checkpoint holds: all but numbers and its module."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

_STATE = (nn.Module, torch.Tensor, torch.Generator, torch.optim.Optimizer, np.random.Generator,
          np.random.RandomState, random.Random)


def own_state(algorithm: object) -> frozenset[str]:
    """Modules, tensors, generators and optimisers that `algorithm` holds, as "predictor (Linear)".

    Looks at the attributes of the instance and its class, and into lists and dicts. Vantage's
    algorithms have none.
    """
    kinds = [kind for kind in type(algorithm).__mro__
             if not kind.__module__.startswith(("vantage.", "builtins"))]
    attributes: dict[str, Any] = {}
    for kind in reversed(kinds):
        attributes |= vars(kind)
    attributes |= getattr(algorithm, "__dict__", {})
    names: set[str] = set()
    for name, value in attributes.items():
        parts: Iterable[Any] = [value]
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, list | tuple):
            parts = value
        names |= {f"{name} ({type(part).__name__})" for part in parts if isinstance(part, _STATE)}
    return frozenset(names)
