"""Action distributions as pure functions of their parameters [..., P]; what computes the parameters is not here.

The parameters of an action say all about how it was drawn: masked logits are already masked, a Gaussian's mean and
deviation already squashed and floored (`vantage.models.heads`), so that a stored row can be evaluated years later. P is
`num_params`. Every method keeps the leading dimensions. `sample` needs a generator on the parameters' device and is a
function of that generator's state alone; gradients never flow through a sample. Entropies are in nats.
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
"""Logit of an action that is not allowed. exp(-1e9 - x) is exactly 0 in float32 and float64 for any logit x that a
network gives, so the allowed ones keep their probabilities to the last bit; and unlike -inf it makes no NaN: 0 * MASKED
is 0 in the entropy and in every gradient."""

_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)

Params = Float[Tensor, "*batch P"]
PerRow = Float[Tensor, "*batch"]
Mask = Bool[Tensor, "*batch P"] | None


def mask_logits(logits: Params, mask: Mask) -> Params:
    """`logits` with `MASKED` where `mask` is False; no gradient reaches those."""
    return logits if mask is None else torch.where(mask, logits, MASKED)


def _gumbel_argmax(logits: Tensor, exponentials: Tensor) -> Tensor:
    # argmax(logit - log E), E ~ Exp(1), is a draw from softmax(logits); torch's exponential_ never returns 0.
    return (logits - exponentials.log()).argmax(-1)


def _exponentials(logits: Tensor, generator: Generator) -> Tensor:
    return torch.empty_like(logits).exponential_(generator=generator)


def _categorical_log_prob(logits: Tensor, actions: Tensor) -> Tensor:
    return F.log_softmax(logits, -1).gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def _categorical_entropy(logits: Tensor) -> Tensor:
    log_probs = F.log_softmax(logits, -1)
    return -(log_probs.exp() * log_probs).sum(-1)


def _categorical_kl(p: Tensor, q: Tensor) -> Tensor:
    log_p = F.log_softmax(p, -1)
    return (log_p.exp() * (log_p - F.log_softmax(q, -1))).sum(-1)


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of `size` actions; the parameters are logits. Actions are int64 [...]."""

    size: int

    @property
    def num_params(self) -> int:
        return self.size

    def sample(self, params: Params, generator: Generator, mask: Mask = None) -> Int[Tensor, "*batch"]:
        logits = mask_logits(params.detach(), mask)
        return _gumbel_argmax(logits, _exponentials(logits, generator))

    def mode(self, params: Params, mask: Mask = None) -> Int[Tensor, "*batch"]:
        return mask_logits(params, mask).argmax(-1)

    def log_prob(self, params: Params, actions: Int[Tensor, "*batch"], mask: Mask = None) -> PerRow:
        return _categorical_log_prob(mask_logits(params, mask), actions)

    def entropy(self, params: Params, mask: Mask = None) -> PerRow:
        return _categorical_entropy(mask_logits(params, mask))

    def kl(self, p: Params, q: Params) -> PerRow:
        """KL(p || q)."""
        return _categorical_kl(p, q)


@dataclass(frozen=True, slots=True)
class MultiDiscrete:
    """Independent categoricals, one per dimension; logits and masks are those of the dimensions side by side.

    Actions are int64 [..., len(sizes)]; log-probabilities, entropies and divergences are summed over dimensions.
    """

    sizes: tuple[int, ...]

    @property
    def num_params(self) -> int:
        return sum(self.sizes)

    def sample(self, params: Params, generator: Generator, mask: Mask = None) -> Int[Tensor, "*batch D"]:
        logits = mask_logits(params.detach(), mask)
        noise = self._split(_exponentials(logits, generator))
        return torch.stack([_gumbel_argmax(*pair) for pair in zip(self._split(logits), noise, strict=True)], -1)

    def mode(self, params: Params, mask: Mask = None) -> Int[Tensor, "*batch D"]:
        return torch.stack([part.argmax(-1) for part in self._split(mask_logits(params, mask))], -1)

    def log_prob(self, params: Params, actions: Int[Tensor, "*batch D"], mask: Mask = None) -> PerRow:
        pairs = zip(self._split(mask_logits(params, mask)), actions.unbind(-1), strict=True)
        return torch.stack([_categorical_log_prob(*pair) for pair in pairs]).sum(0)

    def entropy(self, params: Params, mask: Mask = None) -> PerRow:
        return torch.stack([_categorical_entropy(part) for part in self._split(mask_logits(params, mask))]).sum(0)

    def kl(self, p: Params, q: Params) -> PerRow:
        """KL(p || q)."""
        pairs = zip(self._split(p), self._split(q), strict=True)
        return torch.stack([_categorical_kl(*pair) for pair in pairs]).sum(0)

    def _split(self, logits: Tensor) -> tuple[Tensor, ...]:
        return torch.split(logits, list(self.sizes), -1)


