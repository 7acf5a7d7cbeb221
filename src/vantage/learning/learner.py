"""Weights, optimiser, and one update from one rollout. No environment, no file; others may share the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from vantage.config import Config
from vantage.errors import NonFiniteError
from vantage.learning.average import AveragePolicy, follow
from vantage.learning.barrier import JointWeights, Member
from vantage.learning.flat_parameters import FlatParameters
from vantage.learning.losses import actor_critic_loss, replay_loss
from vantage.learning.optimizers import Optimizer, make_optimizer
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.learning.shared_memory import SharedWeights, statistics_of
from vantage.models.actor_critic import ActorCritic
from vantage.seeding import derive_seed
from vantage.types import Rollout


def check_optimizer(config: Config) -> None:
    """ConfigError where no learner of `config` could have its optimiser."""
    if config.runtime == "hogwild":
        statistics_of(config.optimizer)
    _optimizer(config, torch.zeros(1))


def _optimizer(config: Config, vector: Tensor, shared: Mapping[str, Tensor] | None = None) -> Optimizer:
    return make_optimizer(config.optimizer, vector, eps=config.optimizer_eps, decay=config.optimizer_decay,
                          shared=shared)


def continue_draws(generator: torch.Generator, state: Tensor) -> bool:
    """Go on with the draws of a generator that had `state`; False, and nothing changes, if that was on another kind of
    device: a CPU's state is nothing to a GPU."""
    if state.shape != generator.get_state().shape:
        return False
    generator.set_state(state)
    return True


