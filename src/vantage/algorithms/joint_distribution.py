"""Distributions of whole actions: of a single space, or of Dict and Tuple spaces part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from vantage.algorithms.bounded_distributions import Beta, SquashedGaussian
from vantage.algorithms.distributions import Categorical, Gaussian, MultiDiscrete, Params, PerRow
from vantage.types import ActionSpec

Part = Categorical | MultiDiscrete | Gaussian | SquashedGaussian | Beta
"""The distribution of an action without parts."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Independent distributions of the parts of an action, discrete and continuous.

    log p(a) = Σ_i log p_i(a_i); entropies are sums as well.

    Parameters and actions of all parts are side by side. Actions are floats [..., D], in which
    choices are whole numbers; float32 holds those of up to 2^24 exactly.
    """

    parts: tuple[Part, ...]

    @property
    def num_params(self) -> int:
        return sum(part.num_params for part in self.parts)

    def sample(self, params: Params, generator: Generator) -> Float[Tensor, "*batch D"]:
        return self._joined(params, lambda part, own: part.sample(own, generator))

    def mode(self, params: Params) -> Float[Tensor, "*batch D"]:
        return self._joined(params, lambda part, own: part.mode(own))

    def log_prob(self, params: Params, actions: Float[Tensor, "*batch D"]) -> PerRow:
        columns = torch.split(actions, [_width(part) for part in self.parts], -1)
        pairs = zip(self.split(params), columns, strict=True)
        return _total(part.log_prob(own, _without_columns(part, taken))
                      for (part, own), taken in pairs)

    def entropy(self, params: Params) -> PerRow:
        return _total(part.entropy(own) for part, own in self.split(params))

    def split(self, params: Params) -> Iterator[tuple[Any, Tensor]]:
        """Each part with its own parameters."""
        sizes = [part.num_params for part in self.parts]
        return zip(self.parts, torch.split(params, sizes, -1), strict=True)

    def _joined(self, params: Tensor, choose: Callable[[Any, Tensor], Tensor]) -> Tensor:
        columns = []
        for part, own in self.split(params):
            chosen = choose(part, own).to(params.dtype)
            columns.append(chosen.unsqueeze(-1) if isinstance(part, Categorical) else chosen)
        return torch.cat(columns, -1)


Distribution = Part | Joint


def make_distribution(action: ActionSpec, bounded: str = "gaussian") -> Distribution:
    """The distribution of `action`; `bounded` is `PolicyConfig.distribution`, for Boxes."""
    match action.kind:
        case "discrete":
            return Categorical(action.sizes[0])
        case "multi_discrete":
            return MultiDiscrete(action.sizes)
        case "joint":
            parts: list[Any] = [make_distribution(part, bounded) for part in action.parts.values()]
            return Joint(tuple(parts))
    if bounded == "gaussian":
        return Gaussian(action.sizes[0])
    kind = Beta if bounded == "beta" else SquashedGaussian
    return kind(*action.policy_bounds)


def _width(part: Part) -> int:
    """Numbers of one action."""
    if isinstance(part, MultiDiscrete):
        return len(part.sizes)
    return 1 if isinstance(part, Categorical) else part.num_params // 2


def _without_columns(part: Part, columns: Tensor) -> Tensor:
    """Actions as `part` takes them, from their columns in a row."""
    if isinstance(part, Categorical):
        return columns.squeeze(-1).long()
    return columns.long() if isinstance(part, MultiDiscrete) else columns


def _total(terms: Iterator[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum(0)
