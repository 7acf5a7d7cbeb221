"""Batch normalisation for policies: what acts is what is learnt. The normalisers of observations are not here."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vantage.models.normalize import CLIP
from vantage.models.running_stats import RunningMoments

EPSILON = 1e-5

RATE = 0.01
"""Least weight of an update's batch in the statistics of what its worker has seen; before as many were seen, all weigh
the same."""


class BatchNorm(RunningMoments):
    """Batch renormalisation without limits on its corrections: Ioffe 2017, arXiv:1702.03275.

    y = g clip((x - μ) / √(σ² + ε), ±10) + b, with the running mean μ and variance σ² of each channel

    The value goes by the running statistics wherever it is asked for: a policy whose own batch normalised it would not
    be the one that acted, one step of a few environments at a time. The gradient goes through the mean and deviation of
    the batch that is learnt from, as in batch normalisation: (x - μ)/σ = r (x - μ_B)/σ_B + d with constants r and d.
    Where the weights' scale and shift had a gradient, they would chase statistics that undo them.

    The statistics change only in `update`. They start at mean 0 and variance 1.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.batch: tuple[int, Tensor, Tensor] | None = None
        """Count, mean and variance of the batch that gradients were last asked of."""

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
        """Merge the batch that was last learnt from into the statistics, in place, and forget it."""
        if self.batch is not None:
            size, mean, variance = self.batch
            self.merge(size, mean, variance, most=size * (1 / RATE - 1))
        self.batch = None
