"""Sources of action masks: `info`, or a method as for MaskablePPO. `actions` checks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper

from vantage.envs.interface import MASK, Info

METHOD = "action_masks"
"""The method's name: https://sb3-contrib.readthedocs.io/en/master/modules/ppo_mask.html
(2026-11)."""


def masks_of(env: gym.Env[Any, Any]) -> Callable[[Info], Info]:
    """A function that adds the mask of `env` or its wrappers to an `info` without one."""
    try:
        method = env.get_wrapper_attr(METHOD)
    except Exception:  # AttributeError, or what a __getattr__ of the environment raises
        method = None
    return _adding(method if _is_masked(env.action_space) else None)


def masks_of_vector(vector: VectorEnv[Any, Any, Any]) -> Callable[[Info], Info]:
    """`masks_of` for a vector environment: its own method, or that of each of its environments."""
    layer: Any = vector
    method = getattr(layer, METHOD, None)
    while method is None and isinstance(layer, VectorWrapper):
        layer = layer.env
        method = getattr(layer, METHOD, None)
    is_made_of_envs = isinstance(layer, SyncVectorEnv | AsyncVectorEnv)
    if method is None and is_made_of_envs and all(layer.call("has_wrapper_attr", METHOD)):
        def method() -> Any:
            each = layer.call(METHOD)
            return None if each[0] is None else np.stack([flat(mask) for mask in each])

    return _adding(method if _is_masked(vector.single_action_space) else None)


def allows(mask: Any, action: Any, space: gym.Space[Any]) -> bool:
    """Whether `mask`, one array or one per component, allows an action of `space`.

    True for a mask of another size, which `make_masker` rejects.
    """
    if isinstance(space, spaces.Discrete):
        sizes = np.ravel(space.n)
    elif isinstance(space, spaces.MultiBinary):
        sizes = np.full(np.prod(space.shape, dtype=int), 2)
    else:
        sizes = np.ravel(getattr(space, "nvec", ()))
    chosen = np.ravel(action) - np.ravel(getattr(space, "start", 0))
    allowed = flat(mask)
    return allowed.shape != (sizes.sum(),) or bool(allowed[np.cumsum(sizes) - sizes + chosen].all())


def _is_masked(space: gym.Space[Any]) -> bool:
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def flat(mask: Any) -> np.ndarray[Any, Any]:
    """A mask as one array, also from one array per component of the action."""
    in_parts = isinstance(mask, tuple | list) and any(map(np.ndim, mask))
    return np.concatenate(mask, axis=-1) if in_parts else np.asarray(mask)


def _adding(method: Callable[[], Any] | None) -> Callable[[Info], Info]:
    def add(info: Info) -> Info:
        if MASK in info or method is None:
            return info
        mask = method()
        return info if mask is None else {**info, MASK: mask}

    return add
