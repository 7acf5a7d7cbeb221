"""Conversion of a policy's actions to an environment's, and of its action masks. No environment is stepped here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from vantage.envs.interface import MASK, Array, Info
from vantage.envs.masks import flat
from vantage.envs.outcomes import check_mask
from vantage.errors import ConfigError
from vantage.specs import WIDEST, ActionSpec, EnvSpec, is_bounded, scaled_dimensions

Shape = tuple[int, ...]
Convert = Callable[[Any], Any]


def make_actor(space: gym.Space[Any], batch: Shape = (), *, scale: bool = False) -> tuple[ActionSpec, Convert]:
    """The spec of `space`, and the conversion of a policy's actions; Box actions are clipped here and nowhere else.

    With `scale`, bounded dimensions of a Box are from -1 to 1 for the policy. ConfigError for a space in which no
    policy can act. `batch` is the shape of the leading axes, () or (B,).
    """
    if 0 in (space.shape or ()):
        raise ConfigError(f"actions in {space!s:.100} hold no number: the shape is {space.shape}; give "
                          "the action_space a shape without 0, or Discrete(1) if there is no choice")
    match space:
        case spaces.Discrete():
            first = space.start
            return ActionSpec("discrete", (int(space.n),)), (lambda action: action + first) if first else lambda a: a
        case spaces.MultiDiscrete():
            spec, starts = ActionSpec("multi_discrete", tuple(int(n) for n in space.nvec.ravel())), space.start
        case spaces.MultiBinary():
            spec, starts = ActionSpec("multi_discrete", (2,) * int(np.prod(space.shape))), np.zeros(())
        case spaces.Box():
            return _box_actor(space, batch, scale=scale)
        case _:
            raise ConfigError(f"{type(space).__name__} space actions are not supported: Vantage acts in Discrete, "
                              "MultiDiscrete, MultiBinary and Box spaces; choose or flatten parts in a wrapper")
    return spec, lambda action: np.asarray(np.reshape(action, batch + space.shape) + starts, space.dtype)


def make_masker(spec: EnvSpec, batch: Shape = ()) -> Callable[[Info, Any], Info]:
    """A function of `info` and a bool [*batch] that returns the action mask alone, [*batch, A] bool, if `spec` has one.

    Where the bool is True, an episode is over or unchanged. No action follows there, but a critic of action values
    takes the value of a time limit's last observation over the allowed ones: the mask is that of `info`, or allows all
    where `info` has none or it allows no action. Elsewhere it raises ValueError for a mask that is absent, unexpected,
    of another size, or allows no action.
    """
    shape, ends = (*batch, sum(spec.action.sizes)), np.cumsum(spec.action.sizes)[:-1]

    def convert(info: Info, unused: Any) -> Info:
        if not spec.masked and (MASK not in info or np.all(unused)):
            return {}
        if np.all(unused) and info.get(MASK) is None:
            return {MASK: np.ones(shape, bool)}
        if not (spec.masked and MASK in info):
            raise ValueError(f"info {'lacks' if spec.masked else 'has'} action_mask, unlike at the first reset; put it "
                             "into every info, that of reset included, or give the environment a method action_masks()")
        mask = flat(info[MASK])
        if mask.shape != shape and np.all(unused):
            return {MASK: np.ones(shape, bool)}
        if mask.shape != shape:
            raise ValueError(f"action_mask has shape {mask.shape}, the actions need {shape}")
        check_mask(mask)
        mask = mask.astype(bool)
        possible = np.all([part.any(axis=-1) for part in np.split(mask, ends, axis=-1)], axis=0)
        if not (possible | unused).all():
            raise ValueError("action_mask allows no action")
        return {MASK: mask | ~possible[..., None]}

    return convert


def scale_in_words(action: ActionSpec) -> str:
    """How a box's actions are scaled, as the end of a sentence."""
    if action.kind != "box":
        return ""
    bounds = list(zip(action.low, action.high, strict=True))
    ranges = dict.fromkeys(f"[{low:g}, {high:g}]" for (low, high), on in zip(bounds, action.scaled, strict=False) if on)
    unbounded = sum(not is_bounded(low, high) for low, high in bounds)
    words = ""
    if ranges:
        more = ", ..." if len(ranges) > 4 else ""
        words = f", scaled from [-1, 1] to {', '.join([*ranges][:4])}{more}"
    if unbounded:
        words += f", {unbounded} of {len(bounds)} not scaled for lack of two bounds at most {WIDEST:g} apart"
    return words


def _box_actor(space: spaces.Box, batch: Shape, *, scale: bool) -> tuple[ActionSpec, Convert]:
    dtype, shape, low, high = np.dtype(space.dtype), batch + space.shape, space.low, space.high
    least, most = (tuple(bound.ravel().astype(float).tolist()) for bound in (low, high))
    spec = ActionSpec("box", (low.size,), least, most, scaled_dimensions(least, most) if scale else ())
    (centre, half), env_dtype = (part.reshape(space.shape) for part in spec.scale), spec.env_dtype

    def convert(action: Any) -> Array:
        action = action.reshape(shape)
        if spec.scaled:
            action = (centre + half * action).astype(env_dtype)
        action = np.minimum(np.maximum(action, low), high)
        return np.asarray(np.rint(action) if dtype.kind in "iu" else action, dtype)

    return spec, convert
