"""An algorithm of one's own that draws random numbers in its loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from vantage.algorithms.a2c import A2C


@dataclass(frozen=True)
class Drawing(A2C):
    """A2C whose loss is scaled by a draw."""

    def loss(self, model: Any, rollout: Any, update: Any) -> Any:
        loss, metrics = super().loss(model, rollout, update)
        return loss * torch.rand((), generator=update.generator), metrics