@dataclass(frozen=True, slots=True)
class MultiBinary:
    """`size` independent Bernoulli variables; the parameters are logits of a 1. Actions are int64 [..., size].

    There are no masks for these; a model for masked multi-binary actions is refused when it is built.
    """

    size: int

    @property
    def num_params(self) -> int:
        return self.size

    def sample(self, params: Params, generator: Generator, mask: None = None) -> Int[Tensor, "*batch P"]:
        uniforms = torch.empty_like(params, requires_grad=False).uniform_(generator=generator)
        return (uniforms < params.detach().sigmoid()).long()

    def mode(self, params: Params, mask: None = None) -> Int[Tensor, "*batch P"]:
        return (params > 0).long()

    def log_prob(self, params: Params, actions: Int[Tensor, "*batch P"], mask: None = None) -> PerRow:
        return F.logsigmoid(params * (2 * actions - 1)).sum(-1)

    def entropy(self, params: Params, mask: None = None) -> PerRow:
        return self._cross_entropy(params, params)

    def kl(self, p: Params, q: Params) -> PerRow:
        """KL(p || q)."""
        return self._cross_entropy(p, q) - self._cross_entropy(p, p)

    @staticmethod
    def _cross_entropy(p: Tensor, q: Tensor) -> Tensor:
        return -(p.sigmoid() * F.logsigmoid(q) + (-p).sigmoid() * F.logsigmoid(-q)).sum(-1)


@dataclass(frozen=True, slots=True)
class Gaussian:
    """`size` independent normal variables; the parameters are the means, then the logs of the standard deviations.

    Actions are floats [..., size] and not clipped to any bounds: the density is that of what was drawn.
    """

    size: int

    @property
    def num_params(self) -> int:
        return 2 * self.size

    def sample(self, params: Params, generator: Generator, mask: None = None) -> Float[Tensor, "*batch D"]:
        mean, log_std = params.detach().chunk(2, -1)
        return mean + log_std.exp() * torch.empty_like(mean).normal_(generator=generator)

    def mode(self, params: Params, mask: None = None) -> Float[Tensor, "*batch D"]:
        return params.chunk(2, -1)[0]

    def log_prob(self, params: Params, actions: Float[Tensor, "*batch D"], mask: None = None) -> PerRow:
        mean, log_std = params.chunk(2, -1)
        return (-0.5 * ((actions - mean) * (-log_std).exp()).square() - log_std - _LOG_ROOT_2PI).sum(-1)

    def entropy(self, params: Params, mask: None = None) -> PerRow:
        return (params.chunk(2, -1)[1] + (0.5 + _LOG_ROOT_2PI)).sum(-1)

    def kl(self, p: Params, q: Params) -> PerRow:
        """KL(p || q)."""
        (mean_p, log_std_p), (mean_q, log_std_q) = p.chunk(2, -1), q.chunk(2, -1)
        log_ratio = log_std_p - log_std_q
        distance = ((mean_p - mean_q) * (-log_std_q).exp()).square()
        return (0.5 * ((2 * log_ratio).exp() + distance - 1) - log_ratio).sum(-1)


Distribution = Categorical | MultiDiscrete | MultiBinary | Gaussian


def make_distribution(action: ActionSpec) -> Distribution:
    """The distribution over the actions that `action` describes."""
    match action.kind:
        case "discrete":
            return Categorical(action.sizes[0])
        case "multi_discrete":
            return MultiDiscrete(action.sizes)
        case "multi_binary":
            return MultiBinary(len(action.sizes))
        case "box":
            return Gaussian(action.sizes[0])
