"""`Demonstrations`: episodes of a person or another policy, read and checked. No files here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vantage.envs.actions import action_space, to_row
from vantage.envs.masks import flat
from vantage.envs.reader import WHOLE, Reader
from vantage.errors import ConfigError
from vantage.learning.act_inputs import read_mask, to_numpy
from vantage.specs import ActionSpec, EnvSpec

Array = NDArray[Any]
_TOLERANCE = 1e-5
"""Share of a bound by which float32 actions may exceed it."""


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """All steps of some episodes, N, one after another."""

    obs: Mapping[str, Array]
    """Observations [N, ...] in the policy's form, by part; `WHOLE` if there are no parts."""
    actions: Array
    """[N, *action] in the environment's units; choices count from 0."""
    lengths: tuple[int, ...]
    """Number of actions of each episode."""
    masks: Array | None = None  # [N, A] bool
    rewards: Array | None = None  # [N] float32

    @property
    def digest(self) -> bytes:
        """A SHA-256 of what is learned from."""
        hashed = hashlib.sha256(repr(self.lengths).encode())
        for array in (*self.obs.values(), self.actions, self.masks):
            if array is not None:
                hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.digest()

    def __str__(self) -> str:
        words = f"{len(self.lengths)} episodes, {sum(self.lengths):,} steps"
        if self.rewards is None:
            return words
        starts = np.cumsum((0, *self.lengths[:-1]))
        returns = np.add.reduceat(self.rewards.astype(np.float64), starts)
        return f"{words}, mean return {returns.mean():.4g}"


def of_episodes(episodes: Sequence[Any], spec: EnvSpec,
                kinds: Mapping[str, str]) -> Demonstrations:
    """The demonstrations in `episodes`: mappings, or objects with attributes.

    Each has `observations` of T or T+1 steps and `actions` of T steps, in the form of the
    environment or of the policy: arrays, or lists of each step's. `rewards`, and `action_masks` of
    T or T+1 steps in the forms of `act` or in a list of each step's, are optional, but an
    environment with masks requires these. `kinds` is `EnvConfig.kinds_of_parts`. ConfigError for an
    episode that does not fit.
    """
    if not len(episodes):
        raise ConfigError("demonstrations hold no episode; give at least one")
    reader = Reader(spec, kinds)
    each = []
    for number, episode in enumerate(episodes):
        try:
            each.append(_read_episode(episode, spec, reader))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"episode {number} of the demonstrations: {error}") from None
    masks = [one.masks for one in each if one.masks is not None]
    rewards = [one.rewards for one in each if one.rewards is not None]
    return Demonstrations(
        {name: np.concatenate([one.obs[name] for one in each]) for name in each[0].obs},
        np.concatenate([one.actions for one in each]),
        tuple(length for one in each for length in one.lengths),
        np.concatenate(masks) if masks else None,
        np.concatenate(rewards) if len(rewards) == len(each) else None)


def _read_episode(episode: Any, spec: EnvSpec, reader: Reader) -> Demonstrations:
    def part(name: str) -> Any:
        if isinstance(episode, Mapping):
            return episode.get(name)
        return getattr(episode, name, None)

    for name in ("observations", "actions"):
        if part(name) is None:
            raise ValueError(f"it has no {name}; give a mapping or an object with observations "
                             "and actions")
    rows = action_rows(to_numpy(_stacked(part("actions"))), spec.action)
    length = len(rows)
    obs, _ = reader(to_numpy(_stacked(part("observations"))))
    num_obs = len(next(iter(obs.values())))
    if num_obs not in (length, length + 1):
        raise ValueError(f"it has {num_obs} observations and {length} actions; give an "
                         "observation for each action, and the last one if you like")
    masks = part("action_masks")
    if (isinstance(masks, list) and len(masks) in (length, length + 1)
            and isinstance(masks[0], Mapping | tuple)):
        # One for each step, as infos have them.
        space = action_space(spec.action)
        masks = np.stack([flat(to_numpy(mask), space) for mask in masks])
    masks = to_numpy(masks)
    if isinstance(masks, np.ndarray | list):
        masks = masks[:length]
    return checked({name: array[:length] for name, array in obs.items()}, rows, (length,),
                   masks, part("rewards"), spec)


