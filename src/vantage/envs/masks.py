"""Sources of action masks: `info`, or a method as for MaskablePPO. `actions` checks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

from vantage.envs.descriptions import shown
from vantage.envs.interface import MASK, Array, Info
from vantage.envs.parts import children_of, leaves_of, value_at
from vantage.errors import EnvError

METHOD = "action_masks"
"""The method's name: https://sb3-contrib.readthedocs.io/en/master/modules/ppo_mask.html
(2026-11)."""


def masks_of(env: gym.Env[Any, Any]) -> Callable[[Info], Info]:
    """A function that adds the mask of `env` or its wrappers to an `info` without one."""
    try:
        method = env.get_wrapper_attr(METHOD)
    except Exception:  # AttributeError, or what a __getattr__ of the environment raises
        method = None
    return _adding(method if is_masked(env.action_space) else None)


def masks_of_vector(vector: VectorEnv[Any, Any, Any]) -> Callable[[Info], Info]:
    """`masks_of` for a vector environment: its own method, or that of each of its environments."""
    layer: Any = vector
    method = getattr(layer, METHOD, None)
    while method is None and isinstance(layer, VectorWrapper):
        layer = layer.env
        method = getattr(layer, METHOD, None)
    is_made_of_envs = isinstance(layer, SyncVectorEnv | AsyncVectorEnv)
    space = vector.single_action_space
    if method is None and is_made_of_envs and all(layer.call("has_wrapper_attr", METHOD)):
        def method() -> Any:
            each = layer.call(METHOD)
            return None if each[0] is None else np.stack([flat(mask, space) for mask in each])

    return _adding(method if is_masked(space) else None)


def allows(mask: Any, action: Any, space: gym.Space[Any]) -> bool:
    """Whether `mask`, in a form that `flat` takes, allows an action of `space`.

    True for a mask of another size, which `make_masker` rejects.
    """
    choices = {path: leaf for path, leaf in leaves_of(space).items() if sizes_of(leaf).size}
    if not choices:
        return True
    sizes = np.concatenate([sizes_of(leaf) for leaf in choices.values()])
    chosen = np.concatenate([np.ravel(value_at(action, path) - getattr(leaf, "start", 0))
                             for path, leaf in choices.items()])
    allowed = flat(mask, space)
    return allowed.shape != (sizes.sum(),) or bool(allowed[np.cumsum(sizes) - sizes + chosen].all())


def sizes_of(leaf: gym.Space[Any]) -> Array:
    """The number of choices of each component of a discrete action; empty for others."""
    if isinstance(leaf, spaces.Discrete):
        return np.ravel(leaf.n)
    if isinstance(leaf, spaces.MultiBinary):
        return np.full(np.prod(leaf.shape, dtype=int), 2)
    return np.ravel(leaf.nvec if isinstance(leaf, spaces.MultiDiscrete) else np.empty(0, int))


def is_masked(space: gym.Space[Any]) -> bool:
    """Whether a mask can say which actions of `space` are allowed: it has discrete parts."""
    return any(sizes_of(leaf).size for leaf in leaves_of(space).values())


def flat(mask: Any, space: gym.Space[Any] | None = None, batch: tuple[int, ...] = ()) -> Array:
    """A mask [*batch, A] as one array, also from one array per component of the action.

    For a Dict or Tuple `space`, masks may be nested as it is; a part without one, or with None, may
    choose anything. With a batch, tuples may be rows of an object array, as Gymnasium's vector
    environments stack them. ValueError for masks that do not fit a part.
    """
    if batch and _has_rows(mask, batch):
        return _stacked([_row(mask, env) for env in range(*batch)], space)
    if space is not None and has_parts(mask, space):
        arrays = []
        for name, size, part in parts_of_mask(mask, space):
            array = np.ones((*batch, size), bool) if part is None else flat(part)
            if array.shape[-1:] != (size,) or array.size != size * math.prod(batch):
                raise ValueError(f"action_mask of {name!r} has shape {array.shape}, its actions "
                                 f"need {(*batch, size)}")
            arrays.append(array.reshape(*batch, size))
        return np.concatenate(arrays, axis=-1)
    in_parts = isinstance(mask, tuple | list) and any(map(np.ndim, mask))
    return np.concatenate(mask, axis=-1) if in_parts else np.asarray(mask)


def _has_rows(mask: Any, batch: tuple[int, ...]) -> bool:
    """Whether a part of `mask` is an array of objects, one for each environment."""
    if isinstance(mask, Mapping):
        return any(_has_rows(part, batch) for part in mask.values())
    return isinstance(mask, np.ndarray) and mask.dtype == object and mask.shape == batch


def _row(mask: Any, env: int) -> Any:
    """The mask of one environment."""
    if isinstance(mask, Mapping):
        return {key: _row(part, env) for key, part in mask.items()}
    return None if mask is None else mask[env]


def _stacked(rows: list[Any], space: gym.Space[Any] | None) -> Array:
    """Masks [B, A]; an environment without one, as where its episode is over, allows nothing."""
    arrays = [None if row is None else flat(row, space) for row in rows]
    size = next((array.shape for array in arrays if array is not None), (0,))
    return np.stack([np.zeros(size, bool) if array is None else array for array in arrays])


def has_parts(mask: Any, space: gym.Space[Any]) -> bool:
    """Whether `mask` is nested as the Dict or Tuple `space` is."""
    if isinstance(space, spaces.Tuple) and isinstance(mask, tuple | list):
        return any(part is None or isinstance(part, Mapping | tuple | list) or np.ndim(part)
                   for part in mask)
    return isinstance(space, spaces.Dict) and isinstance(mask, Mapping)


def parts_of_mask(mask: Any, space: gym.Space[Any], name: str = "") -> list[tuple[str, int, Any]]:
    """Name, number of choices and mask (or None) of each part of a nested mask, in order."""
    children = dict(children_of(space))
    if not children:
        size = int(sizes_of(space).sum())
        if mask is not None and not size:
            raise ValueError(f"action_mask has a mask for {name!r}, which is {space!s:.80}; masks "
                             "are for discrete parts")
        return [(name, size, mask)]
    if not isinstance(mask, Mapping | tuple | list | None):
        raise ValueError(f"action_mask of {name!r} is {shown(mask)}; nest it as {space!s:.200}, or "
                         "give the masks of all parts side by side")
    given = {} if mask is None else dict(
        mask.items() if isinstance(mask, Mapping) else enumerate(mask))
    # Gymnasium's vector environments add _NAME, where an info has NAME.
    unknown = [key for key in given if key not in children and str(key)[1:] not in children]
    if unknown:
        raise ValueError(f"action_mask has a part {unknown[0]!r}, and the actions have "
                         f"{', '.join(map(repr, children))}")
    return [part for key, child in children.items()
            for part in parts_of_mask(given.get(key), child, f"{name}/{key}".strip("/"))]


def of_subset(mask: Array, subset: Array, over: Array, name: str) -> Array:
    """The columns `subset` of a mask [B, A]: all True where an episode is over and allows none.

    EnvError, of the environment `name`, where one that goes on allows none.
    """
    mask = mask[:, subset]
    no_action_follows = over & ~mask.any(axis=1)
    mask = mask | no_action_follows[:, None]
    if not mask.any(axis=1).all():
        raise EnvError(f"{name}: action_mask allows none of the actions {subset.tolist()} of "
                       "action_subset")
    return mask


def _adding(method: Callable[[], Any] | None) -> Callable[[Info], Info]:
    def add(info: Info) -> Info:
        if MASK in info or method is None:
            return info
        mask = method()
        return info if mask is None else {**info, MASK: mask}

    return add
