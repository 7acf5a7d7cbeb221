"""Conversion between an environment's spaces and a policy's: images, float32 vectors, four kinds of action.

The conversions raise ValueError or TypeError for values of another shape or type. No environment is stepped here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from operator import getitem
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.actions import scale_in_words
from vantage.envs.interface import Array
from vantage.envs.observations import read_box, to_image
from vantage.envs.offsets import Shifts, shifted
from vantage.envs.parts import Path, leaves_of, names_of, texts_of
from vantage.errors import ConfigError
from vantage.keys.fields import nearest
from vantage.specs import ArraySpec, EnvSpec

Shape = tuple[int, ...]
Convert = Callable[[Any], Any]
NOTHING: Mapping[str, Any] = MappingProxyType({})
LEFT_OUT = "left out, since it is text"
MOST_NAMED = 3
"""Parts alike that the start of a run names one by one."""
MOST_NUMBERS = 10**7
"""Of one observation: 128 steps of 8 environments take 41 GB."""
FLOAT32 = np.dtype(np.float32)
_KINDS = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
"""NumPy's kinds of types, by its letters for them."""


def make_observer(space: gym.Space[Any], batch: Shape = (), kinds: Mapping[str, str] = NOTHING,
                  shifts: Shifts = NOTHING) -> tuple[ArraySpec | Mapping[str, ArraySpec], Convert]:
    """The spec of `space`, and the conversion of its observations. ConfigError for a space that no policy can read.

    Parts of nested Dict and Tuple spaces are named by their path; texts are left out. `batch` is the shape of the
    leading axes, () or (B,). `kinds` and `shifts` are those of the config's obs_as and obs_shift.
    """
    parts = _read_parts(space, batch, kinds)
    for name in shifts:
        if name not in {name for name, *_ in parts.values()}:
            raise ConfigError(f"obs_shift names the part {name!r}, which these observations do not have; give "
                              "--obs-shift auto")
    converters = {path: (name, *shifted(spec, convert, shifts.get(name, ())))
                  for path, (name, spec, convert, _) in parts.items()}
    if () in parts:
        return converters[()][1:]

    def convert(value: Any) -> dict[str, Array]:
        converted: dict[str, Array] = {}
        for path, (name, _, convert_part) in converters.items():
            try:
                converted[name] = convert_part(reduce(getitem, path, value))
            except (KeyError, IndexError, TypeError, ValueError) as error:
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                raise ValueError(f"in {name!r}: {kind}{error}") from None
        return converted

    return {name: spec for name, spec, _ in converters.values()}, convert


def reasons(space: gym.Space[Any], kinds: Mapping[str, str]) -> dict[str, str]:
    """Why each part of `space` is taken for what it is, by its name ("" for the whole); texts are left out."""
    texts = names_of(texts_of(space)).values()
    return {name: why for name, _, _, why in _read_parts(space, (), kinds).values()} | dict.fromkeys(texts, LEFT_OUT)


def check_obs_size(obs: ArraySpec | Mapping[str, ArraySpec]) -> None:
    """ConfigError for observations that are too large to be kept in rollouts, before any is allocated."""
    named = {"": obs} if isinstance(obs, ArraySpec) else obs
    sizes = {name: math.prod(part.shape) for name, part in named.items()}
    total, largest = sum(sizes.values()), max(sizes, key=lambda name: sizes[name])
    if total > MOST_NUMBERS:
        where = f", {sizes[largest]:,} of them in {largest!r}" if largest else ""
        remedy = "shrink the images, as --screen-size 84 does for a single one" if named[largest].kind == "image" else (
            "show a Box of a few features instead, in a wrapper")
        raise ConfigError(f"one observation has {total:,} numbers{where}, more than {MOST_NUMBERS:,}; {remedy}")


def policy_spaces(spec: EnvSpec) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """The spaces of observations and actions after conversion."""
    def space(part: ArraySpec) -> spaces.Box:
        if part.kind == "image":
            return (spaces.Box(-np.inf, np.inf, part.shape, np.float32) if part.floats else
                    spaces.Box(0, 255, part.shape, np.uint8))
        return spaces.Box(-np.inf, np.inf, part.shape, np.float32)

    obs = space(spec.obs) if isinstance(spec.obs, ArraySpec) else spaces.Dict(
        {key: space(part) for key, part in spec.obs.items()})
    match spec.action.kind:
        case "discrete":
            return obs, spaces.Discrete(spec.action.sizes[0])
        case "box":
            return obs, spaces.Box(-np.inf, np.inf, spec.action.shape, np.float32)
    return obs, spaces.MultiDiscrete(list(spec.action.sizes))


def describe(spec: EnvSpec, action_names: tuple[str, ...] = (), why: Mapping[str, str] = NOTHING
             ) -> tuple[str, str]:
    """The observations and actions of a policy, in words; `why` has the reasons by part."""
    named = {"": spec.obs} if isinstance(spec.obs, ArraySpec) else spec.obs
    alike: dict[str, list[str]] = {}
    for name, part in named.items():
        shifted = "shifted by its first values, which are large for float32" if part.shift else ""
        because = "; ".join(filter(None, (why.get(name, ""), shifted)))
        what = f"{part.kind.replace('_', '-')} {by_x(part.shape)}"
        alike.setdefault(f"{what}{because and f' ({because})'}", []).append(name)
    for name in sorted(why.keys() - named.keys()):
        alike.setdefault(why[name], []).append(name)
    words = []
    for phrase, names in alike.items():
        more = len(names) - MOST_NAMED
        shown = names if more <= 1 else [*names[:MOST_NAMED], f"{more} more"]
        words.append(f"observations{names[0] and '/'}{', '.join(shown)}: {phrase}")
    actions = ", ".join(action_names) or f"{spec.action.kind} {by_x(spec.action.sizes)}{scale_in_words(spec.action)}"
    return "; ".join(words), f"actions: {actions}" + ", masked" * spec.masked


