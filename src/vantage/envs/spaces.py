"""Conversion between an environment's spaces and a policy's: uint8 images, float32 vectors, four kinds of action.

Shape and type are checked in the conversion. No environment is stepped here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.ids import is_old_gym
from vantage.envs.interface import Array, Obs
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

Shape = tuple[int, ...]
CHANNELS = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class Observer:
    """Converts the observations of one space. `convert` raises ValueError or TypeError outside the space."""

    spec: ArraySpec | Mapping[str, ArraySpec]
    convert: Callable[[Any], Any]
    note: str


@dataclass(frozen=True, slots=True)
class Actor:
    """Converts a policy's actions into those of one space; Box actions are clipped here and nowhere else."""

    spec: ActionSpec
    convert: Callable[[Any], Any]
    note: str


@dataclass(frozen=True, slots=True)
class _Leaf:
    spec: ArraySpec
    convert: Callable[[Any], Array]
    note: str


def make_observer(space: gym.Space[Any], batch: Shape = ()) -> Observer:
    """ConfigError where no policy of Vantage could read the space. Values have the axes `batch`, () or (B,), first."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        leaf = _leaf(space, "observations", batch)
        return Observer(leaf.spec, leaf.convert, f"observations: {leaf.note}")
    leaves = {key: (path, _leaf(part, f"observation {key!r}", batch)) for key, path, part in _flat(space, ())}
    if not leaves:
        raise ConfigError(f"observation space {space} is empty")

    def convert(value: Any) -> dict[str, Array]:
        converted = {}
        for key, (path, leaf) in leaves.items():
            part = value
            for name in path:
                try:
                    part = part[name]
                except (KeyError, IndexError):
                    raise ValueError(f"the observation lacks {key!r}") from None
            try:
                converted[key] = leaf.convert(part)
            except (TypeError, ValueError) as error:
                raise type(error)(f"in {key!r}: {error}") from None
        return converted

    note = ", ".join(f"{key}: {leaf.note}" for key, (_, leaf) in leaves.items())
    return Observer({key: leaf.spec for key, (_, leaf) in leaves.items()}, convert, f"observations: {note}")


def make_actor(space: gym.Space[Any], batch: Shape = ()) -> Actor:
    """ConfigError where no policy of Vantage could act in the space. Actions have the axes `batch` first."""
    match space:
        case spaces.Discrete():
            start, one = space.start, int(space.n)
            return Actor(ActionSpec("discrete", (one,)), lambda action: action + start, f"actions: one of {one}")
        case spaces.MultiDiscrete():
            starts, shape = space.start, space.shape
            sizes = tuple(int(n) for n in space.nvec.ravel())
            return Actor(ActionSpec("multi_discrete", sizes),
                         lambda action: (np.reshape(action, batch + shape) + starts).astype(space.dtype),
                         f"actions: {len(sizes)} choices, of {', '.join(map(str, sizes))}")
        case spaces.MultiBinary():
            size, shape = int(np.prod(space.shape)), space.shape
            return Actor(ActionSpec("multi_binary", (2,) * size),
                         lambda action: np.reshape(action, batch + shape).astype(space.dtype),
                         f"actions: {size} of 0 or 1")
        case spaces.Box():
            return _box_actor(space, batch)
    raise ConfigError(f"{_name(space)} actions are not supported: Vantage acts in Discrete, MultiDiscrete, MultiBinary "
                      "and Box spaces; flatten or choose among the parts in a wrapper of the environment")


def make_masker(spec: ActionSpec) -> Callable[[Any], Array]:
    """Converts `info["action_mask"]`, an array or one a component, to [A] bool; ValueError where it allows nothing."""
    total, ends = sum(spec.sizes), np.cumsum(spec.sizes)[:-1]

    def convert(value: Any) -> Array:
        parts = [np.asarray(part).ravel() for part in value] if isinstance(value, tuple | list) else [np.ravel(value)]
        mask = np.concatenate([np.atleast_1d(part) for part in parts]).astype(bool)
        if mask.shape != (total,):
            raise ValueError(f"action_mask has {mask.size} entries, the actions have {total}")
        if not all(part.any() for part in np.split(mask, ends)):
            raise ValueError("action_mask allows no action")
        return mask

    return convert


def policy_spaces(spec: EnvSpec) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of observations and actions after conversion."""
    return _policy_obs_space(spec.obs), _policy_action_space(spec.action)


def blank_obs(spec: EnvSpec) -> Obs:
    """Zeros in the shape of an observation."""
    def blank(part: ArraySpec) -> Array:
        return np.zeros(part.shape, np.uint8 if part.kind == "image" else np.float32)

    return blank(spec.obs) if isinstance(spec.obs, ArraySpec) else {key: blank(part) for key, part in spec.obs.items()}


def _flat(space: gym.Space[Any], path: tuple[Any, ...]) -> list[tuple[str, tuple[Any, ...], gym.Space[Any]]]:
    match space:
        case spaces.Dict():
            parts: list[tuple[Any, gym.Space[Any]]] = list(space.spaces.items())
        case spaces.Tuple():
            parts = list(enumerate(space.spaces))
        case _:
            return [("/".join(map(str, path)), path, space)]
    return [leaf for name, part in parts for leaf in _flat(part, (*path, name))]


