"""Gradient sinks: what a learner's gradient moves. Here the interface and a process's own weights.

Weights shared by Hogwild workers and by data-parallel ranks are sinks of the runtimes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from vantage.config_groups import OptimizerConfig
from vantage.learning.flat_parameters import clip_gradient
from vantage.learning.optimizers import make_optimizer

LOSS = "train/loss"
"""The loss among the metrics of an update; it decides whether the weights move."""


def follow(average: Tensor, weights: Tensor, decay: float) -> None:
    """Move an average policy's weights once towards `weights`: θ_a ← α θ_a + (1 - α) θ."""
    average.lerp_(weights, 1 - decay)


class GradientSink(Protocol):
    """The weights that an update moves."""

    def apply(self, gradient: Tensor, num_valid: float, metrics: dict[str, float], *, lr: float,
              max_grad_norm: float) -> float:
        """Clip `gradient` [P] by global norm and move the weights; returns the norm before clipping.

        `gradient` and `metrics` are means over the `num_valid` valid steps of this process; a sink of several
        processes makes both the means over all. Nothing moves where the norm or the loss is not finite.
        """

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's statistics, for a checkpoint."""

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`. KeyError, RuntimeError or ValueError where they are of another optimiser."""


class OwnWeights:
    """The weights of this process alone, `vector` [P], and those of an average policy that follow them."""

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

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimiser's statistics; none before the first step."""
        return self._optimizer.tensors()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore `optimizer_tensors`."""
        self._optimizer.load(tensors)
