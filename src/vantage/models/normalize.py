"""The running normaliser of vector observations. The normaliser of rewards is not here (learning/normalize.py)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ObsNormalizer(nn.Module):
    """Observations minus their running mean, over their running deviation, clipped to [-10, 10].

    The statistics are buffers and change only in `update`, so acting and learning on a rollout see the same function.
    They start at mean 0 and variance 1 with the weight of a ten-thousandth of an observation.
    """

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.tensor(1e-4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., N] normalised."""
        return ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp(-10, 10)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Merge the observations `x` [..., N] into the statistics, in place.

        Chan, Golub and LeVeque 1979, STAN-CS-79-773, eq. 2.1.
        """
        batch = x.flatten(0, -2).double()
        n, mean, var = batch.shape[0], self.mean.double(), self.var.double()
        total = self.count + n
        delta = batch.mean(0) - mean
        squares = var * self.count + batch.var(0, correction=0) * n + delta.square() * (self.count * n / total)
        self.mean.copy_(mean + delta * (n / total))
        self.var.copy_(squares / total)
        self.count.copy_(total)
