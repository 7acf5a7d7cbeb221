"""Builds environments for tests from flat keys, Atari's also with a protocol or a reseeding of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from vantage.config.config import Config
from vantage.envs.atari import atari_environments
from vantage.envs.ids import AtariId, AtariProtocol, resolve_env
from vantage.envs.interface import Seeds
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments


def make(name: str, num_envs: int = 1, *, seed: int = 0, stream: int = 0, evaluation: bool = False, options: Any = None,
         protocol: AtariProtocol | None = None, reseed_steps: int = 0, rendered: bool = False,
         **keys: Any) -> Environments:
    config = Config().override({"env": name, "env_kwargs": options or {}, **keys}, source="test").env
    if protocol is None and not reseed_steps and not rendered:
        return make_environments(config, seed=seed, num_envs=num_envs, stream=stream, evaluation=evaluation, threads=1)
    atari, seeds = resolve_env(name).atari, Seeds(name, seed, stream)
    assert atari is not None
    short = np.zeros(num_envs, bool)
    simulators = atari_environments(config, atari if protocol is None else AtariId(atari.game, protocol), seeds,
                            num_envs=num_envs, short=short, threads=1, rendered=rendered,
                            reseed_steps=reseed_steps or 20_000)
    return Environments(simulators, config, seeds, num_envs=num_envs, short=short, evaluation=evaluation)
