"""Conversion between an environment's spaces and a policy's: uint8 images, float32 vectors, four kinds of action.

The conversions check shape and type. No environment is stepped here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.interface import Array, Obs
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

Shape = tuple[int, ...]
CHANNELS = (1, 3, 4)


class Observer(NamedTuple):
    """Converts the observations of one space. `convert` raises ValueError or TypeError for a value outside it."""

    spec: ArraySpec | Mapping[str, ArraySpec]
    convert: Callable[[Any], Any]
    note: str


class Actor(NamedTuple):
    """Converts a policy's actions into those of one space; Box actions are clipped here and nowhere else."""

    spec: ActionSpec
    convert: Callable[[Any], Any]
    note: str


class _Part(NamedTuple):
    spec: ArraySpec
    convert: Callable[[Any], Array]
    note: str


def make_observer(space: gym.Space[Any], batch: Shape = ()) -> Observer:
    """ConfigError for a space that no policy can read. `batch` is the shape of the leading axes, () or (B,)."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        part = _part(space, "observations", batch)
        return Observer(part.spec, part.convert, f"observations: {part.note}")
    parts = {key: (path, _part(leaf, f"observation {key!r}", batch)) for key, path, leaf in _leaves(space, ())}
    if not parts:
        raise ConfigError(f"observation space {space} is empty")

    def convert(value: Any) -> dict[str, Array]:
        converted = {}
        for key, (path, part) in parts.items():
            leaf = value
            try:
                for name in path:
                    leaf = leaf[name]
            except (KeyError, IndexError):
                raise ValueError(f"the observation lacks {key!r}") from None
            try:
                converted[key] = part.convert(leaf)
            except (TypeError, ValueError) as error:
                raise type(error)(f"in {key!r}: {error}") from None
        return converted

    notes = ", ".join(f"{key}: {part.note}" for key, (_, part) in parts.items())
    return Observer({key: part.spec for key, (_, part) in parts.items()}, convert, f"observations: {notes}")


def make_actor(space: gym.Space[Any], batch: Shape = ()) -> Actor:
    """ConfigError for a space in which no policy can act. `batch` is the shape of the leading axes, () or (B,)."""
    match space:
        case spaces.Discrete():
            start, count = space.start, int(space.n)
            return Actor(ActionSpec("discrete", (count,)), lambda action: action + start, f"actions: one of {count}")
        case spaces.MultiDiscrete():
            sizes = tuple(int(n) for n in space.nvec.ravel())
            return Actor(ActionSpec("multi_discrete", sizes), _choices(space, space.start, batch),
                         f"actions: {len(sizes)} choices, of {', '.join(map(str, sizes))}")
        case spaces.MultiBinary():
            size = int(np.prod(space.shape))
            return Actor(ActionSpec("multi_binary", (2,) * size), _choices(space, 0, batch),
                         f"actions: {size} of 0 or 1")
        case spaces.Box():
            return _box_actor(space, batch)
    raise ConfigError(f"{type(space).__name__} space actions are not supported: Vantage acts in Discrete, "
                      "MultiDiscrete, MultiBinary and Box spaces; flatten the space or choose one of its parts in a "
                      "wrapper of the environment")


def make_masker(spec: ActionSpec) -> Callable[[Any], Array]:
    """A function that converts `info["action_mask"]`, one array or one for each component, to [A] bool.

    It raises ValueError for a mask of another size, or one that allows no action.
    """
    total, ends = sum(spec.sizes), np.cumsum(spec.sizes)[:-1]

    def convert(value: Any) -> Array:
        mask = np.concatenate([np.ravel(part) for part in (value if isinstance(value, tuple | list) else [value])])
        mask = mask.astype(bool)
        if mask.shape != (total,):
            raise ValueError(f"action_mask has {mask.size} entries, the actions have {total}")
        if not all(part.any() for part in np.split(mask, ends)):
            raise ValueError("action_mask allows no action")
        return mask

    return convert


def policy_spaces(spec: EnvSpec) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of observations and actions after conversion."""
    action = spec.action
    match action.kind:
        case "discrete":
            return _policy_space(spec.obs), spaces.Discrete(action.sizes[0])
        case "box":
            return _policy_space(spec.obs), spaces.Box(-np.inf, np.inf, action.shape, np.float32)
    return _policy_space(spec.obs), spaces.MultiDiscrete(list(action.sizes))


def blank_obs(spec: ArraySpec | Mapping[str, ArraySpec], batch: Shape = ()) -> Obs:
    """Zeros in the shape of an observation."""
    def zeros(part: ArraySpec) -> Array:
        return np.zeros(batch + part.shape, np.uint8 if part.kind == "image" else np.float32)

    return zeros(spec) if isinstance(spec, ArraySpec) else {key: zeros(part) for key, part in spec.items()}


def _policy_space(spec: ArraySpec | Mapping[str, ArraySpec]) -> gym.Space[Any]:
    if isinstance(spec, Mapping):
        return spaces.Dict({key: _policy_space(part) for key, part in spec.items()})
    if spec.kind == "image":
        return spaces.Box(0, 255, spec.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, spec.shape, np.float32)


