"""The running normalisers of observations. Those of features (models/batch_norm.py) and of rewards
(learning/normalize.py) are not here."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

FRESH_COUNT = 1e-4
"""Before anything was seen, variance 1 has the weight of a ten-thousandth of a sample."""

CLIP = 10.0
"""What is further than so many deviations from the mean, is brought there."""


class ObsNormalizer(nn.Module):
    """Observations minus their running mean, over their running deviation, clipped to [-10, 10].

    The statistics are buffers and change only in `update`, so acting and learning on a rollout see the same function.
    They start at mean 0 and variance 1.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.tensor(FRESH_COUNT, dtype=torch.float64))
        self.seen: tuple[Tensor, Tensor, Tensor] | None = None
        """Count, mean and variance that `update` moves; None: those of the function itself. Where several processes
        learn, each moves its own, and the function takes what they merge to."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., N] normalised."""
        return ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Merge the observations `x` [..., N] into the statistics, in place."""
        seen = self.seen or (self.count, self.mean, self.var)
        take_in(seen, *self._moments(x.to(seen[0].device)))

    def _moments(self, x: Tensor) -> tuple[int, Tensor, Tensor]:
        """Count, mean and variance of `x`."""
        batch = x.flatten(0, -2).double()
        return batch.shape[0], batch.mean(0), batch.var(0, correction=0)


class PixelNormalizer(ObsNormalizer):
    """The same for images: one mean and one deviation of all pixels, whatever the shape."""

    def __init__(self) -> None:
        super().__init__(1)

    def _moments(self, x: Tensor) -> tuple[int, Tensor, Tensor]:
        variance, mean = torch.var_mean(x.float(), correction=0)
        return x.numel(), mean.double().view(1), variance.double().view(1)


def take_in(seen: tuple[Tensor, Tensor, Tensor], size: int, mean: Tensor, variance: Tensor, *,
            most: float = math.inf) -> None:
    """Merge a sample into count, mean and variance, in place; what was seen before counts as at most `most`."""
    device = seen[0].device
    count = torch.tensor(size, dtype=torch.float64, device=device)
    merged = merge_moments(seen[0].clamp(max=most), seen[1].double(), seen[2].double(), count,
                           mean.to(device).double(), variance.to(device).double())
    for statistic, value in zip(seen, merged, strict=True):
        statistic.copy_(value)


def merge_moments(count: Tensor, mean: Tensor, variance: Tensor, new_count: Tensor, new_mean: Tensor,
                  new_variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and variance of two samples together, from those of each.

    Chan, Golub and LeVeque 1979, STAN-CS-79-773, eq. 2.1.
    """
    total, delta = count + new_count, new_mean - mean
    squares = variance * count + new_variance * new_count + delta.square() * (count * new_count / total)
    return total, mean + delta * (new_count / total), squares / total
