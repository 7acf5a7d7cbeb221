"""Builds the model of a policy's config."""

from __future__ import annotations

from functools import partial
from typing import Literal

from vantage.errors import ConfigError
from vantage.models.actor_critic import ActorCritic
from vantage.models.checks import check_actions, check_inputs, check_size
from vantage.models.config import PolicyConfig
from vantage.types import EnvSpec


def make_model(policy: PolicyConfig, spec: EnvSpec, *,
               critic: Literal["state", "action"]) -> ActorCritic:
    """The model of `policy` with a critic of V(s) or Q(s, a).

    Raises ConfigError if options do not fit `spec`.
    """
    check_actions(policy, spec, critic)
    if policy.detach_critic and policy.separate:
        raise ConfigError("detach_critic is for a trunk that policy and critic share; give "
                          "--separate false with it")
    check_inputs(policy, spec)
    check_size(policy, spec, partial(ActorCritic, spec=spec, critic=critic))
    return ActorCritic(policy, spec, critic=critic)
