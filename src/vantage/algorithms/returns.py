"""Advantage and value estimators: GAE, V-trace and Retrace, all by one backward recursion.

Tensors are [T, B], time first; `values` has one row more, for the bootstrap value. `discounts` is
gamma, or 0 where the task ended. `keep` is False where step t+1 only resets (`Rollout.keep`), so
that nothing flows between episodes. Time limits need no special case: the discount is gamma, and
the value of the last observation is in the next row.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def reverse_scan(deltas: Float[Tensor, "T B"],
                 decays: Float[Tensor, "T B"]) -> Float[Tensor, "T B"]:
    """x[t] = deltas[t] + decays[t] * x[t+1], with x[T] = 0."""
    x = deltas.clone()
    carry = torch.zeros_like(deltas[0])
    for here, decay in zip(reversed(x.unbind()), reversed(decays.unbind()), strict=True):
        # Unbind, since indexing a row takes longer than the sum.
        carry = here.addcmul_(decay, carry)
    return x


@torch.no_grad()
def gae(rewards: Float[Tensor, "T B"], values: Float[Tensor, "T+1 B"],
        discounts: Float[Tensor, "T B"], keep: Bool[Tensor, "T B"], *,
        gae_lambda: float) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B"]]:
    """Advantages and value targets of on-policy data.

    A_t = Σ_l (γλ)^l δ_{t+l},  δ_t = r_t + γ V_{t+1} - V_t
                                            Schulman et al. 2016, arXiv:1506.02438, eq. 16

    λ = 1 gives n-step returns: A + V is the discounted sum of rewards up to the bootstrap value.
    """
    deltas = rewards + discounts * values[1:] - values[:-1]
    advantages = reverse_scan(deltas, gae_lambda * discounts * keep)
    return advantages, advantages + values[:-1]


@torch.no_grad()
def vtrace(rewards: Float[Tensor, "T B"], values: Float[Tensor, "T+1 B"],
           discounts: Float[Tensor, "T B"], keep: Bool[Tensor, "T B"], rhos: Float[Tensor, "T B"],
           *, gae_lambda: float) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B"]]:
    """Advantages and value targets of off-policy data; `rhos` are π/μ of the actions taken.

    v_s = V_s + Σ_{t≥s} γ^{t-s} (Π_{s≤i<t} c_i) ρ_t δ_t,  ρ_t = min(1, π/μ),  c_i = λ ρ_i
                                Espeholt et al. 2018, arXiv:1802.01561, eq. 1 and remark 2

    The advantage is ρ_t (r_t + γ (λ v_{t+1} + (1-λ) V_{t+1}) - V_t). If all importance weights are
    1, this is GAE(λ).
    """
    clipped = rhos.clamp(max=1.0)
    deltas = rewards + discounts * values[1:] - values[:-1]
    traces = gae_lambda * discounts * keep
    corrections = reverse_scan(clipped * deltas, traces * clipped)
    following = torch.cat([corrections[1:], torch.zeros_like(corrections[:1])])
    return clipped * (deltas + traces * following), corrections + values[:-1]


def advantages_and_targets(rewards: Float[Tensor, "T B"], values: Float[Tensor, "T+1 B"],
                           terminated: Bool[Tensor, "T B"], keep: Bool[Tensor, "T B"],
                           rhos: Float[Tensor, "T B"] | None, *, gamma: float, gae_lambda: float
                           ) -> tuple[Float[Tensor, "T B"], Float[Tensor, "T B"]]:
    """`gae`, or `vtrace` if there are importance weights `rhos`."""
    discounts = gamma * (~terminated).to(values.dtype)
    if rhos is None:
        return gae(rewards, values, discounts, keep, gae_lambda=gae_lambda)
    return vtrace(rewards, values, discounts, keep, rhos, gae_lambda=gae_lambda)


@torch.no_grad()
def retrace(rewards: Float[Tensor, "T B"], q_values: Float[Tensor, "T B"],
            values: Float[Tensor, "T+1 B"], discounts: Float[Tensor, "T B"],
            keep: Bool[Tensor, "T B"], rhos: Float[Tensor, "T B"]) -> Float[Tensor, "T B"]:
    """Targets of Q for the actions taken, from off-policy data.

    Q_ret_t = r_t + γ min(1, ρ_{t+1}) (Q_ret_{t+1} - Q_{t+1}) + γ V_{t+1}
                                Munos et al. 2016; Wang et al. 2017, arXiv:1611.01224, eq. 5

    `q_values` are Q of the actions taken, `values` the state values Σ_a π(a) Q(a). If all `rhos`
    are 1, this is ACER's Q_opc; continuous ACER passes `rhos` to the power 1/d.
    """
    traces = torch.cat([rhos[1:].clamp(max=1.0), torch.ones_like(rhos[:1])])
    deltas = rewards + discounts * values[1:] - q_values
    return reverse_scan(deltas, discounts * keep * traces) + q_values
