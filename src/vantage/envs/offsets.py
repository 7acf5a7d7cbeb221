"""Large offsets in observations, such as clocks, where float32 would lose small differences.

They are detected once, and subtracted in the environment's precision from every observation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage._host.seeding import episode_seed
from vantage.envs.interface import Array
from vantage.envs.parts import Path, leaves_of, names_of, value_at
from vantage.errors import ConfigError
from vantage.specs import ArraySpec

Shifts = Mapping[str, tuple[float, ...]]
"""Offsets to subtract, by the name of the part, "" for the whole observation."""

LARGE_OFFSET = 1e4
"""Smallest offset: float32 resolves 0.001 there, and less beyond."""
CLOSE = 0.01
"""Largest relative difference between two first observations that share an offset."""


def first_offsets(reset: Callable[[int], Any], space: gym.Space[Any],
                  obs: ArraySpec | Mapping[str, ArraySpec]) -> Shifts:
    """Offsets of the observations that `reset` returns for two seeds.

    The seeds are the same in training, evaluations and all processes, so all subtract the same. A
    number has an offset if it is large in the first observation and close to that in the second.
    Images and types that float32 represents exactly have none.
    """
    leaves = leaves_of(space)
    if not any(map(_is_wide, leaves.values())):
        return {}
    first = deepcopy(reset(episode_seed(0, 0, 0, 0)))  # it may be overwritten
    second = reset(episode_seed(0, 0, 0, 1))
    shifts = {}
    for path, name in names_of(leaves).items():
        part = obs.get(name) if isinstance(obs, Mapping) else obs
        if part is not None and part.kind == "vector" and _is_wide(leaves[path]):
            # not of the space: the first reset says so
            with suppress(LookupError, TypeError, ValueError):
                size = part.shape[0]
                offsets = _in_common(_numbers(first, path, size), _numbers(second, path, size))
                if any(offsets):
                    shifts[name] = tuple(offsets)
    return shifts


def _numbers(obs: Any, path: Path, size: int) -> Array:
    """The numbers of a part; of the first environment in a batch."""
    numbers = np.ravel(value_at(obs, path))[:size]
    if numbers.dtype.kind not in "fiu" or len(numbers) != size:
        raise ValueError(f"{numbers.dtype} of size {len(numbers)}, not numbers of size {size}")
    return numbers


def _in_common(first: Array, second: Array) -> list[float]:
    """The numbers of `first` that are large and close to `second`; 0 for others."""
    size = abs(first.astype(np.float64))
    distance = abs(second.astype(np.float64) - first.astype(np.float64))
    large = np.isfinite(size) & (size >= LARGE_OFFSET) & (distance <= CLOSE * size)
    numbers = first.tolist()
    return [numbers[i] if large[i] else 0 for i in range(len(numbers))]


def _is_wide(space: gym.Space[Any]) -> bool:
    """Whether a space is a Box of a type with more digits than float32."""
    if not isinstance(space, spaces.Box) or space.dtype == np.float32:
        return False
    return space.dtype.kind in "fiu" and space.dtype.itemsize >= 4


def shifted(spec: ArraySpec, convert: Callable[[Any], Any], shift: tuple[float, ...]
            ) -> tuple[ArraySpec, Callable[[Any], Any]]:
    """The part with `shift` subtracted before it becomes float32."""
    if not shift:
        return spec, convert
    if spec.kind != "vector" or len(shift) != spec.shape[0]:
        raise ConfigError(f"obs_shift has {len(shift)} numbers for {spec.kind} of shape "
                          f"{spec.shape}; give --obs-shift auto")
    floats = np.array([float(each) for each in shift])
    # Whole numbers are subtracted as such: float64 has 53 bits, a clock in nanoseconds 61. 64 bits
    # wrap around.
    whole = np.array([int(each) % 2**64 for each in shift], np.uint64).view(np.int64)
    all_whole = all(each == int(each) for each in shift)

    def subtract(value: Any) -> Any:
        array = np.asarray(value)
        array = array.reshape(convert(array).shape)  # which checks it
        if all_whole and array.dtype.kind in "iu":
            return (array.astype(np.int64) - whole).astype(np.float32)
        return (array.astype(np.float64) - floats).astype(np.float32)

    return replace(spec, shift=shift), subtract