class Learner:
    """Improves `model` in place, one rollout an update.

    With `shared` it is one of many (A3C): `pull` makes the model a copy of the shared weights, and an update moves
    those, not the copy, by the gradient that it found on the copy. `worker` says whose statistics it moves. ACER's has
    an average policy, and random draws from a `stream` of its own.
    """

    def __init__(self, model: ActorCritic, config: Config, shared: SharedWeights | None = None,
                 worker: int = 0, stream: int = 0) -> None:
        self.model = model
        self.config = config
        self.flat = FlatParameters(model)
        self.shared = shared
        self._worker = worker
        device = self.flat.vector.device
        self.reward_normalizer = RewardNormalizer(config.num_envs, device) if config.reward_norm else None
        self.average = AveragePolicy(model) if config.algo == "acer" else None
        self.generator = torch.Generator(device).manual_seed(derive_seed(config.seed, "learner", stream))
        self._moved = self.flat.vector if shared is None else shared.vector
        self.optimizer = _optimizer(config, self._moved, None if shared is None else shared.statistics(worker))
        self._pulled_updates = 0
        self._joint: JointWeights | None = None
        self.member: Member | None = None
        """Its place among learners of other processes that make one update together with it."""
        if shared is not None:
            shared.attach(model, self.reward_normalizer, worker)

    def join(self, joint: JointWeights, place: int) -> Member:
        """From now on make each update together with the learners at the other places; the first one's weights hold.

        What an update moved is seen by all once they have met after it.
        """
        self._joint, self.member = joint, joint.member(place)
        self.flat.move(self.member.vector, self.member.gradient, keep=place == 0)
        self.optimizer = self.member.optimizer(self.config)
        return self.member

    def pull(self) -> None:
        """Make the model a copy of the shared weights and of what all normalisers have seen."""
        assert self.shared is not None
        self._pulled_updates = self.shared.updates
        self.flat.vector.copy_(self.shared.vector)
        if self.average is not None:
            self.average.vector.copy_(self.shared.average)
        self.shared.pull_normalizers(self.model, self.reward_normalizer)

    def push(self) -> None:
        """Make the shared weights and normalisers a copy of the model's: how a run begins."""
        assert self.shared is not None
        self.shared.vector.copy_(self.flat.vector)
        if self.average is not None:
            self.shared.average.copy_(self.average.vector)
        self.shared.push_normalizers(self.model, self.reward_normalizer)

    def begin_from(self, policy: Mapping[str, Tensor], rewards: Tensor | None) -> None:
        """Begin from another's model and, if given, its reward normaliser's moments; the optimiser knows nothing."""
        self.model.load_state_dict(policy)
        if self.average is not None:
            self.average.vector.copy_(self.flat.vector)
        if self.reward_normalizer is not None and rewards is not None:
            self.reward_normalizer.moments.copy_(rewards)
        if self.shared is not None:
            self.push()

    def update(self, rollout: Rollout, step: int, *, replayed: bool = False) -> dict[str, float]:
        """One gradient step on `rollout`, with the coefficients of `step`; returns what to log.

        Raises NonFiniteError before anything is changed if the loss or the gradient is not finite.
        """
        loss, terms = self.loss(rollout, step, replayed=replayed)
        self.flat.backward(loss)
        mean_loss, *means = values = [value.item() for value in (loss, *terms.values())]
        max_norm = self.config.at("max_grad_norm", step)
        if self.member is None:
            norm = self.flat.clip_gradient(max_norm)
        else:
            mean_loss, *means = self.member.merge(rollout.valid.sum().item(), values)
            norm = self.member.clip_gradient(max_norm)
        metrics = dict(zip(terms, means, strict=True))
        metrics |= {"train/grad_norm": norm, "train/learning_rate": self.config.at("lr", step)}
        if not (math.isfinite(norm) and math.isfinite(mean_loss)):
            whose = "" if self.member is None else " of this process"
            raise NonFiniteError(_non_finite_message(mean_loss, metrics, rollout, step, whose))
        self._step(metrics)
        return metrics

    def _step(self, metrics: dict[str, float]) -> None:
        lr, decay = metrics["train/learning_rate"], self.config.average_decay
        if self.member is not None:
            self.optimizer.step(self.member.merged, lr)
            return
        if self.shared is None:
            self.optimizer.step(self.flat.gradient, lr)
            if self.average is not None:
                follow(self.average.vector, self.flat.vector, decay)
            return
        gradient = self.flat.gradient.to(self._moved.device)
        if self._worker == 0 and self.shared.gradient is not None:
            self.shared.gradient.copy_(gradient)
        with self.shared.turn(self._worker):
            metrics["train/policy_lag"] = self.shared.updates - self._pulled_updates
            self.optimizer.step(gradient, lr)
            if self.average is not None:
                follow(self.shared.average, self.shared.vector, decay)

    def loss(self, rollout: Rollout, step: int, *, replayed: bool = False) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The algorithm's loss on `rollout`, with the graph of the model's parameters."""
        rewards = rollout.rewards
        if self.config.reward_terminates:
            rollout = replace(rollout, terminated=rollout.terminated | (rewards != 0))
        if self.reward_normalizer is not None:
            rewards = self.reward_normalizer.scale(rewards)
        if self.average is None:
            return actor_critic_loss(self.model, rollout, rewards, self.config, step)
        return replay_loss(self.model, self.average.model, rollout, rewards, self.config, step,
                           generator=self.generator, burn_in=self.config.burn_in if replayed else 0)

    def observe(self, rollout: Rollout, step: int) -> None:
        """Let the running normalisers learn from a fresh rollout, after the update that it served."""
        if self.reward_normalizer is not None:
            self.reward_normalizer.update(rollout.rewards, rollout.is_first, self.config.at("gamma", step))
        if self.config.obs_norm or self.config.image_norm or self.config.norm == "batch":
            self.model.observe(rollout.obs)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What a checkpoint must hold, a name a file: model, optimizer, rewards."""
        tensors = {"model": dict(self.model.state_dict()),
                   "optimizer": self._statistics()}
        if self.reward_normalizer is not None:
            tensors["rewards"] = self.reward_normalizer.tensors()
        if self.average is not None:
            tensors["average"] = {"vector": self.average.vector}
            tensors["draws"] = {"generator": self.generator.get_state()}
        return tensors

    def _statistics(self) -> dict[str, Tensor]:
        """The optimiser's, of all that shared or joint weights have."""
        if self._joint is not None:
            return self._joint.statistics()
        return self.optimizer.tensors() if self.shared is None else self.shared.all_statistics()

    def load(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take up what `tensors` gave, in place: the parameters stay views of the flat vector."""
        self.model.load_state_dict(tensors["model"])
        whole = self._joint or self.shared
        (self.optimizer.load if whole is None else whole.load_statistics)(tensors["optimizer"])
        if self.reward_normalizer is not None:
            self.reward_normalizer.load(tensors["rewards"])
        if self.average is not None:
            self.average.vector.copy_(tensors["average"]["vector"])
            continue_draws(self.generator, tensors["draws"]["generator"])
        if self.shared is not None:
            self.push()


def _non_finite_message(loss: float, metrics: Mapping[str, float], rollout: Rollout, step: int, whose: str) -> str:
    terms = ", ".join(f"{name.removeprefix('train/')} {value:.4g}" for name, value in metrics.items())
    rewards = rollout.rewards
    return (f"the loss at step {step} is not finite (loss {loss:.4g}, {terms}; rewards{whose} from "
            f"{rewards.min().item():.4g} to {rewards.max().item():.4g}). The weights were not changed. Try a lower "
            "--lr, --max-grad-norm 0.5, or --obs-norm / --reward-norm if observations or rewards are large")
