"""Conversion of a vector environment's tensors, without a copy where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from vantage.envs.actions import make_actor
from vantage.envs.config import EnvConfig
from vantage.envs.descriptions import shown
from vantage.envs.observations import read_box
from vantage.envs.outcomes import OutcomeError, five
from vantage.envs.parts import assembled, leaves_of, names_of
from vantage.envs.spaces import Observer, observer_of, read_parts
from vantage.specs import ActionSpec, ArraySpec

Convert = Callable[[Tensor], Tensor]
Actor = Callable[[Tensor], Any]
"""The conversion of a policy's actions, to a dict or tuple for spaces with parts."""
TensorObs = Tensor | dict[str, Tensor]


def infos_of(info: Mapping[str, Any], envs: list[int], num_envs: int) -> list[dict[str, Any]]:
    """The numbers and flags of each of `envs` in `info`, and in the dicts within it, by name.

    They are in tensors [B], or numbers and tensors without axes, which are those of all.
    """
    columns: dict[str, list[Any]] = {}
    for name, value in info.items():
        if isinstance(value, Mapping):
            columns[name] = infos_of(value, envs, num_envs)
        elif isinstance(value, Tensor) and value.shape == (num_envs,):
            columns[name] = value[envs].tolist()
        elif isinstance(value, bool | int | float):
            columns[name] = [value] * len(envs)
        elif getattr(value, "shape", None) == () and hasattr(value, "item"):
            columns[name] = [value.item()] * len(envs)
    return [{name: column[i] for name, column in columns.items()} for i in range(len(envs))]


def is_tensors(obs: Any) -> bool:
    """`obs` is a tensor, or the first of its parts is one."""
    while isinstance(obs, Mapping | tuple | list) and obs:
        obs = next(iter(obs.values() if isinstance(obs, Mapping) else obs))
    return isinstance(obs, Tensor)


def device_of(obs: Any) -> torch.device:
    """The device of the first tensor in `obs`."""
    while not isinstance(obs, Tensor):
        obs = next(iter(obs.values() if isinstance(obs, Mapping) else obs))
    return obs.device


def tensor_observer(space: gym.Space[Any], num_envs: int, device: torch.device,
                    kinds: Mapping[str, str]) -> Observer:
    """The spec of `space`, and the conversion of its observations; OutcomeError for misfits."""
    leaves = leaves_of(space)
    names = names_of(leaves)
    parts = {}
    for path, part in read_parts(space, (), kinds).items():
        kind = kinds.get(part.name, kinds.get("", "auto"))
        change = _change(leaves[path], part.spec, kind, num_envs)
        convert_part = _checked(leaves[path], part.name, change, num_envs, device)
        if part.spec.kind == "set":
            exists = None
            if part.mask is not None:
                exists = _checked(leaves[part.mask], names[part.mask], torch.Tensor.float, num_envs,
                                  device)
            convert_part = _set(convert_part, exists)
        parts[path] = replace(part, convert=convert_part)
    spec, convert = observer_of(parts)

    def observe(obs: Any) -> TensorObs:
        try:
            converted: TensorObs = convert(obs)
            return converted
        except ValueError as error:  # a part is missing
            raise OutcomeError(f"{error}; return all that single_observation_space has") from None

    return spec, observe


