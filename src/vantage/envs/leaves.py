"""Conversion of one part of an observation: an image, a float32 vector or one-hots.

The conversions raise ValueError or TypeError for values of another shape or type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.interface import Array
from vantage.envs.observations import GUESSED, read_box, to_image
from vantage.envs.parts import Path, value_at
from vantage.errors import ConfigError
from vantage.specs import ArraySpec

Shape = tuple[int, ...]
Convert = Callable[[Any], Any]
FLOAT32 = np.dtype(np.float32)
_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
"""Names of NumPy's dtype kinds."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an observation space, read: a leaf of nested Dict and Tuple spaces."""

    name: str
    """Its path joined by "/"; "" for a space without parts."""
    spec: ArraySpec
    convert: Convert
    why: str
    """Why it is read as an image, vector, one-hot or set, for the start of a run."""
    mask: Path | None = None
    """The path of the mask of a set, with which `convert` takes a pair of values."""

    def value(self, obs: Any, path: Path) -> Any:
        """The argument of `convert` in a whole observation: the value at `path`, or a pair."""
        value = value_at(obs, path)
        return value if self.mask is None else (value, value_at(obs, self.mask))


def read_leaf(space: gym.Space[Any], name: str, batch: Shape, kind: str) -> Part:
    """A part without parts of its own."""
    _refuse_part(space, kind)
    shape: Shape = space.shape or ()
    size = int(np.prod(shape))
    flat = (*batch, size)

    def to_floats(array: Array) -> Array:
        return array.astype(np.float32, copy=False).reshape(flat)

    change: Convert
    match space:
        case spaces.Box() if size:
            reading = read_box(space, kind)
            spec = reading.spec
            why = reading.why
            dtype_kinds = "u" if space.dtype == np.uint8 else "fiub"
            change = to_image(space, reading, batch) if spec.kind == "image" else to_floats
        case spaces.MultiBinary() if size:
            spec = ArraySpec("one_hot", (size,), sizes=(1,) * size)
            why = "bits"
            dtype_kinds = "fiub"
            change = to_floats
        case spaces.Discrete() | spaces.MultiDiscrete():
            sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
            spec = ArraySpec("one_hot", (sum(sizes.tolist()),), sizes=tuple(map(int, sizes)))
            why = f"one-hot of {type(space).__name__}"
            dtype_kinds = "iu"
            change = _one_hot(sizes, np.ravel(space.start), batch)
        case spaces.Sequence():
            raise ConfigError(f"observations in {space!s:.200} have no largest length: pad them in "
                              "a wrapper to a Box of shape (N, F), with a MultiBinary(N) NAME_mask "
                              "beside it that marks the rows that exist")
        case _:
            raise ConfigError(f"observations in {space!s:.200} are not supported: Vantage reads "
                              "Box, Discrete, MultiDiscrete, MultiBinary and Dict or Tuple of "
                              "these; convert them in a wrapper")
    return Part(name, spec, _checked(change, batch, shape, dtype_kinds), why)


def _checked(change: Convert, batch: Shape, shape: Shape, dtype_kinds: str) -> Convert:
    """`change` for arrays [*batch, *shape] of these dtype kinds; ValueError for others."""
    whole = batch + shape
    often_unchanged = dtype_kinds == "fiub" and len(shape) == 1
    # Each of several environments may write its observations to the same memory, so copy them. A
    # vector environment is not stepped before its observations are in the rollout.
    take = np.asarray if batch else np.array

    def convert(value: Any) -> Array:
        # Most observations need no change: the checks below would cost them a microsecond.
        if (often_unchanged and value.__class__ is np.ndarray and value.dtype is FLOAT32
                and value.shape == whole):
            return _usable(value) if batch else value.copy()
        array = take(value)
        if array.shape != whole or array.dtype.kind not in dtype_kinds:
            types = ""
            if array.dtype.kind not in dtype_kinds:
                names = [_KINDS[kind] for kind in dtype_kinds]
                types = "uint8 of " if dtype_kinds == "u" else f"{' or '.join(names)} of "
            raise ValueError(f"the observation is {array.dtype} of shape {array.shape}; it must be "
                             f"{types}shape {whole}")
        return _usable(change(array))

    return convert


def _usable(array: Array) -> Array:
    """`array` in memory that torch can share: writeable and without negative strides."""
    if array.flags.writeable and min(array.strides) >= 0:
        return array
    copied: Array = array.copy()
    return copied


def _refuse_part(space: gym.Space[Any], kind: str) -> None:
    """ConfigError for an empty space, and for a part that cannot be read as obs_as asks."""
    if isinstance(space, spaces.Box | spaces.MultiBinary) and 0 in space.shape:
        raise ConfigError(f"observations in {space} hold no number: its shape is {space.shape}; "
                          "leave it out of the observation_space, or give it a shape without 0")
    if kind not in (*GUESSED, "bytes") and not isinstance(space, spaces.Box):
        raise ConfigError(f"obs_as={kind} is for Boxes, and this is {space!s:.100}, which is read "
                          "in one way; leave it out")


def _one_hot(sizes: Array, starts: Array, batch: Shape) -> Convert:
    """The conversion of integers [*batch, ...] to one-hots of `sizes`, side by side."""
    total = sum(sizes.tolist())
    offsets = np.cumsum(sizes) - sizes

    def convert(array: Array) -> Array:
        index = array.astype(np.int64).reshape(*batch, len(sizes)) - starts
        if (index < 0).any() or (index >= sizes).any():
            raise ValueError(f"the observation is outside its space: {index.tolist()} of "
                             f"{sizes.tolist()}, from 0")
        vector = np.zeros((*index.shape[:-1], total), np.float32)
        np.put_along_axis(vector, offsets + index, 1.0, -1)
        return vector

    return convert
