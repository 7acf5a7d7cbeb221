"""Running statistics, and the normalisers of vectors, images and features that use them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vantage.errors import NonFiniteError

INITIAL_STATS = (1e-4, 0.0, 1.0)  # count, mean and variance before the first sample
CLIP = 10.0  # standard deviations
EPSILON = 1e-5
# smallest weight of a new batch in BatchNorm's statistics; the first 1/RATE batches weigh the same
RATE = 0.01

Stats = tuple[Tensor, Tensor, Tensor]
"""Count [] float64, mean and variance [N]."""

Batch = tuple[Callable[[Tensor, Tensor, Tensor], None], Stats]
"""The `merge` of running statistics, and the Stats of new samples for it."""


class RunningStats(nn.Module):
    """Base of normalisers, with Stats [N] as buffers.

    Training changes the statistics with `merge`. With several processes, a sink may overwrite them
    by the statistics of other processes.
    """

    of: ClassVar = "observations"
    """What is normalised, for messages."""
    instead: ClassVar = "--no-obs-norm"
    """The flag that switches the normalisation off, for messages."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((size,), INITIAL_STATS[1]))
        self.register_buffer("var", torch.full((size,), INITIAL_STATS[2]))
        self.register_buffer("count", torch.tensor(INITIAL_STATS[0], dtype=torch.float64))
        self.local_stats: Stats | None = None
        """The statistics that `merge` updates if processes share the buffers; None: the buffers."""

    @property
    def stats(self) -> Stats:
        return self.count, self.mean, self.var

    @torch.no_grad()
    def merge(self, count: Tensor, mean: Tensor, variance: Tensor, *,
              most: float = math.inf) -> None:
        """Merge a batch of `count` samples in place; earlier samples count as at most `most`.

        Raises NonFiniteError, without merging, if the variance overflows its type.
        """
        stats = self.local_stats or self.stats
        before = (stats[0].clamp(max=most), stats[1], stats[2])
        rows = [torch.stack([old.double(), new.to(old.device, torch.float64)])
                for old, new in zip(before, (count, mean, variance), strict=True)]
        merged = merge_rows(*rows)
        if not merged[2].to(stats[2].dtype).isfinite().all():
            place = int(merged[2].argmax())
            raise NonFiniteError(f"the running statistics of {self.of} overflow at index {place}, "
                                 f"where the new mean is {mean.flatten()[place].item():.3g}. Bound "
                                 f"what the environment returns, or give {self.instead}")
        for statistic, value in zip(stats, merged, strict=True):
            statistic.copy_(value)

    def share(self, other: RunningStats) -> None:
        """Replace the buffers by those of `other`, so that both modules share every change."""
        self.count, self.mean, self.var = other.stats


def stats_of(samples: Tensor) -> Stats:
    """Stats of each column of `samples` [M, N]; zeros without samples."""
    if not len(samples):
        nothing = samples.new_zeros(samples.shape[1])
        return torch.tensor(0.0, dtype=torch.float64, device=samples.device), nothing, nothing
    variance, mean = torch.var_mean(samples, 0, correction=0)
    return torch.tensor(len(samples), dtype=torch.float64, device=mean.device), mean, variance


def merge_rows(counts: Tensor, means: Tensor, variances: Tensor) -> Stats:
    """Stats of the union of several sets of samples, given the Stats of one set per row.

    n = Σ nᵢ,  m = Σ nᵢ mᵢ / n,  s² = Σ nᵢ (sᵢ² + (mᵢ - m)²) / n

    Chan, Golub and LeVeque 1979, STAN-CS-79-773. A single row is returned unchanged, bit for bit.
    """
    if len(counts) == 1:
        return counts[0], means[0], variances[0]
    total = counts.sum()
    shares = (counts / total.clamp(min=INITIAL_STATS[0])).reshape(-1, *(1,) * (means.ndim - 1))
    mean = (shares * means).sum(0)
    return total, mean, (shares * (variances + (means - mean).square())).sum(0)


def merge_batches(batches: Sequence[Batch], all_gather: Callable[[Tensor], Tensor]) -> None:
    """Merge each batch, combined with the same batch of the other ranks, into its statistics.

    `all_gather` returns the numbers [N] of all ranks as [R, N]; it is called once for all batches.
    """
    if not batches:
        return
    parts = [part.double().view(-1) for _, stats in batches for part in stats]
    rows = iter(torch.split(all_gather(torch.cat(parts)), [len(part) for part in parts], 1))
    for merge, _ in batches:
        merge(*merge_rows(next(rows)[:, 0], next(rows), next(rows)))


class ObsNormalizer(RunningStats):
    """Normalises vectors [..., N] by their running mean m and variance s².

    y = clip((x - m) / √(s² + 1e-8), ±10)
    """

    def forward(self, x: Tensor, unit: float = 1.0) -> Tensor:
        """`x` normalised and multiplied by `unit`."""
        y = ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp(-CLIP, CLIP)
        return y if unit == 1.0 else y * unit

    def batch(self, x: Tensor) -> Stats:
        return stats_of(x.flatten(0, -2).double())


class ImageNormalizer(ObsNormalizer):
    """`ObsNormalizer` with one mean and deviation over all pixels, for images of any size."""

    of = "images"
    instead = "--image-norm none"

    def batch(self, x: Tensor) -> Stats:
        return stats_of(x.reshape(-1, 1).float())


