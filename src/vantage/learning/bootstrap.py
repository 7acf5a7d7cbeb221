"""Values of states that a time limit cut in environments that reset in the same step."""

from __future__ import annotations

import torch
from torch import Tensor

from vantage.envs.interface import Step
from vantage.models.actor_critic import ActorCritic
from vantage.types import Rollout, State, map_parts


def values_at_limits(model: ActorCritic, rollout: Rollout, t: int, step: Step, before: State,
                     after: State) -> Tensor:
    """V [B] of the states that a time limit cut at `step` t where the environment has reset; else 0.

    That is V of the last observation, `step.final_obs`, with the policy's state `after` the step,
    or of the observation `before` it if the last one is unknown: V(s_t), as in rsl_rl.
    """
    values = torch.zeros_like(rollout.rewards[t])
    time_outs = torch.as_tensor(step.time_outs, device=values.device)
    envs = time_outs.nonzero().squeeze(1)
    if not len(envs):
        return values
    mask = None if rollout.action_mask is None else rollout.action_mask[t]
    is_first = rollout.is_first[t]
    if step.final_obs is None:
        obs = map_parts(lambda part: part[t], rollout.obs)
        state = before
    else:
        obs = map_parts(lambda part: torch.as_tensor(part, device=values.device), step.final_obs)
        state = after
        is_first = torch.zeros_like(is_first)
        mask = None if mask is None else torch.ones_like(mask)
    taken = [map_parts(lambda part: part[envs], each) for each in (obs, is_first, state, mask)]
    values[envs] = model.step_with_values(*taken)[1]
    return values
