"""PPO's gradients of small MLPs in NumPy, minibatch by minibatch. `minibatches` serves the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, cast

import torch
from numpy import ndarray
from torch import Tensor

from vantage.algorithms.distributions import Categorical, Gaussian
from vantage.algorithms.interface import Update
from vantage.algorithms.ppo import PPO
from vantage.algorithms.ppo_gradient import Steps, ppo_gradient
from vantage.learning.minibatches import Pieces, whole_batch
from vantage.learning.step_metrics import StepLoss
from vantage.models.actor_critic import ActorCritic
from vantage.models.mlp_arrays import MlpArrays, fits
from vantage.types import Minibatch, Rollout

_LARGEST_MINIBATCH = 1024


def is_written_out(algorithm: object, model: ActorCritic, num_steps: int) -> bool:
    """Whether `array_gradients` computes the gradients of `algorithm`'s loss on `num_steps` steps."""
    return (isinstance(algorithm, PPO) and type(algorithm).loss is PPO.loss
            and not (algorithm.advantage_norm and algorithm.advantage_norm_over == "minibatch")
            and min(algorithm.minibatch_size, num_steps) <= _LARGEST_MINIBATCH
            and isinstance(model.distribution, Categorical | Gaussian) and fits(model))


def array_gradients(algorithm: object, model: ActorCritic, rollout: Rollout, advantages: Tensor,
                    targets: Tensor, pieces: Pieces, update: Update) -> Iterator[StepLoss]:
    """The loss of each minibatch, after its gradient has been written."""
    ppo = cast(PPO, algorithm)
    distribution = cast(Categorical | Gaussian, model.distribution)
    mlp = MlpArrays(model)
    everything = _arrays(whole_batch(rollout, advantages, targets, model), distribution)
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
            gradient = ppo_gradient(distribution, params, values, steps, clip=clip,
                                    value_clip=ppo.value_clip, value_coef=value_coef,
                                    entropy_coef=entropy_coef)
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