def _leaf(space: gym.Space[Any], what: str, batch: Shape) -> _Leaf:
    match space:
        case spaces.Box() if space.dtype == np.uint8 and (image := _image(space.shape, batch)):
            return image
        case spaces.Box():
            return _vector_leaf(space.shape, batch)
        case spaces.Discrete():
            return _one_hot_leaf(np.array([space.n]), np.array([space.start]), (), batch)
        case spaces.MultiDiscrete():
            return _one_hot_leaf(space.nvec.ravel(), space.start.ravel(), space.shape, batch)
        case spaces.MultiBinary():
            return _vector_leaf(space.shape, batch)
    raise ConfigError(f"{what}: {_name(space)} is not supported: Vantage reads Box, Discrete, MultiDiscrete, "
                      "MultiBinary and Dict or Tuple of these; convert it in a wrapper of the environment")


def _image(shape: Shape, batch: Shape) -> _Leaf | None:
    """The leaf of uint8 [H, W], [H, W, C] or [C, H, W] with 1, 3 or 4 channels; None for other shapes."""
    channels_last = len(shape) == 3 and shape[2] in CHANNELS
    if len(shape) == 2:
        target: Shape = (1, *shape)
    elif channels_last:
        target = (shape[2], *shape[:2])
    elif len(shape) == 3 and shape[0] in CHANNELS:
        target = shape
    else:
        return None
    axes = tuple(range(len(batch)))
    order = (*axes, *(axis + len(batch) for axis in (2, 0, 1)))

    def convert(value: Any) -> Array:
        array = _array(value, batch + shape)
        if array.dtype != np.uint8:
            raise TypeError(f"the observation is {array.dtype}, its space says uint8")
        return array.transpose(order) if channels_last else array.reshape(batch + target)

    remark = ", transposed from HWC" * channels_last
    return _Leaf(ArraySpec("image", target), convert, f"image {'x'.join(map(str, target))}{remark}")


def _vector_leaf(shape: Shape, batch: Shape) -> _Leaf:
    size = int(np.prod(shape))
    if size == 0:
        raise ConfigError(f"an observation space of shape {shape} holds nothing")

    def convert(value: Any) -> Array:
        array = _array(value, batch + shape)
        if array.dtype == np.float32:
            return array if len(shape) == 1 else array.reshape(*batch, size)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"the observation is {array.dtype}, not numbers")
        return array.astype(np.float32).reshape(*batch, size)

    flattened = f", flattened from {'x'.join(map(str, shape))}" if len(shape) > 1 else ""
    return _Leaf(ArraySpec("vector", (size,)), convert, f"vector {size}{flattened}")


def _one_hot_leaf(sizes: Array, starts: Array, shape: Shape, batch: Shape) -> _Leaf:
    total = int(sizes.sum())
    offsets = np.cumsum(sizes) - sizes

    def convert(value: Any) -> Array:
        array = _array(value, batch + shape)
        if array.dtype.kind not in "iu":
            raise TypeError(f"the observation is {array.dtype}, its space says integers")
        index = array.reshape(*batch, len(sizes)) - starts
        if (index < 0).any() or (index >= sizes).any():
            raise ValueError(f"the observation {value} is outside its space")
        vector = np.zeros((*batch, total), np.float32)
        np.put_along_axis(vector, offsets + index, 1.0, -1)
        return vector

    return _Leaf(ArraySpec("vector", (total,)), convert, f"one-hot {'+'.join(map(str, sizes))}")


def _array(value: Any, shape: Shape) -> Array:
    array = value if type(value) is np.ndarray else np.asarray(value)
    if array.shape != shape:
        raise ValueError(f"the observation has shape {array.shape}, its space says {shape}")
    return array


def _box_actor(space: spaces.Box, batch: Shape) -> Actor:
    if space.dtype is None or np.dtype(space.dtype).kind not in "fiu":
        raise ConfigError(f"Box actions of type {space.dtype} are not supported; give numbers")
    dtype, shape, size = np.dtype(space.dtype), space.shape, int(np.prod(space.shape))
    low, high = space.low, space.high
    whole = dtype.kind in "iu"

    def convert(action: Any) -> Array:
        action = np.minimum(np.maximum(action.reshape(batch + shape), low), high)
        return np.asarray(np.rint(action) if whole else action, dtype)

    flat_low, flat_high = (tuple(float(x) for x in bound.ravel()) for bound in (low, high))
    bounds = f"clipped to [{min(flat_low):g}, {max(flat_high):g}]" if np.isfinite([*flat_low, *flat_high]).any() \
        else "without bounds"
    return Actor(ActionSpec("box", (size,), flat_low, flat_high), convert, f"actions: box of {size} {bounds}")


def _policy_obs_space(spec: ArraySpec | Mapping[str, ArraySpec]) -> gym.Space[Any]:
    if isinstance(spec, Mapping):
        return spaces.Dict({key: _policy_obs_space(part) for key, part in spec.items()})
    if spec.kind == "image":
        return spaces.Box(0, 255, spec.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, spec.shape, np.float32)


def _policy_action_space(spec: ActionSpec) -> gym.Space[Any]:
    if spec.kind == "discrete":
        return spaces.Discrete(spec.sizes[0])
    if spec.kind == "box":
        return spaces.Box(-np.inf, np.inf, spec.shape, np.float32)
    return spaces.MultiDiscrete(list(spec.sizes))


def _name(space: Any) -> str:
    old = " of the old gym library (port the environment to gymnasium)" if is_old_gym(type(space)) else ""
    return f"{type(space).__name__} space{old}"
