"""Gradients of A2C's and PPO's losses in NumPy, for distribution parameters and values.

They are the derivatives of `losses.a2c_loss` and `losses.ppo_loss`, for networks so small that
autograd would take most of the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from vantage.algorithms.distributions import Categorical, Gaussian
from vantage.algorithms.losses import LARGEST_LOG_RATIO

_LOG_ROOT_2PI = np.float32(0.5 * math.log(2 * math.pi))


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a minibatch, named as in `Minibatch`."""

    inputs: Float[ndarray, "N F"]
    action_mask: ndarray | None
    actions: ndarray
    """[N] whole numbers, or [N, D]"""
    behaviour_log_probs: Float[ndarray, " N"]
    values: Float[ndarray, " N"]
    """V by the acting weights"""
    advantages: Float[ndarray, " N"]
    targets: Float[ndarray, " N"]
    valid: Float[ndarray, " N"]
    """1 for a valid step, otherwise 0"""


@dataclass(frozen=True, slots=True)
class Gradient:
    """A loss, its metrics, and its gradient."""

    loss: float
    metrics: dict[str, float]
    params: Float[ndarray, "N P"]
    values: Float[ndarray, " N"]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A policy's log-probabilities of actions, and its entropies."""

    log_probs: Float[ndarray, " N"]
    entropies: Float[ndarray, " N"]
    parts: tuple[ndarray, ...]
    """What the gradient needs: p and log p, or z and 1 / σ."""


@np.errstate(all="ignore")
def evaluate(distribution: Categorical | Gaussian, params: Float[ndarray, "N P"],
             actions: ndarray) -> Evaluated:
    """The policy with these distribution parameters, for these actions."""
    if isinstance(distribution, Categorical):
        logs = params - params.max(1, keepdims=True)
        probs = np.exp(logs)
        total = probs.sum(1, keepdims=True)
        probs /= total
        logs -= np.log(total)
        entropies = -np.einsum("na,na->n", probs, logs)
        return Evaluated(logs[np.arange(len(logs)), actions], entropies, (probs, logs))
    mean = params[:, :distribution.size]
    log_std = params[:, distribution.size:]
    precision = np.exp(-log_std)
    z = (actions - mean) * precision
    log_probs = (-0.5 * (z * z) - log_std - _LOG_ROOT_2PI).sum(1)
    entropies = (log_std + (np.float32(0.5) + _LOG_ROOT_2PI)).sum(1)
    return Evaluated(log_probs, entropies, (z, precision))


def _chain(distribution: Categorical | Gaussian, policy: Evaluated, actions: ndarray,
           log_probs: ndarray, entropies: ndarray) -> ndarray:
    """The gradient of the parameters [N, P], given those of log-probabilities and entropies [N].

    Categorical:  ∂ log p(a) / ∂x_i = 1[i = a] - p_i,  ∂H / ∂x_i = -p_i (log p_i + H)
    Gaussian:     ∂ log p(a) / ∂μ = z / σ,  ∂ log p(a) / ∂ log σ = z² - 1,  ∂H / ∂ log σ = 1,
                  z = (a - μ) / σ
    """
    if isinstance(distribution, Categorical):
        probs, logs = policy.parts
        gradient: ndarray = -probs * (log_probs + entropies * policy.entropies)[:, None]
        gradient -= entropies[:, None] * (probs * logs)
        gradient[np.arange(len(actions)), actions] += log_probs
        return gradient
    z, precision = policy.parts
    weights = log_probs[:, None]
    return np.concatenate([weights * z * precision, weights * (z * z - 1) + entropies[:, None]], 1)


# As torch, without warnings: what is not finite is found in the loss and in the gradient's norm.
@np.errstate(all="ignore")
def a2c_gradient(distribution: Categorical | Gaussian, policy: Evaluated,
                 values: Float[ndarray, " N"], actions: ndarray, advantages: Float[ndarray, " N"],
                 targets: Float[ndarray, " N"], valid: Float[ndarray, " N"], *, value_coef: float,
                 entropy_coef: float) -> Gradient:
    """The loss of `losses.a2c_loss`, its metrics, and its gradient; `valid` is 1 or 0."""
    weights = _weights(valid)
    errors = targets - values
    return _gradient(
        distribution, policy, actions, weights,
        policy_loss=-_mean(policy.log_probs * advantages, weights),
        d_log_probs=-weights * advantages, errors=errors, squares=errors * errors, slopes=errors,
        targets=targets, value_coef=value_coef, entropy_coef=entropy_coef)


