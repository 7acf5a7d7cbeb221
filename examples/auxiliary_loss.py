"""An auxiliary loss: PPO whose features also predict the next observation from the action.

    cd examples
    vantage train auxiliary_loss:PredictingPPO --env CartPole-v1

The gradient of the prediction shapes the policy's network, as the auxiliary tasks of Jaderberg et al. 2017,
arXiv:1611.05397. For observations of vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vantage
from vantage.algorithms.interface import Model, Needs, Update
from vantage.algorithms.losses import masked_mean
from vantage.errors import ConfigError
from vantage.types import ActionSpec, EnvSpec, Minibatch


class Predictor(nn.Module):
    """Features and actions to the next observation."""

    def __init__(self, features: int, action: ActionSpec, outputs: int) -> None:
        super().__init__()
        self.action = action
        width = action.sizes[0] if action.kind == "box" else sum(action.sizes)
        self.layers = nn.Sequential(nn.Linear(features + width, 64), nn.ReLU(), nn.Linear(64, outputs))

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        if self.action.kind != "box":
            columns = actions.unsqueeze(-1) if self.action.kind == "discrete" else actions
            sizes = self.action.sizes
            parts = [F.one_hot(column, size) for column, size in zip(columns.unbind(-1), sizes, strict=True)]
            actions = torch.cat(parts, -1).float()
        predicted: Tensor = self.layers(torch.cat([features, actions], -1))
        return predicted


@dataclass(frozen=True)
class PredictingPPO(vantage.PPO):
    """PPO with a prediction of the next observation as an auxiliary loss."""

    prediction_coef: float = 0.5

    @property
    def needs(self) -> Needs:
        return replace(super().needs, next_inputs=True)

    def build(self, spec: EnvSpec, model: Model) -> nn.Module:
        if any(part.kind == "image" for part in spec.parts):
            raise ConfigError("this example of an auxiliary loss is for vectors, not for images")
        return Predictor(model.num_features, spec.action, sum(part.shape[0] for part in spec.parts))

    def loss(self, model: Model, minibatch: Minibatch, update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """PPO's loss and the squared error of the prediction, as means over the valid steps."""
        assert update.module is not None and minibatch.next_inputs is not None
        loss, metrics = super().loss(model, minibatch, update)
        features = model.features(minibatch.inputs, minibatch.is_first, minibatch.state)
        predicted = update.module(features, minibatch.actions)
        errors = (predicted - torch.cat(minibatch.next_inputs, -1)).square().mean(-1)
        prediction_loss = masked_mean(errors, minibatch.valid)
        return loss + self.prediction_coef * prediction_loss, {**metrics, "train/prediction_loss": prediction_loss}
