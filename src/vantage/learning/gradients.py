"""Gradient of a loss, clipping, and `OwnWeights`, the gradient sink of a single process."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from vantage.errors import ConfigError
from vantage.learning.config import OptimizerConfig
from vantage.learning.optimizers import make_optimizer
from vantage.learning.step_metrics import LOSS, Number, read_at_once
from vantage.learning.weights import AveragePolicy, FlatParameters, GradientSink

_NORM = "norm"
_WEIGHTS = "the weights"
_AVERAGE = "the average policy"


def backward(loss: Tensor, parameters: Sequence[Tensor]) -> None:
    """Write the gradient of a scalar into the `grad` of each parameter.

    It is zero for frozen and unused ones.
    `Tensor.backward` would add to zeroed gradients, which takes two more passes over the memory.
    ConfigError for a loss without a gradient.
    """
    if not loss.requires_grad:
        raise ConfigError("the loss has no gradient, so that nothing would be learned; compute it, "
                          "and the network's outputs, without detach(), item() and torch.no_grad()")
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    values = torch.autograd.grad(loss, trainable, materialize_grads=True)
    gradients = dict(zip(trainable, values, strict=True))
    for parameter in parameters:
        assert parameter.grad is not None
        if parameter in gradients:
            parameter.grad.copy_(gradients[parameter])
        else:
            parameter.grad.zero_()


def clip_gradient(gradient: Tensor, max_norm: float) -> float:
    """Clip a gradient [P] to the norm `max_norm` (0: no limit) in place; returns its old norm."""
    norm = float(torch.linalg.vector_norm(gradient))
    clip_with_norm(gradient, norm, max_norm)
    return norm


def clip_with_norm(gradient: Tensor, norm: Number, max_norm: float) -> None:
    """Clip a gradient, or part of one, whose global norm is `norm`, to `max_norm` in place.

    0 means no limit. If `norm` is a tensor, the host does not wait for its value.
    """
    if max_norm <= 0:
        return
    if isinstance(norm, Tensor):
        gradient.mul_((max_norm / (norm.double() + 1e-6)).clamp(max=1))
    elif norm > max_norm:
        gradient.mul_(max_norm / (norm + 1e-6))


class OwnWeights(GradientSink):
    """The gradient sink of a single process: moves its weights, then those of an average policy."""

    def __init__(self, weights: FlatParameters, config: OptimizerConfig,
                 average: AveragePolicy | None) -> None:
        self._weights = weights
        self._average = average
        self._optimizer = make_optimizer(config, weights.vector, weights.critic)
        self._tentative = False
        self._before: dict[str, Tensor] = {}
        """Buffers of `tentative`, reused: allocating them takes nine times as long as copying."""

    def apply(self, gradient: Tensor, num_valid: Number, loss: Number, metrics: dict[str, Number],
              *, lr: float, max_grad_norm: float) -> tuple[Number, Number]:
        """One step of the optimiser, then one of the average policy.

        Outside `tentative`, the host reads norm, loss and metrics in one transfer before the step.
        Within it, the host reads nothing, and this returns tensors, unless the loss is a number.
        """
        norm: Number = torch.linalg.vector_norm(gradient)
        if not isinstance(loss, Tensor):  # computed on the host
            norm = float(norm)
        elif not self._tentative:
            numbers = read_at_once({**metrics, _NORM: norm, LOSS: loss}, gradient.device)
            norm = numbers.pop(_NORM)
            loss = numbers.pop(LOSS)
            metrics.update(numbers)
        clip_with_norm(gradient, norm, max_grad_norm)
        is_tensor = isinstance(norm, Tensor)
        if is_tensor or (math.isfinite(norm) and math.isfinite(loss)):
            self.move(gradient, lr)
        return norm, loss

    def change(self, config: OptimizerConfig) -> None:
        self._optimizer.change(config)

    def move(self, gradient: Tensor, lr: float) -> None:
        """Move the weights, then the average policy, by a clipped and finite gradient."""
        with self._weights.frozen_unmoved():
            self._optimizer.step(gradient, lr)
        if self._average is not None:
            self._average.follow(self._weights.vector)

    @contextmanager
    def tentative(self) -> Iterator[None]:
        statistics = self._optimizer.tensors()
        self._save(statistics)
        self._save({_WEIGHTS: self._weights.vector})
        if self._average is not None:
            self._save({_AVERAGE: self._average.vector})
        self._tentative = True
        try:
            yield
        except BaseException:
            self._weights.gradient.zero_()  # where no parameter is, it may be NaN from now on
            self._weights.vector.copy_(self._before[_WEIGHTS])
            if self._average is not None:
                self._average.vector.copy_(self._before[_AVERAGE])
            self._optimizer.load({name: self._before[name].clone() for name in statistics})
            raise
        finally:
            self._tentative = False

    def _save(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            if name in self._before:
                self._before[name].copy_(tensor)
            else:
                self._before[name] = tensor.clone()

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return self._optimizer.tensors()

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        self._optimizer.load(tensors)
