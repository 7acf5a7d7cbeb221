"""Running statistics: count, mean and variance of all samples so far. The normalisers that use them are not here."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

INITIAL_STATS = (1e-4, 0.0, 1.0)
"""Count, mean and variance before the first sample: variance 1 has the weight of a ten-thousandth of a sample."""

Stats = tuple[Tensor, Tensor, Tensor]
"""Count [] float64, mean and variance [N]."""


class RunningStats(nn.Module):
    """Base of normalisers with Stats [N] as buffers, which change only in `merge`."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        count, mean, var = INITIAL_STATS
        self.register_buffer("mean", torch.full((size,), mean))
        self.register_buffer("var", torch.full((size,), var))
        self.register_buffer("count", torch.tensor(count, dtype=torch.float64))
        self.local_stats: Stats | None = None
        """The statistics that `merge` updates; None: the buffers. Processes that share weights each update their own,
        and the buffers receive the merged statistics of all."""

    @property
    def stats(self) -> Stats:
        """The buffers."""
        return self.count, self.mean, self.var

    @torch.no_grad()
    def merge(self, size: int, mean: Tensor, variance: Tensor, *, most: float = math.inf) -> None:
        """Merge a batch of `size` in place; the samples before it count as at most `most`."""
        stats = self.local_stats or self.stats
        device = stats[0].device
        count = torch.tensor(size, dtype=torch.float64, device=device)
        merged = merge_stats(stats[0].clamp(max=most), stats[1].double(), stats[2].double(), count,
                             mean.to(device).double(), variance.to(device).double())
        for statistic, value in zip(stats, merged, strict=True):
            statistic.copy_(value)

    def share(self, other: RunningStats) -> None:
        """Use the buffers of `other` from now on, so that every change to them applies here too."""
        self.count, self.mean, self.var = other.stats


def merge_stats(count: Tensor, mean: Tensor, variance: Tensor, new_count: Tensor, new_mean: Tensor,
                new_variance: Tensor) -> Stats:
    """Stats of the union of two samples.

    n = n₁ + n₂,  δ = m₂ - m₁;  m = m₁ + δ n₂/n,  s² = (n₁ s₁² + n₂ s₂² + δ² n₁ n₂/n) / n
                                                    Chan, Golub and LeVeque 1979, STAN-CS-79-773, eq. 2.1
    """
    total, delta = count + new_count, new_mean - mean
    squares = variance * count + new_variance * new_count + delta.square() * (count * new_count / total)
    return total, mean + delta * (new_count / total), squares / total
