"""Conversion between an environment's spaces and a policy's: uint8 images, float32 vectors, four kinds of action.

The conversions raise ValueError or TypeError for values of another shape or type. No environment is stepped here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.interface import MASK, Array, Info
from vantage.errors import ConfigError
from vantage.specs import ActionSpec, ArraySpec, EnvSpec

Shape = tuple[int, ...]
Convert = Callable[[Any], Any]
Bounds = Mapping[str, tuple[Array, Array]]
CHANNELS = (1, 3, 4)
LEAST_PICTURE = 10
"""Fewest pixels of a side of a picture."""
FLOAT32 = np.dtype(np.float32)
_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
"""NumPy's kinds of types, by its letters for them."""


def make_observer(space: gym.Space[Any], batch: Shape = ()) -> tuple[ArraySpec | Mapping[str, ArraySpec], Convert]:
    """The spec of `space`, and the conversion of its observations. ConfigError for a space that no policy can read.

    Parts of nested Dict and Tuple spaces are named by their path; texts are left out. `batch` is the shape of the
    leading axes, () or (B,).
    """
    leaves = _leaves(space)
    if not leaves:
        raise ConfigError(f"observations in {space} are not supported: they hold no array or number; convert them "
                          "in a wrapper")
    if () in leaves:
        return _leaf_observer(space, batch)
    parts = {path: _leaf_observer(leaf, batch) for path, leaf in leaves.items()}

    def convert(value: Any) -> dict[str, Array]:
        converted: dict[str, Array] = {}
        for path, (_, convert_part) in parts.items():
            try:
                converted[_name(path)] = convert_part(reduce(getitem, path, value))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                raise ValueError(f"in {_name(path)!r}: {kind}{error}") from None
        return converted

    return {_name(path): spec for path, (spec, _) in parts.items()}, convert


def bounds_of(space: gym.Space[Any]) -> Bounds:
    """Lowest and highest values of the Boxes of vectors in `space`, flat, by the name of the part ("" for the whole).

    Each is widened by what float32 rounds away. Images have no bounds, since their type is checked.
    """
    def widened(bound: Array, slack: float) -> Any:
        bound = bound.ravel().astype(np.float64)
        with np.errstate(over="ignore"):  # no bound is further than infinity
            return bound + slack * (1 + abs(bound))

    return {_name(path): (widened(leaf.low, -1e-4), widened(leaf.high, 1e-4)) for path, leaf in _leaves(space).items()
            if isinstance(leaf, spaces.Box) and leaf.dtype != np.uint8 and not _unit(leaf)}


def make_actor(space: gym.Space[Any], batch: Shape = ()) -> tuple[ActionSpec, Convert]:
    """The spec of `space`, and the conversion of a policy's actions; Box actions are clipped here and nowhere else.

    ConfigError for a space in which no policy can act. `batch` is the shape of the leading axes, () or (B,).
    """
    match space:
        case spaces.Discrete():
            first = space.start
            return ActionSpec("discrete", (int(space.n),)), (lambda action: action + first) if first else lambda a: a
        case spaces.MultiDiscrete():
            spec, starts = ActionSpec("multi_discrete", tuple(int(n) for n in space.nvec.ravel())), space.start
        case spaces.MultiBinary():
            spec, starts = ActionSpec("multi_discrete", (2,) * int(np.prod(space.shape))), np.zeros(())
        case spaces.Box():
            return _box_actor(space, batch)
        case _:
            raise ConfigError(f"{type(space).__name__} space actions are not supported: Vantage acts in Discrete, "
                              "MultiDiscrete, MultiBinary and Box spaces; choose or flatten parts in a wrapper")
    return spec, lambda action: np.asarray(np.reshape(action, batch + space.shape) + starts, space.dtype)


