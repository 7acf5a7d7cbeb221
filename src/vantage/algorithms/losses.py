"""The losses of A2C and PPO: policy gradient, value error, entropy.

Tensors in, loss and metrics out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vantage.algorithms.interface import no_intrinsic
from vantage.algorithms.returns import advantages_and_targets

_ROUNDING = 1e-6
"""Largest standard deviation that rounding gives equal float32 numbers, relative to their mean."""
LARGEST_LOG_RATIO = 80.0
"""Bound on log π(a) - log μ(a), of a new policy π and the one that acted: exp(89) overflows in
float32."""


def bounded_ratios(log_ratios: Float[Tensor, "T B"]) -> Float[Tensor, "T B"]:
    """Importance weights π(a)/μ(a) of their logarithms.

    One that overflows would make the gradient of a clipped ratio NaN.
    """
    return log_ratios.clamp(max=LARGEST_LOG_RATIO).exp()


def masked_mean(x: Float[Tensor, "T B"], valid: Bool[Tensor, "T B"]) -> Float[Tensor, ""]:
    """Mean over the valid steps; 0 if there are none."""
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def normalise(x: Float[Tensor, "T B"], valid: Bool[Tensor, "T B"],
              total: Callable[[Tensor], Tensor] = lambda sums: sums) -> Float[Tensor, "T B"]:
    """`x` shifted to mean 0 and scaled to standard deviation 1 over the valid steps.

    `total` adds the sums of other processes. `x` is returned unchanged if it has fewer than two
    valid steps or differs by no more than rounding: centring would erase all that it says about the
    actions.
    """

    def mean(y: Tensor) -> tuple[Tensor, Tensor]:
        sums = total(torch.stack([torch.where(valid, y, 0.0).sum(), valid.sum().to(y.dtype)]))
        return sums[0] / sums[1].clamp(min=1), sums[1]

    centre, count = mean(x)
    centred = x - centre
    deviation = mean(centred.square())[0].sqrt()
    has_deviation = (count >= 2) & (deviation > _ROUNDING * centre.abs())
    return torch.where(has_deviation, centred / (deviation + 1e-8), x)


@torch.no_grad()
def explained_variance(values: Float[Tensor, "T B"], targets: Float[Tensor, "T B"],
                       valid: Bool[Tensor, "T B"]) -> Float[Tensor, ""]:
    """1 - Var(target - V) / Var(target) over the valid steps.

    It is 1 for a perfect critic and 0 for a constant one; also 0 for equal targets, where the
    quotient would be unbounded.
    """
    # Indexing by `valid` would make the host wait for the number of valid steps.
    count = valid.sum().clamp(min=1)
    pair = torch.where(valid, torch.stack([targets - values, targets]), 0.0)
    means = pair.sum((1, 2)) / count
    centred = torch.where(valid, pair - means.view(2, 1, 1), 0.0)
    errors, variance = (centred.square().sum((1, 2)) / count).unbind()
    # Targets that differ by less than a ten-thousandth of their size are equal but for rounding.
    least = 1e-8 * (variance + means[1].square()).clamp(min=1)
    return torch.where(variance > least, 1 - errors / variance.clamp(min=1e-8), 0.0)


@torch.no_grad()
def a2c_estimate(log_probs: Float[Tensor, "T B"], values: Float[Tensor, "T+1 B"],
                 rewards: Float[Tensor, "T B"], terminated: Bool[Tensor, "T B"],
                 keep: Bool[Tensor, "T B"], valid: Bool[Tensor, "T B"], *, gamma: float,
                 gae_lambda: float, advantage_norm: bool, value_target: str,
                 behaviour_log_probs: Float[Tensor, "T B"] | None,
                 total: Callable[[Tensor], Tensor],
                 record_targets: Callable[[Tensor, Tensor], None],
                 add_intrinsic: Callable[..., Tensor],
                 ) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B"],
                            Float[Tensor, "T B"] | None]:
    """Advantages and targets of A2C; with V-trace, importance weights.

    With `behaviour_log_probs`, log probabilities under the policy that acted, they come from
    V-trace instead of GAE; importance weights are 1 where the environment replaced the action
    (not `valid`). With `value_target="return"`, the target is the discounted return up to the
    bootstrap value: λ = 1 for targets, `gae_lambda` for advantages. `add_intrinsic` is that of
    `Update`.
    """
    rhos: Tensor | None = None
    if behaviour_log_probs is not None:
        rhos = torch.where(valid, bounded_ratios(log_probs - behaviour_log_probs), 1.0)
    estimate = partial(advantages_and_targets, rewards, values, terminated, keep, rhos, gamma=gamma)
    advantages, targets = estimate(gae_lambda=gae_lambda)
    if value_target == "return":
        _, targets = estimate(gae_lambda=1.0)
    record_targets(targets, valid)
    advantages = add_intrinsic(advantages, gae_lambda, rhos)
    if advantage_norm:
        advantages = normalise(advantages, valid, total)
    return advantages, targets, rhos


def a2c_loss(log_probs: Float[Tensor, "T B"], entropies: Float[Tensor, "T B"],
             values: Float[Tensor, "T+1 B"], rewards: Float[Tensor, "T B"],
             terminated: Bool[Tensor, "T B"], keep: Bool[Tensor, "T B"],
             valid: Bool[Tensor, "T B"], *, gamma: float, gae_lambda: float, value_coef: float,
             entropy_coef: float, advantage_norm: bool = False, value_target: str = "lambda",
             behaviour_log_probs: Float[Tensor, "T B"] | None = None,
             total: Callable[[Tensor], Tensor] = lambda sums: sums,
             record_targets: Callable[[Tensor, Tensor], None] = lambda targets, valid: None,
             add_intrinsic: Callable[..., Tensor] = no_intrinsic,
             ) -> tuple[Float[Tensor, ""], Mapping[str, Tensor]]:
    """Loss of one rollout, and metrics.

    L = mean_t[ -A_t log π(a_t|s_t) + value_coef ½ (v_t - V(s_t))² - entropy_coef H(π(·|s_t)) ]
                                            Mnih et al. 2016, arXiv:1602.01783, section 4

    The gradient flows through `log_probs`, `entropies` and `values[:-1]`; advantages A and targets
    v are constants, those of `a2c_estimate`. Means run over valid steps, so that coefficients do
    not depend on the rollout's size.
    """
    advantages, targets, rhos = a2c_estimate(
        log_probs, values, rewards, terminated, keep, valid, gamma=gamma, gae_lambda=gae_lambda,
        advantage_norm=advantage_norm, value_target=value_target,
        behaviour_log_probs=behaviour_log_probs, total=total, record_targets=record_targets,
        add_intrinsic=add_intrinsic)
    policy_loss = -masked_mean(advantages * log_probs, valid)
    value_loss = 0.5 * masked_mean((targets - values[:-1]).square(), valid)
    entropy = masked_mean(entropies, valid)
    loss = policy_loss + value_coef * value_loss - entropy_coef * entropy
    metrics = {
        "train/policy_loss": policy_loss.detach(),
        "train/value_loss": value_loss.detach(),
        "train/entropy": entropy.detach(),
        "train/explained_variance": explained_variance(values[:-1].detach(), targets, valid),
    }
    if rhos is not None:
        metrics["train/rho_mean"] = masked_mean(rhos, valid)
    return loss, metrics


def ppo_loss(log_probs: Float[Tensor, "T B"], behaviour_log_probs: Float[Tensor, "T B"],
             entropies: Float[Tensor, "T B"], values: Float[Tensor, "T B"],
             behaviour_values: Float[Tensor, "T B"], advantages: Float[Tensor, "T B"],
             targets: Float[Tensor, "T B"], valid: Bool[Tensor, "T B"], *, clip: float,
             value_clip: float | None, value_coef: float,
             entropy_coef: float) -> tuple[Float[Tensor, ""], Mapping[str, Tensor]]:
    """Loss of one minibatch, and metrics.

    L = mean_t[ -min(r_t A_t, clip(r_t, 1-ε, 1+ε) A_t)
                + value_coef ½ (v_t - V(s_t))² - entropy_coef H(π(·|s_t)) ]
    r_t = π(a_t|s_t) / μ(a_t|s_t)           Schulman et al. 2017, arXiv:1707.06347, eq. 7 and 9

    The gradient flows through `log_probs`, `entropies` and `values`. With `value_clip` the squared
    error is the larger of two: the error of V, and of V clipped to within `value_clip` of the value
    while acting. At r = 1 the gradient is A2C's. approx_kl estimates KL(μ || π) by mean(r - 1 - log
    r).
    """
    log_ratios = log_probs - behaviour_log_probs
    rhos = bounded_ratios(log_ratios)
    clipped_rhos = rhos.clamp(1 - clip, 1 + clip)
    policy_loss = -masked_mean(torch.minimum(rhos * advantages, clipped_rhos * advantages), valid)
    errors = (targets - values).square()
    if value_clip is not None:
        near = behaviour_values + (values - behaviour_values).clamp(-value_clip, value_clip)
        errors = torch.maximum(errors, (targets - near).square())
    value_loss = 0.5 * masked_mean(errors, valid)
    entropy = masked_mean(entropies, valid)
    loss = policy_loss + value_coef * value_loss - entropy_coef * entropy
    with torch.no_grad():
        return loss, {
            "train/policy_loss": policy_loss.detach(),
            "train/value_loss": value_loss.detach(),
            "train/entropy": entropy.detach(),
            "train/explained_variance": explained_variance(values.detach(), targets, valid),
            "train/clip_fraction": masked_mean(((rhos - 1).abs() > clip).to(values.dtype), valid),
            "train/approx_kl": masked_mean(rhos - 1 - log_ratios, valid),
        }