def by_x(sizes: Shape) -> str:
    return "x".join(map(str, sizes))


def _read_parts(space: gym.Space[Any], batch: Shape, kinds: Mapping[str, str]
                ) -> dict[Path, tuple[str, ArraySpec, Convert, str]]:
    """Each part of `space` by its path: its name, its spec, its conversion, and why it is taken for that."""
    leaves = leaves_of(space)
    if not leaves:
        raise ConfigError(f"observations in {space} are not supported: they hold no array or number; convert them "
                          "in a wrapper")
    names = names_of(leaves)
    for name in kinds:
        if name and name not in names.values():
            has = ", ".join(map(repr, names.values())) if () not in leaves else "one part without a name"
            raise ConfigError(f"obs_as names the part {name!r:.80}, and these observations have {has:.400}"
                              f"{nearest(name, names.values()) or '; give one of these, or a kind alone'}")
    has_boxes = any(isinstance(leaf, spaces.Box) for leaf in leaves.values())
    parts = {}
    for path, leaf in leaves.items():
        # A kind for all parts is for the Boxes among them: Discrete and binary parts are read in one way.
        for_all = kinds.get("", "auto") if isinstance(leaf, spaces.Box) or not has_boxes else "auto"
        kind = kinds.get(names[path], for_all)
        try:
            parts[path] = (names[path], *_leaf_observer(leaf, batch, kind))
        except ConfigError as error:
            if path == ():
                raise
            raise ConfigError(f"part {names[path]!r} of the observation: {error}") from None
    return parts


def _leaf_observer(space: gym.Space[Any], batch: Shape, kind: str = "auto") -> tuple[ArraySpec, Convert, str]:
    """The spec of a part, the conversion of its values, and why it is taken for that."""
    shape: Shape = space.shape or ()
    whole, size, reading = batch + shape, int(np.prod(shape)), None
    change: Convert
    _refuse_part(space, kind)
    match space:
        case spaces.Box() if size:
            reading = read_box(space, kind)
            kinds, spec, why = "u" if space.dtype == np.uint8 else "fiub", reading.spec, reading.why
            change = to_image(space, reading, batch) if spec.kind == "image" else lambda array: (
                array.astype(np.float32, copy=False).reshape(*batch, size))
        case spaces.MultiBinary() if size:
            why, spec = "bits", ArraySpec("one_hot", (size,), sizes=(1,) * size)
            kinds, change = "fiub", lambda array: (
                array.astype(np.float32, copy=False).reshape(*batch, size))
        case spaces.Discrete() | spaces.MultiDiscrete():
            sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
            starts = np.ravel(space.start)
            total, offsets = sum(sizes.tolist()), np.cumsum(sizes) - sizes
            why = f"one-hot of {type(space).__name__}"
            kinds, spec, change = "iu", ArraySpec("one_hot", (total,), sizes=tuple(map(int, sizes))), lambda array: (
                _one_hot(array.reshape(*batch, len(sizes)) - starts, sizes, offsets, total))
        case _:
            raise ConfigError(f"observations in {space!s:.200} are not supported: Vantage reads Box, Discrete, "
                              "MultiDiscrete, MultiBinary and Dict or Tuple of these; convert them in a wrapper")
    often_unchanged = kinds == "fiub" and len(shape) == 1

    # A copy for each of several environments, which may write their observations to the same memory. A vector
    # environment is not stepped before its observations are in the rollout.
    take = np.asarray if batch else np.array

    def convert(value: Any) -> Array:
        if often_unchanged and value.__class__ is np.ndarray and value.dtype is FLOAT32 and value.shape == whole:
            # As most do: the checks below cost a microsecond.
            return _usable(value) if batch else value.copy()
        array = take(value)
        if array.shape != whole or array.dtype.kind not in kinds:
            types = "" if array.dtype.kind in kinds else f"{' or '.join(_KINDS[kind] for kind in kinds)} of "
            raise ValueError(f"the observation is {array.dtype} of shape {array.shape}; it must be {types}shape "
                             f"{whole}")
        return _usable(change(array))

    return spec, convert, why


def _usable(array: Array) -> Array:
    """`array` with memory that torch can share: neither read-only nor in a reverse order."""
    if array.flags.writeable and min(array.strides) >= 0:
        return array
    copied: Array = array.copy()
    return copied


def _refuse_part(space: gym.Space[Any], kind: str) -> None:
    """ConfigError for an empty space, and for a part that cannot be read as `obs_as` says."""
    if isinstance(space, spaces.Box | spaces.MultiBinary) and 0 in space.shape:
        raise ConfigError(f"observations in {space} hold no number: its shape is {space.shape}; leave it out of the "
                          "observation_space, or give it a shape without 0")
    if kind not in ("auto", "bytes") and not isinstance(space, spaces.Box):
        raise ConfigError(f"obs_as={kind} is for Boxes, and this is {space!s:.100}, which is read in one way; leave it "
                          "out")


def _one_hot(index: Array, sizes: Array, offsets: Array, total: int) -> Array:
    """[*batch, total] of [*batch, len(sizes)]."""
    if (index < 0).any() or (index >= sizes).any():
        raise ValueError(f"the observation is outside its space: {index.tolist()} of {sizes.tolist()}, from 0")
    vector = np.zeros((*index.shape[:-1], total), np.float32)
    np.put_along_axis(vector, offsets + index, 1.0, -1)
    return vector
