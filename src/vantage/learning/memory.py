"""States of an LSTM or GRU in past rollouts, computed anew by the current weights. Nothing is learned here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from vantage.models.actor_critic import ActorCritic
from vantage.types import Rollout, State, map_parts


@torch.no_grad()
def with_recomputed_states(rollout: Rollout, model: ActorCritic, columns: Sequence[Tensor]) -> Rollout:
    """`rollout` [T, N] whose states before the first step are those of the current weights where that can be known.

    `columns` are the environments' columns in each of the consecutive rollouts, the oldest first. The oldest keeps the
    state that it was stored with; each later one begins with the state after the rollout before it.
    """
    state = tuple(part.clone() for part in rollout.state)
    for former, following in pairwise(columns):
        for part, after in zip(state, _state_after(rollout, model, state, former), strict=True):
            part[following] = after
    return replace(rollout, state=state)


def _state_after(rollout: Rollout, model: ActorCritic, state: State, columns: Tensor) -> State:
    """The state after the last step of these columns, from `state` before the first."""
    current = tuple(part[columns] for part in state)
    obs = map_parts(lambda part: part[:-1, columns], rollout.obs)
    for t in range(len(rollout.rewards)):
        _, current = model.step(map_parts(lambda part, t=t: part[t], obs), rollout.is_first[t, columns], current)
    return current
