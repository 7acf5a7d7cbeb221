"""Checks of network options against the observations and actions, before a model is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from vantage.errors import ConfigError
from vantage.keys.objects import is_code
from vantage.keys.typed_values import in_text
from vantage.models.config import PolicyConfig
from vantage.specs import is_part
from vantage.types import EnvSpec

MAX_WEIGHTS = 500_000_000
"""Largest network. Training holds about four times as many numbers, 8 GB."""


def check_inputs(policy: PolicyConfig, spec: EnvSpec) -> None:
    """ConfigError for options that have no effect on the observations of `spec`."""
    _check_critic_obs(policy, spec)
    kinds = {"vector" if part.kind == "one_hot" else part.kind for part in spec.parts}
    if "set" in kinds and policy.frame_stack > 1:
        raise ConfigError(f"frame_stack={policy.frame_stack} is not for sets, whose rows may change "
                          "places; give --memory lstm, or --no-obs-sets for flat vectors")
    needed_kinds = {}
    if policy.network not in ("auto", "mlp") and not is_code(policy.network):
        needed_kinds["network"] = "vector" if policy.network == "conv1d" else "image"
    if policy.precision == "bfloat16":
        needed_kinds["precision"] = "image"
    if policy.pixel_range != (0, 1):
        needed_kinds["obs_scale"] = "image"
    if policy.image_norm != "none":
        needed_kinds["image_norm"] = "image"
    for key, kind in needed_kinds.items():
        if kind not in kinds:
            raise ConfigError(f"{key}={getattr(policy, key)} is for {kind}s, and this environment "
                              "shows none; drop it")
    if policy.image_norm != "none" and policy.pixel_range != (0, 1):
        raise ConfigError(f"obs_scale={policy.obs_scale} has no effect on images that image_norm "
                          "normalises; drop one")


def _check_critic_obs(policy: PolicyConfig, spec: EnvSpec) -> None:
    names = policy.critic_parts
    if not names:
        return
    given = f"critic_obs={policy.critic_obs!r:.80}"
    own = spec.keys
    unknown = [name for name in names if not any(is_part(key, (name,)) for key in own)]
    if unknown:
        has = f"has {', '.join(own):.400}" if own else "is no Dict"
        raise ConfigError(f"{given} names {unknown[0]!r}, and the observation {has}; name its "
                          "parts")
    if all(is_part(key, names) for key in own):
        raise ConfigError(f"{given} leaves the actor no part of the observation; leave one out")
    if not policy.separate:
        raise ConfigError(f"{given} needs a network of its own for the critic; give --separate")
    if policy.frame_stack > 1:
        raise ConfigError(f"{given} needs frame_stack=1; stack frames in the environment")


def check_actions(policy: PolicyConfig, spec: EnvSpec, critic: str) -> None:
    """ConfigError if the critic, masks or options of the policy do not fit the actions."""
    action = spec.action
    kind = "Dict and Tuple" if action.parts else action.kind
    if critic == "action" and action.kind not in ("discrete", "box"):
        raise ConfigError("a critic of Q(s, a), as acer's, is for Discrete and Box actions, not "
                          f"for {kind}; use a2c, ppo or a3c")
    if policy.distribution != "gaussian":
        chosen = f"distribution={policy.distribution}"
        if not action.boxes:
            raise ConfigError(f"{chosen} is for Box actions, and these are {action!s:.200}; use "
                              "distribution=gaussian")
        if critic == "action":
            raise ConfigError(f"{chosen} is not for acer, whose trust region is that of a "
                              "Gaussian; use distribution=gaussian, or a2c, ppo or a3c")
        if policy.squash_mean:
            raise ConfigError(f"{chosen} has bounds of its own: use squash_mean=false")
    if spec.masked and (action.kind == "box" or not action.sizes):
        raise ConfigError("action masks are for discrete and multi_discrete actions, not for "
                          f"{action!s:.200}; drop action_mask from the environment's info")


def without_effect(policy: PolicyConfig, spec: EnvSpec) -> str:
    """What to warn of: keys of Box actions that were set although there are none; '' otherwise.

    No error, since a preset may have set them.
    """
    keys = ("squash_mean", "std", "min_std", "log_std_init")
    changed = [f"{key}={in_text(getattr(policy, key))}" for key in keys
               if getattr(policy, key) != getattr(PolicyConfig, key)]
    if spec.action.boxes or not changed:
        return ""
    return f"without effect: {', '.join(changed)}; the actions are {spec.action!s:.200}, not a Box"


def check_size(policy: PolicyConfig, spec: EnvSpec,
               build: Callable[[PolicyConfig], nn.Module]) -> None:
    """ConfigError for more than `MAX_WEIGHTS` weights, before they are allocated.

    User-defined networks and memories are not counted.
    """
    network = "auto" if is_code(policy.network) else policy.network
    memory = "none" if is_code(policy.memory) else policy.memory
    # std=state adds few weights, but slices a bias, for which torch would import its compiler on
    # the meta device.
    plain = replace(policy, network=network, memory=memory, init="torch", std="free")
    try:
        with torch.device("meta"):
            model = build(plain)
        size = sum(parameter.numel() for parameter in model.parameters())
    except (RuntimeError, TypeError):  # sizes beyond 64 bits
        size = 2**63
    if size > MAX_WEIGHTS:
        obs_size = sum(math.prod(part.shape) for part in spec.parts)
        raise ConfigError(f"the network would have {size:,} weights, more than {MAX_WEIGHTS:,}, "
                          f"with hidden={in_text(policy.hidden)}, memory={policy.memory}, "
                          f"memory_size={policy.memory_size}, observations of {obs_size:,} numbers "
                          f"and actions of {sum(spec.action.sizes):,}; give smaller ones")
