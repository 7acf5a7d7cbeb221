"""A loss of your own: A2C whose critic minimises the Huber loss instead of the squared error.

    cd examples
    vantage train huber_a2c:HuberA2C --env CartPole-v1 --huber-delta 0.5

An algorithm is a frozen dataclass. Its fields become config keys and flags, those of the type `Coefficient` with
schedules; `key` adds help and bounds. `needs` says what the loss needs around it, and `loss` returns the scalar to
descend and what to log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from vantage.algorithms.interface import Model, Needs, Update
from vantage.algorithms.losses import masked_mean
from vantage.algorithms.returns import gae
from vantage.keys.fields import key
from vantage.keys.schedules import Coefficient
from vantage.types import Rollout


@dataclass(frozen=True)
class HuberA2C:
    """Advantage actor-critic with a Huber critic (Huber 1964), which single large returns move less."""

    gamma: Coefficient = 0.99
    gae_lambda: Coefficient = 0.95
    entropy_coef: Coefficient = 0.0
    value_coef: Coefficient = 0.5
    huber_delta: float = key(1.0, "error above which the loss grows linearly", low=1e-6)

    @property
    def needs(self) -> Needs:
        """One pass over each rollout by the weights that acted: learning may reuse the outputs of acting."""
        return Needs(activation_cache=True)

    def loss(self, model: Model, rollout: Rollout, update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """-A log π(a|s) + value_coef huber(target - V) - entropy_coef H, as a mean over the valid steps."""
        params, values = model.unroll(rollout.obs, rollout.is_first, rollout.state, rollout.action_mask,
                                      rollout.activation_cache or None)
        params, distribution = params[:-1], model.distribution
        discounts = update.at(self.gamma) * (~rollout.terminated).to(values.dtype)
        advantages, targets = gae(rollout.rewards, values.detach(), discounts, rollout.keep,
                                  gae_lambda=update.at(self.gae_lambda))
        log_probs = distribution.log_prob(params, rollout.actions)
        policy_loss = -masked_mean(advantages * log_probs, rollout.valid)
        errors = F.huber_loss(values[:-1], targets, reduction="none", delta=self.huber_delta)
        value_loss = masked_mean(errors, rollout.valid)
        entropy = masked_mean(distribution.entropy(params), rollout.valid)
        loss = policy_loss + update.at(self.value_coef) * value_loss - update.at(self.entropy_coef) * entropy
        return loss, {"train/policy_loss": policy_loss.detach(), "train/value_loss": value_loss.detach(),
                      "train/entropy": entropy.detach()}
