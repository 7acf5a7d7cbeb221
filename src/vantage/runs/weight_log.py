"""What `log_weights` adds to TensorBoard: the network's graph, histograms, hyperparameters.

Gradients are those of the last update, after clipping; under hogwild, those of the first worker.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import torch

from vantage.config.config import Config
from vantage.keys.typed_values import in_text
from vantage.models.actor_critic import ActorCritic
from vantage.runs.metrics import MetricWriter
from vantage.types import Obs

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

log = logging.getLogger(__name__)


class WeightLog:
    """Writes the weights of one run."""

    def __init__(self, config: Config, model: ActorCritic, writer: MetricWriter) -> None:
        self._config = config
        self._model = model
        self._writer = writer
        writer.show(self._add_graph)

    def _add_graph(self, board: SummaryWriter) -> None:
        model = self._model
        with torch.device(next(model.parameters()).device):
            parts = [torch.zeros(2, *part.shape, dtype=getattr(torch, part.dtype))
                     for part in model.parts]
            obs: Obs = dict(zip(model.keys, parts, strict=True)) if model.keys else parts[0]
            example = [obs, torch.zeros(2, dtype=torch.bool), model.initial_state(2)]
            if model.spec.masked:
                example.append(torch.ones(2, sum(model.spec.action.sizes), dtype=torch.bool))
        try:
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                board.add_graph(model, tuple(example), use_strict_trace=False)
        except Exception as error:  # tracing raises many types for a network that it cannot follow
            log.warning(f"TensorBoard shows no graph of this network: {type(error).__name__}: "
                        f"{error}")

    def write(self, step: int) -> None:
        """Write histograms of all weights and gradients, except those that are not finite."""
        def add(board: SummaryWriter) -> None:
            for name, parameter in self._model.named_parameters():
                tensors = {"weights": parameter.detach(), "gradients": parameter.grad}
                for kind, tensor in tensors.items():
                    if tensor is not None and tensor.isfinite().all():
                        board.add_histogram(f"{kind}/{name.replace('.', '/')}", tensor.cpu(), step)

        self._writer.show(add)

    def close(self, scores: dict[str, float]) -> None:
        """Write the config and the final scores to TensorBoard's page of hyperparameters."""
        values = {key: value if isinstance(value, bool | int | float) else in_text(value)
                  for key, value in self._config.flat().items()}
        self._writer.show(lambda board: board.add_hparams(values, scores, run_name="."))
