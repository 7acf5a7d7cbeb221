"""ACER: learning from fresh and replayed rollouts. Its equations are in `acer_losses`.

Wang et al. 2017, "Sample Efficient Actor-Critic with Experience Replay", arXiv:1611.01224.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vantage.algorithms.interface import Model, Needs, ReplayNeeds, Update
from vantage.errors import ConfigError
from vantage.keys.algorithm_words import explaining_arguments
from vantage.keys.fields import check_fields, key
from vantage.keys.schedules import Coefficient

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from vantage.types import Rollout


@explaining_arguments
@dataclass(frozen=True)
class ACER:
    """Actor-critic with experience replay; discrete or continuous."""

    gamma: Coefficient = key(0.99, "discount", low=0, high=1)
    entropy_coef: Coefficient = key(0.01, "weight of the entropy bonus, in nats")
    value_coef: Coefficient = key(0.5, "weight of half the squared error of Q", low=0)
    replay_size: int = key(100_000, "agent steps that the replay holds; of all workers together",
                           low=1, high=10**10, fixed=True)
    replay_start: int = key(10_000, "agent steps in the replay before it is learnt from", low=0,
                            high=10**10, fixed=True)
    replay_ratio: float = key(4.0,
                              "updates from the replay for each from fresh steps; the mean of a "
                              "random number", low=0, high=1000, fixed=True)
    replay_save_every: int = key(0,
                                 "agent steps between checkpoints with the replay; 0: only when "
                                 "training stops", low=0, high=10**15, fixed=True)
    truncation: float | None = key(10.0, "c, the bound of importance weights; none: no bound",
                                   low=0)
    bias_correction: bool = key(True, "correct the bias that the truncation introduces")
    trust_region: float | None = key(1.0,
                                     "δ, the bound on leaving the average policy; the largest "
                                     "growth of the divergence from it in an update; none: no "
                                     "trust region", low=0)
    average_decay: float = key(0.99, "α of the average policy, updated after each update", low=0,
                               high=1)
    critic_samples: int = key(5,
                              "actions sampled for the dueling critic; with continuous actions, "
                              "for its mean", low=1, high=10_000)
    bounds_coef: Coefficient = key(0.5,
                                   "weight of means beyond the bounds of a Box; of their squared "
                                   "excess over 1.1 half widths, with continuous actions", low=0)
    burn_in: int = key(0,
                       "replayed steps that only warm the memory up; the first of each rollout, "
                       "with a memory", low=0, high=10**6)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.replay_ratio > 0 and self.replay_size < self.replay_start:
            raise ConfigError(f"replay_start={self.replay_start} steps never fit in "
                              f"replay_size={self.replay_size}; give a smaller --replay-start or a "
                              "larger --replay-size")

    @property
    def needs(self) -> Needs:
        """Action values, an average policy and a replay.

        No activation cache: rollouts are replayed.
        """
        replay = ReplayNeeds(self.replay_size, self.replay_start, self.replay_ratio,
                             self.replay_save_every)
        return Needs(critic="action", average_decay=self.average_decay, replay=replay)

    def loss(self, model: Model, rollout: Rollout,
             update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The discrete or the continuous loss of one fresh or replayed rollout.

        The first `burn_in` steps of a replayed rollout are excluded: they only warm up the memory,
        whose stored state comes from an older policy.
        """
        import torch

        from vantage.algorithms.acer_losses import discrete_acer_loss

        assert update.average is not None and update.generator is not None
        inputs = rollout.obs, rollout.is_first, rollout.state, rollout.action_mask
        params, features = model.unroll_features(*inputs)
        with torch.no_grad():
            average_params = update.average.unroll_features(*inputs, critic=False)[0][:-1]
        valid = rollout.valid
        if self.burn_in and update.replayed:
            valid = valid.clone()
            valid[:self.burn_in] = False
        shared: dict[str, Any] = {
            "rewards": rollout.rewards,
            "terminated": rollout.terminated,
            "keep": rollout.keep,
            "valid": valid,
            "actions": rollout.actions,
            "gamma": update.at(self.gamma),
            "value_coef": update.at(self.value_coef),
            "entropy_coef": update.at(self.entropy_coef),
            "truncation": self.truncation,
            "bias_correction": self.bias_correction,
            "trust_region": self.trust_region,
        }
        if model.has_q:
            return discrete_acer_loss(
                behaviour_logits=rollout.behaviour, average_logits=average_params, logits=params,
                q_values=model.action_values(features), **shared)
        shared["bounds_coef"] = update.at(self.bounds_coef)
        return self._continuous_loss(model, params, features, average_params, rollout.behaviour,
                                     update.generator, shared)

    def _continuous_loss(self, model: Model, params: Tensor, features: Tensor,
                         average_params: Tensor, behaviour: Tensor, generator: Generator,
                         shared: dict[str, Any]) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The loss with Q̃(x, a) = V(x) + A(x, a) - mean of A(x, u) over sampled actions u ~ π."""
        import torch

        from vantage.algorithms.acer_losses import continuous_acer_loss
        from vantage.algorithms.distributions import Gaussian

        distribution = model.distribution
        assert isinstance(distribution, Gaussian)
        values = model.state_values(features, params)
        features = features[:-1]
        params = params[:-1]
        repeated = params.expand(self.critic_samples + 1, *params.shape)
        drawn, *samples = distribution.sample(repeated, generator)
        sampled_advantages = [model.action_advantages(features, sample) for sample in samples]
        base = values[:-1] - torch.stack(sampled_advantages).mean(0)
        return continuous_acer_loss(
            distribution=distribution,
            params=params,
            average_params=average_params,
            behaviour_params=behaviour,
            values=values,
            q_taken=base + model.action_advantages(features, shared["actions"]),
            q_drawn=base + model.action_advantages(features, drawn),
            drawn=drawn,
            fixed_deviation=model.fixed_deviation,
            **shared)
