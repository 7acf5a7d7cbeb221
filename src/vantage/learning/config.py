"""The config keys of the optimiser, and what learning reads of the config of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from vantage.algorithms.interface import Algorithm, MinibatchAlgorithm
from vantage.envs.config import EnvConfig
from vantage.keys.fields import check_fields, key
from vantage.keys.given_fields import remembering_arguments
from vantage.keys.schedules import Coefficient, Schedule
from vantage.models.config import PolicyConfig

OPTIMIZERS = ("rmsprop_tf", "rmsprop", "adam", "amsgrad")
"""Those that workers and ranks can share; others are classes of torch.optim."""


@remembering_arguments
@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rate."""

    optimizer: str = key("rmsprop_tf",
                         "rmsprop_tf, rmsprop, adam, amsgrad or another; rmsprop_tf is "
                         "TensorFlow's form, and another is any class of torch.optim")
    lr: Coefficient = key(7e-4, "learning rate", low=0, high=1e6)
    optimizer_eps: float = key(1e-5, "epsilon of the denominator; inside the root for rmsprop_tf",
                               low=0, high=1)
    optimizer_decay: float = key(0.99, "decay of rmsprop's mean square", low=0, high=1)
    max_grad_norm: Coefficient = key(0.5, "clip gradients to this global norm; 0: no clipping",
                                     low=0)
    critic_lr_scale: float = key(1.0, "factor on the learning rate of the critic: its network with "
                                      "--separate, else its head alone", low=1e-6, high=1e6)

    def __post_init__(self) -> None:
        check_fields(self)


@remembering_arguments
@dataclass(frozen=True)
class ExplorationConfig:
    """Intrinsic rewards for what the policy has rarely seen."""

    curiosity: str = key("none", "intrinsic rewards; rnd: the error of a network that predicts a "
                                 "random one (random network distillation)",
                         choices=("none", "rnd"))
    intrinsic_coef: Coefficient = key(1.0, "coefficient of intrinsic advantages, beside those of "
                                           "the task", low=0, high=1e6)
    intrinsic_gamma: Coefficient = key(0.99, "discount of intrinsic rewards, over episode ends too",
                                       low=0, high=1)
    predictor_lr: float = key(3e-4, "learning rate of the predictor, by Adam", low=1e-9, high=1,
                              fixed=True)

    def __post_init__(self) -> None:
        check_fields(self)


@remembering_arguments
@dataclass(frozen=True)
class CloningConfig:
    """Demonstrations that the policy learns from before training, and beside it."""

    demonstrations: str | None = key(
        None, "clone the policy from these episodes first: a .safetensors FILE of `vantage record` "
        "or `vantage play`, which writes it, or minari:ID")
    demo_coef: Coefficient = key(
        Schedule.parse("curve:1,0,0"), "coefficient of the cloning loss on demonstrations during "
        "training; 0: only before it", low=0, high=1e6)
    demo_passes: int = key(50, "most passes over the demonstrations before training; cloning "
                               "stops earlier when the held-out loss rises", low=0, high=10**6)

    def __post_init__(self) -> None:
        check_fields(self)


class _Seeded(Protocol):
    @property
    def seed(self) -> int:
        """Source of all random draws of the run."""

    @property
    def eval_ema(self) -> float:
        """Decay of the averaged weights that evaluations and saved policies have; 0: none."""


class LearningConfig(Protocol):
    """What learning reads of the config of a run; `vantage.Config` is one."""

    @property
    def algo(self) -> str:
        """The algorithm's name, for messages."""

    @property
    def algorithm(self) -> Algorithm | MinibatchAlgorithm:
        """The loss and its hyperparameters."""

    @property
    def env(self) -> EnvConfig:
        """How rewards are scaled."""

    @property
    def envs_per_process(self) -> int:
        """Environments in each process that acts."""

    @property
    def policy(self) -> PolicyConfig:
        """The network."""

    @property
    def optimizer(self) -> OptimizerConfig:
        """The optimiser."""

    @property
    def exploration(self) -> ExplorationConfig:
        """Intrinsic rewards."""

    @property
    def run(self) -> _Seeded:
        """The run's seed."""

    @property
    def schedule_steps(self) -> int:
        """Agent steps that schedules run over."""

    def at(self, name: str, step: int, /) -> float:
        """The value of the coefficient `name` at `step`."""
