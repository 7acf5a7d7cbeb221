"""The running normalisers of observations. Those of features (models/batch_norm.py) and of rewards
(learning/normalize.py) are not here."""

from __future__ import annotations

import torch
from torch import Tensor

from vantage.models.running_stats import RunningMoments

CLIP = 10.0
"""What is further than so many deviations from the mean, is brought there."""


class ObsNormalizer(RunningMoments):
    """Observations minus their running mean, over their running deviation, clipped to [-10, 10].

    y = clip((x - m) / √(s² + 1e-8), ±10)

    The moments change only in `update`, so acting and learning on a rollout see the same function. They start at mean 0
    and variance 1.
    """

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., N] normalised."""
        return ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp(-CLIP, CLIP)

    def update(self, x: Tensor) -> None:
        """Merge the observations `x` [..., N] into the moments, in place."""
        where, _, _ = self.seen or self.moments
        self.merge(*self._moments(x.to(where.device)))

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
