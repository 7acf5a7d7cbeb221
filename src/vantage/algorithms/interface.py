"""What an algorithm is: a frozen dataclass of hyperparameters with a loss. The algorithms are in files of their own.

Nothing here imports torch, so that the command can list an algorithm's hyperparameters at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from vantage.schedules import Schedule

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from vantage.models.actor_critic import ActorCritic
    from vantage.types import Rollout


@dataclass(frozen=True, slots=True)
class ReplayNeeds:
    """The replay of an off-policy algorithm; sizes in agent steps of all workers together."""

    size: int
    start: int
    """Steps in the replay before it is learnt from."""
    ratio: float
    """Mean number of updates from the replay for each update from fresh steps."""
    save_every: int
    """Agent steps between checkpoints with the replay; 0: only when training stops."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What an algorithm needs around its loss."""

    critic: Literal["state", "action"] = "state"
    """What the critic values: states, V(s), or actions, Q(s, a)."""
    activation_cache: bool = False
    """Learning may reuse the layer outputs of acting: only for one pass over a fresh rollout by the weights that acted."""
    average_decay: float | None = None
    """θ_a ← α θ_a + (1 - α) θ after each update: the α of an average policy; None: there is none."""
    replay: ReplayNeeds | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """What a loss may ask about the update that it serves."""

    step: int
    """Agent steps so far."""
    steps: int
    """Agent steps that schedules run over."""
    average: ActorCritic | None = None
    """The average policy's model, if the algorithm needs one."""
    generator: Generator | None = None
    """Source of random draws, restored by an exact resume."""
    replayed: bool = False
    """The rollout comes from the replay."""

    def at(self, schedule: str) -> float:
        """The value of a scheduled coefficient now."""
        return Schedule.parse(schedule)(self.step, self.steps)


class Algorithm(Protocol):
    """A frozen dataclass: its fields are config keys and flags, its methods the loss and what that needs around it."""

    @property
    def gamma(self) -> str:
        """The discount, a schedule."""

    @property
    def needs(self) -> Needs:
        """What the loss needs around it."""

    def loss(self, model: ActorCritic, rollout: Rollout, update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """A scalar whose gradient the learner descends, and scalars to log by metric name.

        `rollout.rewards` are as learnt from. The loss is a mean over the rollout's valid steps.
        """
