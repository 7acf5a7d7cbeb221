"""Environments as training sees them: named, built, stepped in batches, recorded. The only package that imports
gymnasium and ale_py; imports no torch."""

from __future__ import annotations

from functools import partial

from vantage.config import Config
from vantage.envs.ids import EnvId, known_names, resolve_env
from vantage.envs.interface import Environments, First, Rendered, Step
from vantage.envs.options import check_options
from vantage.errors import ConfigError

__all__ = ["EnvId", "Environments", "First", "Rendered", "Step", "check_options", "known_names", "make_environments",
           "make_rendered", "resolve_env"]


def make_environments(config: Config, *, num_envs: int, stream: int, first_env: int = 0, evaluation: bool = False,
                      threads: int = 0) -> Environments:
    """`num_envs` environments of `config`, whose randomness is theirs alone: `stream` 0 trains, others evaluate.

    The environments count from `first_env`, which is part of their seeds and of what is said of them. Evaluation
    environments report raw rewards and no lost lives. `threads` is for Atari's emulators; 0 takes all cores.
    """
    env = resolve_env(config.env.id, config.env.atari_protocol)
    if env.atari is not None:
        from vantage.envs.atari import AtariEnvironments

        return AtariEnvironments(config, env.atari, num_envs=num_envs, stream=stream, first_env=first_env,
                                 evaluation=evaluation, threads=threads)
    from vantage.envs.vector_env import GymEnvironments

    return GymEnvironments(config, env, num_envs=num_envs, stream=stream, first_env=first_env, evaluation=evaluation)


def make_rendered(config: Config, *, stream: int, required: bool = True) -> Rendered:
    """One evaluation environment of `config` that can be seen, stepped in this process; its games are those that
    `make_environments` would play in its first one. One that draws no pictures is a ConfigError, or, if they are not
    `required`, an environment that `render` is not for."""
    env = resolve_env(config.env.id, config.env.atari_protocol)
    if env.atari is not None:
        from vantage.envs.atari import AtariEnvironments

        return AtariEnvironments(config, env.atari, num_envs=1, stream=stream, evaluation=True, threads=1,
                                 rendered=True)
    from vantage.envs.vector_env import GymEnvironments

    make = partial(GymEnvironments, config.override({"vector": "sync"}, source="render"), env, num_envs=1,
                   stream=stream, evaluation=True)
    try:
        return make(rendered=True)
    except ConfigError:
        if required:
            raise
        return make()  # raises what else is wrong
