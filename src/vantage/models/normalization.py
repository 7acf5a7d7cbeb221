"""Normalisers of vectors, images and features by running statistics. Rewards are in `learning.reward_normalizer`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vantage.models.running_stats import RunningStats

CLIP = 10.0
"""Normalised values are clipped to this many standard deviations."""

EPSILON = 1e-5

RATE = 0.01
"""Smallest weight of a new batch in BatchNorm's statistics; the first 1/RATE batches all have the same weight."""


class ObsNormalizer(RunningStats):
    """y = clip((x - m) / √(s² + 1e-8), ±10), with running mean m and variance s² of the observations.

    Statistics start at mean 0 and variance 1. They change only in `update`, so acting and learning on one rollout use
    the same function.
    """

    def forward(self, x: Tensor) -> Tensor:
        """`x` [..., N] normalised."""
        return ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp(-CLIP, CLIP)

    def update(self, x: Tensor) -> None:
        """Merge the observations `x` [..., N] into the statistics, in place."""
        device = (self.local_stats or self.stats)[0].device
        self.merge(*self._batch_stats(x.to(device)))

    def _batch_stats(self, x: Tensor) -> tuple[int, Tensor, Tensor]:
        """Count, mean and variance of `x`."""
        batch = x.flatten(0, -2).double()
        return batch.shape[0], batch.mean(0), batch.var(0, correction=0)


class ImageNormalizer(ObsNormalizer):
    """`ObsNormalizer` for images: one mean and one deviation over all pixels of images of any size."""

    def __init__(self) -> None:
        super().__init__(1)

    def _batch_stats(self, x: Tensor) -> tuple[int, Tensor, Tensor]:
        variance, mean = torch.var_mean(x.float(), correction=0)
        return x.numel(), mean.double().view(1), variance.double().view(1)


class PixelNormalizer(RunningStats):
    """y = clip((x - m) / max(s, 4), ±5), with the mean m and deviation s of each pixel x from 0 to 255.

    Without the floor and the clip a sprite on a pixel that hardly ever changes would be a huge input. Every frame of a
    stack has the same statistics. The output is in the units of pixels, times 255: torsos divide by that.
    """

    LEAST_DEVIATION, CLIP = 4.0, 5.0

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(math.prod(shape))
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Stacked images `x` [N, k*C, H, W] as floats, normalised."""
        scale = 255 / self.var.sqrt().clamp(min=self.LEAST_DEVIATION)
        repeats = (x.shape[1] // self.shape[0], 1, 1)
        shift = (-self.mean * scale).view(self.shape).repeat(repeats).to(memory_format=torch.contiguous_format)
        scale = scale.view(self.shape).repeat(repeats)
        if x.is_contiguous(memory_format=torch.channels_last):
            scale, shift = (part.unsqueeze(0).contiguous(memory_format=torch.channels_last) for part in (scale, shift))
        return torch.addcmul(shift, x, scale).clamp_(-255 * self.CLIP, 255 * self.CLIP)

    def update(self, x: Tensor) -> None:
        """Merge the images `x` [..., C, H, W] into the statistics, in place."""
        batch = x.reshape(-1, math.prod(self.shape)).float()
        variance, mean = torch.var_mean(batch, 0, correction=0)
        self.merge(batch.shape[0], mean, variance)


class BatchNorm(RunningStats):
    """Batch renormalisation without limits on its corrections: Ioffe 2017, arXiv:1702.03275.

    y = g clip((x - μ) / √(σ² + ε), ±10) + b, with the running mean μ and variance σ² of each channel

    The output depends only on the running statistics, so acting and learning evaluate the same policy. The gradient
    flows through the mean and deviation of the training batch, as in batch normalisation:
    (x - μ)/σ = r (x - μ_B)/σ_B + d with constants r and d. Otherwise the earlier layers' scale and shift would receive
    gradients that later statistics cancel. Statistics start at mean 0 and variance 1, and change only in `update`.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.batch: tuple[int, Tensor, Tensor] | None = None
        """Count, mean and variance of the last batch with gradients."""

    def forward(self, x: Tensor) -> Tensor:
        """`x` [N, C, ...] normalised over all but the channels."""
        shape = (-1, *(1,) * (x.dim() - 2))
        factor = scale = (self.var + EPSILON).rsqrt()
        y, shift = x.to(scale.dtype), -self.mean
        if torch.is_grad_enabled() and self.training:
            y, mean, inverse = torch.native_batch_norm(y, None, None, None, None, True, 0.0, EPSILON)
            self.batch = x.numel() // x.shape[1], mean, (inverse.pow(-2) - EPSILON).clamp(min=0)
            factor, shift = scale / inverse, mean - self.mean
        y = torch.addcmul((shift * scale).view(shape), y, factor.view(shape)).clamp(-CLIP, CLIP)
        return torch.addcmul(self.bias.view(shape), y, self.weight.view(shape)).to(x.dtype)

    def update(self) -> None:
        """Merge the last batch with gradients into the statistics, in place, and drop it."""
        if self.batch is not None:
            size, mean, variance = self.batch
            self.merge(size, mean, variance, most=size * (1 / RATE - 1))
        self.batch = None
