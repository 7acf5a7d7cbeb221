"""Action distributions as pure functions of their parameters [..., P]. `vantage.models.heads` computes the parameters.

The parameters determine the distribution completely: logits are masked, and a Gaussian's mean and deviation squashed
and floored, before they arrive here, so stored parameters can be evaluated later. P is `num_params`; leading dimensions
are preserved. `sample` needs a generator on the parameters' device and depends on no other random state; no gradient
flows through a sample. `kl(p, q)` is KL(p || q). Entropies are in nats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from vantage.types import ActionSpec

MASKED = -1e9
"""Logit of an action that is not allowed. exp(-1e9 - x) is exactly 0 in float32 and float64 for realistic logits x, so
the probabilities of allowed actions are exact. Unlike -inf it makes no NaN: 0 * MASKED is 0 in entropy and gradients.
"""

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)

Params = Float[Tensor, "*batch P"]
PerRow = Float[Tensor, "*batch"]


def mask_logits(logits: Params, mask: Bool[Tensor, "*batch P"] | None) -> Params:
    """`logits`, with the constant `MASKED` where `mask` is False."""
    return logits if mask is None else torch.where(mask, logits, MASKED)


def _gumbel_argmax(logits: Tensor, exponentials: Tensor) -> Tensor:
    # argmax(logit - log E), E ~ Exp(1), is a draw from softmax(logits); torch's exponential_ never returns 0.
    return (logits - exponentials.log()).argmax(-1)


def _exponentials(logits: Tensor, generator: Generator) -> Tensor:
    return torch.empty_like(logits).exponential_(generator=generator)


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of `size` actions; the parameters are logits x. Actions are int64 [...].

    log p(a) = x_a - log Σ_i exp x_i,  H = -Σ_a p(a) log p(a),  KL(p || q) = Σ_a p(a) (log p(a) - log q(a))
    """

    size: int

    @property
    def num_params(self) -> int:
        return self.size

    def sample(self, params: Params, generator: Generator) -> Int[Tensor, "*batch"]:
        logits = params.detach()
        return _gumbel_argmax(logits, _exponentials(logits, generator))

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
    """Independent categoricals, one per dimension; the parameters are the logits of all dimensions, side by side.

    Actions are int64 [..., len(sizes)]. Log-probabilities, entropies and divergences are sums over dimensions.
    """

    sizes: tuple[int, ...]

    @property
    def num_params(self) -> int:
        return sum(self.sizes)

    def sample(self, params: Params, generator: Generator) -> Int[Tensor, "*batch D"]:
        logits = params.detach()
        pairs = zip(self._split(logits), self._split(_exponentials(logits, generator)), strict=True)
        return torch.stack([_gumbel_argmax(*pair) for pair in pairs], -1)

    def mode(self, params: Params) -> Int[Tensor, "*batch D"]:
        return torch.stack([part.argmax(-1) for part in self._split(params)], -1)

    def log_prob(self, params: Params, actions: Int[Tensor, "*batch D"]) -> PerRow:
        each = zip(self._parts, self._split(params), actions.unbind(-1), strict=True)
        return torch.stack([part.log_prob(logits, action) for part, logits, action in each]).sum(0)

    def entropy(self, params: Params) -> PerRow:
        each = zip(self._parts, self._split(params), strict=True)
        return torch.stack([part.entropy(logits) for part, logits in each]).sum(0)

    def kl(self, p: Params, q: Params) -> PerRow:
        each = zip(self._parts, self._split(p), self._split(q), strict=True)
        return torch.stack([part.kl(a, b) for part, a, b in each]).sum(0)

    @property
    def _parts(self) -> list[Categorical]:
        return [Categorical(size) for size in self.sizes]

    def _split(self, logits: Tensor) -> tuple[Tensor, ...]:
        return torch.split(logits, list(self.sizes), -1)


@dataclass(frozen=True, slots=True)
class MultiBinary:
    """`size` independent Bernoulli variables; the parameters are logits x of a 1. Actions are int64 [..., size].

    log p(a) = Σ_i log σ(±x_i), + where a_i is 1;  H and KL are also sums over the variables.
    """

    size: int

    @property
    def num_params(self) -> int:
        return self.size

    def sample(self, params: Params, generator: Generator) -> Int[Tensor, "*batch P"]:
        uniforms = torch.empty_like(params, requires_grad=False).uniform_(generator=generator)
        return (uniforms < params.detach().sigmoid()).long()

    def mode(self, params: Params) -> Int[Tensor, "*batch P"]:
        return (params > 0).long()

    def log_prob(self, params: Params, actions: Int[Tensor, "*batch P"]) -> PerRow:
        return F.logsigmoid(params * (2 * actions - 1)).sum(-1)

    def entropy(self, params: Params) -> PerRow:
        return self._cross_entropy(params, params)

    def kl(self, p: Params, q: Params) -> PerRow:
        return self._cross_entropy(p, q) - self._cross_entropy(p, p)

    @staticmethod
    def _cross_entropy(p: Tensor, q: Tensor) -> Tensor:
        return -(p.sigmoid() * F.logsigmoid(q) + (-p).sigmoid() * F.logsigmoid(-q)).sum(-1)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """`size` independent normal variables; the parameters are the means μ, then the logs of the standard deviations σ.

    log p(a) = Σ_i -½ ((a_i - μ_i) / σ_i)² - log σ_i - ½ log 2π,  H = Σ_i log σ_i + ½ + ½ log 2π
    KL(p || q) = Σ_i ½ (σ_p² / σ_q² + (μ_p - μ_q)² / σ_q² - 1) - log (σ_p / σ_q)

    Actions are floats [..., size], not clipped to bounds: densities are those of the unclipped samples.
    """

    size: int

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
        return (-0.5 * ((actions - mean) * (-log_std).exp()).square() - log_std - _LOG_ROOT_2PI).sum(-1)

    def entropy(self, params: Params) -> PerRow:
        return (params.chunk(2, -1)[1] + (0.5 + _LOG_ROOT_2PI)).sum(-1)

    def kl(self, p: Params, q: Params) -> PerRow:
        (mean_p, log_std_p), (mean_q, log_std_q) = p.chunk(2, -1), q.chunk(2, -1)
        log_ratio = log_std_p - log_std_q
        distance = ((mean_p - mean_q) * (-log_std_q).exp()).square()
        return (0.5 * ((2 * log_ratio).exp() + distance - 1) - log_ratio).sum(-1)


Distribution = Categorical | MultiDiscrete | MultiBinary | Gaussian


def make_distribution(action: ActionSpec) -> Distribution:
    """The distribution over actions of the kind `action`."""
    match action.kind:
        case "discrete":
            return Categorical(action.sizes[0])
        case "multi_discrete":
            return MultiDiscrete(action.sizes)
        case "multi_binary":
            return MultiBinary(len(action.sizes))
        case "box":
            return Gaussian(action.sizes[0])
