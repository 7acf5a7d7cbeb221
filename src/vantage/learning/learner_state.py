"""The tensors of a learner: those of checkpoints, which resume it, and those of saved policies."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vantage.learning.cloning import DEMONSTRATIONS
from vantage.learning.learner import Learner
from vantage.learning.modules import copy_of, load_module
from vantage.learning.weights import EMA


def tensors_of(learner: Learner) -> dict[str, dict[str, Tensor]]:
    """The tensors of a checkpoint: groups such as "model" and "optimizer"."""
    tensors = {name: dict(module.state_dict()) for name, module in _modules(learner).items()}
    tensors["optimizer"] = learner.sink.optimizer_tensors()
    if learner.average is not None:
        tensors["average"] = {"vector": learner.average.vector}
    if learner.demo_digest is not None:
        tensors[DEMONSTRATIONS] = {"digest": learner.demo_digest}
    if learner.needs.reuse is not None:
        tensors["minibatches"] = {"generator": learner.minibatch_generator.get_state()}
    if learner.rate is not None:
        rate = torch.tensor(learner.rate.rate, dtype=torch.float64)
        tensors["learning_rate"] = {"rate": rate}
    return tensors


def _modules(learner: Learner) -> dict[str, nn.Module]:
    """The modules that checkpoints hold, by group."""
    modules = {"model": learner.model, "module": learner.module, "curiosity": learner.curiosity,
               "rewards": learner.reward_normalizer,
               EMA: None if learner.ema is None else learner.ema.model}
    return {name: module for name, module in modules.items() if module is not None}


def load_tensors(learner: Learner, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Restore `tensors_of` in place: the parameters stay views of the flat vector."""
    tensors = {EMA: tensors["model"], **tensors}
    for name, module in _modules(learner).items():
        if name != "module":
            module.load_state_dict(tensors[name])
        elif name in tensors:
            load_module(module, tensors[name], learner.config.algo)
        else:
            raise ValueError(f"it has no module of algorithm={learner.config.algo}")
    learner.sink.load_optimizer(tensors["optimizer"])
    if learner.average is not None:
        learner.average.vector.copy_(tensors["average"]["vector"])
    if learner.needs.reuse is not None:
        learner.minibatch_generator.set_state(tensors["minibatches"]["generator"])
    if learner.rate is not None and "learning_rate" in tensors:
        learner.rate.rate = float(tensors["learning_rate"]["rate"])


def policy_tensors(learner: Learner) -> dict[str, dict[str, Tensor]]:
    """Copies of what a policy needs, as groups of `tensors_of`: model and rewards."""
    copies = {"model": copy_of(learner.policy)}
    if learner.reward_normalizer is not None:
        copies["rewards"] = copy_of(learner.reward_normalizer)
    return copies


def initialize_from(learner: Learner, policy: Mapping[str, Tensor],
                    rewards: Mapping[str, Tensor] | None) -> None:
    """Load a policy and, if given, its reward statistics.

    The optimiser keeps its initial state.
    """
    learner.model.load_state_dict(policy)
    learner.restart_averages()
    if learner.reward_normalizer is not None and rewards is not None:
        learner.reward_normalizer.load_state_dict(rewards)
