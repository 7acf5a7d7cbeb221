"""Weights, and one update of them from one rollout. No environment, no file; others may share the weights."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from vantage.algorithms.interface import Update
from vantage.config import Config
from vantage.errors import NonFiniteError
from vantage.learning.flat_parameters import FlatParameters
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.learning.sinks import LOSS, GradientSink, OwnWeights
from vantage.models.actor_critic import ActorCritic
from vantage.seeding import derive_seed
from vantage.types import Rollout


def restore_generator(generator: torch.Generator, state: Tensor) -> bool:
    """Continue a generator from `state`; False, and nothing changes, where that is of another kind of device."""
    if state.shape != generator.get_state().shape:
        return False
    generator.set_state(state)
    return True


class AveragePolicy:
    """A copy of a model whose weights follow those of the original, and which shares its running statistics.

    θ_a ← α θ_a + (1 - α) θ                                         Wang et al. 2017, arXiv:1611.01224, section 3.3
    """

    def __init__(self, model: ActorCritic, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model)
        for (_, own), (_, other) in zip(self.model.running(), model.running(), strict=True):
            own.share(other)
        self.vector = FlatParameters(self.model).vector
        self.model.requires_grad_(False)



class Learner:
    """Improves `model` by the algorithm's loss, one rollout an update; a sink moves the weights.

    By default the sink is `OwnWeights`; runtimes whose processes share weights set `sink` to one of theirs.
    """

    def __init__(self, model: ActorCritic, config: Config, *, stream: int = 0) -> None:
        self.model = model
        self.config = config
        self.needs = config.algorithm.needs
        self.flat = FlatParameters(model)
        device = self.flat.vector.device
        self.reward_normalizer = RewardNormalizer(config.env.num_envs, device) if config.env.reward_norm else None
        decay = self.needs.average_decay
        self.average = None if decay is None else AveragePolicy(model, decay)
        self.generator = torch.Generator(device).manual_seed(derive_seed(config.run.seed, "learner", stream))
        average = None if self.average is None else self.average.vector
        self.sink: GradientSink = OwnWeights(self.flat.vector, config.optimizer, average, decay or 0.0)

    def update(self, rollout: Rollout, step: int, *, replayed: bool = False) -> dict[str, float]:
        """One gradient step on `rollout`, with the coefficients of `step`; returns what to log.

        Raises NonFiniteError, with the weights unchanged, if the loss or the gradient is not finite.
        """
        loss, terms = self.loss(rollout, step, replayed=replayed)
        self.flat.backward(loss)
        metrics = {LOSS: loss.item(), **{name: value.item() for name, value in terms.items()}}
        lr = self.config.at("lr", step)
        norm = self.sink.apply(self.flat.gradient, rollout.valid.sum().item(), metrics, lr=lr,
                               max_grad_norm=self.config.at("max_grad_norm", step))
        mean_loss = metrics.pop(LOSS)
        metrics |= {"train/grad_norm": norm, "train/learning_rate": lr}
        if not (math.isfinite(norm) and math.isfinite(mean_loss)):
            raise NonFiniteError(_non_finite_message(mean_loss, metrics, rollout, step))
        if rollout.activation_cache is not None:
            rollout.activation_cache.clear()  # outputs of the weights before this update: stale in another pass
        return metrics

    def loss(self, rollout: Rollout, step: int, *, replayed: bool = False) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The algorithm's loss on `rollout`, with the graph of the model's parameters."""
        if self.reward_normalizer is not None:
            rollout = replace(rollout, rewards=self.reward_normalizer.scale(rollout.rewards))
        update = Update(step, self.config.schedule_steps, None if self.average is None else self.average.model,
                        self.generator, replayed)
        return self.config.algorithm.loss(self.model, rollout, update)

    def observe(self, rollout: Rollout, step: int) -> None:
        """Update the running statistics of all normalisers from a fresh rollout, after the update on it."""
        if self.reward_normalizer is not None:
            self.reward_normalizer.update(rollout.rewards, rollout.is_first, self.config.at("gamma", step))
        policy = self.config.policy
        if policy.obs_norm or policy.image_norm or policy.norm == "batch":
            self.model.observe(rollout.obs)

    def initialize_from(self, policy: Mapping[str, Tensor], rewards: Tensor | None) -> None:
        """Start from another model's tensors and, if given, its reward statistics; the optimiser starts fresh."""
        self.model.load_state_dict(policy)
        if self.average is not None:
            self.average.vector.copy_(self.flat.vector)
        if self.reward_normalizer is not None and rewards is not None:
            self.reward_normalizer.stats.copy_(rewards)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """The tensors of a checkpoint, by group: model, optimizer, rewards, average, draws."""
        tensors = {"model": dict(self.model.state_dict()), "optimizer": self.sink.optimizer_tensors()}
        if self.reward_normalizer is not None:
            tensors["rewards"] = self.reward_normalizer.tensors()
        if self.average is not None:
            tensors["average"] = {"vector": self.average.vector}
            tensors["draws"] = {"generator": self.generator.get_state()}
        return tensors

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore `tensors` in place: the parameters stay views of the flat vector."""
        self.model.load_state_dict(tensors["model"])
        self.sink.load_optimizer(tensors["optimizer"])
        if self.reward_normalizer is not None:
            self.reward_normalizer.load(tensors["rewards"])
        if self.average is not None:
            self.average.vector.copy_(tensors["average"]["vector"])
            restore_generator(self.generator, tensors["draws"]["generator"])


def _non_finite_message(loss: float, metrics: Mapping[str, float], rollout: Rollout, step: int) -> str:
    terms = ", ".join(f"{name.removeprefix('train/')} {value:.4g}" for name, value in metrics.items())
    rewards = rollout.rewards
    return (f"the loss at step {step} is not finite (loss {loss:.4g}, {terms}; rewards of this process from "
            f"{rewards.min().item():.4g} to {rewards.max().item():.4g}). The weights were not changed. Try a lower "
            "--lr, --max-grad-norm 0.5, or --obs-norm / --reward-norm if observations or rewards are large")