def make_masker(spec: EnvSpec, batch: Shape = ()) -> Callable[[Info, Any], Info]:
    """A function of `info` and a bool [*batch] that returns the action mask alone, [*batch, A] bool, if `spec` has one.

    Where the bool is True, an episode is over or unchanged: the mask is not used and allows all. It raises ValueError
    for a mask that is absent, unexpected, of another size, or allows no action.
    """
    shape, ends = (*batch, sum(spec.action.sizes)), np.cumsum(spec.action.sizes)[:-1]

    def convert(info: Info, unused: Any) -> Info:
        if not spec.masked and MASK not in info:
            return {}
        if np.all(unused):
            return {MASK: np.ones(shape, bool)}
        if not (spec.masked and MASK in info):
            raise ValueError(f"info {'lacks' if spec.masked else 'has'} action_mask, unlike at the first reset")
        value = info[MASK]
        in_parts = isinstance(value, tuple | list) and any(map(np.ndim, value))
        mask = np.concatenate(value, axis=-1) if in_parts else np.asarray(value)
        if mask.shape != shape:
            raise ValueError(f"action_mask has shape {mask.shape}, the actions need {shape}")
        mask = mask.astype(bool) | np.asarray(unused)[..., None]
        if not all(part.any(axis=-1).all() for part in np.split(mask, ends, axis=-1)):
            raise ValueError("action_mask allows no action")
        return {MASK: mask}

    return convert


def policy_spaces(spec: EnvSpec) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of observations and actions after conversion."""
    def space(part: ArraySpec) -> spaces.Box:
        if part.kind == "image":
            return spaces.Box(0, 255, part.shape, np.uint8)
        return spaces.Box(-np.inf, np.inf, part.shape, np.float32)

    obs = space(spec.obs) if isinstance(spec.obs, ArraySpec) else spaces.Dict(
        {key: space(part) for key, part in spec.obs.items()})
    match spec.action.kind:
        case "discrete":
            return obs, spaces.Discrete(spec.action.sizes[0])
        case "box":
            return obs, spaces.Box(-np.inf, np.inf, spec.action.shape, np.float32)
    return obs, spaces.MultiDiscrete(list(spec.action.sizes))


def describe(spec: EnvSpec, action_names: tuple[str, ...] = ()) -> tuple[str, str]:
    """The observations and actions of a policy, in words."""
    named = {"observations": spec.obs} if isinstance(spec.obs, ArraySpec) else {
        f"observations/{name}": part for name, part in spec.obs.items()}
    actions = ", ".join(action_names) or f"{spec.action.kind} {by_x(spec.action.sizes)}"
    return (", ".join(f"{name}: {part.kind} {by_x(part.shape)}" for name, part in named.items()),
            f"actions: {actions}" + ", masked" * spec.masked)


def by_x(sizes: Shape) -> str:
    return "x".join(map(str, sizes))


def _leaves(space: gym.Space[Any], path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """The spaces in nested Dict and Tuple spaces by their paths, without texts; {(): space} for any other."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return {path: space}
    children: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    return {deeper: leaf for name, child in children if child.dtype is None or child.dtype.kind != "U"
            for deeper, leaf in _leaves(child, (*path, name)).items()}


def _name(path: tuple[Any, ...]) -> str:
    return "/".join(map(str, path))


