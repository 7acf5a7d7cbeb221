"""Environments from a config: batches for training and evaluation, and single ones to show."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from vantage.envs.config import EnvConfig
from vantage.envs.failures import close_quietly
from vantage.envs.ids import resolve_env
from vantage.envs.interface import LONGEST_GAME, Seeds
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError


def make_environments(env: EnvConfig, *, seed: int, num_envs: int, stream: int, first_env: int = 0,
                      place: int = 0, evaluation: bool = False, threads: int = 0,
                      rendered: bool = False, longest_game: int = LONGEST_GAME) -> Environments:
    """`num_envs` environments; random `stream` 0 is for training, others are for evaluations.

    Environments of several agents have a row for each. `first_env` is the index in the run of the
    first environment, for seeds and messages. `place` is its index among those that run at the same
    time, which decides which episodes are short.
    Evaluation environments have no short episodes; they report raw rewards, no lost lives, and cut
    games without a time limit after `longest_game` steps. `threads` is for Atari's emulators; 0
    uses all cores.
    """
    # Imported here, so that names are resolved without building anything.
    from vantage.envs.batched import (
        batched_environments,
        create_vector,
        is_in_tensors,
        is_vector,
    )
    from vantage.envs.build import copying, create_one
    from vantage.envs.options import check_options
    from vantage.envs.other_interfaces import is_parallel
    from vantage.envs.parallel_agents import several_agents
    from vantage.envs.short_episodes import short_environments
    from vantage.envs.single import single_environments

    short = short_environments(env, num_envs, place)
    if evaluation:
        short[:] = False
        env = replace(copying(env), reset_options=env.reset_stages.last())
    name = resolve_env(env.id, env.atari_protocol)
    seeds = Seeds(name.name, seed, stream, first_env)
    if name.atari is not None:
        from vantage.envs.atari import atari_environments  # needs ale_py, which is optional

        simulators = atari_environments(env, name.atari, seeds, num_envs=num_envs, threads=threads,
                                 rendered=rendered, short=short)
    elif is_vector(name):
        vector = create_vector(env, name, num_envs=num_envs, rendered=rendered)
        if is_in_tensors(vector, seeds):
            return _in_tensors(env, vector, seeds, evaluation=evaluation, longest_game=longest_game)
        simulators = batched_environments(env, name, seeds, vector, longest_game=longest_game)
    else:
        check_options(env, name)
        created = create_one(name, env, rendered=rendered)
        cut_after = longest_game if evaluation else 0
        if is_parallel(created):
            simulators = several_agents(env, name, seeds, created, num_envs=num_envs,
                                        rendered=rendered, longest_game=cut_after)
            num_envs *= simulators.spec.agents
            short = short.repeat(simulators.spec.agents)
        else:
            simulators = single_environments(env, name, seeds, created, num_envs=num_envs,
                                             rendered=rendered, longest_game=cut_after,
                                             short=short)
    try:
        return Environments(simulators, env, seeds, num_envs=num_envs, evaluation=evaluation,
                            draws=rendered, short=short)
    except BaseException:
        simulators.close()
        raise


def _in_tensors(env: EnvConfig, vector: Any, seeds: Seeds, *, evaluation: bool,
                longest_game: int) -> Environments:
    from vantage.envs.tensor_env import TensorEnvironments

    try:
        made = TensorEnvironments(vector, env, seeds, evaluation=evaluation,
                                  longest_game=longest_game)
    except BaseException:
        close_quietly(vector)
        raise
    return cast(Environments, made)  # the same methods, of tensors


def make_single(env: EnvConfig, *, seed: int, stream: int, draws: bool | None = True,
                num_envs: int = 1) -> Environments:
    """One evaluation environment in this process, with the same observations as in training.

    `draws`: True needs pictures and raises ConfigError without them; None renders if possible. A
    vector environment is built with `num_envs` environments, the number from training.
    """
    from vantage.envs.batched import is_vector

    is_batch = is_vector(resolve_env(env.id, env.atari_protocol))
    make = partial(make_environments, replace(env, vector="sync"), seed=seed,
                   num_envs=num_envs if is_batch else 1, stream=stream, evaluation=True, threads=1)
    try:
        return make(rendered=draws is not False)
    except ConfigError:
        if draws is not None:
            raise
        return make()  # raises if pictures are not the cause
