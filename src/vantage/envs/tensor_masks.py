"""Action masks of a vector environment in tensors. `masks` and `actions` are for arrays."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from vantage.envs.descriptions import shown
from vantage.envs.masks import has_parts, parts_of_mask
from vantage.envs.outcomes import OutcomeError
from vantage.envs.tensors import check_device


def allowed_actions(mask: Any, space: gym.Space[Any], sizes: tuple[int, ...],
                    over: Tensor) -> Tensor:
    """The mask of the actions of `space` as [B, A] bool; `sizes` are the choices per component.

    All True where an episode is `over` [B] and a component has no allowed choice: no action
    follows. OutcomeError for a mask that does not fit, and where another episode has such a
    component.
    """
    shape = (len(over), sum(sizes))
    mask = side_by_side(mask, space, len(over))
    if not isinstance(mask, Tensor) or mask.shape != shape:
        raise OutcomeError(f"action_mask is {shown(mask)}; return a tensor of shape {shape}")
    check_device("action_mask", mask, over.device)
    allowed: Tensor = mask.bool()
    possible = torch.ones_like(over)
    for component in torch.split(allowed, list(sizes), 1):
        possible &= component.any(1)
    if not (possible | over).all():
        raise OutcomeError("action_mask allows no action of an environment whose episode goes on")
    return allowed | ~possible.unsqueeze(1)


def side_by_side(mask: Any, space: gym.Space[Any], num_envs: int) -> Any:
    """A mask nested as a Dict or Tuple `space` as one tensor [B, A]; others unchanged."""
    if not has_parts(mask, space):
        return mask
    parts = parts_of_mask(mask, space)
    like = next((part for *_, part in parts if isinstance(part, Tensor)), None)
    device = None if like is None else like.device
    return torch.cat([torch.ones(num_envs, size, device=device) if part is None
                      else torch.as_tensor(part).reshape(num_envs, size)
                      for _, size, part in parts], 1)
