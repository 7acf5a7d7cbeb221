"""`Learner`: the weights, and one update of them from one rollout.

No environments or files here. Its tensors for checkpoints are in `learner_state`, its running
statistics in `running_statistics`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from vantage._host.seeding import derive_seed
from vantage.algorithms.a2c import A2C
from vantage.algorithms.interface import Algorithm, MinibatchAlgorithm, Reuse, Update
from vantage.algorithms.ppo import PPO
from vantage.errors import ConfigError, NonFiniteError
from vantage.learning.adaptive_rate import APPROX_KL, AdaptiveRate
from vantage.learning.array_update import ArrayUpdates
from vantage.learning.cloning import Cloning, DemoLoss
from vantage.learning.config import LearningConfig
from vantage.learning.contract import check_estimate, check_loss
from vantage.learning.curiosity import add_to, make_curiosity
from vantage.learning.finite import with_cause
from vantage.learning.gradients import OwnWeights, backward
from vantage.learning.minibatches import Pieces, by_current_policy, minibatches
from vantage.learning.modules import (
    Buffers,
    critic_of,
    make_module,
    parameters_of,
    restored_on_error,
)
from vantage.learning.reward_normalizer import RewardNormalizer
from vantage.learning.step_metrics import LOSS, Number, StepLoss, StepMetrics, check_finite, means
from vantage.learning.value_targets import ValueTargets
from vantage.learning.weights import AveragePolicy, FlatParameters, GradientSink
from vantage.models.actor_critic import ActorCritic
from vantage.types import Rollout


class Learner:
    """Updates `model` and the algorithm's module by the gradient of its loss on rollouts.

    `sink` applies gradients to the weights: by default `OwnWeights`. Runtimes whose processes share
    weights replace it.
    """

    def __init__(self, model: ActorCritic, config: LearningConfig, *, stream: int = 0) -> None:
        self.model = model
        self.config = config
        self.needs = config.algorithm.needs
        if self.needs.reuse is not None and not hasattr(config.algorithm, "estimate"):
            raise ConfigError(f"algorithm={config.algo} asks for needs.reuse and lacks estimate, "
                              "which vantage.algorithms.interface.MinibatchAlgorithm describes")
        self.module = make_module(config, model)
        self.buffers = Buffers.of(self.module)
        self.flat = FlatParameters(parameters_of(model, self.module), critic_of(model))
        self.arrays = ArrayUpdates(model, self.flat)
        device = self.flat.vector.device
        self.reward_normalizer: RewardNormalizer | None = None
        if config.env.reward_norm:
            num_rows = config.envs_per_process * model.spec.agents
            self.reward_normalizer = RewardNormalizer(num_rows, device)
        self.cloning: Cloning | None = None
        """The demonstrations that losses include, with the coefficient demo_coef."""
        self.demo_digest: Tensor | None = None
        """Of the demonstrations that it has learned from, also once they no longer count."""
        self.curiosity = make_curiosity(config, model)
        self.rate = AdaptiveRate.of(config.optimizer.lr)
        """The learning rate, if it follows the KL divergence."""
        decay = self.needs.average_decay
        self.average = None if decay is None else AveragePolicy(model, decay)
        self.ema = None if config.run.eval_ema == 0 else AveragePolicy(model, config.run.eval_ema)
        """The policy with averaged weights that evaluations and saved policies have."""
        self.value_targets: ValueTargets | None = None
        if model.value_norm is not None:
            copies = [each.model for each in (self.average, self.ema) if each is not None]
            self.value_targets = ValueTargets(model.value_norm, [model, *copies])
        seed = derive_seed(config.run.seed, "learner", stream)
        self.generator = torch.Generator(device).manual_seed(seed)
        minibatch_seed = derive_seed(config.run.seed, "minibatches", stream)
        self.minibatch_generator = torch.Generator().manual_seed(minibatch_seed)
        self.sink: GradientSink = OwnWeights(self.flat, config.optimizer, self.average)

    def change(self, config: LearningConfig) -> None:
        """Learn with the numbers of `config` from the next update on."""
        self.config = config
        self.needs = config.algorithm.needs
        self.sink.change(config.optimizer)
        self.rate = AdaptiveRate.of(config.optimizer.lr, self.rate)
        if self.average is not None and self.needs.average_decay is not None:
            self.average.decay = self.needs.average_decay

    # An environment with a network of its own may have disabled gradients for the process.
    @torch.enable_grad()
    def update(self, rollout: Rollout, step: int, *, replayed: bool = False) -> dict[str, float]:
        """Learn from `rollout` with the coefficients of `step`.

        Takes one gradient step, or one for each minibatch if the algorithm reuses rollouts; returns
        the means of their metrics. Raises NonFiniteError if the loss or the gradient of a step is
        not finite. After an exception in a loss, weights and buffers are those before the update.
        """
        values = self.value_targets
        if self.curiosity is not None:
            self.curiosity.begin(rollout, self.config, step, self.sink)
        if values is not None and values.begins():
            self._record_targets(rollout, step)
            values.follow(self.sink, self.config.algo)
        try:
            with restored_on_error(self.buffers, None if self.ema is None else self.ema.vector):
                if self.needs.reuse is not None:
                    metrics = self._update_in_minibatches(self._prepared(rollout, step), step,
                                                          self.needs.reuse)
                else:
                    metrics = self._update_once(rollout, step, replayed=replayed)
        except NonFiniteError as error:
            raise with_cause(error, self.model, rollout.obs, rollout.behaviour) from None
        if self.buffers is not None and self.sink.num_ranks > 1:
            self.buffers.merge(self.sink.all_gather(self.buffers.read()))
        if values is not None:
            values.follow(self.sink, self.config.algo)
        if self.curiosity is not None:
            metrics |= self.curiosity.learn(rollout, self.sink)
        if self.rate is not None:
            self.rate.follow(metrics)
        if rollout.activation_cache is not None:
            rollout.activation_cache.clear()  # of the weights before this update
        return metrics

    def _update_once(self, rollout: Rollout, step: int, *, replayed: bool) -> dict[str, float]:
        """Take one gradient step on all of `rollout`; returns its metrics."""
        if self._uses_arrays(rollout, step):
            loss = self.arrays.of_rollout(cast(A2C, self.config.algorithm),
                                          self._prepared(rollout, step), self._coefficients(step))
        else:
            loss = self._backward(self._demo_loss(step),
                                  self.loss(rollout, step, replayed=replayed), rollout.valid)
        steps = StepMetrics(self.flat.vector.device)
        steps.add(self._move(loss, "rewards", rollout.rewards, step))
        return means(steps.read())

    @torch.enable_grad()
    def loss(self, rollout: Rollout, step: int, *,
             replayed: bool = False) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The algorithm's loss on `rollout`, with the graph of the model's parameters."""
        algorithm = cast(Algorithm, self.config.algorithm)
        return algorithm.loss(self.model, self._prepared(rollout, step),
                              self._coefficients(step, replayed=replayed))

    def _record_targets(self, rollout: Rollout, step: int) -> None:
        """Record the value targets of `rollout` without learning from it."""
        if self.needs.reuse is None:
            self.loss(rollout, step)
        else:
            self._estimated(self._prepared(rollout, step), self._coefficients(step))

    def _estimated(self, rollout: Rollout, update: Update,
                   ) -> tuple[Rollout, Tensor, Tensor, Mapping[str, Tensor]]:
        """`rollout` by the current policy, and what the algorithm's `estimate` returns for it."""
        algorithm = cast(MinibatchAlgorithm, self.config.algorithm)
        if rollout.values is None or rollout.current is not None:
            rollout = by_current_policy(rollout, self.model)
        with torch.no_grad():
            estimated = algorithm.estimate(rollout, update)
        length, num_envs = rollout.rewards.shape
        advantages, targets, extra = check_estimate(
            estimated, self.config.algo, length=length, num_envs=num_envs)
        update.record_targets(targets, rollout.valid)
        return rollout, advantages, targets, extra

    def _update_in_minibatches(self, rollout: Rollout, step: int, reuse: Reuse) -> dict[str, float]:
        update = self._coefficients(step)
        rollout, advantages, targets, extra = self._estimated(rollout, update)
        steps = StepMetrics(self.flat.vector.device)

        def read() -> list[dict[str, float]]:
            """The metrics of all steps so far. NonFiniteError for the first that is not finite."""
            rows = steps.read()
            for row in rows:
                check_finite(row, "value targets", targets, step)
            return rows

        losses = self._gradients(rollout, advantages, targets, extra, update, reuse)
        with self.sink.tentative():
            try:
                for loss in losses:
                    metrics = self._move(loss, "value targets", targets, step)
                    steps.add(metrics)
                    kl = metrics.get(APPROX_KL, 0.0)
                    if reuse.max_kl is not None and float(kl) > reuse.max_kl:
                        break
            except Exception:
                read()  # the loss may have failed because the weights are not finite
                raise
            return means(read())

    def _gradients(self, rollout: Rollout, advantages: Tensor, targets: Tensor,
                   extra: Mapping[str, Tensor], update: Update, reuse: Reuse) -> Iterator[StepLoss]:
        """The loss of each minibatch, after its gradient has been written."""
        algorithm = cast(MinibatchAlgorithm, self.config.algorithm)
        pieces = Pieces(reuse.minibatch_size, reuse.epochs, self.minibatch_generator,
                        self.sink.rank, self.sink.num_ranks)
        if self._uses_arrays(rollout, update.step):
            yield from self.arrays.of_minibatches(cast(PPO, algorithm), rollout, advantages,
                                                  targets, pieces, update)
            return
        for minibatch in minibatches(rollout, advantages, targets, self.model, pieces, extra):
            yield self._backward(self._demo_loss(update.step),
                                 algorithm.loss(self.model, minibatch, update), minibatch.valid)

    def _uses_arrays(self, rollout: Rollout, step: int) -> bool:
        """Whether `arrays` compute the gradient of the loss on `rollout`."""
        return (self.module is None and self._demo_coef(step) == 0
                and self.arrays.supports(self.config.algorithm, rollout.rewards.numel()))

    def _demo_coef(self, step: int) -> float:
        return 0.0 if self.cloning is None else self.config.at("demo_coef", step)

    def _demo_loss(self, step: int) -> DemoLoss | None:
        """A loss on demonstrations, if they still count at this step.

        It is computed before the algorithm's, whose batch BatchNorm then observes.
        """
        coef = self._demo_coef(step)
        if self.cloning is None or coef == 0:
            return None
        return DemoLoss(coef, self.cloning.sampled_loss(self.generator))

    def _coefficients(self, step: int, *, replayed: bool = False) -> Update:
        return Update(
            step=step, steps=self.config.schedule_steps,
            average=None if self.average is None else self.average.model,
            generator=self.generator, replayed=replayed, total=self._total, model=self.model,
            module=self.module, record_targets=self._record, add_intrinsic=add_to(self.curiosity))

    def _record(self, targets: Tensor, valid: Tensor) -> None:
        if self.value_targets is not None:
            self.value_targets.record(targets, valid)

    def _total(self, values: Tensor) -> Tensor:
        return self.sink.all_gather(values.double()).sum(0).to(values.dtype)

    def _prepared(self, rollout: Rollout, step: int) -> Rollout:
        """`rollout` with scaled rewards plus γ `bootstraps`, and with inputs if they are needed."""
        if self.needs.next_inputs:
            stacks = self.model.stacks(rollout.obs, rollout.is_first, rollout.state)
            rollout = replace(rollout, inputs=self.model.inputs(stacks))
        values = self.value_targets
        rewards = rollout.rewards
        if self.reward_normalizer is not None and values is None:
            rewards = self.reward_normalizer.scale(rewards)
        if rollout.bootstraps is not None:
            rewards = rewards + self.config.at("gamma", step) * rollout.bootstraps
        rollout = replace(rollout, rewards=rewards, bootstraps=None)
        return rollout if values is None else values.scaled(rollout)

    def _backward(self, demo: DemoLoss | None, result: object, valid: Tensor) -> StepLoss:
        """Write the gradient of what the loss of the algorithm has returned, and of `demo`.

        Raises ConfigError if that is not a scalar and a mapping of scalars.
        """
        loss, terms = check_loss(result, self.config.algo)
        metrics = {name: term.detach() for name, term in terms.items()}
        if demo is not None:
            loss = loss + demo.coef * demo.value
            metrics["train/demo_loss"] = demo.value.detach()
        backward(loss, self.flat.parameters)
        return StepLoss(loss.detach(), metrics, valid.sum())

    def _move(self, loss: StepLoss, kind: str, learned: Tensor, step: int) -> dict[str, Number]:
        """Move the weights by the gradient that has been written.

        Returns metrics and loss, as tensors where the host has not read them. Raises NonFiniteError
        with the range of `learned`, the rewards or value targets that `kind` names.
        """
        metrics = dict(loss.metrics)
        lr = self.config.at("lr", step) if self.rate is None else self.rate.rate
        norm, mean_loss = self.sink.apply(
            self.flat.gradient, loss.num_valid, loss.value, metrics, lr=lr,
            max_grad_norm=self.config.at("max_grad_norm", step))
        metrics |= {"train/grad_norm": norm, "train/learning_rate": lr, LOSS: mean_loss}
        if not isinstance(norm, Tensor):
            check_finite(metrics, kind, learned, step)
        if self.ema is not None:
            self.ema.follow(self.flat.vector)
        return metrics

    def restart_averages(self) -> None:
        """Let averaged weights begin from the current ones."""
        for average in filter(None, (self.average, self.ema)):
            average.vector.copy_(self.flat.vector[:len(average.vector)])

    @property
    def policy(self) -> ActorCritic:
        """The model to evaluate and to save: the averaged one with eval_ema."""
        return self.model if self.ema is None else self.ema.model
