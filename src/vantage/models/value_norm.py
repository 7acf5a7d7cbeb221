"""Normalisation of the critic's values by the statistics of their targets: PopArt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from vantage.models.config import PolicyConfig
from vantage.models.normalization import INITIAL_STATS, RATE, RunningStats, Stats

_LEAST_DEVIATION = 1e-4  # Hessel et al. 2018, section "PopArt"
_NAME = "value_norm."


class ValueNormalizer(RunningStats):
    """The mean μ and deviation σ of value targets, for a head n with V = σ n + μ.

    Where they change, the head is rescaled so that V stays as it was: van Hasselt et al. 2016,
    arXiv:1602.07714; Hessel et al. 2018, arXiv:1809.04474. Losses take rewards and values divided
    by σ, so that errors of the critic are those of n, and advantages are in units of σ.
    """

    of = "value targets"
    instead = "--value-norm none"

    @property
    def deviation(self) -> Tensor:
        return self.var.sqrt().clamp(min=_LEAST_DEVIATION)

    def forward(self, x: Tensor) -> Tensor:
        """V / σ for the head's outputs [...]."""
        return x + self.mean / self.deviation

    def follow(self, targets: Stats, heads: Iterable[nn.Linear]) -> None:
        """Merge new targets, which weigh at least RATE, and rescale the `heads`."""
        mean = self.mean.clone()
        deviation = self.deviation
        self.merge(*targets, most=float(targets[0]) * (1 / RATE - 1))
        with torch.no_grad():
            for head in heads:
                head.weight.mul_(deviation / self.deviation)
                head.bias.mul_(deviation).add_(mean - self.mean).div_(self.deviation)


def with_value_norm(tensors: Mapping[str, Tensor], policy: PolicyConfig) -> Mapping[str, Tensor]:
    """Saved `tensors` for a model with the `value_norm` of `policy`, with the same values."""
    if (f"{_NAME}mean" in tensors) == (policy.value_norm == "popart"):
        return tensors
    if policy.value_norm == "popart":
        count, mean, variance = INITIAL_STATS
        like = {"mean": torch.tensor([mean]), "var": torch.tensor([variance]),
                "count": torch.tensor(count, dtype=torch.float64)}
        return {**tensors, **{f"{_NAME}{name}": tensor for name, tensor in like.items()}}
    deviation = tensors[f"{_NAME}var"].sqrt().clamp(min=_LEAST_DEVIATION)
    rest = {name: tensor for name, tensor in tensors.items() if not name.startswith(_NAME)}
    rest["value_head.weight"] = tensors["value_head.weight"] * deviation
    rest["value_head.bias"] = tensors["value_head.bias"] * deviation + tensors[f"{_NAME}mean"]
    return rest
