"""Conversion of a policy's actions and of action masks. No environment is stepped here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.descriptions import shown
from vantage.envs.interface import MASK, Array, Info
from vantage.envs.masks import flat
from vantage.envs.outcomes import check_mask
from vantage.envs.parts import Path, assembled, leaves_of, names_of, texts_of, value_at
from vantage.envs.space_json import space_from_json, space_to_json
from vantage.errors import ConfigError
from vantage.specs import WIDEST, ActionSpec, EnvSpec, is_bounded, scaled_dimensions

Shape = tuple[int, ...]
Convert = Callable[[Any], Any]
MOST_CHOICES = 2**24
"""Choices that float32 can number exactly."""
MOST_RANGES = 4
"""Ranges of scaled dimensions that the description names."""


def make_actor(space: gym.Space[Any], batch: Shape = (), *,
               scale: bool = False) -> tuple[ActionSpec, Convert]:
    """The spec of `space`, and the conversion of a policy's actions to it, which clips Box actions.

    `scale` lets the policy act from -1 to 1 in the bounded dimensions of a Box. `batch` is the
    shape of the leading axes, () or (B,). Raises ConfigError for a space that is not supported.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return _joint_actor(space, batch, scale=scale)
    if 0 in (space.shape or ()):
        raise ConfigError(f"actions in {space!s:.100} hold no number: the shape is {space.shape}; "
                          "give the action_space a shape without 0, or Discrete(1) if there is no "
                          "choice")
    match space:
        case spaces.Discrete():
            start = space.start
            return (ActionSpec("discrete", (int(space.n),)),
                    (lambda action: action + start) if start else (lambda action: action))
        case spaces.MultiDiscrete():
            sizes = tuple(int(n) for n in space.nvec.ravel())
            return _multi_discrete_actor(space, batch, sizes, space.start)
        case spaces.MultiBinary():
            sizes = (2,) * int(np.prod(space.shape))
            return _multi_discrete_actor(space, batch, sizes, np.zeros(()))
        case spaces.Box():
            return _box_actor(space, batch, scale=scale)
    raise ConfigError(f"{type(space).__name__} space actions are not supported: Vantage acts in "
                      "Discrete, MultiDiscrete, MultiBinary and Box spaces, and Dict and Tuple of "
                      "these; convert them in a wrapper")


def _joint_actor(space: gym.Space[Any], batch: Shape, *, scale: bool) -> tuple[ActionSpec, Convert]:
    """`make_actor` of a Dict or Tuple space, from rows in which the parts are side by side."""
    leaves = leaves_of(space) | {path: spaces.Text(1) for path in texts_of(space)}
    names = names_of(leaves)
    parts: dict[str, ActionSpec] = {}
    converts: list[tuple[Path, bool, Convert]] = []
    for path, leaf in leaves.items():
        try:
            part, convert = make_actor(leaf, batch, scale=scale)
        except ConfigError as error:
            raise ConfigError(f"part {names[path]!r} of the action: {error}") from None
        parts[names[path]] = part
        converts.append((path, part.kind != "box", convert))
    spec = _joint_spec(space, parts)
    ends = np.cumsum([math.prod(part.shape) for part in parts.values()])[:-1]

    def convert_row(row: Any) -> Any:
        values = {}
        columns = np.split(row, ends, -1)
        for (path, is_whole, convert), taken in zip(converts, columns, strict=True):
            if is_whole:
                taken = taken.astype(np.int64)
                if isinstance(leaves[path], spaces.Discrete):
                    taken = taken[..., 0][()]
            values[path] = convert(taken)
        return assembled(space, values)

    return spec, convert_row


def _joint_spec(space: gym.Space[Any], parts: dict[str, ActionSpec]) -> ActionSpec:
    """The spec of a Dict or Tuple space; ConfigError if float32 cannot hold its actions."""
    described = space_to_json(space)
    if not parts or described is None:
        raise ConfigError(f"actions in {space!s:.200} are not supported: give a Dict or Tuple with "
                          "a part, whose keys are texts")
    low = np.concatenate([part.bounds[0] for part in parts.values()])
    high = np.concatenate([part.bounds[1] for part in parts.values()])
    scaled = [on for part in parts.values()
              for on in part.scaled or [False] * math.prod(part.shape)]
    choices = [size for part in parts.values() if part.kind != "box" for size in part.sizes]
    if max(choices, default=0) > MOST_CHOICES:
        raise ConfigError(f"a part of the action has {max(choices):,} choices, more than the "
                          f"{MOST_CHOICES:,} that float32 can number; choose among fewer, or use a "
                          "Box")
    return ActionSpec("joint", tuple(choices), tuple(low.tolist()), tuple(high.tolist()),
                      tuple(scaled) if any(scaled) else (), parts, described)


def action_space(action: ActionSpec) -> gym.Space[Any] | None:
    """The environment's space of a joint action; None for others, which have no parts."""
    return None if action.space is None else space_from_json(action.space)


def make_writer(action: ActionSpec) -> Callable[[Array, bool], Any]:
    """A function that converts a policy's actions [B, *action] for users.

    A joint action becomes what the environment takes, nested as its space is; others only change
    their units. The function's second argument asks for the first action, without a batch axis.
    """
    space = action_space(action)
    if space is None:
        to_env = action.make_to_env()
        return lambda actions, single: to_env(actions)[0] if single else to_env(actions)
    scale = any(action.scaled)
    _, one = make_actor(space, scale=scale)
    _, many = make_actor(space, (-1,), scale=scale)
    return lambda actions, single: one(actions[0]) if single else many(actions)