def _checked(space: gym.Space[Any], name: str, change: Convert, num_envs: int,
             device: torch.device) -> Convert:
    """`change` for tensors of the right shape, type and device; OutcomeError for others."""
    expected = (num_envs, *(space.shape or ()))
    whole = not isinstance(space, spaces.Box | spaces.MultiBinary)
    is_bytes = space.dtype == "uint8"
    title = f"the observation {name!r}" if name else "the observation"

    def convert(value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise OutcomeError(f"{title} is {shown(value)}; return a tensor of shape {expected}, "
                               "as reset did")
        if whole:
            fits = not value.is_floating_point()
        else:
            fits = value.dtype == torch.uint8 or not is_bytes
        if value.shape != expected or value.is_complex() or not fits:
            kind = "torch.uint8" if is_bytes else "real numbers"
            if whole:
                kind = "whole numbers"
            raise OutcomeError(f"{title} is {value.dtype} of shape {tuple(value.shape)}; it must "
                               f"be {kind} of shape {expected}")
        check_device(title, value, device)
        return change(value.detach())

    return convert


def check_device(title: str, value: Tensor, device: torch.device) -> None:
    """OutcomeError unless `value`, called `title` in messages, is on `device`."""
    if value.device != device:
        raise OutcomeError(f"{title} is on {value.device}, the first observation was on {device}; "
                           "return all tensors on one device")


def five_results(result: Any) -> Any:
    """`result` of a step; OutcomeError unless it is a tuple of five, as rsl_rl's is of four."""
    is_four = isinstance(result, tuple | list) and len(result) == 4
    if is_four and isinstance(result[2], Tensor) and isinstance(result[3], Mapping):
        raise OutcomeError("step() returned (observations, rewards, dones, extras), as rsl_rl's "
                           "environments do; return (observations, rewards, dones.bool(), "
                           "torch.zeros_like(dones.bool()), extras) with extras['time_outs'], "
                           "True at time limits; docs/vector-environments.md has the class")
    return five(result)


def column(name: str, value: Any, like: Tensor, *, flags: bool) -> Tensor:
    """`value`, checked to be bools of the shape [B] of `like` for `flags`, else real numbers."""
    if not isinstance(value, Tensor):
        raise OutcomeError(f"{name} is {shown(value)}; return a tensor of shape "
                           f"{tuple(like.shape)}, as the observations are tensors")
    is_bool = value.dtype == torch.bool
    if value.shape != like.shape or value.is_complex() or is_bool != flags:
        kind = "torch.bool" if flags else "real numbers"
        remedy = ""
        if value.numel() == like.numel() and not value.is_complex():
            remedy = f"; return {name}"
            if value.shape != like.shape:
                remedy += f".reshape({len(like)})"
            if is_bool != flags:
                remedy += ".bool()" if flags else ".float()"
        raise OutcomeError(f"{name} is {value.dtype} of shape {tuple(value.shape)}; it must be "
                           f"{kind} of shape {tuple(like.shape)}{remedy}")
    check_device(name, value, like.device)
    return value.detach()


def _change(space: gym.Space[Any], part: ArraySpec, kind: str, num_envs: int) -> Convert:
    """The conversion of tensors of `space` to those of `part`, [B, *part.shape]."""
    dtype: torch.dtype = getattr(torch, part.dtype)
    shape = (num_envs, *part.shape)
    if part.kind == "image":
        axes = (0, *(axis + 1 for axis in read_box(space, kind).axes))  # type: ignore[arg-type]
        return lambda x: x.permute(axes).reshape(shape).to(dtype)
    if part.kind == "set":
        return lambda x: x.to(dtype)
    if part.kind == "vector" or isinstance(space, spaces.MultiBinary):
        return lambda x: x.reshape(shape).to(dtype)
    starts = torch.as_tensor(space.start).reshape(-1)  # type: ignore[attr-defined]

    def one_hots(x: Tensor) -> Tensor:
        indices = (x.reshape(num_envs, -1).long() - starts.to(x.device)).unbind(1)
        columns = []
        for index, size in zip(indices, part.sizes, strict=True):
            is_inside = (index >= 0) & (index < size)
            columns.append(F.one_hot(index.clamp(0, size - 1), size) * is_inside.unsqueeze(1))
        return torch.cat(columns, 1).to(dtype)

    return one_hots


def _set(rows_of: Convert, exists_of: Convert | None) -> Callable[[Any], Tensor]:
    """The conversion of entities, or of a pair with their mask, to a set [B, N, F + 1]."""
    def convert(value: Any) -> Tensor:
        rows = rows_of(value if exists_of is None else value[0])
        exists = rows.new_ones(rows.shape[:2]) if exists_of is None else exists_of(value[1])
        exists = exists.unsqueeze(-1) > 0.5
        return torch.cat([torch.where(exists, rows, 0.0), exists.to(rows.dtype)], -1)

    return convert


def tensor_actor(space: gym.Space[Any], num_envs: int, device: torch.device, *,
                 scale: bool) -> tuple[ActionSpec, Actor]:
    """The spec of `space`, and the conversion of a policy's actions, which clips Box actions."""
    spec, _ = make_actor(space, scale=scale)
    if spec.parts:
        return spec, _joint_actor(space, spec, num_envs, device, scale=scale)
    shape = (num_envs, *(space.shape or ()))
    if spec.kind != "box":
        start = torch.as_tensor(getattr(space, "start", 0), device=device)
        if not start.any():
            return spec, lambda actions: actions.reshape(shape)
        return spec, lambda actions: actions.reshape(shape) + start
    to_env = BoxToEnv(spec).to(device)
    whole = space.dtype is not None and space.dtype.kind in "iu"

    def box(actions: Tensor) -> Tensor:
        clipped: Tensor = to_env(actions)[1]
        return (clipped.round().long() if whole else clipped).reshape(shape)

    return spec, box


class BoxToEnv(nn.Module):
    """A policy's actions in a Box in the environment's units, and clipped to its bounds."""

    low: Tensor
    high: Tensor
    centre: Tensor
    half_width: Tensor

    def __init__(self, action: ActionSpec) -> None:
        super().__init__()
        self.is_scaled = any(action.scaled)
        self.dtype: torch.dtype = getattr(torch, action.env_dtype.__name__)
        centre, half_width = action.scale
        constants = {"low": torch.tensor(action.low, dtype=self.dtype),
                     "high": torch.tensor(action.high, dtype=self.dtype)}
        if self.is_scaled:
            constants["centre"] = torch.from_numpy(centre)
            constants["half_width"] = torch.from_numpy(half_width)
        for name, constant in constants.items():
            self.register_buffer(name, constant, persistent=False)

    def forward(self, actions: Tensor) -> tuple[Tensor, Tensor]:
        if self.is_scaled:  # in float64, as `ActionSpec.to_env` rounds
            actions = (self.centre + self.half_width * actions.double()).to(self.dtype)
        return actions, torch.minimum(torch.maximum(actions, self.low), self.high)

    def log_deviation(self, log_std: Tensor) -> Tensor:
        """The log of a standard deviation in the environment's units."""
        return log_std + self.half_width.log().to(log_std.dtype) if self.is_scaled else log_std


def _joint_actor(space: gym.Space[Any], spec: ActionSpec, num_envs: int, device: torch.device, *,
                 scale: bool) -> Actor:
    """The conversion of rows, in which the parts are side by side, to the nesting of `space`."""
    parts = spec.parts.values()
    widths = [math.prod(part.shape) for part in parts]
    converts = {path: tensor_actor(leaf, num_envs, device, scale=scale)[1]
                for path, leaf in leaves_of(space).items()}

    def convert(rows: Tensor) -> Any:
        columns = [taken if part.kind == "box" else taken.long()
                   for part, taken in zip(parts, torch.split(rows, widths, -1), strict=True)]
        return assembled(space, {path: convert_part(taken) for (path, convert_part), taken
                                 in zip(converts.items(), columns, strict=True)})

    return convert


def learnt_tensors(rewards: Tensor, config: EnvConfig) -> Tensor:
    """Rewards, clipped, then scaled, then floored; `rewards.learnt_rewards` for tensors."""
    if config.reward == "sign":
        rewards = rewards.sign()
    elif config.reward == "clip":
        rewards = rewards.clamp(-1.0, 1.0)
    if config.reward_scale != 1:
        rewards = rewards * config.reward_scale
    return rewards if config.reward_floor is None else rewards.clamp(min=config.reward_floor)
