"""Environments that the user built: they are copied for evaluations, and stay open."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium as gym

from vantage.envs.config import EnvConfig
from vantage.envs.failures import close_quietly
from vantage.envs.other_interfaces import is_parallel
from vantage.errors import ConfigError
from vantage.keys.objects import ObjectName, target_of


def is_built(config: EnvConfig) -> bool:
    """Whether the user gave a built environment, not a class or function that builds any number."""
    target = target_of(config.id)
    return isinstance(target, gym.Env | gym.vector.VectorEnv) or (
        not isinstance(target, type) and is_parallel(target))


def num_built(config: EnvConfig) -> int:
    """Number of environments in the user's object."""
    built = target_of(config.id)
    return int(built.num_envs) if isinstance(built, gym.vector.VectorEnv) else 1


def copying(config: EnvConfig) -> EnvConfig:
    """`config` with copies in place of an environment that the user built.

    Training continues with the original. Raises ConfigError if it cannot be copied.
    """
    if not is_built(config):
        return config
    built = target_of(config.id)
    try:
        first = copy.deepcopy(built)
    except Exception as error:
        raise ConfigError(f"env={config.id} cannot be copied for evaluations: "
                          f"{type(error).__name__}: {error}; give its class or a lambda that "
                          "builds it, or eval_every=0") from error
    is_vector = isinstance(built, gym.vector.VectorEnv)
    env = first if is_vector else partial(copy.deepcopy, built)
    return replace(config, id=ObjectName(config.id, env))


class Borrowed(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that the user built and will close."""

    def close(self) -> None:
        pass


def stays_open(config: EnvConfig, *, evaluation: bool) -> bool:
    """Whether the user closes the environment. Evaluations play copies, which Vantage closes."""
    return is_built(config) and not evaluation


def close_if_own(env: Any, config: EnvConfig, *, evaluation: bool) -> None:
    """Close an environment of `config`, unless it stays open."""
    if not stays_open(config, evaluation=evaluation):
        close_quietly(env)
