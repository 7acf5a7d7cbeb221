"""All parameters of a model as one vector, all gradients as another, and gradient sinks: what a gradient moves.

Here are the interface of sinks and a process's own weights; weights shared by Hogwild workers and by data-parallel
ranks are sinks of the runtimes. Optimisers are in `optimizers`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from vantage.config_groups import OptimizerConfig
from vantage.learning.optimizers import make_optimizer

_ALIGNMENT = 16  # floats: a cache line, so that each parameter's kernel starts aligned


class FlatParameters:
    """All parameters of a model as views of one contiguous vector, all gradients as views of another.

    Gradient clipping and the optimiser are then a few operations on one vector, and copying a policy is one copy.
    Convolution weights stay channels_last. Gaps between parameters stay zero.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = list(model.parameters())
        first = self._parameters[0]
        vector = torch.zeros(flat_size(model), dtype=first.dtype, device=first.device)
        self.move(vector, torch.zeros_like(vector))

    def move(self, vector: Tensor, gradient: Tensor, *, keep: bool = True) -> None:
        """Make the model's parameters and gradients views of these [P], for example in shared memory.

        `keep` copies the model's weights into `vector`; otherwise the model takes the weights of `vector`.
        """
        self.vector, self.gradient = vector, gradient
        offset = 0
        for parameter, size in zip(self._parameters, _sizes(self._parameters), strict=True):
            view = _view_like(vector[offset:offset + parameter.numel()], parameter)
            if keep:
                view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = _view_like(gradient[offset:offset + parameter.numel()], parameter)
            offset += size

    def backward(self, loss: Tensor) -> None:
        """Write the gradient of a scalar into `gradient`; zero for frozen and unused parameters.

        `Tensor.backward` would add to zeros, which takes two more passes over the memory.
        """
        trainable = [parameter for parameter in self._parameters if parameter.requires_grad]
        gradients = dict(zip(trainable, torch.autograd.grad(loss, trainable, allow_unused=True), strict=True))
        for parameter in self._parameters:
            assert parameter.grad is not None
            gradient = gradients.get(parameter)
            if gradient is None:
                parameter.grad.zero_()
            else:
                parameter.grad.copy_(gradient)


def clip_gradient(gradient: Tensor, max_norm: float) -> float:
    """Scale a gradient [P] to at most `max_norm` (0: leave it), in place; returns its norm before."""
    norm = float(torch.linalg.vector_norm(gradient))
    shorten(gradient, norm, max_norm)
    return norm


def shorten(gradient: Tensor, norm: float, max_norm: float) -> None:
    """Scale a gradient with global norm `norm`, or a part of it, to at most `max_norm` (0: no limit), in place."""
    if max_norm > 0 and norm > max_norm:
        gradient.mul_(max_norm / (norm + 1e-6))


def flat_size(model: nn.Module) -> int:
    """Length of the `FlatParameters` vector of a model."""
    return sum(_sizes(model.parameters()))


def _sizes(parameters: Iterable[Tensor]) -> list[int]:
    return [-(-p.numel() // _ALIGNMENT) * _ALIGNMENT for p in parameters]


def _view_like(flat: Tensor, parameter: Tensor) -> Tensor:
    if parameter.dim() == 4 and parameter.is_contiguous(memory_format=torch.channels_last):
        out, inside, height, width = parameter.shape
        return flat.view(out, height, width, inside).permute(0, 3, 1, 2)
    return flat.view(parameter.shape)


LOSS = "train/loss"
"""The loss among the metrics of an update; it decides whether the weights move."""


def follow(average: Tensor, weights: Tensor, decay: float) -> None:
    """Move an average policy's weights once towards `weights`: θ_a ← α θ_a + (1 - α) θ."""
    average.lerp_(weights, 1 - decay)


class GradientSink(Protocol):
    """The weights that an update moves."""

    rank: int
    """The place of this process among the `num_ranks` that share every update, environments in order."""
    num_ranks: int

    def apply(self, gradient: Tensor, num_valid: float, metrics: dict[str, float], *, lr: float,
              max_grad_norm: float) -> float:
        """Clip `gradient` [P] by global norm and move the weights; returns the norm before clipping.

        `gradient` and `metrics` are means over the `num_valid` valid steps of this process; a sink of several
        processes makes both the means over all. Nothing moves where the norm or the loss is not finite.
        """

    def total(self, values: Tensor) -> Tensor:
        """The sum of a few `values` [N] over the processes that share every update."""

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's statistics, for a checkpoint."""

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`. KeyError, RuntimeError or ValueError where they are of another optimiser."""


class OwnWeights:
    """The weights of this process alone, `vector` [P], and those of an average policy that follow them."""

    rank, num_ranks = 0, 1

    def __init__(self, vector: Tensor, config: OptimizerConfig, average: Tensor | None = None,
                 average_decay: float = 0.0) -> None:
        self._vector, self._average, self._average_decay = vector, average, average_decay
        self._optimizer = make_optimizer(config.optimizer, vector, eps=config.optimizer_eps,
                                         decay=config.optimizer_decay)

    def apply(self, gradient: Tensor, num_valid: float, metrics: dict[str, float], *, lr: float,
              max_grad_norm: float) -> float:
        """One step of the optimiser, then one of the average policy."""
        norm = clip_gradient(gradient, max_grad_norm)
        if math.isfinite(norm) and math.isfinite(metrics[LOSS]):
            self._optimizer.step(gradient, lr)
            if self._average is not None:
                follow(self._average, self._vector, self._average_decay)
        return norm

    def total(self, values: Tensor) -> Tensor:
        """`values`."""
        return values

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's statistics; none before the first step."""
        return self._optimizer.tensors()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`."""
        self._optimizer.load(tensors)
