"""Random network distillation: PPO that is also rewarded for what it has rarely seen.

    cd examples
    vantage train rnd:RND --env MountainCar-v0

Burda, Edwards, Storkey and Klimov 2018, arXiv:1810.12894. A predictor learns the outputs of a fixed random network; its
error on the next observation is the intrinsic reward. A value head of its own estimates the intrinsic returns, which
go on where an episode ends. Networks here are small and for vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

import vantage
from vantage.algorithms.interface import Model, Needs, Update
from vantage.algorithms.losses import masked_mean, normalise
from vantage.algorithms.returns import gae
from vantage.errors import ConfigError
from vantage.models.normalization import RunningStats, stats_of
from vantage.types import EnvSpec, Minibatch, Rollout


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


class Curiosity(nn.Module):
    """The fixed random network, its predictor, the value of intrinsic returns, and their running deviation."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.target = network(inputs, 32).requires_grad_(False)
        self.predictor = network(inputs, 32)
        self.critic = network(inputs, 1)
        self.returns = RunningStats()

    def errors(self, x: Tensor) -> Tensor:
        """The predictor's mean squared error [T, B] on observations [T, B, N]."""
        x = x.clamp(-5, 5)
        return (self.predictor(x) - self.target(x)).square().mean(-1)

    def values(self, x: Tensor) -> Tensor:
        values: Tensor = self.critic(x).squeeze(-1)
        return values

    def scaled(self, rewards: Tensor, valid: Tensor, gamma: float) -> Tensor:
        """Intrinsic rewards [T, B] by the deviation of their discounted sums, which are observed first."""
        sums, total = [], torch.zeros_like(rewards[0])
        for reward in rewards:
            total = reward + gamma * total
            sums.append(total)
        self.returns.merge(*stats_of(torch.stack(sums)[valid].unsqueeze(-1)))
        return rewards / (self.returns.var + 1e-8).sqrt()


def side_by_side(inputs: tuple[Tensor, ...] | None) -> Tensor:
    assert inputs is not None
    return torch.cat(inputs, -1)


@dataclass(frozen=True)
class RND(vantage.PPO):
    """PPO with an intrinsic reward, by random network distillation."""

    bonus_coef: float = 1.0
    task_coef: float = 2.0
    bonus_gamma: float = 0.99
    prediction_share: float = 0.25

    @property
    def needs(self) -> Needs:
        return replace(super().needs, next_inputs=True)

    def build(self, spec: EnvSpec, model: Model) -> nn.Module:
        if any(part.kind == "image" for part in spec.parts):
            raise ConfigError("this example of random network distillation is for vectors, not for images")
        return Curiosity(sum(part.shape[0] for part in spec.parts))

    def estimate(self, rollout: Rollout, update: Update) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
        """Advantages of both rewards, weighted; the targets of both critics."""
        curiosity = update.module
        assert isinstance(curiosity, Curiosity)
        plain = replace(self, advantage_norm=False)
        advantages, targets, *_ = vantage.PPO.estimate(plain, rollout, update)
        seen = side_by_side(rollout.inputs)
        with torch.no_grad():
            values = curiosity.values(seen)
            rewards = torch.where(rollout.valid, curiosity.errors(seen[1:]), 0.0)
        rewards = curiosity.scaled(rewards, rollout.valid, self.bonus_gamma)
        endless = torch.ones_like(rollout.keep)
        intrinsic, intrinsic_targets = gae(
            rewards, values, self.bonus_gamma * endless, endless, gae_lambda=update.at(self.gae_lambda))
        advantages = self.task_coef * advantages + self.bonus_coef * intrinsic
        if self.advantage_norm:
            advantages = normalise(advantages, rollout.valid, update.total)
        return advantages, targets, {"intrinsic_targets": intrinsic_targets}

    def loss(self, model: Model, minibatch: Minibatch, update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """PPO's loss, that of the intrinsic critic, and the predictor's error on some of the steps."""
        curiosity = update.module
        assert isinstance(curiosity, Curiosity)
        loss, metrics = super().loss(model, minibatch, update)
        values = curiosity.values(side_by_side(minibatch.inputs))
        errors = curiosity.errors(side_by_side(minibatch.next_inputs))
        chosen = torch.rand(errors.shape, generator=update.generator, device=errors.device) < self.prediction_share
        value_loss = 0.5 * masked_mean((minibatch.extra["intrinsic_targets"] - values).square(), minibatch.valid)
        prediction_loss = masked_mean(errors, minibatch.valid & chosen)
        return loss + update.at(self.value_coef) * value_loss + prediction_loss, {
            **metrics, "train/intrinsic_value_loss": value_loss, "train/prediction_loss": prediction_loss}