class PixelNormalizer(RunningStats):
    """Normalises each pixel x, from 0 to 255, by its running mean m and deviation s.

    y = clip((x - m) / max(s, 4), ±5)

    Without the floor and the clip, a sprite on a pixel that hardly ever changes would be a huge
    input. All frames of a stack share the statistics.
    """

    of = "pixels"
    instead = "--image-norm none"
    LEAST_DEVIATION = 4.0
    CLIP = 5.0

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(math.prod(shape))
        self.shape = shape
        self._factors: tuple[tuple[Any, ...], Tensor, Tensor, Tensor, Tensor] | None = None
        """What the factors for a stack depend on, mean and variance among it, and the factors."""

    def forward(self, x: Tensor, unit: float = 1.0) -> Tensor:
        """Stacked images `x` [N, k*C, H, W] as floats, normalised and multiplied by `unit`."""
        scale, shift = self._stack_factors(x, unit)
        return torch.addcmul(shift, x, scale).clamp_(-unit * self.CLIP, unit * self.CLIP)

    def _stack_factors(self, x: Tensor, unit: float) -> tuple[Tensor, Tensor]:
        """What the pixels of `x` are multiplied by, and what is then added.

        On a CPU they are computed once for the same statistics: it takes as long as normalising
        eight images. Statistics are compared by value, since other processes may change them.
        """
        key = (unit, x.shape[1], x.is_contiguous(memory_format=torch.channels_last))
        cached = self._factors if self._remembers() else None
        if (cached is not None and cached[0] == key and cached[1].equal(self.mean)
                and cached[2].equal(self.var)):
            return cached[3], cached[4]
        pixel_scale = unit / self.var.sqrt().clamp(min=self.LEAST_DEVIATION)
        scale = self._for_stack(pixel_scale, x)
        shift = self._for_stack(-self.mean * pixel_scale, x)
        if self._remembers():
            self._factors = key, self.mean.clone(), self.var.clone(), scale, shift
        return scale, shift

    def _remembers(self) -> bool:
        """Whether factors are kept: a GPU would make the host wait for the comparison."""
        return self.mean.device.type == "cpu" and torch._C._get_tracing_state() is None

    def _for_stack(self, pixels: Tensor, x: Tensor) -> Tensor:
        """A number for each pixel, repeated for each frame of `x`, in the memory format of `x`."""
        repeats = x.shape[1] // self.shape[0]
        stack = pixels.view(self.shape).repeat(repeats, 1, 1).unsqueeze(0)
        if x.is_contiguous(memory_format=torch.channels_last):
            return stack.contiguous(memory_format=torch.channels_last)
        return stack

    def batch(self, x: Tensor) -> Stats:
        """Stats of the images `x` [..., C, H, W], by pixel."""
        return stats_of(x.reshape(-1, math.prod(self.shape)).float())


class ScaleNormalizer(RunningStats):
    """Scales images, y = x / u, by the root mean square m of the images' largest values.

    u = m for floats; u = m² / 255, clipped to [1, 255], for bytes. Pixels are therefore divided by
    about 255 and codes up to 16 by 1, with a smooth transition. Until images have been seen, u is
    `unit` for bytes.
    """

    of = "images"
    instead = "--obs-as image"

    def __init__(self, unit: float, *, floats: bool) -> None:
        super().__init__(1)
        self.floats = floats
        self.mean.fill_(255.0 if floats else (255 * unit) ** 0.5)
        self.var.zero_()

    def forward(self, x: Tensor, unit: float = 1.0) -> Tensor:
        """`x` scaled and multiplied by `unit`."""
        square = self.mean.square() + self.var
        scale = square.sqrt().clamp(min=1e-8) if self.floats else (square / 255).clamp(1.0, 255.0)
        return x * (unit / scale)

    def batch(self, x: Tensor) -> Stats:
        """Stats of the largest value of each image in `x` [..., C, H, W]."""
        return stats_of(x.flatten(-3).abs().amax(-1).reshape(-1, 1).float())


class BatchNorm(RunningStats):
    """Batch renormalisation without limits on its corrections: Ioffe 2017, arXiv:1702.03275.

    y = g clip((x - μ) / √(σ² + ε), ±10) + b, with the running mean μ and variance σ² of each
    channel

    Acting and learning evaluate the same policy. The gradient flows through the mean and deviation
    of the batch: (x - μ)/σ = r (x - μ_B)/σ_B + d with constants r and d. Statistics change only in
    `update`.
    """

    of = "features"
    instead = "--norm layer"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        # count, mean and variance, of the last with gradients
        self.batch: tuple[int, Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *(1,) * (x.dim() - 2))  # x is [N, C, ...]
        factor = scale = (self.var + EPSILON).rsqrt()
        y = x.to(scale.dtype)
        shift = -self.mean
        if torch.is_grad_enabled() and self.training:
            y, mean, inverse = torch.native_batch_norm(
                y, None, None, None, None, True, 0.0, EPSILON)
            self.batch = x.numel() // x.shape[1], mean, (inverse.pow(-2) - EPSILON).clamp(min=0)
            factor = scale / inverse
            shift = mean - self.mean
        y = torch.addcmul((shift * scale).view(shape), y, factor.view(shape)).clamp(-CLIP, CLIP)
        return torch.addcmul(self.bias.view(shape), y, self.weight.view(shape)).to(x.dtype)

    def update(self) -> None:
        """Merge the last batch with gradients into the statistics, in place, and drop it."""
        if self.batch is not None:
            size, mean, variance = self.batch
            self.merge(torch.tensor(size), mean, variance, most=size * (1 / RATE - 1))
        self.batch = None
