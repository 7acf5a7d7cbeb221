"""Spaces as JSON, so that policies read observations and write actions without the environment.

The JSON may come from someone else: its size is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.parts import is_text

Json = dict[str, Any]

_LARGEST = 10**7
"""Largest size of an observation, and of a Discrete space."""
_DEEPEST = 16
"""Levels of nested Dict and Tuple spaces."""
_TYPES = {"bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8",
          "uint16", "uint32", "uint64"}


def space_to_json(space: gym.Space[Any]) -> Json | None:
    """`space` as a JSON object; None if it has parts that policies do not read."""
    try:
        return _to_json(space)
    except TypeError:
        return None


def space_from_json(value: Any) -> gym.Space[Any]:
    """The space that `space_to_json` wrote. ValueError for anything else."""
    try:
        if _numbers(value, 0) > _LARGEST:
            raise ValueError("too large")
        space = _from_json(value)
    except (AttributeError, AssertionError, IndexError, KeyError, OverflowError, TypeError,
            ValueError) as error:
        raise ValueError(f"space is {value!r:.200}") from error
    return space


def _to_json(space: Any) -> Json:
    match space:
        case spaces.Box():
            return {"type": "Box", "low": _bounds(space.low), "high": _bounds(space.high),
                    "shape": list(space.shape), "dtype": np.dtype(space.dtype).name}
        case spaces.Discrete():
            return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete():
            return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(),
                    "start": space.start.tolist()}
        case spaces.MultiBinary():
            return {"type": "MultiBinary", "shape": list(space.shape)}
        case spaces.Dict():
            if not all(isinstance(key, str) for key in space.spaces):
                raise TypeError("keys are no texts")
            parts = {key: _to_json(part) for key, part in space.spaces.items()}
            return {"type": "Dict", "spaces": parts}
        case spaces.Tuple():
            return {"type": "Tuple", "spaces": [_to_json(part) for part in space.spaces]}
        case _ if is_text(space):
            return {"type": "Text"}
    raise TypeError(type(space).__name__)


def _numbers(value: Mapping[str, Any], depth: int) -> int:
    """Size of an observation, computed before such a space is built."""
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if "spaces" not in value:
        return math.prod(_shape(value["shape"])) if "shape" in value else 1
    parts = value["spaces"]
    return sum(_numbers(part, depth + 1)
               for part in (parts.values() if isinstance(parts, dict) else parts))


def _from_json(value: Mapping[str, Any]) -> gym.Space[Any]:
    match value["type"]:
        case "Box":
            shape = _shape(value["shape"])
            dtype = value["dtype"]
            if dtype not in _TYPES:
                raise ValueError(dtype)
            low = _array(value["low"], -math.inf, dtype, shape)
            high = _array(value["high"], math.inf, dtype, shape)
            return spaces.Box(low, high, shape, np.dtype(dtype).type)
        case "Discrete":
            _shape([value["n"]])
            return spaces.Discrete(value["n"], start=int(value["start"]))
        case "MultiDiscrete":
            nvec = np.array(value["nvec"], np.int64)
            if not 0 < int(nvec.sum()) <= _LARGEST or nvec.min() < 1:
                raise ValueError("nvec")
            return spaces.MultiDiscrete(nvec, start=np.array(value["start"], np.int64))
        case "MultiBinary":
            shape = _shape(value["shape"])
            return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
        case "Text":
            return spaces.Text(1)
        case "Dict":
            parts = value["spaces"].items()
            # a sequence, which keeps the order
            return spaces.Dict([(str(key), _from_json(part)) for key, part in parts])
        case "Tuple":
            return spaces.Tuple([_from_json(part) for part in value["spaces"]])
    raise ValueError(value["type"])


def _bounds(array: Any) -> Any:
    """One number if all are equal, else a list; null for infinity."""
    values = [None if isinstance(bound, float) and math.isinf(bound) else bound
              for bound in array.ravel().tolist()]
    return values[0] if values and all(value == values[0] for value in values) else values


def _array(bounds: Any, infinite: float, dtype: str, shape: tuple[int, ...]) -> Any:
    whole = bounds if isinstance(bounds, list) else [bounds] * math.prod(shape)
    return np.array([infinite if bound is None else bound for bound in whole], dtype).reshape(shape)


def _shape(shape: Any) -> tuple[int, ...]:
    if not (isinstance(shape, list) and all(type(side) is int and side > 0 for side in shape)
            and math.prod(shape) <= _LARGEST):
        raise ValueError(f"shape {shape!r:.80}")
    return tuple(shape)