@np.errstate(all="ignore")
def ppo_gradient(distribution: Categorical | Gaussian, params: Float[ndarray, "N P"],
                 values: Float[ndarray, " N"], steps: Steps, *, clip: float,
                 value_clip: float | None, value_coef: float, entropy_coef: float) -> Gradient:
    """The loss of `losses.ppo_loss` on `steps`, its metrics, and its gradient."""
    weights = _weights(steps.valid)
    policy = evaluate(distribution, params, steps.actions)
    log_ratios = policy.log_probs - steps.behaviour_log_probs
    if not steps.valid.all():  # the environment has replaced some actions
        log_ratios *= steps.valid
    rhos = np.exp(np.minimum(log_ratios, LARGEST_LOG_RATIO))
    gains = rhos * steps.advantages
    clipped = rhos.clip(1 - clip, 1 + clip) * steps.advantages
    has_gradient = (gains <= clipped) & (log_ratios <= LARGEST_LOG_RATIO)
    errors = steps.targets - values
    squares = errors * errors
    slopes = errors
    if value_clip is not None:
        moved = values - steps.values
        near = steps.values + moved.clip(-value_clip, value_clip)
        near_squares = (steps.targets - near) ** 2
        slopes = np.where((squares >= near_squares) | (np.abs(moved) <= value_clip), errors,
                          np.float32(0))
        squares = np.maximum(squares, near_squares)
    gradient = _gradient(
        distribution, policy, steps.actions, weights,
        policy_loss=-_mean(np.minimum(gains, clipped), weights),
        d_log_probs=np.where(has_gradient, -weights * gains, np.float32(0)), errors=errors,
        squares=squares, slopes=slopes, targets=steps.targets, value_coef=value_coef,
        entropy_coef=entropy_coef)
    gradient.metrics["train/clip_fraction"] = _mean(np.abs(rhos - 1) > clip, weights)
    gradient.metrics["train/approx_kl"] = _mean(rhos - 1 - log_ratios, weights)
    return gradient


def _gradient(distribution: Categorical | Gaussian, policy: Evaluated, actions: ndarray,
              weights: ndarray, *, policy_loss: float, d_log_probs: ndarray, errors: ndarray,
              squares: ndarray, slopes: ndarray, targets: ndarray, value_coef: float,
              entropy_coef: float) -> Gradient:
    """The part of both losses' gradients that follows the policy's term.

    `slopes` are -½ ∂`squares`/∂V: the errors, or 0 where value clipping stops the gradient.
    """
    value_loss = 0.5 * _mean(squares, weights)
    entropy = _mean(policy.entropies, weights)
    d_entropies = weights * np.float32(-entropy_coef)
    metrics = {
        "train/policy_loss": policy_loss,
        "train/value_loss": value_loss,
        "train/entropy": entropy,
        "train/explained_variance": _explained_variance(errors, targets, weights),
    }
    return Gradient(
        loss=policy_loss + value_coef * value_loss - entropy_coef * entropy, metrics=metrics,
        params=_chain(distribution, policy, actions, d_log_probs, d_entropies),
        values=weights * slopes * np.float32(-value_coef))


def _weights(valid: ndarray) -> ndarray:
    """What each step weighs in a mean over valid ones."""
    weights: ndarray = valid / np.float32(max(float(valid.sum()), 1.0))
    return weights


def _mean(x: ndarray, weights: ndarray) -> float:
    return float(x @ weights)


def _explained_variance(errors: ndarray, targets: ndarray, weights: ndarray) -> float:
    """As `losses.explained_variance`."""
    mean = _mean(targets, weights)
    variance = _mean((targets - mean) ** 2, weights)
    remaining = _mean((errors - _mean(errors, weights)) ** 2, weights)
    least = 1e-8 * max(variance + mean * mean, 1.0)
    return 1 - remaining / max(variance, 1e-8) if variance > least else 0.0
