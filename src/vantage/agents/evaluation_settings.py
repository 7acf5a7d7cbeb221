"""Settings of evaluations: most probable or sampled actions, number of environments, threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vantage.config.config import Config
from vantage.envs.batched import is_vector
from vantage.envs.ids import is_atari, resolve_env
from vantage.types import EnvSpec

MOST_ENVS = 16


def acts_most_probably(config: Config, spec: EnvSpec) -> bool:
    """Whether evaluations take the most probable actions instead of sampling.

    `eval_deterministic` decides. By default, policies with images and discrete actions sample, as
    in RL Zoo's evaluations of Atari and MiniGrid: where two places look the same, a deterministic
    policy can get stuck.
    """
    if config.run.eval_deterministic is not None:
        return config.run.eval_deterministic
    return bool(spec.action.boxes) or all(part.kind != "image" for part in spec.parts)


def plays_both_ways(config: Config) -> bool:
    """Whether evaluations play once with the most probable and once with sampled actions.

    Not on Atari, whose games are long.
    """
    return not is_atari(config.env.id)


def evaluation_envs(config: Config, episodes: int) -> int:
    """Number of environments for `episodes` games.

    A vector environment keeps the number from training: it may not support another.
    """
    if is_vector(resolve_env(config.env.id, config.env.atari_protocol)):
        return config.envs_per_process
    return even_envs(episodes)


def even_envs(episodes: int, most: int = MOST_ENVS) -> int:
    """Number of environments, up to `most`, that split the games most evenly."""
    rounds = -(-episodes // most)
    return -(-episodes // rounds)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads. One thread is fastest for single observations."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
