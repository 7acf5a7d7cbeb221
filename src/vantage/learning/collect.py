"""Rollouts: the policy acts in the environments. No learning here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vantage._host.system import free_memory
from vantage.envs.interface import First, Step
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError
from vantage.models.activation_cache import ActivationCache
from vantage.models.actor_critic import ActorCritic
from vantage.types import EnvSpec, Episode, Obs, Rollout, State, map_parts

Array = np.ndarray | Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Position:
    """The inputs of the policy's next step."""

    obs: Obs
    """[B, *obs]"""
    is_first: Tensor
    """[B] bool"""
    action_mask: Tensor | None
    state: State

    @classmethod
    def after(cls, step: First | Step, state: State, device: torch.device) -> Position:
        """The position after a reset or step of the environments, with the policy's `state`."""
        mask = None if step.action_mask is None else torch.as_tensor(step.action_mask, device=device)
        obs = map_parts(lambda part: torch.as_tensor(part, device=device), step.obs)
        return cls(obs, torch.as_tensor(step.is_first, device=device), mask, state)


@dataclass(frozen=True, slots=True)
class Collected:
    """A rollout, the position after it, the games that ended in it, and the time of environments and policy."""

    rollout: Rollout
    position: Position
    episodes: tuple[Episode, ...]
    env_seconds: float
    act_seconds: float


@torch.no_grad()
def collect(model: ActorCritic, envs: Environments, position: Position, *, length: int, generator: torch.Generator,
            activation_cache: bool = False, values: bool = False) -> Collected:
    """Act `length` steps in each environment with sampled actions, starting from `position`.

    With `activation_cache` the rollout has one if the model supports it, with `values` the values by the weights that
    act.
    """
    rollout = empty_rollout(model, position, length, activation_cache=activation_cache, values=values)
    state = position.state
    episodes: list[Episode] = []
    env_seconds, started = 0.0, perf_counter()
    with model.constant_weights():
        for t in range(length):
            actions, state = act(model, rollout, t, state, generator)
            before = perf_counter()
            step = step_envs(envs, actions)
            env_seconds += perf_counter() - before
            store(rollout, t, step)
            episodes.extend(step.episodes)
    position = Position(map_parts(lambda part: part[length], rollout.obs), rollout.is_first[length],
                        None if rollout.action_mask is None else rollout.action_mask[length], state)
    if rollout.values is not None:
        rollout.values[length] = model.step_with_values(position.obs, position.is_first, state,
                                                        position.action_mask)[1]
    return Collected(rollout, position, tuple(episodes), env_seconds, perf_counter() - started - env_seconds)


@torch.enable_grad()
def step_envs(envs: Environments, actions: Tensor) -> Step:
    """One step of the environments, which may compute gradients of their own."""
    chosen: Any = actions if envs.takes_tensors else actions.cpu().numpy()
    return envs.step(chosen)


@torch.enable_grad()
def reset_envs(envs: Environments, seed: int | None = None) -> First:
    """The first observations, with a `seed` those of its first games; gradients as in `step_envs`."""
    return envs.reset() if seed is None else envs.restart(seed)


def check_rollouts(spec: EnvSpec, num_envs: int, num_steps: int) -> None:
    """ConfigError where the observations of so many steps would not fit into the free memory."""
    one = sum(math.prod(part.shape) * np.dtype(part.dtype).itemsize for part in spec.parts)
    size, free = one * num_envs * (num_steps + 1), free_memory()
    if size > free:
        raise ConfigError(f"the observations of an update would take {size / 2**30:.1f} GB, {one / 2**20:.1f} MB each, "
                          f"and {free / 2**30:.1f} GB of memory are free, with num_envs={num_envs} and {num_steps} "
                          "steps; give a smaller --rollout-length or --num-envs, or smaller observations")


def act(model: ActorCritic, rollout: Rollout, t: int, state: State, generator: torch.Generator) -> tuple[Tensor, State]:
    """Sample the actions of step t from the policy's `state`; returns them and the state after it.

    Writes actions, distribution parameters, values and cached activations to the rollout.
    """
    mask = None if rollout.action_mask is None else rollout.action_mask[t]
    obs, is_first = map_parts(lambda part: part[t], rollout.obs), rollout.is_first[t]
    cache: ActivationCache | None = None if rollout.activation_cache is None else {}
    if rollout.values is None:
        params, state = model.step(obs, is_first, state, mask, cache)
    else:
        params, rollout.values[t], state = model.step_with_values(obs, is_first, state, mask)
    if cache and rollout.activation_cache is not None:
        for name, part in cache.items():
            if name not in rollout.activation_cache:
                rollout.activation_cache[name] = part.new_empty((len(rollout.rewards), *part.shape))
            rollout.activation_cache[name][t] = part
    actions = model.distribution.sample(params, generator)
    rollout.behaviour[t], rollout.actions[t] = params, actions
    return actions, state


def store(rollout: Rollout, t: int, step: Step) -> None:
    _write(rollout.obs, t + 1, step.obs)
    rollout.rewards[t] = torch.as_tensor(step.rewards)
    rollout.terminated[t] = torch.as_tensor(step.terminated)
    rollout.valid[t] = torch.as_tensor(step.valid)
    rollout.is_first[t + 1] = torch.as_tensor(step.is_first)
    if rollout.action_mask is not None:
        rollout.action_mask[t + 1] = torch.as_tensor(step.action_mask)


def empty_rollout(model: ActorCritic, position: Position, length: int, *, activation_cache: bool = False,
                  values: bool = False) -> Rollout:
    """A rollout whose first row is `position`; its other rows are not initialised."""
    is_first, mask = position.is_first, position.action_mask
    num_envs, device = is_first.shape[0], is_first.device
    action = model.spec.action
    dtype = torch.float32 if action.kind == "box" else torch.int64

    def empty(rows: int, like: Tensor) -> Tensor:
        return torch.empty((rows, *like.shape), dtype=like.dtype, device=device)

    rollout = Rollout(
        obs=map_parts(lambda part: empty(length + 1, part), position.obs), is_first=empty(length + 1, is_first),
        actions=torch.empty((length, num_envs, *action.shape), dtype=dtype, device=device),
        rewards=torch.empty((length, num_envs), device=device), terminated=empty(length, is_first),
        valid=empty(length, is_first), action_mask=None if mask is None else empty(length + 1, mask),
        behaviour=torch.empty((length, num_envs, model.distribution.num_params), device=device),
        state=position.state, values=torch.empty((length + 1, num_envs), device=device) if values else None,
        activation_cache={} if activation_cache and model.can_cache else None)
    _write(rollout.obs, 0, position.obs)
    rollout.is_first[0] = is_first
    if rollout.action_mask is not None and mask is not None:
        rollout.action_mask[0] = mask
    return rollout


def join_rollouts(rollouts: Sequence[Rollout]) -> Rollout:
    """Rollouts of equal length as one rollout of all their environments."""
    if len(rollouts) == 1:
        return rollouts[0]
    columns = {f.name: [getattr(rollout, f.name) for rollout in rollouts] for f in fields(Rollout)}
    return Rollout(**{name: map_parts(lambda *each, axis=int(name != "state"): torch.cat(each, axis), *parts)
                      for name, parts in columns.items()})


def _write(obs: Obs, t: int, row: Array | Obs) -> None:
    map_parts(lambda part, new: part[t].copy_(torch.as_tensor(new)), obs, row)
