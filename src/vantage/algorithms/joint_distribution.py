"""Distributions of whole actions: of a single space, or of Dict and Tuple spaces part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from vantage.algorithms.bounded_distributions import Beta, SquashedGaussian
from vantage.algorithms.distributions import Categorical, Gaussian, MultiDiscrete, Params, PerRow
from vantage.types import ActionSpec

Part = MultiDiscrete | Gaussian | SquashedGaussian | Beta
"""The distribution of a part of an action; MultiDiscrete with one size for a Discrete part."""


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
        return torch.cat([part.sample(own, generator).to(params.dtype)
                          for part, own in self.split(params)], -1)

    def mode(self, params: Params) -> Float[Tensor, "*batch D"]:
        return torch.cat([part.mode(own).to(params.dtype) for part, own in self.split(params)], -1)

    def log_prob(self, params: Params, actions: Float[Tensor, "*batch D"]) -> PerRow:
        columns = torch.split(actions, [_width(part) for part in self.parts], -1)
        return _total(
            part.log_prob(own, taken.long() if isinstance(part, MultiDiscrete) else taken)
            for (part, own), taken in zip(self.split(params), columns, strict=True))

    def entropy(self, params: Params) -> PerRow:
        return _total(part.entropy(own) for part, own in self.split(params))

    def split(self, params: Params) -> Iterator[tuple[Any, Tensor]]:
        """Each part with its own parameters."""
        sizes = [part.num_params for part in self.parts]
        return zip(self.parts, torch.split(params, sizes, -1), strict=True)


Distribution = Categorical | Part | Joint


def make_distribution(action: ActionSpec, bounded: str = "gaussian") -> Distribution:
    """The distribution of `action`; `bounded` is `PolicyConfig.distribution`, for Boxes."""
    match action.kind:
        case "discrete":
            return Categorical(action.sizes[0])
        case "multi_discrete":
            return MultiDiscrete(action.sizes)
        case "joint":
            parts: list[Any] = [
                MultiDiscrete(part.sizes) if part.kind == "discrete"
                else make_distribution(part, bounded) for part in action.parts.values()]
            return Joint(tuple(parts))
    if bounded == "gaussian":
        return Gaussian(action.sizes[0], *action.policy_bounds)
    kind = Beta if bounded == "beta" else SquashedGaussian
    return kind(*action.policy_bounds)


def _width(part: Part) -> int:
    """Numbers of one action."""
    return len(part.sizes) if isinstance(part, MultiDiscrete) else part.num_params // 2


def _total(terms: Iterator[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum(0)
