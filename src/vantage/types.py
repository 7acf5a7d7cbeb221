"""The data that passes between the parts: frozen, typed, with shapes. No behaviour beyond moving it.

T time, B environments, A actions, P distribution parameters; time comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from vantage.specs import ActionSpec, ArraySpec, EnvSpec, Episode

__all__ = ["ActionSpec", "ArraySpec", "EnvSpec", "Episode", "Minibatch", "Obs", "Report", "Rollout", "State",
           "map_parts"]

State = tuple[Tensor, ...]
"""The policy's memory between steps: past frames and the state of its memory; each [B, ...]; () without both."""

Obs = Tensor | Mapping[str, Tensor]
"""Observations as the environments deliver them: one tensor, or one per key of a Dict space."""


def map_parts(function: Callable[..., Any], parts: Any, *others: Any) -> Any:
    """`function` applied to each tensor of an observation or a state, and to the same of `others`; None stays None."""
    if isinstance(parts, Mapping):
        return {key: function(part, *(other[key] for other in others)) for key, part in parts.items()}
    if isinstance(parts, tuple):
        return tuple(map(function, parts, *others))
    return None if parts is None else function(parts, *others)


@dataclass(frozen=True, slots=True)
class Rollout:
    """T consecutive steps of B environments; time first. Step t goes from obs[t] to obs[t+1].

    The environments reset in the step after an episode's end (Gymnasium's NEXT_STEP), so the successor's value is
    always values[t+1]: at deaths the discount is 0, at time limits it is gamma.
    """

    obs: Obs
    """[T+1, B, *obs] raw; the last one is only bootstrapped from."""
    is_first: Tensor
    """[T+1, B] bool: obs[t] opens an episode."""
    actions: Tensor
    """[T, B, *action] as sampled, before clipping to the bounds."""
    rewards: Tensor
    """[T, B] float32 as learnt from, after clipping."""
    terminated: Tensor
    """[T, B] bool: the task (or the life) ended here; a time limit is not an end."""
    valid: Tensor
    """[T, B] bool: False where the environment ignored or replaced the action (reset, forced FIRE)."""
    action_mask: Tensor | None
    """[T+1, B, A] bool, True where the action is allowed; None if the environment has no masks."""
    behaviour: Tensor
    """[T, B, P] float32: parameters of the distribution that sampled the actions."""
    state: State
    """Policy state before obs[0]; () without memory."""
    values: Tensor | None = None
    """[T+1, B] V(s) by the weights that acted; None unless the algorithm learns from minibatches."""
    rhos: Tensor | None = None
    """[T, B] importance weights π/μ of the actions; `behaviour` and `values` are then those of the current policy. None
    where the weights that acted are still the current ones."""
    activation_cache: dict[str, Tensor] | None = None
    """Outputs [T, B, ...] of the policy's costly layers while it acted, by layer, images with their channels last.
    Valid for the weights that acted: the learner empties it when they move. None unless the algorithm asks for it."""
    inputs: tuple[Tensor, ...] | None = None
    """[T+1, B, ...] what the networks see of each part of `obs`, as in `Minibatch`. None unless the algorithm needs
    `next_inputs`."""

    @property
    def keep(self) -> Tensor:
        """[T, B] bool: False where step t+1 only resets, so that nothing flows between episodes; True at T-1."""
        keep = self.is_first.new_ones(self.is_first.shape[0] - 1, self.is_first.shape[1])
        keep[:-1] = ~self.is_first[2:]
        return keep


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Steps of a rollout that one gradient step learns from: T steps of some of its environments in order of time, or,
    without recurrent memory, single steps side by side, [1, N]. Fields named as in `Rollout` mean the same and
    lack its last row.
    """

    inputs: tuple[Tensor, ...]
    """[T, B, ...] what the networks see of each part of the observations: stacked and normalised."""
    is_first: Tensor
    state: State
    """Policy state before the first step; () without recurrent memory."""
    actions: Tensor
    valid: Tensor
    action_mask: Tensor | None
    behaviour: Tensor
    values: Tensor
    """[T, B] V(s) by the weights that acted, or by the current ones where older ones did."""
    advantages: Tensor
    """[T, B] of the whole rollout's estimate."""
    targets: Tensor
    """[T, B] what the critic regresses on."""
    next_inputs: tuple[Tensor, ...] | None = None
    """[T, B, ...] `inputs` of the observation after each step: that of an episode's end, not of the next one's start.
    None unless the algorithm needs them."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    """[T, B, ...] what else the algorithm's `estimate` has returned, by name."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Progress of a run: of one update, or of the time since the report before."""

    step: int
    """Agent steps so far, all environments together."""
    seconds: float
    """Wall time spent training, over all resumes."""
    metrics: Mapping[str, float]
    """Named as in metrics.jsonl: rollout/ep_rew_mean, train/entropy, time/fps, ..."""
    status: Literal["running", "done", "interrupted", "failed"] = "running"
    """Of the run: the last report of a training has another one than "running"."""
    run: str = ""
    """The run directory."""
    episodes: tuple[Episode, ...] = ()
    """The training games that have ended since the report before, at most the newest 10,000."""

    def __repr__(self) -> str:
        mean = self.metrics.get("rollout/ep_rew_mean")
        score = "" if mean is None else f", return {mean:.4g}"
        return f"<Report {self.status}: step {self.step:,}{score}, {len(self.metrics)} metrics>"
