"""How a Box is read, as image, vector or codes, and why; and the conversion of images.

The guess depends on the type, the shape and the bounds; `obs_as` overrides it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from vantage.envs.interface import Array
from vantage.errors import ConfigError
from vantage.specs import ArraySpec

Shape = tuple[int, ...]
GUESSED = ("auto", "no set")
"""Kinds by which the form of a Box decides; with "no set", a mask beside it has no effect."""
CHANNELS = (1, 3, 4)
LEAST_PICTURE = 10
"""Smallest side of a picture in pixels."""
LEAST_BOARD = 5
"""Smallest side of a board of floats; smaller arrays of floats are windows or tables."""
LEAST_PHOTO = 64
"""Smallest side from which bytes up to 255 are always divided by 255."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How a Box is read."""

    spec: ArraySpec
    why: str
    """The reason, for the start of a run."""
    axes: Shape = ()
    """Order of axes for `transpose`: [C, H, W], or [..., H, W] with the other axes flattened
    later."""


def read_box(space: spaces.Box, kind: str) -> Reading:
    """How to read `space` as `kind`: image, vector, codes, bytes or one of `GUESSED`.

    Raises ConfigError if it cannot be read so.
    """
    if kind == "bytes":
        return _read_as_bytes(space)
    if kind in ("image", "codes"):
        _refuse(space, kind)
    axes = _axes(space.shape)
    bounds = _bounds(space)
    if kind == "vector":
        return _vector(space, "as obs_as says")
    if kind not in GUESSED:
        return _image(space, axes, "as obs_as says", codes=kind == "codes")
    if len(space.shape) == 1:
        return _vector(space, "one axis")
    if not axes:
        return _vector(space, f"{len(space.shape)} axes")
    sides = [space.shape[axis] for axis in axes[-2:]]
    if len(axes) == 4 and min(sides) < LEAST_PICTURE:
        return _vector(space, f"4 axes, sides below {LEAST_PICTURE}")
    if space.dtype.kind == "f":
        if len(axes) == 2:
            return _vector(space, "floats on two axes may be a table")
        if bounds not in ((0, 1), (0, 255)):
            return _vector(space, "floats that are not from 0 to 1 or to 255")
        if min(sides) < LEAST_BOARD:
            return _vector(space, f"floats on sides below {LEAST_BOARD} may be a table")
    elif bounds[0] < 0 or bounds[1] > 255:
        return _vector(space, "numbers that are not from 0 to 255")
    elif len(axes) == 2 and space.dtype != np.uint8:
        return _vector(space, f"{space.dtype} on two axes may be a table")
    return _image(space, axes, "")


def _image(space: spaces.Box, axes: Shape, why: str, *, codes: bool = False) -> Reading:
    """`space` as an image, in bytes if they can hold its numbers."""
    shape = tuple(space.shape[axis] for axis in axes)
    *channels, height, width = (1, *shape) if len(shape) == 2 else shape
    low, high = _bounds(space)
    floats = space.dtype.kind == "f" or low < 0 or high > 255
    largest = max(abs(low), abs(high))
    adapts = floats and not math.isfinite(largest)
    if adapts:
        unit = 1.0
    else:
        unit = (largest or 1.0) if floats else max(1.0, largest)
    if high == 255 and codes:
        unit = 1.0
    elif high == 255 and not floats and not why and max(height, width) < LEAST_PHOTO:
        # A grid of few cells shows codes more often than pixels. The values that occur decide.
        adapts = True
        unit = 1.0 if max(height, width) < LEAST_PICTURE else 255.0
    words = [why or f"{space.dtype} from {low:g} to {high:g} on {len(axes)} axes"]
    if len(axes) > 2:
        if axes == tuple(range(len(axes))):
            words.append("channels first")
        else:
            words.append("channels last" if len(axes) == 3 else "frames stacked")
    words.append("scaled by what occurs" if adapts else f"{unit:g} seen as 1")
    spec = ArraySpec("image", (math.prod(channels), height, width), unit, floats, adapts)
    return Reading(spec, ", ".join(words), axes)


def _vector(space: spaces.Box, why: str) -> Reading:
    return Reading(ArraySpec("vector", (math.prod(space.shape),)), why)


