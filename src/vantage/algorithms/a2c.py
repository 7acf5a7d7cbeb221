"""A2C: policy gradient, value error and entropy of one fresh rollout.

Under Hogwild workers it is A3C, or A3G with networks on GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vantage.algorithms.interface import Model, Needs, Update
from vantage.keys.algorithm_words import explaining_arguments
from vantage.keys.fields import check_fields, key
from vantage.keys.schedules import Coefficient

if TYPE_CHECKING:
    from torch import Tensor

    from vantage.types import Rollout


@explaining_arguments
@dataclass(frozen=True)
class A2C:
    """Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783)."""

    gamma: Coefficient = key(0.99, "discount", low=0, high=1)
    gae_lambda: Coefficient = key(1.0,
                                  "lambda of generalised advantage estimation; 1 gives n-step "
                                  "returns", low=0, high=1)
    value_target: str = key("lambda",
                            "what the critic learns: the lambda-return, or the discounted return "
                            "up to the bootstrap value (lambda 1)", choices=("lambda", "return"))
    entropy_coef: Coefficient = key(0.01, "weight of the entropy bonus, in nats")
    value_coef: Coefficient = key(0.5, "weight of half the squared value error", low=0)
    advantage_norm: bool = key(False,
                               "normalise advantages to mean 0 and deviation 1 over each rollout")
    vtrace: bool = key(False,
                       "V-trace importance weights, clipped at 1 (Espeholt et al. 2018); equals "
                       "GAE where the policy that acted is the one that learns")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def needs(self) -> Needs:
        """An activation cache: an update makes one pass over a rollout, with the acting weights."""
        return Needs(activation_cache=True)

    def loss(self, model: Model, rollout: Rollout,
             update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss of `vantage.algorithms.losses.a2c_loss` on one rollout."""
        from vantage.algorithms.losses import a2c_loss  # imports torch

        params, values = model.unroll(rollout.obs, rollout.is_first, rollout.state,
                                      rollout.action_mask, rollout.activation_cache or None)
        params = params[:-1]
        distribution = model.distribution
        return a2c_loss(
            log_probs=distribution.log_prob(params, rollout.actions),
            entropies=distribution.entropy(params),
            values=values,
            value_coef=update.at(self.value_coef),
            entropy_coef=update.at(self.entropy_coef),
            **self.estimate_arguments(model, rollout, update))

    def estimate_arguments(self, model: Model, rollout: Rollout, update: Update) -> dict[str, Any]:
        """The arguments of `losses.a2c_estimate` that do not depend on the current weights."""
        behaviour = None
        if self.vtrace:
            behaviour = model.distribution.log_prob(rollout.behaviour, rollout.actions)
        return {
            "rewards": rollout.rewards,
            "terminated": rollout.terminated,
            "keep": rollout.keep,
            "valid": rollout.valid,
            "gamma": update.at(self.gamma),
            "gae_lambda": update.at(self.gae_lambda),
            "advantage_norm": self.advantage_norm,
            "value_target": self.value_target,
            "behaviour_log_probs": behaviour,
            "total": update.total,
            "record_targets": update.record_targets,
            "add_intrinsic": update.add_intrinsic,
        }