def to_row(action: Any, space: gym.Space[Any], *, many: bool = False) -> Array:
    """An action of a Dict or Tuple `space` as a row; choices count from 0, Boxes keep their units.

    `many` actions, in arrays [T, ...] nested as one, become rows [T, D]. ValueError for an action
    that does not fit.
    """
    columns = []
    for path, leaf in leaves_of(space).items():
        try:
            value = np.asarray(value_at(action, path), np.float64)
        except (LookupError, TypeError) as error:
            raise ValueError(f"the action is {shown(action)}, and the environment's are in "
                             f"{space!s:.200}") from error
        if not many and value.shape != (leaf.shape or ()):
            raise ValueError(f"the action's part {path!r} has shape {value.shape}, not "
                             f"{leaf.shape}")
        rows = value.reshape(len(value) if many else 1, -1)
        columns.append(rows - np.ravel(getattr(leaf, "start", 0)))
    if len(set(map(len, columns))) > 1:
        raise ValueError("the parts of the actions have different lengths")
    return np.concatenate(columns, 1) if many else np.concatenate(columns, 1)[0]


def make_masker(spec: EnvSpec, batch: Shape = ()) -> Callable[[Info, Any], Info]:
    """A function of `info` and `unused` [*batch] that returns {MASK: mask [*batch, A]}, or {}.

    `unused` is True where the episode is over or the environment was not reset: no action follows,
    but a critic of action values averages over the allowed actions of a time limit's last
    observation. There, the mask is the one in `info`, and allows all actions if `info` has none or
    it allows none. Elsewhere, a mask that is missing, unexpected, of the wrong size or without an
    allowed action raises ValueError.
    """
    space = action_space(spec.action)
    shape = (*batch, sum(spec.action.sizes))
    ends = np.cumsum(spec.action.sizes)[:-1]

    def convert(info: Info, unused: Any) -> Info:
        if not spec.masked and (MASK not in info or np.all(unused)):
            return {}
        try:
            if not (spec.masked and MASK in info):
                raise ValueError(f"info {'lacks' if spec.masked else 'has'} action_mask, unlike at "
                                 "the first reset; put it into every info, that of reset included, "
                                 "or give the environment a method action_masks()")
            mask = flat(info[MASK], space, batch)
            if mask.shape != shape:
                raise ValueError(f"action_mask has shape {mask.shape}, the actions need {shape}")
        except ValueError:
            if not np.all(unused):
                raise
            return {MASK: np.ones(shape, bool)}
        check_mask(mask)
        mask = mask.astype(bool)
        components = np.split(mask, ends, axis=-1)
        possible = np.all([component.any(axis=-1) for component in components], axis=0)
        if not (possible | unused).all():
            raise ValueError("action_mask allows no action")
        return {MASK: mask | ~possible[..., None]}

    return convert


def scale_in_words(action: ActionSpec) -> str:
    """How a box's actions are scaled, as the end of a sentence."""
    if action.kind != "box":
        return ""
    words = ""
    ranges = [f"[{low:g}, {high:g}]" for low, high in action.scaled_bounds.values()]
    distinct = [*dict.fromkeys(ranges)]
    if distinct:
        more = ", ..." if len(distinct) > MOST_RANGES else ""
        words = f", scaled from [-1, 1] to {', '.join(distinct[:MOST_RANGES])}{more}"
    bounds = [*zip(action.low, action.high, strict=True)]
    unbounded = sum(not is_bounded(low, high) for low, high in bounds)
    if unbounded:
        words += (f", {unbounded} of {len(bounds)} not scaled for lack of two bounds at most "
                  f"{WIDEST:g} apart")
    return words


def _multi_discrete_actor(space: gym.Space[Any], batch: Shape, sizes: Shape,
                          starts: Array) -> tuple[ActionSpec, Convert]:
    shape = batch + (space.shape or ())
    dtype = space.dtype

    def convert(action: Any) -> Array:
        return np.asarray(np.reshape(action, shape) + starts, dtype)

    return ActionSpec("multi_discrete", sizes), convert


def _box_actor(space: spaces.Box, batch: Shape, *, scale: bool) -> tuple[ActionSpec, Convert]:
    low = tuple(space.low.ravel().astype(float).tolist())
    high = tuple(space.high.ravel().astype(float).tolist())
    scaled = scaled_dimensions(low, high) if scale else ()
    spec = ActionSpec("box", (space.low.size,), low, high, scaled)
    to_env = spec.make_to_env()
    dtype = np.dtype(space.dtype)
    is_integer = dtype.kind in "iu"
    flat_shape = (*batch, space.low.size)
    shape = batch + space.shape
    lowest = space.low
    highest = space.high

    def convert(action: Any) -> Array:
        if scaled:
            action = to_env(action.reshape(flat_shape))
        action = np.minimum(np.maximum(action.reshape(shape), lowest), highest)
        if is_integer:
            action = np.rint(action)
        return np.asarray(action, dtype)

    return spec, convert
