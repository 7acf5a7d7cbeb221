"""How evaluations play: which actions they take, in how many environments, and with how many threads."""

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
    """Evaluations take the most probable actions, else sampled ones: as `eval_deterministic` says.

    By default sampled ones where discrete actions follow images, as in RL Zoo's evaluations of Atari
    and MiniGrid: a policy that cannot tell two places apart needs its noise to leave them.
    """
    if config.run.eval_deterministic is not None:
        return config.run.eval_deterministic
    return spec.action.kind == "box" or all(part.kind != "image" for part in spec.parts)


def plays_both_ways(config: Config) -> bool:
    """Evaluations play their games by the most probable and by sampled actions; not Atari's long ones."""
    return not is_atari(config.env.id)


def evaluation_envs(config: Config, episodes: int) -> int:
    """The number of environments to play `episodes` games in.

    A vector environment has the number that it was trained with: it may take no other.
    """
    if is_vector(resolve_env(config.env.id, config.env.atari_protocol)):
        return config.envs_per_process
    return even_envs(episodes)


def even_envs(episodes: int, most: int = MOST_ENVS) -> int:
    """How many environments, at most `most`, split the games most evenly: few steps are then wasted."""
    rounds = -(-episodes // most)
    return -(-episodes // rounds)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads; one is fastest for one observation at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
