"""Action distributions as pure functions of their parameters [..., P], from `models/heads.py`.

The parameters determine the distribution completely: logits are already masked, and a Gaussian's
mean and deviation already squashed and floored, so that stored parameters can be evaluated later.
P is `num_params`; leading dimensions are preserved. `sample` takes all randomness from a generator
on the parameters' device; no gradient flows through a sample. `kl(p, q)` is KL(p || q). Entropies
are in nats. Bounded distributions are in `bounded_distributions`, Dict and Tuple actions in
`joint_distribution`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from vantage.specs import is_bounded

MASKED = -1e9
"""Logit of a masked action. exp(-1e9 - x) is exactly 0 in float32 and float64 for realistic logits
x, so that probabilities of allowed actions are exact. Unlike -inf it gives no NaN: 0 * MASKED is 0
in entropy and gradients."""

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)

_SLACK = 1.1
"""Half widths from the centre of a Box at which `Gaussian.excess` begins, as the bound_loss of
rl_games does."""

Params = Float[Tensor, "*batch P"]
PerRow = Float[Tensor, "*batch"]


def mask_logits(logits: Params, mask: Bool[Tensor, "*batch P"] | None) -> Params:
    """`logits`, with the constant `MASKED` where `mask` is False."""
    return logits if mask is None else torch.where(mask, logits, MASKED)


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of `size` actions; the parameters are logits x. Actions are int64 [...].

    log p(a) = x_a - log Σ_i exp x_i,  H = -Σ_a p(a) log p(a)
    KL(p || q) = Σ_a p(a) (log p(a) - log q(a))
    """

    size: int

    @property
    def num_params(self) -> int:
        return self.size

    def sample(self, params: Params, generator: Generator) -> Int[Tensor, "*batch"]:
        # argmax(logit - log E), E ~ Exp(1), is a draw from softmax(logits). exponential_ never
        # returns 0.
        logits = params.detach()
        exponentials = torch.empty_like(logits).exponential_(generator=generator)
        return (logits - exponentials.log()).argmax(-1)

    def mode(self, params: Params) -> Int[Tensor, "*batch"]:
        return params.argmax(-1)

    def log_prob(self, params: Params, actions: Int[Tensor, "*batch"]) -> PerRow:
        return F.log_softmax(params, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, params: Params) -> PerRow:
        log_probs = F.log_softmax(params, -1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def kl(self, p: Params, q: Params) -> PerRow:
        log_p = F.log_softmax(p, -1)
        return (log_p.exp() * (log_p - F.log_softmax(q, -1))).sum(-1)


@dataclass(frozen=True, slots=True)
class MultiDiscrete:
    """Independent categoricals; the parameters are the logits of all dimensions, side by side.

    Actions are int64 [..., len(sizes)]. Log-probabilities, entropies and divergences are sums over
    the dimensions.
    """

    sizes: tuple[int, ...]

    @property
    def num_params(self) -> int:
        return sum(self.sizes)

    def sample(self, params: Params, generator: Generator) -> Int[Tensor, "*batch D"]:
        return self._one.sample(self._rows(params), generator)

    def mode(self, params: Params) -> Int[Tensor, "*batch D"]:
        return self._one.mode(self._rows(params))

    def log_prob(self, params: Params, actions: Int[Tensor, "*batch D"]) -> PerRow:
        return self._one.log_prob(self._rows(params), actions).sum(-1)

    def entropy(self, params: Params) -> PerRow:
        return self._one.entropy(self._rows(params)).sum(-1)

    def kl(self, p: Params, q: Params) -> PerRow:
        return self._one.kl(self._rows(p), self._rows(q)).sum(-1)

    @property
    def _one(self) -> Categorical:
        return Categorical(max(self.sizes))

    def _rows(self, logits: Tensor) -> Tensor:
        """[..., D, max(sizes)]: the logits of each dimension, `MASKED` beyond its size."""
        largest = max(self.sizes)
        parts = torch.split(logits, list(self.sizes), -1)
        padded = [F.pad(part, (0, largest - part.shape[-1]), value=MASKED) for part in parts]
        return torch.stack(padded, -2)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """`size` independent normal variables; the parameters are the means μ, then log σ.

    log p(a) = Σ_i -½ ((a_i - μ_i) / σ_i)² - log σ_i - ½ log 2π,  H = Σ_i log σ_i + ½ + ½ log 2π
    KL(p || q) = Σ_i ½ (σ_p² / σ_q² + (μ_p - μ_q)² / σ_q² - 1) - log (σ_p / σ_q)

    Actions are floats [..., size], not clipped to bounds: densities are those of the unclipped
    samples.
    """

    size: int
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    """Bounds of the actions, -inf and inf where there are none; () for all infinite."""

    @property
    def num_params(self) -> int:
        return 2 * self.size

    def sample(self, params: Params, generator: Generator) -> Float[Tensor, "*batch D"]:
        mean, log_std = params.detach().chunk(2, -1)
        return mean + log_std.exp() * torch.empty_like(mean).normal_(generator=generator)

    def mode(self, params: Params) -> Float[Tensor, "*batch D"]:
        return params.chunk(2, -1)[0]

    def log_prob(self, params: Params, actions: Float[Tensor, "*batch D"]) -> PerRow:
        mean, log_std = params.chunk(2, -1)
        squares = ((actions - mean) * (-log_std).exp()).square()
        return (-0.5 * squares - log_std - _LOG_ROOT_2PI).sum(-1)

    def entropy(self, params: Params) -> PerRow:
        return (params.chunk(2, -1)[1] + (0.5 + _LOG_ROOT_2PI)).sum(-1)

    def kl(self, p: Params, q: Params) -> PerRow:
        mean_p, log_std_p = p.chunk(2, -1)
        mean_q, log_std_q = q.chunk(2, -1)
        log_ratio = log_std_p - log_std_q
        distance = ((mean_p - mean_q) * (-log_std_q).exp()).square()
        return (0.5 * ((2 * log_ratio).exp() + distance - 1) - log_ratio).sum(-1)

    def excess(self, params: Params) -> PerRow:
        """How far the means lie beyond the bounds; 0 for dimensions without two of them.

        Σ_i max(0, |μ_i - c_i| / h_i - 1.1)²  over bounds with centre c_i and half width h_i
        """
        mean = params.chunk(2, -1)[0]
        if not self.low:
            return mean.new_zeros(mean.shape[:-1])
        centers = []
        half_widths = []
        for low, high in zip(self.low, self.high, strict=True):
            bounded = is_bounded(low, high) and np.float32((high - low) / 2) > 0
            centers.append((low + high) / 2 if bounded else 0.0)
            half_widths.append((high - low) / 2 if bounded else math.inf)
        distances = (mean - mean.new_tensor(centers)).abs() / mean.new_tensor(half_widths)
        return F.relu(distances - _SLACK).square().sum(-1)
