"""Which observations of a rollout are of agents that are there; the others stand in for agents that
have left their environment, which goes on without them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vantage.types import Obs, Rollout, map_parts


def present(rollout: Rollout) -> Tensor:
    """[T+1, B] bool: False where the observation stands in for one of an agent that has left.

    Only in the rows of such agents do two observations that are first follow each other without a
    valid step.
    """
    left = rollout.is_first[:-1] & rollout.is_first[1:] & ~rollout.valid
    if not left.any():
        return torch.ones_like(rollout.is_first)
    # After a step that is not valid, the last one stands in too, or is the next rollout's first.
    return torch.cat([~left, rollout.valid[-1:]])


def of_present(obs: Obs, there: Tensor) -> Obs:
    """Those of `obs` [N, B, ...] that are `there` [N, B], as [M, 1, ...]; all as they are."""
    if there.all():
        return obs
    parts: Obs = map_parts(lambda part: part[there].unsqueeze(1), obs)
    return parts
