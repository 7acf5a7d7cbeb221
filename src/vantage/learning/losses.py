"""From a rollout and a model to the loss that the config asks for: forward passes here, equations in `algorithms`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vantage.algorithms.a2c import a2c_loss
from vantage.algorithms.acer import continuous_acer_loss, discrete_acer_loss
from vantage.algorithms.distributions import Gaussian
from vantage.config import Config
from vantage.models.actor_critic import ActorCritic
from vantage.types import Rollout

LossAndTerms = tuple[Tensor, Mapping[str, Tensor]]


def actor_critic_loss(model: ActorCritic, rollout: Rollout, rewards: Tensor, config: Config,
                      step: int) -> LossAndTerms:
    """A2C's, which A3C and A3G share."""
    params, values = model.unroll(rollout.obs, rollout.is_first, rollout.state, rollout.action_mask, rollout.outputs)
    params = params[:-1]
    distribution = model.distribution
    behaviour = distribution.log_prob(rollout.behaviour, rollout.actions) if config.vtrace else None
    return a2c_loss(
        distribution.log_prob(params, rollout.actions), distribution.entropy(params), values, rewards,
        rollout.terminated, rollout.keep, rollout.valid, gamma=config.at("gamma", step),
        gae_lambda=config.at("gae_lambda", step), value_coef=config.at("value_coef", step),
        entropy_coef=config.at("entropy_coef", step), advantage_norm=config.advantage_norm,
        value_target=config.value_target, behaviour_log_probs=behaviour)


def replay_loss(model: ActorCritic, average: ActorCritic, rollout: Rollout, rewards: Tensor, config: Config, step: int,
                *, generator: torch.Generator, burn_in: int = 0) -> LossAndTerms:
    """ACER's, on fresh or replayed rollouts; `generator` draws the actions of the dueling critic.

    The first `burn_in` steps are not learnt from: they warm up a memory whose stored state is of an older policy.
    """
    unrolled = rollout.obs, rollout.is_first, rollout.state, rollout.action_mask
    params, features = model.unroll_features(*unrolled)
    with torch.no_grad():
        average_params = average.unroll_policy(*unrolled)[:-1]
    valid = rollout.valid
    if burn_in:
        valid = valid.clone()
        valid[:burn_in] = False
    keywords = {"gamma": config.at("gamma", step), "value_coef": config.at("value_coef", step),
                "entropy_coef": config.at("entropy_coef", step)}
    if model.has_q:
        return discrete_acer_loss(
            rollout.behaviour, average_params, params, model.action_values(features), rollout.actions, rewards,
            rollout.terminated, rollout.keep, valid, truncation=config.truncation,
            bias_correction=config.bias_correction, trust_region=config.trust_region, **keywords)
    distribution = model.distribution
    assert isinstance(distribution, Gaussian)
    values, features, params = model.state_values(features, params), features[:-1], params[:-1]
    draws = params.expand(config.critic_samples + 1, *params.shape)
    drawn, *others = distribution.sample(draws, generator)
    base = values[:-1] - torch.stack([model.action_advantages(features, other) for other in others]).mean(0)
    return continuous_acer_loss(
        distribution, params, average_params, rollout.behaviour, values,
        base + model.action_advantages(features, rollout.actions), base + model.action_advantages(features, drawn),
        rollout.actions, drawn, rewards, rollout.terminated, rollout.keep, valid, truncation=config.truncation,
        bias_correction=config.bias_correction, trust_region=config.trust_region,
        fixed_deviation=config.std == "fixed", **keywords)
