"""Observations and masks that a caller gives a policy, as arrays and tensors.

Their forms are read in `envs.reader`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vantage.envs.actions import action_space
from vantage.envs.agent_spaces import OBSERVATION
from vantage.envs.descriptions import shown
from vantage.envs.interface import MASK
from vantage.envs.masks import flat
from vantage.specs import is_part
from vantage.types import EnvSpec, State


def to_numpy(obs: Any) -> Any:
    """`obs` with arrays in place of tensors, in Dict and Tuple observations too."""
    if isinstance(obs, Tensor):
        obs = obs.detach().cpu()
        return (obs.float() if obs.dtype == torch.bfloat16 else obs).numpy()
    if isinstance(obs, Mapping):
        return {key: to_numpy(part) for key, part in obs.items()}
    if isinstance(obs, tuple | list):
        has_parts = any(isinstance(part, Tensor | Mapping | tuple) for part in obs)
        return tuple(map(to_numpy, obs)) if has_parts else obs
    return obs


def as_tensor(array: NDArray[Any]) -> Tensor:
    """`array` as a tensor, of bytes or float32; copies it if torch cannot share its memory."""
    array = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def given_tensor(name: str, values: Any) -> Tensor:
    """`values` as a tensor; ValueError, with their `name`, for other objects than numbers."""
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name}={values!r:.80} is not an array of numbers") from None


def read_first(is_first: Any, batch: int) -> Tensor:
    """Flags [B] bool of episodes' starts, by default none. ValueError for another number."""
    flags = torch.zeros(batch) if is_first is None else given_tensor("is_first", is_first)
    if flags.numel() != batch:
        raise ValueError(f"is_first has {flags.numel()} flags, the observations are a batch of "
                         f"{batch}")
    return flags.reshape(-1).bool()


def read_state(state: Any, initial: State, batch: int) -> State:
    """A state of the form of `initial`, which stands for None if the policy has none.

    ValueError for another one.
    """
    begin = f"begin with initial_state({batch})"
    if state is None:
        if initial:
            raise ValueError("the policy has a state: give that of the previous step, at the "
                             f"first initial_state({batch})")
        return initial
    if not isinstance(state, tuple | list):
        raise ValueError(f"state={state!r:.80} is not a tuple of tensors; {begin}")
    given = tuple(given_tensor("state", part) for part in state)
    shapes = [tuple(part.shape) for part in given]
    expected = [tuple(part.shape) for part in initial]
    if shapes != expected:
        raise ValueError(f"the state has shapes {shapes}, observations of a batch of {batch} need "
                         f"{expected}; {begin}")
    return given


def without_mask(obs: Any, mask: Any, spec: EnvSpec) -> tuple[Any, Any]:
    """An observation and its action mask, which PettingZoo's games put into the observation.

    A given `mask` takes precedence.
    """
    is_in_obs = spec.masked and isinstance(obs, Mapping) and MASK in obs and MASK not in spec.keys
    if not is_in_obs:
        return obs, mask
    own = obs[MASK] if mask is None else mask
    rest = {key: part for key, part in obs.items() if key != MASK}
    has_part = any(is_part(key, (OBSERVATION,)) for key in spec.keys)
    is_wrapped = rest.keys() == {OBSERVATION} and not has_part
    return rest[OBSERVATION] if is_wrapped else rest, own


def read_mask(mask: Any, spec: EnvSpec, batch: int) -> Tensor | None:
    """An action mask [B, A] bool, also of a tuple with one array for each component of the action.

    ValueError if one is missing, has another shape, holds numbers other than 0 and 1, or allows no
    action.
    """
    sizes = spec.action.sizes
    width = sum(sizes)
    if mask is None:
        if spec.masked:
            raise ValueError(f"the policy was trained with masks: give action_mask [B, {width}]")
        return None
    parts = to_numpy(mask)
    space = action_space(spec.action)
    if space is not None:
        parts = flat(parts, space, (batch,))
    if isinstance(parts, tuple | list):
        widths = [np.shape(part)[-1:] for part in parts]
        if widths == [(size,) for size in sizes]:
            parts = np.concatenate([np.asarray(part) for part in parts], axis=-1)
    array = np.asarray(parts)
    if array.size != batch * width or (batch > 1 and len(array) != batch):
        raise ValueError(f"action_mask has shape {array.shape}, the policy has {width} actions: "
                         f"give [{batch}, {width}]")
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise ValueError("action_mask has values other than 0 and 1; give 1 for allowed actions, 0 "
                         "for others")
    allowed = array.reshape(batch, width).astype(bool)
    for part in np.split(allowed, np.cumsum(sizes)[:-1], axis=1):
        if not part.any(axis=1).all():
            raise ValueError(f"action_mask is {shown(mask)}, which allows none of {part.shape[1]} "
                             "actions; give 1 for those that are allowed")
    return torch.from_numpy(allowed)