def _leaf_observer(space: gym.Space[Any], batch: Shape) -> tuple[ArraySpec, Convert]:
    shape: Shape = space.shape or ()
    whole, size = batch + shape, int(np.prod(shape))
    image, unit = _image_shape(shape), _unit(space)
    change: Convert
    match space:
        case spaces.Box() if image and unit:
            channels_last, scale = len(shape) == 3 and not _channels_first(shape), (
                255 / float(space.high.max()) if space.dtype.kind == "f" else 1)

            def change(array: Array) -> Array:
                if array.dtype != np.uint8:
                    if not np.isfinite(array).all():
                        raise ValueError(f"the observation {array} is not finite")
                    array = np.rint(np.clip(array * scale, 0, 255)).astype(np.uint8)
                return np.moveaxis(array, -1, -3) if channels_last else array.reshape(batch + image)

            kinds, spec = "u" if space.dtype == np.uint8 else "fiub", ArraySpec("image", image, unit)
        case spaces.Box() | spaces.MultiBinary() if size:
            kinds, spec, change = "fiub", ArraySpec("vector", (size,)), lambda array: (
                array.astype(np.float32, copy=False).reshape(*batch, size))
        case spaces.Discrete() | spaces.MultiDiscrete():
            sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
            starts = np.ravel(space.start)
            total, offsets = int(sizes.sum()), np.cumsum(sizes) - sizes
            kinds, spec, change = "iu", ArraySpec("vector", (total,)), lambda array: (
                _one_hot(array.reshape(*batch, len(sizes)) - starts, sizes, offsets, total))
        case _:
            raise ConfigError(f"observations in {space} are not supported: Vantage reads Box, Discrete, MultiDiscrete, "
                              "MultiBinary and Dict or Tuple of these; convert them in a wrapper")
    often_unchanged = kinds == "fiub" and len(shape) == 1

    def convert(value: Any) -> Array:
        if often_unchanged and value.__class__ is np.ndarray and value.dtype is FLOAT32 and value.shape == whole:
            return value  # as most do: the checks below cost a microsecond
        array = np.asarray(value)
        if array.shape != whole or array.dtype.kind not in kinds:
            types = "" if array.dtype.kind in kinds else f"{' or '.join(_KINDS[kind] for kind in kinds)} of "
            raise ValueError(f"the observation is {array.dtype} of shape {array.shape}; it must be {types}shape "
                             f"{whole}")
        return change(array)

    return spec, convert


def _image_shape(shape: Shape) -> Shape:
    """[C, H, W] of images [H, W], [H, W, C] or [C, H, W]; () for other shapes.

    The channels are an axis of 1, 3 or 4, else the shorter one; the last if both may be.
    """
    if len(shape) != 3:
        return (1, *shape) if len(shape) == 2 else ()
    return shape if _channels_first(shape) else (shape[2], *shape[:2])


def _channels_first(shape: Shape) -> bool:
    """Whether images of three axes are [C, H, W], not [H, W, C]."""
    return shape[2] not in CHANNELS and (shape[0] in CHANNELS or shape[0] < shape[2])


def _unit(space: gym.Space[Any]) -> float:
    """The value of an image in `space` that a network is to see as 1; 0 if it is no image.

    Bytes in two dimensions and all in three are images if their numbers are 0 to at most 255. Floats are taken from 0
    to 1 or to 255, so that a table of features stays a vector. Numbers that end below 255, and bytes on grids of fewer
    than LEAST_PICTURE cells a side, such as MiniGrid's, are codes.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3) or 0 in space.shape:
        return 0.0
    low, high, kind = float(space.low.min()), float(space.high.max()), space.dtype.kind
    if low < 0 or high > 255 or (len(space.shape) == 2 and space.dtype != np.uint8):
        return 0.0
    if kind == "f":
        return 255.0 if high in (1, 255) and low == 0 else 0.0
    return 1.0 if high == 255 and max(_image_shape(space.shape)[1:]) < LEAST_PICTURE else max(1.0, high)


def _one_hot(index: Array, sizes: Array, offsets: Array, total: int) -> Array:
    """[*batch, total] of [*batch, len(sizes)]."""
    if (index < 0).any() or (index >= sizes).any():
        raise ValueError(f"the observation is outside its space: {index.tolist()} of {sizes.tolist()}, from 0")
    vector = np.zeros((*index.shape[:-1], total), np.float32)
    np.put_along_axis(vector, offsets + index, 1.0, -1)
    return vector


def _box_actor(space: spaces.Box, batch: Shape) -> tuple[ActionSpec, Convert]:
    dtype, shape, low, high = np.dtype(space.dtype), batch + space.shape, space.low, space.high

    def convert(action: Any) -> Array:
        action = np.minimum(np.maximum(action.reshape(shape), low), high)
        return np.asarray(np.rint(action) if dtype.kind in "iu" else action, dtype)

    limits = (tuple(bound.ravel().astype(float).tolist()) for bound in (low, high))
    return ActionSpec("box", (low.size,), *limits), convert
