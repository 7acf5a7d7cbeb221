"""The data that passes between collection, learning and the networks: frozen, typed, with shapes.

T time, B environments, A actions, P distribution parameters; time comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from vantage.specs import ActionSpec, ArraySpec, EnvSpec, Episode

__all__ = ["ActionSpec", "ArraySpec", "EnvSpec", "Episode", "Minibatch", "Obs", "Report", "Rollout",
           "State", "map_parts"]

State = tuple[Tensor, ...]
"""What a policy carries from step to step: stacked frames, then the recurrent state, each [B, ...];
() without either."""

Obs = Tensor | Mapping[str, Tensor]
"""Observations as environments return them: one tensor, or one per key of a Dict space."""


def map_parts(function: Callable[..., Any], parts: Any, *others: Any) -> Any:
    """`function` applied to each tensor of an observation or a state; None stays None.

    `others` have the same structure; their tensors become further arguments.
    """
    if isinstance(parts, Mapping):
        return {key: function(part, *(other[key] for other in others))
                for key, part in parts.items()}
    if isinstance(parts, tuple):
        return tuple(map(function, parts, *others))
    return None if parts is None else function(parts, *others)


@dataclass(frozen=True, slots=True)
class Rollout:
    """T consecutive steps of B environments; time first. Step t goes from obs[t] to obs[t+1].

    The environments reset in the step after an episode's end (Gymnasium's NEXT_STEP), so the value
    of the next state is always values[t+1]: its discount is 0 where the task ended and gamma at a
    time limit.

    Those that reset in the same step (SAME_STEP) have no row for the last observation. There a time
    limit counts as `terminated`, and its reward includes γ V of the state that was cut.
    """

    obs: Obs
    """[T+1, B, *obs] raw; the last row only bootstraps."""
    is_first: Tensor
    """[T+1, B] bool: obs[t] is the first observation of an episode."""
    actions: Tensor
    """[T, B, *action] as sampled, before clipping to the bounds."""
    rewards: Tensor
    """[T, B] float32 for learning: clipped, scaled and floored."""
    terminated: Tensor
    """[T, B] bool: the task (or a life) ended here; False at a time limit."""
    valid: Tensor
    """[T, B] bool: False where the environment ignored or replaced the action (reset, FIRE)."""
    action_mask: Tensor | None
    """[T+1, B, A] bool, True for allowed actions; None if the environment has no masks."""
    behaviour: Tensor
    """[T, B, P] float32: parameters of the distribution that sampled the actions."""
    state: State
    """Policy state before obs[0]; () without one."""
    values: Tensor | None = None
    """[T+1, B] V(s) by the acting weights; None unless the algorithm learns from minibatches."""
    current: slice | None = None
    """Environments whose acting weights are the current ones; None: all of them. The others are
    past rollouts, whose `behaviour` and `values` are of older weights."""
    rhos: Tensor | None = None
    """[T, B] importance weights π/μ of the actions; `behaviour` and `values` then belong to the
    current policy. None if the acting weights are the current ones."""
    activation_cache: dict[str, Tensor] | None = None
    """Outputs [T, B, ...] of the policy's costly layers while acting, by layer; images have their
    channels last. Valid only for the acting weights: the learner clears it when the weights change.
    None unless the algorithm asks for it."""
    stacks: tuple[Tensor, ...] | None = None
    """[T+1, B, ...] each part of `obs` with the frames before it, raw, images with their channels
    last; kept from acting, so that learning does not stack them again. None unless the algorithm
    learns from minibatches of images."""
    inputs: tuple[Tensor, ...] | None = None
    """[T+1, B, ...] network inputs of each part of `obs`, as in `Minibatch`. None unless the
    algorithm needs `next_inputs`."""
    bootstraps: Tensor | None = None
    """[T, B] V of the states that a time limit cut in environments that reset in the same step, 0
    elsewhere. The learner adds γ times these to `rewards` and sets this field to None."""

    @property
    def resets(self) -> Tensor:
        """[T, B] bool: step t only resets."""
        return self.is_first[1:] & ~self.valid

    @property
    def keep(self) -> Tensor:
        """[T, B] bool: False where step t+1 only resets, so that returns end there; True at T-1."""
        keep = self.valid.new_ones(self.valid.shape)
        keep[:-1] = ~self.resets[1:]
        return keep


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Steps of a rollout for one gradient step.

    With a recurrent memory, these are all T steps of some environments; without one, any steps as
    [1, N]. Fields named as in `Rollout` mean the same and lack its last row.
    """

    inputs: tuple[Tensor, ...]
    """[T, B, ...] network inputs of each part of the observations: stacked and normalised."""
    is_first: Tensor
    """[T, B] bool: the observation is the first of an episode."""
    state: State
    """Policy state before the first step; () without recurrent memory."""
    actions: Tensor
    """[T, B, *action] as sampled, before clipping to the bounds."""
    valid: Tensor
    """[T, B] bool: False where the environment ignored or replaced the action. Losses are means
    over valid steps."""
    action_mask: Tensor | None
    """[T, B, A] bool, True for allowed actions; None if the environment has no masks."""
    behaviour: Tensor
    """[T, B, P] float32: parameters of the distribution that sampled the actions."""
    values: Tensor
    """[T, B] V(s) by the acting weights; by the current weights if those that acted are older."""
    advantages: Tensor
    """[T, B], estimated from the whole rollout."""
    targets: Tensor
    """[T, B] regression targets of the critic."""
    next_inputs: tuple[Tensor, ...] | None = None
    """[T, B, ...] `inputs` of the observation after each step; at an episode's end, of its last
    observation. None unless the algorithm needs them."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """[T, B, ...] further results of the algorithm's `estimate`, by name."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Progress of a run: of one update, or since the previous report."""

    step: int
    """Agent steps so far, all environments together."""
    seconds: float
    """Wall time spent training, over all resumes."""
    metrics: Mapping[str, float]
    """Named as in metrics.jsonl: rollout/ep_rew_mean, train/entropy, time/fps, ..."""
    status: Literal["running", "done", "interrupted", "failed"] = "running"
    """Status of the run; only the last report of a training is not "running"."""
    run: str = ""
    """The run directory."""
    episodes: tuple[Episode, ...] = ()
    """Training games that ended since the previous report, at most the newest 10,000."""

    def __repr__(self) -> str:
        mean = self.metrics.get("rollout/ep_rew_mean")
        score = "" if mean is None else f", return {mean:.4g}"
        return f"<Report {self.status}: step {self.step:,}{score}, {len(self.metrics)} metrics>"
