"""Where tests get rollouts from: at random without an environment, or from an actor-learner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch

import vantage
from vantage.models.actor_critic import ActorCritic
from vantage.runtimes.actor_learner import ActorLearner
from vantage.types import ArraySpec, Rollout


@contextmanager
def begun(config: vantage.Config, **options: Any) -> Iterator[ActorLearner]:
    """An actor-learner whose environments have been reset."""
    with closing(ActorLearner(config, **options)) as one:
        one.begin()
        yield one


def random_rollout(model: ActorCritic, length: int, num_envs: int, *, masked: bool = False, seed: int = 0) -> Rollout:
    """A random rollout by the policy of `model`, with its values; ends and resets are random.

    Seeds torch's global generator.
    """
    assert isinstance(model.spec.obs, ArraySpec)
    torch.manual_seed(seed)
    obs, is_first = torch.randn(length + 1, num_envs, *model.spec.obs.shape), torch.rand(length + 1, num_envs) < 0.3
    mask = torch.rand(length + 1, num_envs, model.distribution.num_params) < 0.7 if masked else None
    if mask is not None:
        mask[..., 0] = True
    state = tuple(torch.randn_like(part) if part.is_floating_point() else part + 2  # a count of past steps
                  for part in model.initial_state(num_envs))
    with torch.no_grad():
        params, values = model.unroll(obs, is_first, state, mask)
    actions = model.distribution.sample(params[:-1], torch.Generator().manual_seed(seed))
    return Rollout(obs, is_first, actions, torch.randn(length, num_envs), torch.rand(length, num_envs) < 0.2,
                   torch.rand(length, num_envs) < 0.8, mask, params[:-1], state, values)
