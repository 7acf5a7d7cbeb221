"""Metrics of the gradient steps of an update.

They stay on their device until the host reads them all at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from vantage.errors import NonFiniteError

Number = float | Tensor
"""A number, or a tensor [] that the host has not read."""

LOSS = ""
"""The loss of a gradient step among its metrics, which have longer names."""


@dataclass(frozen=True, slots=True)
class StepLoss:
    """The loss of a gradient step whose gradient has been written, and what it logs."""

    value: Number
    metrics: Mapping[str, Number]
    num_valid: Number
    """Number of valid steps over which it is the mean."""


class StepMetrics:
    """The metrics of each gradient step of an update, by name; steps may log different ones."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._rows: list[dict[str, float | None]] = []
        self._stacks: list[Tensor] = []

    def add(self, metrics: Mapping[str, Number]) -> None:
        """Append the metrics of one step.

        Tensors are copied, so that they may change afterwards.
        """
        self._rows.append({name: None if isinstance(value, Tensor) else value
                           for name, value in metrics.items()})
        tensors = [value.to(self._device) for value in metrics.values()
                   if isinstance(value, Tensor)]
        if tensors:
            self._stacks.append(torch.stack([x if x.is_floating_point() else x.double()
                                             for x in tensors]))

    def read(self) -> list[dict[str, float]]:
        """The metrics of all steps. Waits once for the device."""
        numbers = iter(torch.cat(self._stacks).tolist() if self._stacks else [])
        return [{name: next(numbers) if value is None else value for name, value in row.items()}
                for row in self._rows]


def read_at_once(metrics: Mapping[str, Number], device: torch.device) -> dict[str, float]:
    """The metrics of one step, after a single wait for the device."""
    if device.type == "cpu":  # nothing to wait for; a stack takes ten times as long
        return {name: float(value) for name, value in metrics.items()}
    step = StepMetrics(device)
    step.add(metrics)
    return step.read()[0]


def means(rows: list[dict[str, float]]) -> dict[str, float]:
    """The mean of each metric over the steps that have logged it, without the loss."""
    names = dict.fromkeys(name for row in rows for name in row if name != LOSS)
    return {name: fmean(row[name] for row in rows if name in row) for name in names}


def check_finite(metrics: Mapping[str, Number], kind: str, learned: Tensor, step: int) -> None:
    """Raises NonFiniteError if the loss or the gradient norm is not finite.

    The message has the range of `learned`, the rewards or value targets that `kind` names.
    """
    if math.isfinite(metrics["train/grad_norm"]) and math.isfinite(metrics[LOSS]):
        return
    terms = ", ".join(f"{name.removeprefix('train/')} {float(value):.4g}"
                      for name, value in metrics.items() if name != LOSS)
    if learned.numel():  # a rank may have no part of a minibatch
        terms += (f"; {kind} of this process from {learned.min().item():.4g} to "
                  f"{learned.max().item():.4g}")
    raise NonFiniteError(
        f"the loss at step {step} is not finite (loss {float(metrics[LOSS]):.4g}, {terms}). The "
        "weights were not changed. Try a lower --lr, --max-grad-norm 0.5, or --obs-norm / "
        "--reward-norm if observations or rewards are large")
