"""Running moments: count, mean and variance of all that was seen, sample by sample. What they normalise is not here."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

INITIAL_STATS = (1e-4, 0.0, 1.0)
"""Count, mean and variance before anything was seen: variance 1 has the weight of a ten-thousandth of a sample."""

Stats = tuple[Tensor, Tensor, Tensor]
"""Count [] float64, mean and variance [N]."""


class RunningStats(nn.Module):
    """Stats [N] as buffers, for what normalises by them. They change only in `merge`."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        count, mean, var = INITIAL_STATS
        self.register_buffer("mean", torch.full((size,), mean))
        self.register_buffer("var", torch.full((size,), var))
        self.register_buffer("count", torch.tensor(count, dtype=torch.float64))
        self.seen: Stats | None = None
        """What `merge` moves; None: the buffers. Where several processes learn, each moves its own, and the buffers
        take what they merge to."""

    @property
    def stats(self) -> Stats:
        """The buffers."""
        return self.count, self.mean, self.var

    @torch.no_grad()
    def merge(self, size: int, mean: Tensor, variance: Tensor, *, most: float = math.inf) -> None:
        """Take in a sample of `size`, in place; what was seen before counts as at most `most`."""
        seen = self.seen or self.stats
        device = seen[0].device
        count = torch.tensor(size, dtype=torch.float64, device=device)
        merged = merge_stats(seen[0].clamp(max=most), seen[1].double(), seen[2].double(), count,
                               mean.to(device).double(), variance.to(device).double())
        for statistic, value in zip(seen, merged, strict=True):
            statistic.copy_(value)

    def share(self, other: RunningStats) -> None:
        """From now on use the buffers of `other`, whatever it does to them."""
        self.count, self.mean, self.var = other.stats


def merge_stats(count: Tensor, mean: Tensor, variance: Tensor, new_count: Tensor, new_mean: Tensor,
                  new_variance: Tensor) -> Stats:
    """Stats of two samples together, from those of each.

    n = n₁ + n₂,  δ = m₂ - m₁;  m = m₁ + δ n₂/n,  s² = (n₁ s₁² + n₂ s₂² + δ² n₁ n₂/n) / n
                                                    Chan, Golub and LeVeque 1979, STAN-CS-79-773, eq. 2.1
    """
    total, delta = count + new_count, new_mean - mean
    squares = variance * count + new_variance * new_count + delta.square() * (count * new_count / total)
    return total, mean + delta * (new_count / total), squares / total
