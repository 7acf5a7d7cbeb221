"""Gradients of A2C and PPO for small MLPs in NumPy; autograd computes those of all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast

import torch
from numpy import ndarray
from torch import Tensor

from vantage.algorithms.a2c import A2C
from vantage.algorithms.distributions import Categorical, Gaussian
from vantage.algorithms.interface import Update
from vantage.algorithms.loss_gradients import Steps, a2c_gradient, evaluate, ppo_gradient
from vantage.algorithms.losses import a2c_estimate, masked_mean
from vantage.algorithms.ppo import PPO
from vantage.learning.minibatches import Pieces, whole_batch
from vantage.learning.step_metrics import StepLoss
from vantage.learning.weights import FlatParameters
from vantage.models.actor_critic import ActorCritic
from vantage.models.mlp_arrays import MlpArrays, fits
from vantage.types import Minibatch, Rollout

_MOST_STEPS = 1024
"""Steps of a gradient up to which NumPy is faster than torch."""


class ArrayUpdates:
    """The gradients of A2C's and PPO's losses for a small MLP, written to `weights.gradient`."""

    def __init__(self, model: ActorCritic, weights: FlatParameters) -> None:
        self._model = model
        self._weights = weights
        self._mlp: MlpArrays | None = None
        self._mlp_of: Tensor | None = None

    @property
    def mlp(self) -> MlpArrays | None:
        """The model in NumPy, if it `fits`; made anew where the weights have moved in memory."""
        if self._mlp_of is not self._weights.vector:
            self._mlp_of = self._weights.vector
            self._mlp = MlpArrays(self._model) if fits(self._model) else None
        return self._mlp

    def supports(self, algorithm: object, num_steps: int) -> bool:
        """Whether these are the gradients of `algorithm`'s loss on `num_steps` steps.

        A subclass may have a loss of its own, which is left to autograd.
        """
        if (self.mlp is None or not isinstance(self._model.distribution, Categorical | Gaussian)
                or not all(parameter.requires_grad for parameter in self._weights.parameters)):
            return False
        if isinstance(algorithm, A2C):
            return type(algorithm).loss is A2C.loss and num_steps <= _MOST_STEPS
        return (isinstance(algorithm, PPO) and type(algorithm).loss is PPO.loss
                and not (algorithm.advantage_norm and algorithm.advantage_norm_over == "minibatch")
                and min(algorithm.minibatch_size, num_steps) <= _MOST_STEPS)

    def of_rollout(self, a2c: A2C, rollout: Rollout, update: Update) -> StepLoss:
        """A2C's loss, after its gradient has been written."""
        model = self._model
        mlp = cast(MlpArrays, self.mlp)
        distribution = cast(Categorical | Gaussian, model.distribution)
        length, num_envs = rollout.rewards.shape
        num_steps = length * num_envs
        (inputs,) = model.inputs(model.stacks(rollout.obs, rollout.is_first, rollout.state))
        mask = rollout.action_mask
        params, values = mlp.forward(inputs.flatten(0, 1).numpy(),
                                     None if mask is None else mask.flatten(0, 1).numpy())
        actions = rollout.actions.flatten(0, 1).numpy()
        policy = evaluate(distribution, params[:num_steps], actions)
        advantages, targets, rhos = a2c_estimate(
            torch.from_numpy(policy.log_probs).view(length, num_envs),
            torch.from_numpy(values).view(length + 1, num_envs),
            **a2c.estimate_arguments(model, rollout, update))
        valid = rollout.valid.flatten().float()
        gradient = a2c_gradient(
            distribution, policy, values[:num_steps], actions, advantages.flatten().numpy(),
            targets.flatten().numpy(), valid.numpy(), value_coef=update.at(a2c.value_coef),
            entropy_coef=update.at(a2c.entropy_coef))
        mlp.backward(gradient.params, gradient.values)
        if rhos is not None:
            gradient.metrics["train/rho_mean"] = float(masked_mean(rhos, rollout.valid))
        return StepLoss(gradient.loss, gradient.metrics, float(valid.sum()))

    def of_minibatches(self, ppo: PPO, rollout: Rollout, advantages: Tensor, targets: Tensor,
                       pieces: Pieces, update: Update) -> Iterator[StepLoss]:
        """PPO's loss on each minibatch, after its gradient has been written."""
        mlp = cast(MlpArrays, self.mlp)
        distribution = cast(Categorical | Gaussian, self._model.distribution)
        whole = whole_batch(rollout, advantages, targets, self._model)
        everything = _arrays(whole, distribution)
        clip = update.at(ppo.clip)
        value_coef = update.at(ppo.value_coef)
        entropy_coef = update.at(ppo.entropy_coef)
        for minibatches in pieces.draw(rollout, recurrent=False):
            shuffled = _select(everything, torch.cat(minibatches).numpy())
            start = 0
            for items in minibatches:
                steps = _select(shuffled, slice(start, start + len(items)))
                start += len(items)
                params, values = mlp.forward(steps.inputs, steps.action_mask)
                gradient = ppo_gradient(
                    distribution, params, values, steps, clip=clip, value_clip=ppo.value_clip,
                    value_coef=value_coef, entropy_coef=entropy_coef)
                mlp.backward(gradient.params, gradient.values)
                yield StepLoss(gradient.loss, gradient.metrics, float(steps.valid.sum()))


def _arrays(whole: Minibatch, distribution: Categorical | Gaussian) -> Steps:
    log_probs = distribution.log_prob(whole.behaviour, whole.actions)
    mask = whole.action_mask
    return Steps(
        inputs=whole.inputs[0][0].numpy(), action_mask=None if mask is None else mask[0].numpy(),
        actions=whole.actions[0].numpy(), behaviour_log_probs=log_probs[0].numpy(),
        values=whole.values[0].numpy(), advantages=whole.advantages[0].numpy(),
        targets=whole.targets[0].numpy(), valid=whole.valid[0].float().numpy())


def _select(steps: Steps, items: ndarray | slice) -> Steps:
    parts: dict[str, Any] = {}
    for field in fields(Steps):
        part = getattr(steps, field.name)
        parts[field.name] = None if part is None else part[items]
    return Steps(**parts)