def _leaves(space: gym.Space[Any], path: tuple[Any, ...]) -> list[tuple[str, tuple[Any, ...], gym.Space[Any]]]:
    """Name, path and space of every leaf of nested Dict and Tuple spaces."""
    match space:
        case spaces.Dict():
            children: list[tuple[Any, gym.Space[Any]]] = list(space.spaces.items())
        case spaces.Tuple():
            children = list(enumerate(space.spaces))
        case _:
            return [("/".join(map(str, path)), path, space)]
    return [leaf for name, child in children for leaf in _leaves(child, (*path, name))]


def _part(space: gym.Space[Any], what: str, batch: Shape) -> _Part:
    match space:
        case spaces.Box() if space.dtype == np.uint8 and (image := _image(space.shape, batch)):
            return image
        case spaces.Box() | spaces.MultiBinary():
            return _vector(space.shape, batch)
        case spaces.Discrete():
            return _one_hot(np.array([space.n]), np.array([space.start]), (), batch)
        case spaces.MultiDiscrete():
            return _one_hot(space.nvec.ravel(), space.start.ravel(), space.shape, batch)
    raise ConfigError(f"{what}: {type(space).__name__} space is not supported: Vantage reads Box, Discrete, "
                      "MultiDiscrete, MultiBinary and Dict or Tuple of these; convert it in a wrapper of the "
                      "environment")


def _image(shape: Shape, batch: Shape) -> _Part | None:
    """uint8 [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4 channels; None for other shapes."""
    channels_last = len(shape) == 3 and shape[2] in CHANNELS
    if channels_last:
        target: Shape = (shape[2], *shape[:2])
    elif len(shape) == 2 or (len(shape) == 3 and shape[0] in CHANNELS):
        target = (1, *shape)[-3:]
    else:
        return None

    def convert(value: Any) -> Array:
        array = _array(value, batch + shape)
        if array.dtype != np.uint8:
            raise TypeError(f"the observation is {array.dtype}, its space is uint8")
        return array.swapaxes(-1, -2).swapaxes(-2, -3) if channels_last else array.reshape(batch + target)

    remark = ", transposed from HWC" * channels_last
    return _Part(ArraySpec("image", target), convert, f"image {'x'.join(map(str, target))}{remark}")


def _vector(shape: Shape, batch: Shape) -> _Part:
    size = int(np.prod(shape))
    if size == 0:
        raise ConfigError(f"an observation space of shape {shape} is empty")

    def convert(value: Any) -> Array:
        array = _array(value, batch + shape)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"the observation is {array.dtype}, not numbers")
        return array.astype(np.float32, copy=False).reshape(*batch, size)

    flattened = f", flattened from {'x'.join(map(str, shape))}" if len(shape) > 1 else ""
    return _Part(ArraySpec("vector", (size,)), convert, f"vector {size}{flattened}")


def _one_hot(sizes: Array, starts: Array, shape: Shape, batch: Shape) -> _Part:
    total = int(sizes.sum())
    offsets = np.cumsum(sizes) - sizes

    def convert(value: Any) -> Array:
        array = _array(value, batch + shape)
        if array.dtype.kind not in "iu":
            raise TypeError(f"the observation is {array.dtype}, its space has integers")
        index = array.reshape(*batch, len(sizes)) - starts
        if (index < 0).any() or (index >= sizes).any():
            raise ValueError(f"the observation {value} is outside its space")
        vector = np.zeros((*batch, total), np.float32)
        np.put_along_axis(vector, offsets + index, 1.0, -1)
        return vector

    return _Part(ArraySpec("vector", (total,)), convert, f"one-hot {'+'.join(map(str, sizes))}")


def _array(value: Any, shape: Shape) -> Array:
    array = np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"the observation has shape {array.shape}, its space has {shape}")
    return array


def _choices(space: gym.Space[Any], starts: Any, batch: Shape) -> Callable[[Any], Array]:
    assert space.shape is not None
    shape = batch + space.shape
    return lambda action: np.asarray(np.reshape(action, shape) + starts, space.dtype)


def _box_actor(space: spaces.Box, batch: Shape) -> Actor:
    dtype, shape, size = np.dtype(space.dtype), space.shape, int(np.prod(space.shape))
    low, high = space.low, space.high

    def convert(action: Any) -> Array:
        action = np.minimum(np.maximum(action.reshape(batch + shape), low), high)
        return np.asarray(np.rint(action) if dtype.kind in "iu" else action, dtype)

    bounds = f"clipped to [{low.min():g}, {high.max():g}]" if np.isfinite([low, high]).any() else "without bounds"
    return Actor(ActionSpec("box", (size,), tuple(low.ravel().astype(float).tolist()),
                            tuple(high.ravel().astype(float).tolist())),
                 convert, f"actions: box of {size} {bounds}")
