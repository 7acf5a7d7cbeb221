"""Environments from a config: batches for training and evaluation, and single ones to show."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from vantage.envs.config import EnvConfig
from vantage.envs.ids import EnvId, resolve_env
from vantage.envs.interface import LONGEST_GAME, Array, Seeds, Simulators
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError


def make_environments(config: EnvConfig, *, seed: int, num_envs: int, stream: int,
                      first_env: int = 0, place: int = 0, evaluation: bool = False,
                      threads: int = 0, rendered: bool = False,
                      longest_game: int = LONGEST_GAME) -> Environments:
    """`num_envs` environments; random `stream` 0 is for training, others are for evaluations.

    Environments of several agents have a row for each. `first_env` is the index in the run of the
    first environment, for seeds and messages. `place` is its index among those that run at the same
    time, which decides which episodes are short.
    Evaluation environments have no short episodes; they report raw rewards, no lost lives, and cut
    games without a time limit after `longest_game` steps. `threads` is for Atari's emulators; 0
    uses all cores.
    """
    # Imported here, so that names are resolved without building anything.
    from vantage.envs.batched import is_vector
    from vantage.envs.built import copying
    from vantage.envs.short_episodes import short_environments

    short = short_environments(config, num_envs, place)
    if evaluation:
        short[:] = False
        config = replace(copying(config), reset_options=config.reset_stages.last())
    env = resolve_env(config.id, config.atari_protocol)
    seeds = Seeds(env.name, seed, stream, first_env)
    if env.atari is not None:
        from vantage.envs.atari import atari_environments  # needs ale_py, which is optional

        simulators = atari_environments(config, env.atari, seeds, num_envs=num_envs,
                                        threads=threads, rendered=rendered, short=short)
    elif is_vector(env):
        return _of_vector(config, env, seeds, short, num_envs=num_envs, evaluation=evaluation,
                          rendered=rendered, longest_game=longest_game)
    else:
        simulators = _of_instances(config, env, seeds, short, num_envs=num_envs,
                                   rendered=rendered, cut_after=longest_game if evaluation else 0)
        num_envs *= simulators.spec.agents
        short = short.repeat(simulators.spec.agents)
    return _environments_of(simulators, config, seeds, short, num_envs=num_envs,
                            evaluation=evaluation, rendered=rendered)


def _of_vector(config: EnvConfig, env: EnvId, seeds: Seeds, short: Array, *, num_envs: int,
               evaluation: bool, rendered: bool, longest_game: int) -> Environments:
    """The environments of a vector environment, in NumPy or in tensors."""
    from vantage.envs.batched import batched_environments, create_vector, is_in_tensors
    from vantage.envs.built import close_if_own

    vector = create_vector(config, env, num_envs=num_envs, rendered=rendered)
    try:
        if is_in_tensors(vector, config, seeds):
            from vantage.envs.tensor_env import TensorEnvironments

            made = TensorEnvironments(vector, config, seeds, evaluation=evaluation,
                                      longest_game=longest_game)
            return cast(Environments, made)  # the same methods, of tensors
        simulators = batched_environments(config, env, seeds, vector, evaluation=evaluation,
                                          longest_game=longest_game)
    except BaseException:
        close_if_own(vector, config, evaluation=evaluation)
        raise
    return _environments_of(simulators, config, seeds, short, num_envs=num_envs,
                            evaluation=evaluation, rendered=rendered)


def _of_instances(config: EnvConfig, env: EnvId, seeds: Seeds, short: Array, *, num_envs: int,
                  rendered: bool, cut_after: int) -> Simulators:
    """Simulators of single environments or of environments of several agents."""
    from vantage.envs.build import create_one
    from vantage.envs.options import check_options
    from vantage.envs.other_interfaces import is_parallel
    from vantage.envs.parallel_agents import several_agents
    from vantage.envs.single import single_environments

    check_options(config, env)
    created = create_one(env, config, rendered=rendered)
    if is_parallel(created):
        return several_agents(config, env, seeds, created, num_envs=num_envs, rendered=rendered,
                              longest_game=cut_after)
    return single_environments(config, env, seeds, created, num_envs=num_envs, rendered=rendered,
                               longest_game=cut_after, short=short)


def _environments_of(simulators: Simulators, config: EnvConfig, seeds: Seeds, short: Array, *,
                     num_envs: int, evaluation: bool, rendered: bool) -> Environments:
    """The environments of `simulators`, which are closed if they cannot be used."""
    try:
        return Environments(simulators, config, seeds, num_envs=num_envs, evaluation=evaluation,
                            draws=rendered, short=short)
    except BaseException:
        simulators.close()
        raise


def make_single(config: EnvConfig, *, seed: int, stream: int, draws: bool | None = True,
                num_envs: int = 1) -> Environments:
    """One evaluation environment in this process, with the same observations as in training.

    `draws`: True needs pictures and raises ConfigError without them; None renders if possible. A
    vector environment is built with `num_envs` environments, the number from training.
    """
    from vantage.envs.batched import is_vector

    is_batch = is_vector(resolve_env(config.id, config.atari_protocol))
    make = partial(make_environments, replace(config, vector="sync"), seed=seed,
                   num_envs=num_envs if is_batch else 1, stream=stream, evaluation=True, threads=1)
    try:
        return make(rendered=draws is not False)
    except ConfigError:
        if draws is not None:
            raise
        return make()  # raises if pictures are not the cause
