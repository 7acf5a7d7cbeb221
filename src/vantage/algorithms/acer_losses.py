"""The losses of ACER, for discrete and for continuous actions. Tensors in, loss and metrics out.

Wang et al. 2017, "Sample Efficient Actor-Critic with Experience Replay", arXiv:1611.01224.
Equation numbers are the paper's.

For each step and environment, the policy gradient is computed and projected in the space of the
distribution's statistics φ: the probabilities of a categorical, the means (and log deviations,
unless these are fixed) of a Gaussian. The surrogate loss -Σ φ z* then backpropagates the projection
z* to the weights: its gradient is -(∂φ/∂θ)ᵀ z*.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from vantage.algorithms.distributions import Categorical, Gaussian
from vantage.algorithms.losses import explained_variance, masked_mean
from vantage.algorithms.returns import retrace

_TINY = 1e-8  # least probability that anything is divided by
_MAX_LOG_RHO = 20.0  # importance weights stay finite, and far above any truncation


def project(gradient: Float[Tensor, "*batch P"], kl_gradient: Float[Tensor, "*batch P"],
            delta: float | None) -> tuple[Float[Tensor, "*batch P"], Bool[Tensor, "*batch"]]:
    """The direction z nearest to `gradient` along which the divergence grows by at most `delta`.

    The second result is True where that bound is active.

    min_z ½‖g - z‖²  subject to  kᵀz ≤ δ                                                 eq. 11
    z* = g - max(0, (kᵀg - δ) / ‖k‖²) k                                                  eq. 12

    g is a direction of ascent and k = ∇_φ KL(f(φ_average) ‖ f(φ)). None: no bound.
    """
    along = (kl_gradient * gradient).sum(-1)
    if delta is None:
        return gradient, torch.zeros_like(along, dtype=torch.bool)
    excess = (along - delta).clamp(min=0)
    scale = excess / kl_gradient.square().sum(-1).clamp(min=_TINY)
    return gradient - scale.unsqueeze(-1) * kl_gradient, excess > 0


def discrete_acer_loss(behaviour_logits: Float[Tensor, "T B A"],
                       average_logits: Float[Tensor, "T B A"],
                       logits: Float[Tensor, "T+1 B A"], q_values: Float[Tensor, "T+1 B A"],
                       actions: Int[Tensor, "T B"], rewards: Float[Tensor, "T B"],
                       terminated: Bool[Tensor, "T B"], keep: Bool[Tensor, "T B"],
                       valid: Bool[Tensor, "T B"], *, gamma: float, truncation: float | None,
                       bias_correction: bool, trust_region: float | None, value_coef: float,
                       entropy_coef: float) -> tuple[Float[Tensor, ""], Mapping[str, Tensor]]:
    """Loss of one rollout of a categorical policy, and metrics.

    g = min(c, ρ(a_t)) ∇_φ log f(a_t) (Q_ret - V)
        + Σ_a [1 - c/ρ(a)]₊ f(a) ∇_φ log f(a) (Q(a) - V) + β ∇_φ H(f)                    eq. 9
    L = mean_t[ -Σ_a f(a) z*(a) + value_coef ½ (Q_ret_t - Q(x_t, a_t))² ]

    with ρ = π/μ, V = Σ_a π(a) Q(a), c = `truncation` (None: infinite) and δ = `trust_region` (None:
    no projection). Entropy is inside the projection. The gradient flows through `logits[:-1]` and
    `q_values[:-1]`.
    """
    actions = actions.unsqueeze(-1)
    probs = F.softmax(logits[:-1], -1)
    q_taken = q_values[:-1].gather(-1, actions).squeeze(-1)
    with torch.no_grad():
        policy = probs.detach()
        behaviour = F.softmax(behaviour_logits, -1)
        values = (F.softmax(logits, -1) * q_values).sum(-1)
        rhos = policy / behaviour.clamp(min=_TINY)
        rho_taken = rhos.gather(-1, actions).squeeze(-1)
        targets = _retrace(rewards, q_taken, values, terminated, keep, valid, rho_taken, gamma)
        weights, missing = _truncate(rho_taken, rhos, truncation, bias_correction=bias_correction)
        policy_taken = policy.gather(-1, actions).clamp(min=_TINY)
        gradient_taken = (weights * (targets - values[:-1])).unsqueeze(-1) / policy_taken
        gradient = torch.zeros_like(policy).scatter_(-1, actions, gradient_taken)
        gradient += missing * (q_values[:-1] - values[:-1].unsqueeze(-1))
        log_policy = policy.clamp(min=_TINY).log()
        gradient -= entropy_coef * (log_policy + 1)
        average = F.softmax(average_logits, -1)
        ascent, bounded = project(gradient, -average / policy.clamp(min=_TINY), trust_region)
        categorical = Categorical(policy.shape[-1])
        entropies = categorical.entropy(logits[:-1])
        divergences = categorical.kl(average_logits, logits[:-1])
    policy_loss = -masked_mean((probs * ascent).sum(-1), valid)
    value_loss = 0.5 * masked_mean((targets - q_taken).square(), valid)
    metrics = _metrics(policy_loss, value_loss, entropies, divergences, bounded, rho_taken, q_taken,
                       targets, valid)
    return policy_loss + value_coef * value_loss, metrics


def continuous_acer_loss(distribution: Gaussian, params: Float[Tensor, "T B P"],
                         average_params: Float[Tensor, "T B P"],
                         behaviour_params: Float[Tensor, "T B P"], values: Float[Tensor, "T+1 B"],
                         q_taken: Float[Tensor, "T B"], q_drawn: Float[Tensor, "T B"],
                         actions: Float[Tensor, "T B D"], drawn: Float[Tensor, "T B D"],
                         rewards: Float[Tensor, "T B"], terminated: Bool[Tensor, "T B"],
                         keep: Bool[Tensor, "T B"], valid: Bool[Tensor, "T B"], *, gamma: float,
                         truncation: float | None, bias_correction: bool,
                         trust_region: float | None, value_coef: float, entropy_coef: float,
                         bounds_coef: float,
                         fixed_deviation: bool) -> tuple[Float[Tensor, ""], Mapping[str, Tensor]]:
    """Loss of one rollout of a Gaussian policy with a stochastic dueling critic, and metrics.

    g = min(c, ρ(a_t)) ∇_φ log f(a_t) (Q_opc - V)
        + [1 - c/ρ(a')]₊ ∇_φ log f(a') (Q̃(a') - V) + β ∇_φ H(f),  a' ~ π
    L = mean_t[ -Σ φ z* + value_coef (½ (Q_ret - Q̃(a_t))² + ½ (V_target - V)²)
                + bounds_coef e(φ) ]                                     section 5, algorithm 3
    V_target = min(1, ρ) (Q_ret - Q̃(a_t)) + V                                            eq. 14

    The excess e of the means over the bounds, `Gaussian.excess`, is not in the paper: far beyond
    them all samples are clipped to the same action, and no gradient leads back.

    Q_ret has traces min(1, ρ^(1/D)), Q_opc traces of 1. `drawn` are the a'; `q_taken` and `q_drawn`
    are the dueling network's Q̃ of the actions taken and drawn. With `fixed_deviation` the
    statistics φ are the means alone. The gradient flows through `params`, `values[:-1]` and
    `q_taken`.
    """
    with torch.no_grad():
        log_rho = _log_rho(distribution, params, behaviour_params, actions)
        rho_taken = log_rho.exp()
        rho_drawn = _log_rho(distribution, params, behaviour_params, drawn).exp()
        traced = (log_rho / distribution.size).exp()
        baseline = values[:-1]
        q_ret = _retrace(rewards, q_taken, values, terminated, keep, valid, traced, gamma)
        q_opc = _retrace(rewards, q_taken, values, terminated, keep, valid, torch.ones_like(traced),
                         gamma)
        weights, missing = _truncate(rho_taken, rho_drawn, truncation,
                                     bias_correction=bias_correction)
        taken_weight = weights * (q_opc - baseline)
        drawn_weight = missing * (q_drawn - baseline)
        value_targets = rho_taken.clamp(max=1) * (q_ret - q_taken) + baseline
    with torch.enable_grad():
        statistics = params.detach().requires_grad_()
        entropies = distribution.entropy(statistics)
        gain = (taken_weight * distribution.log_prob(statistics, actions)
                + drawn_weight * distribution.log_prob(statistics, drawn)
                + entropy_coef * entropies)
        divergences = distribution.kl(average_params.detach(), statistics)
        gradient, = torch.autograd.grad(gain.sum(), statistics, retain_graph=True)
        kl_gradient, = torch.autograd.grad(divergences.sum(), statistics)
    if fixed_deviation:
        gradient[..., distribution.size:] = 0
        kl_gradient[..., distribution.size:] = 0
    ascent, bounded = project(gradient, kl_gradient, trust_region)
    policy_loss = -masked_mean((params * ascent).sum(-1), valid)
    q_errors = (q_ret - q_taken).square()
    value_errors = (value_targets - values[:-1]).square()
    value_loss = 0.5 * masked_mean(q_errors + value_errors, valid)
    metrics = _metrics(policy_loss, value_loss, entropies.detach(), divergences.detach(), bounded,
                       rho_taken, q_taken, q_ret, valid)
    loss = policy_loss + value_coef * value_loss
    if bounds_coef:
        loss = loss + bounds_coef * masked_mean(distribution.excess(params), valid)
    return loss, metrics


def _retrace(rewards: Tensor, q_taken: Tensor, values: Tensor, terminated: Tensor, keep: Tensor,
             valid: Tensor, rhos: Tensor, gamma: float) -> Tensor:
    """Retrace targets of Q.

    Steps that are not `valid`, whose action was replaced, have Q = V and ρ = 1.
    """
    discounts = gamma * (~terminated).to(values.dtype)
    q_taken = torch.where(valid, q_taken.detach(), values[:-1])
    return retrace(rewards, q_taken, values, discounts, keep, torch.where(valid, rhos, 1.0))


def _truncate(taken: Tensor, others: Tensor, truncation: float | None, *,
              bias_correction: bool) -> tuple[Tensor, Tensor]:
    """Truncated weights min(c, ρ) of actions taken, and weights [1 - c/ρ]₊ of `others`.

    The latter correct the bias of the truncation.
    """
    if truncation is None:
        return taken, torch.zeros_like(others)
    missing = (1 - truncation / others.clamp(min=_TINY)).clamp(min=0)
    return taken.clamp(max=truncation), missing if bias_correction else torch.zeros_like(others)


def _log_rho(distribution: Gaussian, params: Tensor, behaviour: Tensor, actions: Tensor) -> Tensor:
    log_rho = distribution.log_prob(params, actions) - distribution.log_prob(behaviour, actions)
    return log_rho.clamp(max=_MAX_LOG_RHO)


def _metrics(policy_loss: Tensor, value_loss: Tensor, entropies: Tensor, divergences: Tensor,
             bounded: Tensor, rhos: Tensor, q_taken: Tensor, targets: Tensor,
             valid: Tensor) -> Mapping[str, Tensor]:
    return {
        "train/policy_loss": policy_loss.detach(),
        "train/value_loss": value_loss.detach(),
        "train/entropy": masked_mean(entropies, valid),
        "train/explained_variance": explained_variance(q_taken.detach(), targets, valid),
        "train/rho_mean": masked_mean(rhos, valid),
        "train/average_kl": masked_mean(divergences, valid),
        "train/trust_region_share": masked_mean(bounded.to(rhos.dtype), valid),
    }
