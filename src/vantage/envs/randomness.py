"""Seeds the random numbers of an environment's spaces, which `reset(seed=...)` does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SAMPLES = 2**32
"""Added to an episode's seed, so that samples differ from the environment's own random numbers."""


def seed_spaces(env: gym.Env[Any, Any], seed: int) -> None:
    """Seed `sample()` of the spaces of `env` and its wrappers.

    Environments sample their own spaces: goals, noise, a first observation. All spaces share one
    generator, because `Space.seed` makes one for each part of a Dict: 5 ms for 160 parts.
    """
    generator = np.random.default_rng((seed, SAMPLES))
    for layer in layers(env):
        for name in "observation_space", "action_space":
            space = getattr(layer, name, None)  # a wrapper may define what the environment lacks
            if space is not None:
                for part in _parts(space):
                    part._np_random = generator


def layers(env: gym.Env[Any, Any]) -> Iterator[gym.Env[Any, Any]]:
    """The outermost wrapper, those within it, and the environment."""
    yield env
    while isinstance(env, gym.Wrapper):
        env = env.env
        yield env


def _parts(space: gym.Space[Any]) -> Iterator[gym.Space[Any]]:
    """The space, and all spaces within it."""
    yield space
    match space:
        case spaces.Dict():
            children = tuple(space.spaces.values())
        case spaces.Tuple() | spaces.OneOf():
            children = tuple(space.spaces)
        case _:
            children = tuple(getattr(space, name)
                             for name in ("feature_space", "node_space", "edge_space")
                             if isinstance(getattr(space, name, None), gym.Space))
    for child in children:
        yield from _parts(child)
