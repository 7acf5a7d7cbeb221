"""Environments of other libraries and with odd attributes: recognised, with a remedy, or used as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import foreign_envs
import gymnasium as gym
import numpy as np
import pytest

from vantage.envs.config import EnvConfig
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, EnvError

AGENTS = "write a class with the methods of PettingZoo's ParallelEnv around it"
BATCH = "write a gymnasium.vector.VectorEnv around it"


def make(env: str, *, num_envs: int = 1, **options: object) -> Environments:
    config = EnvConfig(id=f"foreign_envs:{env}", env_kwargs=json.dumps(options))
    return make_environments(config, seed=0, num_envs=num_envs, stream=0)


@pytest.mark.parametrize(("env", "says"), [
    ("Chess", "a PettingZoo environment whose agents take turns (AEC); give the parallel_env of its module, or"),
    ("CopiedTurns", "a PettingZoo environment whose agents take turns (AEC); give the parallel_env of its module, or"),
    ("Markov", "a vector environment of SuperSuit; give the parallel environment itself, as its class or a function"),
    ("TwoPlayers", f"an RLlib MultiAgentEnv; {AGENTS}"),
    ("Suite", "a dm_env environment, as of dm_control; write a gymnasium.Env around it"),
    ("CopiedSuite", "a dm_env environment, as of dm_control; write a gymnasium.Env around it"),
    ("OldGym", "an environment of the old gym library; import gymnasium as gym in place of gym"),
    ("Pool", f"an EnvPool environment; {BATCH}"),
    ("Isaac", "an Isaac environment, which simulates many at once; write a class in tensors around it"),
    ("Lab", "an Isaac environment, which simulates many at once; write a class in tensors around it"),
    ("VecEnv", "a vector environment of Stable-Baselines3; give the class or the function that makes a single"),
    ("Unity", "a Unity environment (ML-Agents); write a gymnasium.Env around it"),
    ("Batched", f"a Batched, which has num_envs but is no gymnasium.vector.VectorEnv; {BATCH}"),
    ("Plain", "a Plain, which has reset and step but is no gymnasium.Env; derive the class from gymnasium.Env")])
def test_an_environment_of_another_library_is_recognised_as_a_class_and_as_an_instance(env: str, says: str) -> None:
    for path, options in ((env, {}), ("make", {"name": env})):
        with pytest.raises(ConfigError) as caught:
            make(path, **options)
        assert f" is {says}" in str(caught.value)


def test_a_space_of_old_gym_and_a_space_that_raises_are_named() -> None:
    with pytest.raises(ConfigError, match=r"its observation_space is .*, a space of the old gym library; make it from"):
        make("OldSpaces")
    with pytest.raises(EnvError, match=r"RaisingSpace cannot be built: RuntimeError: call reset\(\) first"):
        make("RaisingSpace")


@pytest.mark.parametrize("how", ["metadata None", "spec text", "spec limit", "getattr", "close exits", "close raises"])
def test_odd_attributes_and_closes_do_no_harm(how: str) -> None:
    envs = make("Wild", how=how)
    envs.reset()
    assert envs.step(np.zeros(1, np.int64)).rewards.tolist() == [1.0]
    envs.close()


def test_spaces_that_change_are_named() -> None:
    with pytest.raises(EnvError, match=r"observation_space differs .*: vector \[2\], then vector \[3\]"):
        make("Wild", how="spaces change").reset()
    foreign_envs.OtherEachTime.built = 0
    with pytest.raises(EnvError, match=r"observation_space differs from one instance to the next: .*make it the same"):
        make("OtherEachTime", num_envs=2).reset()


def adapters() -> dict[str, Any]:
    """The classes that docs/pettingzoo.md shows."""
    page = Path(__file__).parents[2].joinpath("docs", "pettingzoo.md").read_text(encoding="utf-8")
    section = page.partition("## Wrap one agent")[2].partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(section, names)
    return names


def one_agent() -> gym.Env[Any, Any]:
    env: gym.Env[Any, Any] = adapters()["OneAgent"](foreign_envs.Duel())
    return env


def time_steps() -> gym.Env[Any, Any]:
    obs = gym.spaces.Box(-1, 1, (2,), np.float32)
    env: gym.Env[Any, Any] = adapters()["TimeSteps"](foreign_envs.Countdown(), obs, gym.spaces.Discrete(2))
    return env


@pytest.mark.parametrize(("env", "reward"), [("one_agent", 2.0), ("time_steps", 1.0)])
def test_the_wrappers_that_the_docs_show_play_environments_of_other_libraries(env: str, reward: float) -> None:
    envs = make_environments(EnvConfig(id=f"test_foreign:{env}"), seed=0, num_envs=1, stream=0)
    envs.reset()
    steps = [envs.step(np.ones(1, np.int64)) for _ in range(3)]
    assert [step.rewards.tolist() for step in steps] == [[reward]] * 3
    assert [step.terminated.tolist() for step in steps] == [[False], [False], [True]]
