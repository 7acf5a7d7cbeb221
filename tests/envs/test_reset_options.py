"""Options of resets: the same for every episode, or by the episode's number; where they have no effect."""

from __future__ import annotations

from typing import Any

import environments
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from test_env_resume import check, uninterrupted
from tiny import Bandit, Leveled

import vantage
from vantage.errors import ConfigError
from vantage.keys.stages import Stages

STAGES = '[[0, {"level": 1}], [2, {"level": 5}], [3, {"level": 7}]]'


class Plain(Bandit):
    def reset(self, *, seed: Any = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


def vector(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([Leveled] * num_envs, autoreset_mode="NextStep")


def levels(envs: Any, episodes: int) -> list[list[float]]:
    """The levels that the first observation of each episode shows, of two environments."""
    shown = [envs.reset().obs[:, 0].tolist()]
    while len(shown) < episodes:
        step = envs.step(np.zeros(2, np.int64))
        if step.is_first.all():
            shown.append(step.obs[:, 0].tolist())
    return shown


@pytest.mark.parametrize(("options", "expected"), [
    ("{}", [-1] * 5), ('{"level": 3}', [3] * 5), (STAGES, [1, 1, 5, 7, 7])])
def test_each_episode_begins_with_the_options_of_its_number(options: str, expected: list[int]) -> None:
    envs = environments.make("tiny:Leveled", 2, reset_options=options)
    assert levels(envs, 5) == [[level, level] for level in expected]


def test_evaluations_begin_with_the_options_of_the_last_stage() -> None:
    assert levels(environments.make("tiny:Leveled", 2, reset_options=STAGES, evaluation=True), 2) == [[7, 7]] * 2


def test_a_resume_in_the_middle_of_stages_is_exact() -> None:
    run = uninterrupted("tiny:Leveled", 12, reset_options=STAGES)
    for stop in (2, 5, 7):
        check("tiny:Leveled", run, stop, 4, reset_options=STAGES)


def test_a_function_of_the_episode_becomes_stages() -> None:
    config = vantage.configure("ppo", env=Leveled, reset_options=lambda episode: {"level": min(episode // 100, 3)})
    assert config.env.reset_stages.starts == (0, 100, 200, 300)
    assert [config.env.reset_stages.at(episode) for episode in (0, 99, 100, 10**6)] == [
        {"level": level} for level in (0, 0, 1, 3)]
    assert vantage.configure("ppo", env=Leveled, reset_options={"level": 2}).env.reset_options == '{"level": 2}'
    group = vantage.EnvConfig(reset_options=lambda episode: {"level": 1})  # type: ignore[arg-type]
    assert group.reset_options == '[[0, {"level": 1}]]'


@pytest.mark.parametrize("given", [
    lambda options: options, lambda options: [(0, options)], lambda options: lambda episode: options])
def test_numbers_and_arrays_of_numpy_become_numbers_and_lists(given: Any) -> None:
    options = {"a": np.float32(0.5), "b": np.arange(4).reshape(2, 2), "c": [np.int64(3), np.bool_(True)]}
    for config in (vantage.configure("ppo", env=Leveled, reset_options=given(options)).env,
                   vantage.EnvConfig(reset_options=given(options))):
        assert config.reset_stages.at(0) == {"a": 0.5, "b": [[0, 1], [2, 3]], "c": [3, True]}


def test_a_linear_curriculum_has_a_stage_for_every_episode() -> None:
    config = vantage.configure("ppo", env=Leveled, reset_options=lambda e: {"level": min(1, e / 1000)})
    assert len(config.env.reset_stages.starts) == 1001
    assert [config.env.reset_stages.at(e) for e in (0, 1, 999, 10**6)] == [
        {"level": level} for level in (0, 0.001, 0.999, 1)]


@pytest.mark.parametrize(("options", "words"), [
    ("[1]", "nor a list of pairs"), ("{", "not JSON"), ("[[1, {}]]", "rise from 0"),
    ("[[0, {}], [0, {}]]", "rise from 0"),
    (lambda episode: {"text": "x" * 90 + str(episode)}, "keep options for more episodes"),
    (lambda episode: 1, "returned a int"), ('{"level": NaN}', "not JSON"), ({"level": {1}}, "it has a set"),
    ({"level": np.float32("nan")}, "JSON.*finite"), ([[0, {"level": np.array([np.inf])}]], "JSON.*finite"),
    (lambda episode: {"level": np.nan}, "of episode 0 .*JSON.*finite")])
def test_other_options_are_refused(options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        vantage.configure("a2c", env=Leveled, reset_options=options)


@pytest.mark.parametrize(("env", "words"), [
    (f"{__name__}:Plain", "whose reset takes no options"), (f"{__name__}:vector", "vector environment"),
    ("Pong", "Atari")])
def test_options_without_effect_are_refused(env: str, words: str) -> None:
    with pytest.raises(ConfigError, match=f"reset_options.* no effect.*{words}"):
        environments.make(env, 2, reset_options='{"level": 1}')


def test_an_environment_may_change_its_options() -> None:
    stages = Stages.parse('{"level": {"deep": 1}}', name="reset_options")
    options = stages.at(0)
    assert options is not None
    options["level"].clear()
    assert stages.at(0) == {"level": {"deep": 1}}
