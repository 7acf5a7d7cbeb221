"""Single environments in this process, which step as in a vector of Gymnasium."""

from __future__ import annotations

from functools import partial
from typing import Any

import environments
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vantage._host.time_limit import TimeLimit
from vantage.config.config import Config
from vantage.envs.build import build
from vantage.envs.episodes import Episodes, reset_options
from vantage.envs.ids import resolve_env
from vantage.envs.interface import Seeds
from vantage.envs.single import SingleEnvironments


def types(obs: Any) -> list[np.dtype[Any]]:
    return [part.dtype for part in (obs.values() if isinstance(obs, dict) else [obs])]


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "tiny:Picture", "tiny:MaskedBandit"])
def test_steps_are_those_of_gymnasiums_vector(name: str) -> None:
    config = Config().override({"env": name}, source="test").env
    env, seeds = resolve_env(name), Seeds(name, 0, 0)
    factories = [partial(Episodes, partial(build, env, config, rendered=False), environments.make(name).spec,
                         config.kinds_of_parts, seeds, i, 0, max_steps=4 + i) for i in range(3)]
    ours = SingleEnvironments(list(factories), env, seeds, TimeLimit(0))
    theirs = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP)
    theirs.action_space.seed(0)
    for t in range(20):
        if t % 8 == 0:
            episodes, which = np.arange(3) + t, np.array([t == 0, True, t == 0])
            actual, expected = ours.reset(episodes, which), theirs.reset(options=reset_options(episodes, which, seeds))
        else:
            actions = theirs.action_space.sample()
            if name == "tiny:MaskedBandit":
                actions = actions % 2  # the others are not allowed
            before = actual[0]
            copied = {key: part.copy() for key, part in before.items()} if isinstance(before, dict) else before.copy()
            actual, expected = ours.step(actions), theirs.step(actions)
            np.testing.assert_equal(before, copied)  # what was returned before has not changed
        np.testing.assert_equal(actual, expected)
        assert types(actual[0]) == types(expected[0])
    ours.close()
    theirs.close()
