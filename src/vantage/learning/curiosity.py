"""Curiosity: rewards for what a policy has rarely seen, in advantages beside those of the task.

Random network distillation, Burda, Edwards, Storkey and Klimov 2018, arXiv:1810.12894. Its networks
are in `vantage.models.distillation`; they share nothing with the policy, its loss or optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn

from vantage._host.seeding import derive_seed
from vantage.algorithms.interface import no_intrinsic
from vantage.algorithms.returns import vtrace
from vantage.errors import ConfigError
from vantage.learning.config import LearningConfig, OptimizerConfig
from vantage.learning.gradients import backward
from vantage.learning.minibatches import own_items
from vantage.learning.modules import parameters_of
from vantage.learning.optimizers import STATISTICS, FlatOptimizer
from vantage.learning.present_agents import of_present, present
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.learning.weights import FlatParameters, GradientSink
from vantage.models.actor_critic import ActorCritic
from vantage.models.distillation import Distillation
from vantage.models.normalization import merge_batches
from vantage.types import Obs, Rollout, map_parts

_CRITIC_LR = 1e-3
_PASSES = 4  # over each rollout, in as many pieces, as in the paper
_SHARE = 0.25  # of each piece, for the predictor
_AT_ONCE = 1024
"""Observations that are evaluated at once without gradients."""


class Curiosity(nn.Module):
    """Intrinsic rewards, their advantages, and the networks that learn from them.

    An update calls `begin`; its loss calls `add`; then the update calls `learn`. Nothing depends on
    observations that stand in for agents that have left.
    """

    def __init__(self, model: ActorCritic, config: LearningConfig) -> None:
        super().__init__()
        device = model.value_head.weight.device
        self._config = config
        self._num_envs = config.envs_per_process * model.spec.agents
        self.networks = Distillation(model.acting_spec).to(device)
        self.returns = RewardNormalizer(self._num_envs, device)
        cast(Any, self.returns).instead = "--curiosity none"
        of_critic = self.networks.critic
        critic = parameters_of(of_critic.actor, of_critic.value_head)  # its policy is not used
        self.flat = FlatParameters([*self.networks.predictor.parameters(), *critic], critic)
        for name in STATISTICS["adam"]:
            like = torch.tensor(0.0) if name == "step" else self.flat.vector
            self.register_buffer(name, torch.zeros_like(like))
        adam = OptimizerConfig(optimizer="adam", optimizer_eps=1e-8,
                               critic_lr_scale=_CRITIC_LR / config.exploration.predictor_lr)
        self._optimizer = FlatOptimizer(adam, self.flat.vector,
                                        dict(self.named_buffers(recurse=False)),
                                        critic=self.flat.critic)
        self._rewards = self._values = torch.zeros(0)
        self._targets: Tensor | None = None
        self._step = 0

    @torch.no_grad()
    def begin(self, rollout: Rollout, config: LearningConfig, step: int,
              sink: GradientSink) -> None:
        """Compute the intrinsic rewards of `rollout`, after the statistics have seen it."""
        self._config = config
        new = rollout.current or slice(None)
        there = present(rollout)
        obs = of_present(map_parts(lambda x: x[1:, new], rollout.obs), there[1:, new])
        merge_batches(self.networks.critic.batches(obs), sink.all_gather)
        if self.returns.count < 1:
            # Otherwise most of the first errors would be the same for all observations.
            mean = self._over(rollout, self.networks.target)[there.flatten()].mean(0)
            self.networks.centre.copy_(sink.all_gather(mean).mean(0))
        errors = self._over(rollout, self.networks.errors).view(rollout.is_first.shape)
        rewards = torch.where(rollout.valid, errors[1:], 0.0)
        gamma = config.at("intrinsic_gamma", step)
        for part, left in zip(torch.split(rewards[:, new], self._num_envs, 1),
                              torch.split(~there[1:, new], self._num_envs, 1), strict=True):
            # Intrinsic returns go on where an episode ends.
            never = torch.zeros(len(part) + 1, part.shape[1], dtype=torch.bool, device=part.device)
            stats = self.returns.batch(part, never, left, gamma)
            merge_batches([(self.returns.merge, stats)], sink.all_gather)
        self._rewards = self.returns.scale(rewards)
        self._values = self._over(rollout, self.networks.values).view(errors.shape)
        if not there.all():
            # Until an agent is back, its value is that of its return, without an estimate.
            for t in reversed(range(len(rewards))):
                waiting = gamma * self._values[t + 1]
                self._values[t] = torch.where(there[t], self._values[t], waiting)
        self._targets = None
        self._step = step

    def add(self, advantages: Tensor, gae_lambda: float, rhos: Tensor | None = None) -> Tensor:
        """`advantages` [T, B] plus the coefficient times those of intrinsic rewards.

        These are estimated by GAE or, with importance weights `rhos`, by V-trace, over episode ends
        too: what the agent finds in the next game counts.
        """
        ones = torch.ones_like(self._rewards)
        intrinsic, self._targets = vtrace(
            self._rewards, self._values, self._config.at("intrinsic_gamma", self._step) * ones,
            ones.bool(), ones if rhos is None else rhos, gae_lambda=gae_lambda)
        return advantages + self._config.at("intrinsic_coef", self._step) * intrinsic

    def learn(self, rollout: Rollout, sink: GradientSink) -> dict[str, float]:
        """Fit critic and predictor to the new steps of `rollout`; returns metrics.

        L = mean_t[ ½ (R_t - V(s_t))² ] + mean_t[ ‖f̂(s_{t+1}) - f(s_{t+1})‖² / OUTPUTS ]

        The second mean is over a share of the steps. Both leave out the observations that stand in
        for agents that have left. ConfigError if the algorithm has not called `add`.
        """
        if self._targets is None:
            raise ConfigError(f"curiosity=rnd has no effect on algorithm={self._config.algo}; let it "
                              "call update.add_intrinsic, or give --curiosity none")
        new = rollout.current or slice(None)
        obs = map_parts(lambda x: x[:, new].flatten(0, 1), rollout.obs)
        width = rollout.valid[:, new].shape[1]
        pieces = [*self._pieces(present(rollout)[:, new].cpu(), sink)]
        counts = torch.tensor([[len(part) for part in piece] for piece in pieces],
                              dtype=torch.float64, device=self.flat.vector.device)
        sizes = sink.all_gather(counts.flatten()).sum(0).view(-1, 2).clamp(min=1).tolist()
        targets = self._targets[:, new].flatten()
        rewards = self._rewards[:, new].flatten()
        means = []
        for (steps, predicted), (num_steps, num_predicted) in zip(pieces, sizes, strict=True):
            values = self.networks.values(self._inputs(obs, steps))
            errors = self.networks.errors(self._inputs(obs, predicted + width))
            terms = torch.stack([rewards[steps].sum() / num_steps,
                                 0.5 * (targets[steps] - values).square().sum() / num_steps,
                                 errors.sum() / num_predicted])
            backward(terms[1] + terms[2], self.flat.parameters)
            total = sink.all_gather(torch.cat([self.flat.gradient, terms.detach()])).sum(0)
            self._optimizer.step(total[:-len(terms)].to(self.flat.vector.dtype),
                                 self._config.exploration.predictor_lr)
            means.append(total[-len(terms):])
        names = ("rollout/intrinsic_reward", "train/intrinsic_value_loss", "train/predictor_loss")
        return dict(zip(names, torch.stack(means).mean(0).tolist(), strict=True))

    def _pieces(self, there: Tensor, sink: GradientSink) -> Iterator[tuple[Tensor, Tensor]]:
        """Minibatches of the steps of all processes, which draw the same random order.

        For each, the indices of this process's steps for the critic and those for the predictor,
        whose observations are `there` [T+1, B] before and after the step.
        """
        seed = derive_seed(self._config.run.seed, "curiosity", self._step)
        generator = torch.Generator().manual_seed(seed)
        reuse = self._config.algorithm.needs.reuse
        device = self.flat.vector.device
        num_envs = there.shape[1]
        num_steps = there[1:].numel() * sink.num_ranks
        passes, num_pieces = (1, 1) if reuse is None else (_PASSES, min(_PASSES, num_steps))
        for _ in range(passes):
            order = torch.randperm(num_steps, generator=generator)
            for piece in order.tensor_split(num_pieces):
                predicted = piece[:math.ceil(_SHARE * len(piece))]
                own, own_predicted = (
                    own_items(steps, num_envs, num_envs, sink.rank, sink.num_ranks)
                    for steps in (piece, predicted))
                yield (own[there[:-1].flatten()[own]].to(device),
                       own_predicted[there[1:].flatten()[own_predicted]].to(device))

    def _inputs(self, obs: Obs, steps: Tensor) -> tuple[Tensor, ...]:
        """The networks' inputs for some of the observations [N, ...]."""
        never = torch.zeros(1, len(steps), dtype=torch.bool, device=steps.device)
        return self.networks.inputs(map_parts(lambda x: x[steps].unsqueeze(0), obs), never)

    def _over(self, rollout: Rollout, function: Callable[..., Tensor]) -> Tensor:
        """`function` of the inputs of all observations [N, ...], a piece at a time."""
        obs = map_parts(lambda x: x.flatten(0, 1), rollout.obs)
        steps = torch.arange(rollout.is_first.numel(), device=rollout.rewards.device)
        return torch.cat([function(self._inputs(obs, piece))
                          for piece in torch.split(steps, _AT_ONCE)])


def add_to(curiosity: Curiosity | None) -> Callable[..., Tensor]:
    """What `Update.add_intrinsic` is."""
    return no_intrinsic if curiosity is None else curiosity.add


def make_curiosity(config: LearningConfig, model: ActorCritic) -> Curiosity | None:
    """The curiosity that `config` asks for, with the same weights in all processes."""
    if config.exploration.curiosity == "none":
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(config.run.seed, "predictor"))
        return Curiosity(model, config)