def _refuse(space: spaces.Box, kind: str) -> None:
    """ConfigError if `space` cannot be an image, or its numbers cannot be codes."""
    if not 2 <= len(space.shape) <= 4:
        raise ConfigError(f"obs_as={kind} needs two to four axes, and this Box has the shape "
                          f"{space.shape}; give vector, or leave it out")
    low, high = _bounds(space)
    if kind == "codes" and (space.dtype.kind == "f" or low < 0 or high > 255):
        raise ConfigError("obs_as=codes needs whole numbers from 0 to at most 255, and this Box "
                          f"has {space.dtype} from {low:g} to {high:g}; give image or vector")


def _bounds(space: spaces.Box) -> tuple[float, float]:
    return float(space.low.min()), float(space.high.max())


def _axes(shape: Shape) -> Shape:
    """The axes of an image in the order channels, height, width; () for other shapes.

    Among four axes, height and width are the two neighbours with the largest area; the others are
    frames and channels.
    """
    if len(shape) == 2:
        return (0, 1)
    if len(shape) == 3:
        return (0, 1, 2) if _channels_first(shape) else (2, 0, 1)
    if len(shape) != 4:
        return ()
    first = max((1, 2, 0), key=lambda axis: shape[axis] * shape[axis + 1])
    sides = (first, first + 1)
    return (*(axis for axis in range(4) if axis not in sides), *sides)


def _channels_first(shape: Shape) -> bool:
    """Whether an image of three axes is [C, H, W], not [H, W, C].

    Two neighbouring axes of equal length are height and width. Otherwise, an axis of 1, 3 or 4 at
    one end holds the channels. If neither or both ends do, it is the end whose length differs more
    from its neighbour's, and the last axis in a tie.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return middle == last
    if (first in CHANNELS) != (last in CHANNELS):
        return first in CHANNELS
    return abs(math.log(first / middle)) > abs(math.log(middle / last))


def _read_as_bytes(space: spaces.Box) -> Reading:
    """The guess of runs older than `obs_as`, so that they stay playable and resumable."""
    shape = space.shape
    low, high = _bounds(space)
    is_float = space.dtype.kind == "f"
    why = "as runs without obs_as"
    if len(shape) not in (2, 3) or low < 0 or high > 255:
        return _vector(space, why)
    if len(shape) == 2 and space.dtype != np.uint8:
        return _vector(space, why)
    if is_float and (high not in (1, 255) or low != 0):
        return _vector(space, why)
    first = shape[-1] not in CHANNELS and (shape[0] in CHANNELS or shape[0] < shape[-1])
    axes = tuple(range(len(shape))) if len(shape) == 2 or first else (2, 0, 1)
    sides = [shape[axis] for axis in axes]
    codes = high == 255 and max(sides[-2:]) < LEAST_PICTURE
    if is_float:
        unit = 255.0
    else:
        unit = 1.0 if codes else max(1.0, high)
    return Reading(ArraySpec("image", (1, *sides) if len(sides) == 2 else tuple(sides), unit), why,
                   axes)


def to_image(space: spaces.Box, reading: Reading, batch: Shape) -> Callable[[Array], Array]:
    """The conversion of arrays [*batch, ...] to images [*batch, C, H, W]."""
    part = reading.spec
    axes = (*range(len(batch)), *(axis + len(batch) for axis in reading.axes))
    low, high = _bounds(space)
    rounds = space.dtype.kind == "f" and not part.floats

    def in_type(array: Array) -> Array:
        """`array` in the type of the part."""
        if array.dtype == np.uint8 and not part.floats:
            return array
        if not np.isfinite(array).all():
            raise ValueError(f"the observation {array} is not finite")
        if part.floats:
            return array.astype(np.float32, copy=False)
        if rounds:
            return np.rint(np.clip(array * (255 / high), 0, 255)).astype(np.uint8)
        is_fractional = array.dtype.kind == "f" and (array % 1).any()
        if is_fractional or (array < 0).any() or (array > 255).any():
            raise ValueError(f"the observation has numbers from {array.min():g} to "
                             f"{array.max():g}; its Box has whole ones from {low:g} to {high:g}; "
                             "correct the observation_space")
        return array.astype(np.uint8)

    return lambda array: in_type(array).transpose(axes).reshape(batch + part.shape)
