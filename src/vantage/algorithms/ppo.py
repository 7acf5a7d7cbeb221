"""PPO: several epochs over shuffled minibatches of each rollout, with a clipped ratio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vantage.algorithms.interface import Model, Needs, Reuse, Update
from vantage.keys.algorithm_words import explaining_arguments
from vantage.keys.fields import check_fields, key
from vantage.keys.schedules import Coefficient

if TYPE_CHECKING:
    from torch import Tensor

    from vantage.algorithms.interface import Estimate
    from vantage.types import Minibatch, Rollout


@explaining_arguments
@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation.

    Schulman et al. 2017, arXiv:1707.06347. With one epoch over one minibatch the ratio is 1 and the
    gradient is that of A2C: Huang et al. 2022, arXiv:2205.09123.
    """

    gamma: Coefficient = key(0.99, "discount", low=0, high=1)
    gae_lambda: Coefficient = key(0.95,
                                  "lambda of generalised advantage estimation; 1 gives n-step "
                                  "returns", low=0, high=1)
    epochs: int = key(3, "times that an update learns from its rollouts", low=1, high=1000)
    minibatch_size: int = key(256,
                              "agent steps of one gradient step; with an lstm or gru, whole "
                              "environments of about this many steps", low=1)
    past_rollouts: int = key(0,
                             "updates whose rollouts are learned from again with the new ones, "
                             "corrected by V-trace, from the stored states of an lstm or gru",
                             low=0, high=1000, fixed=True)
    clip: Coefficient = key(0.2,
                            "how far a ratio of probabilities may leave 1; beyond it the loss "
                            "gains nothing", low=0)
    value_clip: float | None = key(None,
                                   "how far a value may move in an update, in units of the learnt "
                                   "returns, after reward_norm or value_norm; none: anywhere",
                                   low=0)
    max_kl: float | None = key(None,
                               "divergence in nats that ends learning from a rollout; none: never",
                               low=0)
    entropy_coef: Coefficient = key(0.01, "weight of the entropy bonus, in nats")
    value_coef: Coefficient = key(0.5, "weight of half the squared value error", low=0)
    advantage_norm: bool = key(True, "normalise advantages to mean 0 and deviation 1")
    advantage_norm_over: str = key("rollout", "what advantages are normalised over",
                                   choices=("rollout", "minibatch"))

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def needs(self) -> Needs:
        """Several passes over a rollout.

        No activation cache, which would only serve the first pass.
        """
        return Needs(reuse=Reuse(self.epochs, self.minibatch_size, self.max_kl, self.past_rollouts))

    def estimate(self, rollout: Rollout, update: Update) -> Estimate:
        """GAE with `rollout.values`, or V-trace if the rollout has importance weights `rhos`."""
        from vantage.algorithms.losses import normalise
        from vantage.algorithms.returns import advantages_and_targets

        assert rollout.values is not None
        gae_lambda = update.at(self.gae_lambda)
        advantages, targets = advantages_and_targets(
            rollout.rewards, rollout.values, rollout.terminated, rollout.keep, rollout.rhos,
            gamma=update.at(self.gamma), gae_lambda=gae_lambda)
        advantages = update.add_intrinsic(advantages, gae_lambda, rollout.rhos)
        if self.advantage_norm and self.advantage_norm_over == "rollout":
            advantages = normalise(advantages, rollout.valid, update.total)
        return advantages, targets

    def loss(self, model: Model, minibatch: Minibatch,
             update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss of `vantage.algorithms.losses.ppo_loss` on one minibatch."""
        from vantage.algorithms.losses import normalise, ppo_loss  # imports torch

        params, values = model.unroll_inputs(minibatch.inputs, minibatch.is_first, minibatch.state,
                                             minibatch.action_mask)
        advantages = minibatch.advantages
        if self.advantage_norm and self.advantage_norm_over == "minibatch":
            advantages = normalise(advantages, minibatch.valid, update.total)
        distribution = model.distribution
        return ppo_loss(
            log_probs=distribution.log_prob(params, minibatch.actions),
            behaviour_log_probs=distribution.log_prob(minibatch.behaviour, minibatch.actions),
            entropies=distribution.entropy(params),
            values=values,
            behaviour_values=minibatch.values,
            advantages=advantages,
            targets=minibatch.targets,
            valid=minibatch.valid,
            clip=update.at(self.clip),
            value_clip=self.value_clip,
            value_coef=update.at(self.value_coef),
            entropy_coef=update.at(self.entropy_coef))
