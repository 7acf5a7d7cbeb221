"""What `log_weights` adds to TensorBoard: the network's graph, histograms of weights and gradients, hyperparameters.

The gradients are those of the last update after clipping; under hogwild, those of the first worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vantage.config import Config
from vantage.models.actor_critic import ActorCritic
from vantage.runs.metrics import MetricWriter
from vantage.types import Obs, State

if TYPE_CHECKING:
    from tensorboard.compat.proto.graph_pb2 import GraphDef


class WeightLog:
    """Writes the weights of one run."""

    def __init__(self, config: Config, model: ActorCritic, writer: MetricWriter) -> None:
        self._config, self._model, self._writer = config, model, writer

    def write(self, step: int) -> None:
        """Write histograms of all weights and gradients, except those that are not finite."""
        for name, parameter in self._model.named_parameters():
            for kind, tensor in (("weights", parameter.detach()), ("gradients", parameter.grad)):
                if tensor is not None and tensor.isfinite().all():
                    self._histogram(f"{kind}/{name.replace('.', '/')}", tensor.cpu(), step)

    def _histogram(self, name: str, values: Tensor, step: int) -> None:
        self._writer.show(lambda board: board.add_histogram(name, values, step))

    def close(self, scores: dict[str, float]) -> None:
        """Write the config and the final scores to TensorBoard's page of hyperparameters."""
        values = {key: value if isinstance(value, bool | int | float) else str(value)
                  for key, value in self._config.flat().items()}
        self._writer.show(lambda board: board.add_hparams(values, scores, run_name="."))


class _Step(nn.Module):
    """`ActorCritic.step_with_values` as a module, which torch.export requires."""

    def __init__(self, model: ActorCritic) -> None:
        super().__init__()
        self.model = model

    def forward(self, obs: Obs, is_first: Tensor, state: State, action_mask: Tensor | None) -> tuple[Any, ...]:
        return self.model.step_with_values(obs, is_first, state, action_mask)


def graph_of(model: ActorCritic) -> GraphDef:
    """The operations of one step of the policy and the critic, grouped by module."""
    from tensorboard.compat.proto.graph_pb2 import GraphDef
    from tensorboard.compat.proto.node_def_pb2 import NodeDef
    from tensorboard.compat.proto.versions_pb2 import VersionDef

    with torch.device(next(model.parameters()).device), torch.no_grad():
        parts = [torch.zeros(2, *part.shape, dtype=torch.uint8 if part.kind == "image" else torch.float32)
                 for part in model.parts]
        obs: Obs = dict(zip(model.keys, parts, strict=True)) if model.keys else parts[0]
        mask = torch.ones(2, sum(model.spec.action.sizes), dtype=torch.bool) if model.spec.masked else None
        example = (obs, torch.zeros(2, dtype=torch.bool), model.initial_state(2), mask)
        graph = torch.export.export(_Step(model), example).graph
    names: dict[torch.fx.Node, str] = {}
    for node in graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        path = next(reversed(stack.values()))[0].split(".") if stack else []
        names[node] = "/".join([*filter(None, path), node.name])
    nodes = [NodeDef(name=name, op=str(node.target), input=[names[part] for part in node.all_input_nodes])
             for node, name in names.items()]
    return GraphDef(node=nodes, versions=VersionDef(producer=22))
