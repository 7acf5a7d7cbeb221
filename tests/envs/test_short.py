"""Short episodes: some training environments cut theirs, and nothing else changes."""

from __future__ import annotations

from contextlib import nullcontext

import environments
import numpy as np
import pytest
from test_env_resume import bits, make, random_actions

from vantage import configure
from vantage.config.config import Config
from vantage.envs.interface import Step
from vantage.envs.make import make_environments
from vantage.errors import ConfigError

SHORT = {"short_episode_steps": 7, "short_episode_every": 2}


def part(step: Step, envs: list[int]):
    """What the environments at these places gave, but for scores."""
    obs = {key: value[envs] for key, value in step.obs.items()} if isinstance(step.obs, dict) else step.obs[envs]
    mask = None if step.action_mask is None else step.action_mask[envs]
    return [bits(value) for value in (obs, step.rewards[envs], step.terminated[envs], step.is_first[envs],
                                      step.valid[envs], mask)]


@pytest.mark.parametrize(("name", "keys"), [
    ("CartPole-v1", {}), ("Breakout", {}), ("Pong", {"frame_skip": "2-4"}), ("vantage/SnakePlural-v0", {}),
    ("tiny:ManyParts", {}), ("faulty_envs:Echo", {"options": {"kind": "many"}})])
def test_each_environment_is_one_with_its_own_time_limit(name, keys):
    emulated = name in ("Breakout", "Pong")  # an emulator takes 0.1 s to start
    count = 2 if emulated else 4
    free_ones, short_ones = list(range(0, count, 2)), list(range(1, count, 2))
    mixed, whole = make(name, count, **SHORT, **keys), make(name, count, **keys)
    cut = make(name, count, max_episode_steps=7, **keys)
    firsts = [envs.reset() for envs in (mixed, whole, cut)]
    assert bits(firsts[0]) == bits(firsts[1])
    scores = 0
    for actions in random_actions(whole, 25 if emulated else 60):
        step, free, limited = (envs.step(actions) for envs in (mixed, whole, cut))
        assert part(step, free_ones) == part(free, free_ones)
        assert part(step, short_ones) == part(limited, short_ones)
        assert step.episodes == tuple(episode for episode in free.episodes if episode.env in free_ones)
        scores += len(step.episodes)
    assert scores or emulated or name == "faulty_envs:Echo"


def test_the_number_of_processes_does_not_matter():
    config = Config().change(env="CartPole-v1", short_episode_steps=7, short_episode_every=3).env
    whole, *halves = (make_environments(config, seed=0, num_envs=count, stream=0, first_env=first, place=first)
                      for count, first in ((6, 0), (3, 0), (3, 3)))
    for envs in (whole, *halves):
        envs.reset()
    for actions in random_actions(whole, 40):
        step, left, right = whole.step(actions), halves[0].step(actions[:3]), halves[1].step(actions[3:])
        assert bits(step.is_first) == bits(left.is_first) + bits(right.is_first)
        assert step.episodes == (*left.episodes, *right.episodes)


@pytest.mark.parametrize(("num_workers", "says"), [(0, None), (4, None), (3, "no effect with 6 environments")])
def test_a_flag_that_makes_none_short_is_refused_once_the_workers_are_known(num_workers, says):
    with nullcontext() if says is None else pytest.raises(ConfigError, match=says):
        configure("a3c", env="CartPole-v1", envs_per_worker=2, num_workers=num_workers,
                  short_episode_steps=9)


def test_evaluations_play_whole_episodes():
    envs = environments.make("Pendulum-v1", 2, evaluation=True, **SHORT)
    envs.reset()
    steps = [envs.step(np.zeros((2, 1), np.float32)) for _ in range(201)]
    assert [episode.length for step in steps for episode in step.episodes] == [200, 200]


@pytest.mark.parametrize(("name", "steps", "are_short"), [
    ("CartPole-v1", 499, True), ("CartPole-v1", 500, False), ("Pong", 26_999, True), ("Pong", 27_000, False)])
def test_no_episode_is_short_that_is_no_shorter_than_others(name, steps, are_short):
    envs = make(name, 2, short_episode_steps=steps, short_episode_every=2)
    assert any("cuts its episodes" in note for note in envs.notes) == are_short
    assert envs._short.tolist() == [False, are_short]
    envs.close()
