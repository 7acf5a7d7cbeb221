"""The interface of algorithms: a frozen dataclass of hyperparameters with a loss.

Each algorithm has its own file. None imports torch at its top, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from vantage.keys.schedules import Coefficient, value_at

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

    from vantage.algorithms.joint_distribution import Distribution
    from vantage.types import EnvSpec, Minibatch, Obs, Rollout, State

    Estimate = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Mapping[str, Tensor]]
    """Advantages and targets [T, B]; optionally more tensors [T, B, ...] by name, for `extra`."""


class Model(Protocol):
    """The policy and its critic as losses use them.

    `vantage.models.actor_critic.ActorCritic` implements it.
    """

    distribution: Distribution
    """Distribution of the actions, as a function of its parameters [..., P]."""
    has_q: bool
    """The critic gives Q of every discrete action."""
    fixed_deviation: bool
    """The deviation of a Gaussian policy is not learned."""

    @property
    def num_features(self) -> int:
        """F of `features`."""

    def features(self, inputs: tuple[Tensor, ...], is_first: Tensor, state: State) -> Tensor:
        """Features [T, B, F] of inputs [T, B, ...] for the policy's head, with gradients.

        The critic shares them unless the config has `separate`.
        """

    def unroll(self, obs: Obs, is_first: Tensor, state: State, action_mask: Tensor | None = None,
               cache: dict[str, Tensor] | None = None, /) -> tuple[Tensor, Tensor]:
        """Parameters [T+1, B, P] and values [T+1, B] of a rollout; no gradients in the last row."""

    def unroll_inputs(self, inputs: tuple[Tensor, ...], is_first: Tensor, state: State,
                      action_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Parameters [T, B, P] and values [T, B] of a minibatch's inputs."""

    def unroll_features(self, obs: Obs, is_first: Tensor, state: State,
                        action_mask: Tensor | None = None, *,
                        critic: bool = True) -> tuple[Tensor, Tensor]:
        """Parameters [T+1, B, P] and the critic's features [T+1, B, F].

        Without `critic` its features are not computed; the policy's are returned instead.
        """

    def state_values(self, features: Tensor, params: Tensor) -> Tensor:
        """V of the critic's features."""

    def action_values(self, features: Tensor) -> Tensor:
        """Q of every discrete action."""

    def action_advantages(self, features: Tensor, actions: Tensor) -> Tensor:
        """A(x, a) of a dueling critic, before its mean over the policy is subtracted."""


@dataclass(frozen=True, slots=True)
class ReplayNeeds:
    """The replay of an off-policy algorithm; sizes in agent steps of all workers together."""

    size: int
    start: int
    """Steps that the replay must hold before updates use it."""
    ratio: float
    """Mean number of updates from the replay for each update from fresh steps."""
    save_every: int
    """Agent steps between checkpoints with the replay; 0: only when training stops."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """How often an on-policy algorithm learns from each rollout, and in what pieces."""

    epochs: int
    minibatch_size: int
    """Agent steps of one gradient step."""
    max_kl: float | None = None
    """Stop learning from the rollout after a minibatch whose train/approx_kl exceeds this."""
    past_rollouts: int = 0
    """Updates whose rollouts are learned from again with the new ones."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of an algorithm beyond its loss."""

    critic: Literal["state", "action"] = "state"
    """What the critic values: states, V(s), or actions, Q(s, a)."""
    activation_cache: bool = False
    """Learning may reuse the activations computed while acting: one pass, with the weights that
    acted."""
    average_decay: float | None = None
    """α of an average policy, θ_a ← α θ_a + (1 - α) θ after each update; None: no average
    policy."""
    replay: ReplayNeeds | None = None
    reuse: Reuse | None = None
    """Learn from minibatches; the algorithm is then a `MinibatchAlgorithm`."""
    next_inputs: bool = False
    """Rollouts have `inputs`, and minibatches `next_inputs`."""


def no_intrinsic(advantages: Tensor, gae_lambda: float, rhos: Tensor | None = None) -> Tensor:
    """`Update.add_intrinsic` without intrinsic rewards."""
    return advantages


@dataclass(frozen=True, slots=True)
class Update:
    """The update that a loss is computed for."""

    step: int
    """Agent steps so far."""
    steps: int
    """Agent steps that schedules run over."""
    average: Model | None = None
    """The average policy's model, if the algorithm needs one."""
    generator: Generator | None = None
    """Source of random draws, restored by an exact resume."""
    replayed: bool = False
    """The rollout comes from the replay."""
    total: Callable[[Tensor], Tensor] = lambda sums: sums
    """Adds up [N] sums of all processes that share the update, for statistics of the whole
    batch."""
    model: Model | None = None
    """The policy and its critic, for `estimate`."""
    record_targets: Callable[[Tensor, Tensor], None] = lambda targets, valid: None
    """Takes the value targets [T, B] of a rollout and its `valid` steps, for value_norm; those of
    `estimate` need no call."""
    add_intrinsic: Callable[..., Tensor] = no_intrinsic
    """Adds to advantages [T, B], before they are normalised, those of intrinsic rewards, with
    `curiosity`: by GAE(`gae_lambda`), or by V-trace with the importance weights `rhos` [T, B]."""
    module: nn.Module | None = None
    """The module that the algorithm's `build` returned, with its current weights."""

    def at(self, coefficient: Coefficient | str) -> float:
        """The value of a coefficient at this step."""
        return value_at(coefficient, self.step, self.steps)


class Algorithm(Protocol):
    """A frozen dataclass of hyperparameters with a loss.

    Its fields are config keys and flags.
    """

    @property
    def gamma(self) -> Coefficient | str:
        """The discount."""

    @property
    def needs(self) -> Needs:
        """Requirements of the algorithm beyond its loss."""

    def loss(self, model: Model, rollout: Rollout,
             update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """A scalar whose gradient the learner descends, and scalars or numbers to log by
        metric name.

        `rollout.rewards` are clipped and normalised as configured. The loss is a mean over valid
        steps.
        """


class MinibatchAlgorithm(Protocol):
    """An algorithm with `needs.reuse`.

    Advantages are estimated for each rollout; the loss is computed for each minibatch.
    """

    @property
    def gamma(self) -> Coefficient | str:
        """The discount."""

    @property
    def needs(self) -> Needs:
        """Requirements of the algorithm beyond its loss."""

    def estimate(self, rollout: Rollout, update: Update) -> Estimate:
        """Advantages and targets [T, B] of a rollout, computed without gradients.

        The rollout has `values`, and `rhos` if older weights acted. The tensors [T, B, ...] of a
        third element are in the `extra` of each minibatch, by name.
        """

    def loss(self, model: Model, minibatch: Minibatch,
             update: Update) -> tuple[Tensor, Mapping[str, Tensor]]:
        """As `Algorithm.loss`, a mean over the minibatch's valid steps."""


class ModuleAlgorithm(Protocol):
    """An algorithm with a module of its own, such as a predictor or a second critic."""

    def build(self, spec: EnvSpec, model: Model) -> nn.Module | None:
        """The module for an environment's `spec`. `Update.module` has it, on the learner's device.

        The optimiser updates its parameters together with the policy's, except for those without
        `requires_grad`; gradients are clipped by one common norm. Checkpoints contain its
        parameters and buffers, saved policies do not. The run's seed determines its initialisation.
        """
