"""Algorithms of one's own with modules: parameters that learn, frozen ones, and buffers that change in the loss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vantage.algorithms.a2c import A2C
from vantage.algorithms.acer import ACER
from vantage.algorithms.interface import Needs


class Distilled(nn.Module):
    """A predictor of a frozen network's output, a running mean of its errors, and a count of updates."""

    mean: Tensor
    count: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.target = nn.Linear(inputs, 3).requires_grad_(False)
        self.predictor = nn.Linear(inputs, 3)
        self.register_buffer("mean", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0))

    def errors(self, x: Tensor) -> Tensor:
        errors: Tensor = (self.predictor(x) - self.target(x)).square().mean(-1)
        return errors

    def observe(self, x: Tensor) -> None:
        self.count += 1
        self.mean.lerp_(x.detach().double().mean().expand(2), 0.1)


def with_error(terms: Any, rollout: Any, update: Any) -> Any:
    """`terms` of a loss with the predictor's error on the observations after each step."""
    loss, metrics = terms
    errors = update.module.errors(rollout.inputs[0][1:]).mean()
    update.module.observe(errors)
    return loss + errors, {**metrics, "train/error": errors}


class Curious:
    """The module and the loss that both algorithms have."""

    @property
    def needs(self) -> Needs:
        return replace(super().needs, next_inputs=True)  # type: ignore[misc]

    def build(self, spec: Any, model: Any) -> nn.Module:
        return Distilled(spec.parts[0].shape[0])

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        terms = super().loss(model, rollout, update)  # type: ignore[misc]
        return with_error(terms, rollout, update)


@dataclass(frozen=True)
class CuriousA2C(Curious, A2C):
    """A2C with a module."""


@dataclass(frozen=True)
class CuriousACER(Curious, ACER):
    """ACER with a module, beside its average policy and its replay."""
