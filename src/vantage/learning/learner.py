"""Weights, and one update of them from one rollout. No environment, no file; others may share the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import cast

import torch
from torch import Tensor

from vantage.algorithms.interface import Algorithm, MinibatchAlgorithm, Reuse, Update
from vantage.config import Config
from vantage.config_groups import OptimizerConfig
from vantage.errors import ConfigError, NonFiniteError
from vantage.learning.minibatches import by_current_policy, minibatches
from vantage.learning.optimizers import make_optimizer
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.learning.weights import AveragePolicy, FlatParameters, GradientSink
from vantage.models.actor_critic import ActorCritic
from vantage.models.normalization import RunningStats, merge_batches
from vantage.seeding import derive_seed
from vantage.types import Minibatch, Rollout

APPROX_KL = "train/approx_kl"
"""The metric that ends learning from a rollout with max_kl."""


def restore_generator(generator: torch.Generator, state: Tensor) -> bool:
    """Continue a generator from `state`; returns False, unchanged, if `state` is of another kind of device."""
    if state.shape != generator.get_state().shape:
        return False
    generator.set_state(state)
    return True


def backward(loss: Tensor, parameters: Sequence[Tensor]) -> None:
    """Write the gradient of a scalar into the `grad` of each parameter; zero for frozen and unused ones.

    `Tensor.backward` would add to zeros, which takes two more passes over the memory.
    """
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    gradients = dict(zip(trainable, torch.autograd.grad(loss, trainable, materialize_grads=True), strict=True))
    for parameter in parameters:
        assert parameter.grad is not None
        if parameter in gradients:
            parameter.grad.copy_(gradients[parameter])
        else:
            parameter.grad.zero_()


def clip_gradient(gradient: Tensor, max_norm: float) -> float:
    """Scale a gradient [P] to at most `max_norm` (0: leave it), in place; returns its norm before."""
    norm = float(torch.linalg.vector_norm(gradient))
    clip_with_norm(gradient, norm, max_norm)
    return norm


def clip_with_norm(gradient: Tensor, norm: float, max_norm: float) -> None:
    """Scale a gradient with global norm `norm`, or a part of it, to at most `max_norm` (0: no limit), in place."""
    if max_norm > 0 and norm > max_norm:
        gradient.mul_(max_norm / (norm + 1e-6))


class OwnWeights(GradientSink):
    """The sink of one process: its weights, and those of an average policy that follow them."""

    def __init__(self, weights: FlatParameters, config: OptimizerConfig, average: AveragePolicy | None) -> None:
        self._weights, self._average = weights, average
        self._optimizer = make_optimizer(config, weights.vector)

    def apply(self, gradient: Tensor, num_valid: float, loss: float, metrics: dict[str, float], *, lr: float,
              max_grad_norm: float) -> tuple[float, float]:
        """One step of the optimiser, then one of the average policy."""
        norm = clip_gradient(gradient, max_grad_norm)
        if math.isfinite(norm) and math.isfinite(loss):
            with self._weights.frozen_unmoved():
                self._optimizer.step(gradient, lr)
            if self._average is not None:
                self._average.follow(self._weights.vector)
        return norm, loss

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return self._optimizer.tensors()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        self._optimizer.load(tensors)


class Learner:
    """Improves `model` by the algorithm's loss on rollouts; a sink applies the gradients.

    By default the sink is `OwnWeights`; runtimes whose processes share weights set `sink` to one of theirs.
    """

    def __init__(self, model: ActorCritic, config: Config, *, stream: int = 0) -> None:
        self.model = model
        self.config = config
        self.needs = config.algorithm.needs
        if self.needs.reuse is not None and not hasattr(config.algorithm, "estimate"):
            raise ConfigError(f"algorithm={config.algo} asks for needs.reuse and lacks estimate, which "
                              "vantage.algorithms.interface.MinibatchAlgorithm describes")
        self.flat = FlatParameters(model)
        device = self.flat.vector.device
        self.reward_normalizer = RewardNormalizer(config.env.num_envs, device) if config.env.reward_norm else None
        decay = self.needs.average_decay
        self.average = None if decay is None else AveragePolicy(model, decay)
        self.generator = torch.Generator(device).manual_seed(derive_seed(config.run.seed, "learner", stream))
        self.minibatch_generator = torch.Generator().manual_seed(derive_seed(config.run.seed, "minibatches", stream))
        self.sink: GradientSink = OwnWeights(self.flat, config.optimizer, self.average)

    @torch.enable_grad()  # an environment with a network of its own may have disabled gradients for the process
    def update(self, rollout: Rollout, step: int, *, replayed: bool = False) -> dict[str, float]:
        """Learn from `rollout` with the coefficients of `step`; returns what to log, means over the gradient steps.

        One gradient step, or one for each minibatch if the algorithm reuses rollouts. Raises NonFiniteError, without
        the step, if the loss or the gradient is not finite.
        """
        reuse = self.needs.reuse
        if reuse is not None:
            return self._update_in_minibatches(self._scaled(rollout), step, reuse)
        metrics = self._descend(self.loss(rollout, step, replayed=replayed), rollout, step)
        if rollout.activation_cache is not None:
            rollout.activation_cache.clear()  # outputs of the weights before this update: stale in another pass
        return metrics

    @torch.enable_grad()
    def loss(self, rollout: Rollout, step: int, *, replayed: bool = False) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The algorithm's loss on `rollout`, with the graph of the model's parameters."""
        algorithm = cast(Algorithm, self.config.algorithm)
        return algorithm.loss(self.model, self._scaled(rollout), self._coefficients(step, replayed=replayed))

    def _update_in_minibatches(self, rollout: Rollout, step: int, reuse: Reuse) -> dict[str, float]:
        algorithm, update = cast(MinibatchAlgorithm, self.config.algorithm), self._coefficients(step)
        if rollout.values is None:
            rollout = by_current_policy(rollout, self.model)
        advantages, targets = algorithm.estimate(rollout, update)
        rows: list[dict[str, float]] = []
        for minibatch in minibatches(rollout, advantages, targets, self.model, size=reuse.minibatch_size,
                                     epochs=reuse.epochs, generator=self.minibatch_generator,
                                     rank=self.sink.rank, num_ranks=self.sink.num_ranks):
            rows.append(self._descend(algorithm.loss(self.model, minibatch, update), minibatch, step))
            if reuse.max_kl is not None and rows[-1].get(APPROX_KL, 0.0) > reuse.max_kl:
                break
        names = dict.fromkeys(name for row in rows for name in row)  # an algorithm may log some of them now and then
        return {name: fmean(row[name] for row in rows if name in row) for name in names}

    def _coefficients(self, step: int, *, replayed: bool = False) -> Update:
        average = None if self.average is None else self.average.model
        return Update(step, self.config.schedule_steps, average, self.generator, replayed, self._total)

    def _total(self, values: Tensor) -> Tensor:
        return self.sink.all_gather(values.double()).sum(0).to(values.dtype)

    def _scaled(self, rollout: Rollout) -> Rollout:
        if self.reward_normalizer is None:
            return rollout
        return replace(rollout, rewards=self.reward_normalizer.scale(rollout.rewards))

    def _descend(self, loss_and_terms: tuple[Tensor, Mapping[str, Tensor]], batch: Rollout | Minibatch,
                 step: int) -> dict[str, float]:
        """One gradient step; returns what to log. ConfigError if an algorithm of one's own returns anything else."""
        try:
            loss, terms = loss_and_terms
            keeps_contract = not loss.dim() and all(isinstance(term, Tensor) for term in terms.values())
        except (TypeError, ValueError, AttributeError):
            keeps_contract = False
        if not keeps_contract:
            raise ConfigError(f"the loss of algorithm={self.config.algo} must return a scalar tensor and a mapping of "
                              "names to scalar tensors to log, as vantage.algorithms.interface.Algorithm describes")
        backward(loss, self.flat.parameters)
        metrics = {name: value.item() for name, value in terms.items()}
        lr = self.config.at("lr", step)
        norm, mean_loss = self.sink.apply(self.flat.gradient, batch.valid.sum().item(), loss.item(), metrics, lr=lr,
                                          max_grad_norm=self.config.at("max_grad_norm", step))
        metrics |= {"train/grad_norm": norm, "train/learning_rate": lr}
        if not (math.isfinite(norm) and math.isfinite(mean_loss)):
            raise NonFiniteError(_non_finite_message(mean_loss, metrics, batch, step))
        return metrics

    def observe(self, rollout: Rollout, step: int) -> None:
        """Update the running statistics of all normalisers from a fresh rollout, after the update on it.

        Ranks exchange those of their rollouts, so that all have the same, of all environments.
        """
        batches, rewards = self.model.batches(rollout.obs), self.reward_normalizer
        if rewards is not None:
            batches.append((rewards.merge, rewards.batch(rollout.rewards, rollout.is_first,
                                                         self.config.at("gamma", step))))
        merge_batches(batches, self.sink.all_gather)
        if self.config.policy.norm == "batch":
            self.model.update_batch_norms()

    def running(self) -> Iterator[tuple[str, RunningStats]]:
        """All running statistics, by name: those of the model's normalisers and of returns."""
        yield from self.model.running()
        if self.reward_normalizer is not None:
            yield "rewards", self.reward_normalizer

    def initialize_from(self, policy: Mapping[str, Tensor], rewards: Mapping[str, Tensor] | None) -> None:
        """Start from another model's tensors and, if given, its reward statistics; the optimiser starts fresh."""
        self.model.load_state_dict(policy)
        if self.average is not None:
            self.average.vector.copy_(self.flat.vector)
        if self.reward_normalizer is not None and rewards is not None:
            self.reward_normalizer.load_state_dict(rewards)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of a checkpoint, by group: model, optimizer, rewards, average, minibatches."""
        tensors = {"model": dict(self.model.state_dict()), "optimizer": self.sink.optimizer_tensors()}
        if self.reward_normalizer is not None:
            tensors["rewards"] = dict(self.reward_normalizer.state_dict())
        if self.average is not None:
            tensors["average"] = {"vector": self.average.vector}
        if self.needs.reuse is not None:
            tensors["minibatches"] = {"generator": self.minibatch_generator.get_state()}
        return tensors

    def policy_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Copies of those tensors of a checkpoint that a policy needs."""
        return {group: {name: tensor.clone() for name, tensor in tensors.items()}
                for group, tensors in self.tensors().items() if group in ("model", "rewards")}

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore `tensors` in place: the parameters stay views of the flat vector."""
        self.model.load_state_dict(tensors["model"])
        self.sink.load_optimizer(tensors["optimizer"])
        if self.reward_normalizer is not None:
            self.reward_normalizer.load_state_dict(tensors["rewards"])
        if self.average is not None:
            self.average.vector.copy_(tensors["average"]["vector"])
        if self.needs.reuse is not None:
            self.minibatch_generator.set_state(tensors["minibatches"]["generator"])


def _non_finite_message(loss: float, metrics: Mapping[str, float], batch: Rollout | Minibatch, step: int) -> str:
    terms = ", ".join(f"{name.removeprefix('train/')} {value:.4g}" for name, value in metrics.items())
    learned = batch.rewards if isinstance(batch, Rollout) else batch.targets
    if learned.numel():  # a rank may have no part of a minibatch
        kind = "rewards" if isinstance(batch, Rollout) else "value targets"
        terms += f"; {kind} of this process from {learned.min().item():.4g} to {learned.max().item():.4g}"
    return (f"the loss at step {step} is not finite (loss {loss:.4g}, {terms}). The weights were not changed. Try a "
            "lower --lr, --max-grad-norm 0.5, or --obs-norm / --reward-norm if observations or rewards are large")
