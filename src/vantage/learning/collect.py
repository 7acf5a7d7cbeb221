"""Rollouts: T steps of the policy in B environments. No learning here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vantage._host.system import free_memory
from vantage.envs.interface import First, Step
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError
from vantage.learning.bootstrap import values_at_limits
from vantage.learning.finite import check_actions
from vantage.models.activation_cache import ActivationCache
from vantage.models.actor_critic import ActorCritic
from vantage.models.mlp_arrays import MlpArrays
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
        mask: Tensor | None = None
        if step.action_mask is not None:
            mask = torch.as_tensor(step.action_mask, device=device)
        obs = map_parts(lambda part: torch.as_tensor(part, device=device), step.obs)
        return cls(obs, torch.as_tensor(step.is_first, device=device), mask, state)


@dataclass(frozen=True, slots=True)
class Collection:
    """A rollout and how it was collected."""

    rollout: Rollout
    position: Position
    """The position after the rollout."""
    episodes: tuple[Episode, ...]
    """Episodes that ended within the rollout."""
    env_seconds: float
    act_seconds: float


@torch.no_grad()
def collect(model: ActorCritic, envs: Environments, position: Position, *, length: int,
            generator: torch.Generator, activation_cache: bool = False, values: bool = False,
            arrays: MlpArrays | None = None) -> Collection:
    """Take `length` steps with sampled actions in each environment, starting from `position`.

    With `activation_cache` the rollout has one, if the model supports it; with `values` it has the
    values of the current weights, and stacks of images. `arrays` of the model act in its place if
    it has no state.
    """
    rollout = empty_rollout(model, position, length, activation_cache=activation_cache,
                            values=values, same_step=envs.same_step)
    state = position.state
    rows = rollout if envs.takes_tensors else in_arrays(rollout)
    if state or envs.takes_tensors:
        arrays = None
    episodes: list[Episode] = []
    env_seconds = 0.0
    started = perf_counter()
    with model.constant_weights():
        for t in range(length):
            actions: Tensor | np.ndarray
            before_acting = state
            if arrays is None:
                actions, state = act(model, rollout, t, state, generator)
            else:
                actions = act_by_arrays(arrays, rows, t, generator)
            before = perf_counter()
            step = step_envs(envs, actions, model, rollout.obs, t)
            env_seconds += perf_counter() - before
            store(rows, t, step)
            if rollout.bootstraps is not None:
                rollout.bootstraps[t] = values_at_limits(model, rollout, t, step, before_acting,
                                                         state)
            episodes.extend(step.episodes)
    mask = None if rollout.action_mask is None else rollout.action_mask[length]
    obs = map_parts(lambda part: part[length], rollout.obs)
    position = Position(obs, rollout.is_first[length], mask, state)
    if rollout.values is not None:
        _, bootstrap_values, _ = model.step_with_values(obs, position.is_first, state, mask,
                                                        _row(rollout.stacks, length))
        rollout.values[length] = bootstrap_values
    act_seconds = perf_counter() - started - env_seconds
    return Collection(rollout, position, tuple(episodes), env_seconds, act_seconds)


@torch.enable_grad()
def step_envs(envs: Environments, actions: Tensor | np.ndarray, model: ActorCritic, obs: Obs,
              row: int | None = None) -> Step:
    """One step of the environments, with gradients enabled for those that compute their own.

    NonFiniteError for actions of `model` that are not finite; `obs`, or its `row`, led to them.
    Environments in tensors take any, as a check would wait for the device.
    """
    chosen: Any = actions
    if not envs.takes_tensors:
        if isinstance(actions, Tensor):
            chosen = actions.cpu().numpy()
        check_actions(chosen, model, obs, row)
    return envs.step(chosen)


@torch.enable_grad()
def reset_envs(envs: Environments, seed: int | None = None) -> First:
    """Reset the environments, or restart them from `seed`. Gradients are as in `step_envs`."""
    return envs.reset() if seed is None else envs.restart(seed)


def check_rollouts(spec: EnvSpec, num_envs: int, num_steps: int, *, frame_stack: int = 1) -> None:
    """Raises ConfigError if the observations of `num_steps` would not fit into the free memory.

    Includes stored stacks of images if `frame_stack` is above 1.
    """
    one = 0
    for part in spec.parts:
        stacks = frame_stack if part.kind == "image" and frame_stack > 1 else 0
        one += (1 + stacks) * math.prod(part.shape) * np.dtype(part.dtype).itemsize
    size = one * num_envs * (num_steps + 1)
    free = free_memory()
    if size > free:
        raise ConfigError(f"the observations of an update would take {size / 2**30:.1f} GB, "
                          f"{one / 2**20:.1f} MB each, and {free / 2**30:.1f} GB of memory are "
                          f"free, with num_envs={num_envs} and {num_steps} steps; give a smaller "
                          "--rollout-length or --num-envs, or smaller observations")


def act(model: ActorCritic, rollout: Rollout, t: int, state: State,
        generator: torch.Generator) -> tuple[Tensor, State]:
    """Sample the actions of step t from the policy's `state`; returns them and the state after it.

    Writes actions, distribution parameters, values and cached activations to the rollout.
    """
    mask = None if rollout.action_mask is None else rollout.action_mask[t]
    obs = map_parts(lambda part: part[t], rollout.obs)
    is_first = rollout.is_first[t]
    cache: ActivationCache | None = None if rollout.activation_cache is None else {}
    if rollout.values is None:
        params, state = model.step(obs, is_first, state, mask, cache)
    else:
        params, rollout.values[t], state = model.step_with_values(
            obs, is_first, state, mask, _row(rollout.stacks, t))
    if cache and rollout.activation_cache is not None:
        for name, part in cache.items():
            if name not in rollout.activation_cache:
                rollout.activation_cache[name] = part.new_empty((len(rollout.rewards), *part.shape))
            rollout.activation_cache[name][t] = part
    actions = model.distribution.sample(params, generator)
    rollout.behaviour[t] = params
    rollout.actions[t] = actions
    return actions, state


def act_by_arrays(arrays: MlpArrays, rows: Rollout, t: int,
                  generator: torch.Generator) -> np.ndarray:
    """`act` for a network without a state that NumPy computes, with a rollout `in_arrays`."""
    row: Any = rows
    mask = None if row.action_mask is None else row.action_mask[t]
    x = arrays.inputs(map_parts(lambda part: part[t], row.obs))
    params, values = arrays.forward(x, mask, critic=row.values is not None)
    actions = arrays.sample(params, generator)
    if row.values is not None:
        row.values[t] = arrays.raw(values)
    row.behaviour[t] = params
    row.actions[t] = actions
    return actions


def in_arrays(rollout: Rollout) -> Rollout:
    """`rollout` with NumPy arrays that share the memory of its tensors, if it is on a CPU.

    Assigning a row takes a tenth of the time.
    """
    if rollout.rewards.device.type != "cpu":
        return rollout
    names = ("obs", "is_first", "actions", "rewards", "terminated", "valid", "action_mask",
             "behaviour", "values")
    return replace(rollout, **{name: map_parts(Tensor.numpy, getattr(rollout, name))
                               for name in names})


def store(rows: Rollout, t: int, step: Step) -> None:
    """Write step t to a rollout, also to one `in_arrays`: rewards at t, observations at t + 1."""
    form: Any = torch.as_tensor if isinstance(rows.rewards, Tensor) else np.asarray
    _write(rows.obs, t + 1, step.obs, form)
    rows.rewards[t] = form(step.rewards)
    rows.terminated[t] = form(step.terminated)
    rows.valid[t] = form(step.valid)
    rows.is_first[t + 1] = form(step.is_first)
    if step.time_outs is not None:
        rows.terminated[t] |= form(step.time_outs)
    if rows.action_mask is not None:
        rows.action_mask[t + 1] = form(step.action_mask)


def _empty_stacks(model: ActorCritic, *shape: int) -> tuple[Tensor, ...] | None:
    """Memory for the model's `stacks` of observations of `shape`; None to keep none.

    Stacks of images are worth keeping in the memory of a CPU, where they take a tenth of
    learning; on a GPU they take less time than memory.
    """
    weight = model.value_head.weight
    if not model.num_frame_states or weight.is_cuda:
        return None
    if all(group.kind == "vector" for group in model.groups):
        return None
    k = model.policy.frame_stack
    shapes = [(*part.shape[1:], k * part.shape[0]) for part in model.parts]
    return tuple(weight.new_empty((*shape, *each), dtype=getattr(torch, part.dtype))
                 for each, part in zip(shapes, model.parts, strict=True))


def empty_rollout(model: ActorCritic, position: Position, length: int, *,
                  activation_cache: bool = False, values: bool = False,
                  same_step: bool = False) -> Rollout:
    """A rollout whose first row is `position`; its other rows are not initialised.

    `same_step`: the environments reset in the step that ends an episode.
    """
    is_first = position.is_first
    mask = position.action_mask
    num_envs = is_first.shape[0]
    action = model.spec.action
    action_dtype = getattr(torch, action.dtype)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=is_first.device)

    def empty_like(rows: int, row: Tensor) -> Tensor:
        return empty(rows, *row.shape, dtype=row.dtype)

    rollout = Rollout(
        obs=map_parts(lambda part: empty_like(length + 1, part), position.obs),
        is_first=empty_like(length + 1, is_first),
        actions=empty(length, num_envs, *action.shape, dtype=action_dtype),
        rewards=empty(length, num_envs),
        terminated=empty_like(length, is_first),
        valid=empty_like(length, is_first),
        action_mask=None if mask is None else empty_like(length + 1, mask),
        behaviour=empty(length, num_envs, model.distribution.num_params),
        state=position.state,
        values=empty(length + 1, num_envs) if values else None,
        stacks=_empty_stacks(model, length + 1, num_envs) if values else None,
        activation_cache={} if activation_cache and model.can_cache else None,
        bootstraps=empty(length, num_envs) if same_step else None)
    _write(rollout.obs, 0, position.obs, torch.as_tensor)
    rollout.is_first[0] = is_first
    if rollout.action_mask is not None and mask is not None:
        rollout.action_mask[0] = mask
    return rollout


def join_rollouts(rollouts: Sequence[Rollout]) -> Rollout:
    """Rollouts of equal length as one rollout of all their environments."""
    if len(rollouts) == 1:
        return rollouts[0]

    def join(name: str) -> Any:
        axis = 0 if name == "state" else 1  # of the environments
        parts = [getattr(rollout, name) for rollout in rollouts]
        return map_parts(lambda *tensors: torch.cat(tensors, axis), *parts)

    return Rollout(**{field.name: join(field.name) for field in fields(Rollout)})


def _row(parts: tuple[Tensor, ...] | None, t: int) -> tuple[Tensor, ...] | None:
    """Row `t` of each part."""
    return None if parts is None else tuple(part[t] for part in parts)


def _write(obs: Obs, t: int, row: Array | Obs, form: Callable[[Any], Any]) -> None:
    map_parts(lambda part, new: part.__setitem__(t, form(new)), obs, row)