def _stacked(steps: Any) -> Any:
    """A list of dicts or tuples, one for each step, as one of arrays [T, ...]; others unchanged."""
    if not isinstance(steps, list) or not steps:
        return steps
    first = steps[0]
    try:
        if isinstance(first, Mapping):
            return {key: _stacked([step[key] for step in steps]) for key in first}
        if isinstance(first, tuple):
            return tuple(_stacked(list(parts)) for parts in zip(*steps, strict=True))
        return np.asarray([to_numpy(step) for step in steps])
    except (KeyError, TypeError, ValueError):
        raise ValueError("values of its steps differ in their parts or shapes; give each step all "
                         "of the space") from None


def checked(obs: Mapping[str, Array], rows: Array, lengths: tuple[int, ...], masks: Any,
            rewards: Any, spec: EnvSpec) -> Demonstrations:
    """Demonstrations of observations in the policy's form; `rows` are those of `action_rows`.

    ValueError for numbers that are not finite, and for masks or rewards that do not fit.
    """
    for name, array in obs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            of_part = "" if name == WHOLE else f" of {name!r}"
            raise ValueError(f"an observation{of_part} is not finite; leave out that episode")
    total = len(rows)
    allowed = None
    if spec.masked:
        if masks is None:
            raise ValueError("the environment masks actions; give action_masks, a mask for each "
                             "action")
        mask = read_mask(masks, spec, total)
        assert mask is not None
        allowed = mask.numpy()
        if not _are_allowed(rows, allowed, spec.action):
            raise ValueError("an action is not allowed by its mask; give the masks in which the "
                             "actions were chosen")
    if rewards is not None:
        rewards = np.asarray(to_numpy(rewards), np.float32)
        if rewards.shape != (total,):
            raise ValueError(f"rewards have shape {rewards.shape} for {total} actions; give one "
                             "for each, or leave them out")
    parts = {}
    for name, array in obs.items():
        parts[name] = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    return Demonstrations(parts, rows, lengths, allowed, rewards)


def action_rows(actions: Any, action: ActionSpec) -> Array:
    """Actions [T, *action] in the environment's units, within its bounds.

    Those of Dict and Tuple spaces are nested arrays [T, ...] or rows. ValueError for actions that
    do not fit.
    """
    space = action_space(action)
    if space is not None and isinstance(actions, Mapping | tuple):
        actions = to_row(actions, space, many=True)
    array = np.asarray(actions)
    if array.dtype.kind not in "biuf" or array.ndim == 0 or not len(array):
        raise ValueError(f"actions are {array.dtype} of shape {array.shape}; give numbers, a row "
                         "for each step")
    if array.size != len(array) * np.prod(action.shape, dtype=int):
        raise ValueError(f"actions have shape {array.shape}, the environment's are {action}")
    rows = array.reshape(len(array), -1)
    low, high = action.bounds
    whole = action.is_choice
    if not np.isfinite(rows).all():
        raise ValueError("an action is not finite; leave out that episode")
    if (rows[:, whole] % 1 != 0).any():
        raise ValueError("an action of a discrete space is not a whole number")
    slack = np.where(whole, 0.0, _TOLERANCE)
    outside = ((rows < low - slack * np.maximum(1, np.abs(low)))
               | (rows > high + slack * np.maximum(1, np.abs(high))))
    if outside.any():
        _, column = (int(place[0]) for place in outside.nonzero())
        value = rows[outside][0]
        raise ValueError(f"action {value:g} is not within {low[column]:g} and {high[column]:g}; "
                         "give actions in the environment's units, choices from 0, and clip others")
    return within_bounds(rows.reshape(-1, *action.shape), action)


def within_bounds(actions: Array, action: ActionSpec) -> Array:
    """Actions [T, *action] clipped to their bounds: int64 if all are choices, else float64."""
    clipped = np.clip(actions.reshape(len(actions), -1), *action.bounds)
    dtype = np.int64 if action.is_choice.all() else np.float64
    return clipped.astype(dtype).reshape(actions.shape)


def _are_allowed(rows: Array, masks: Array, action: ActionSpec) -> bool:
    choices = rows.reshape(len(rows), -1)[:, action.is_choice].astype(np.int64)
    sizes = np.array(action.sizes)
    places = np.cumsum(sizes) - sizes + choices
    return bool(np.take_along_axis(masks, places, 1).all())
