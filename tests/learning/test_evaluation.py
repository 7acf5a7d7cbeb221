"""Whole games with a frozen policy: fixed shares, cut games, and interruptions between steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import torch

from vantage.config.config import Config
from vantage.envs.make import make_environments
from vantage.envs.vector_env import Environments
from vantage.learning.evaluation import play_games, result_of
from vantage.models.actor_critic import ActorCritic
from vantage.models.build import make_model


@pytest.fixture
def table() -> Iterator[tuple[ActorCritic, Environments]]:
    """A policy of CartPole and three environments."""
    config = Config().change(env="CartPole-v1", max_episode_steps=30)
    envs = make_environments(config.env, seed=0, num_envs=3, stream=1, evaluation=True)
    yield make_model(config.policy, envs.spec, critic="state").eval(), envs
    envs.close()


def options(episodes: int) -> dict[str, object]:
    return {"episodes": episodes, "deterministic": False, "generator": torch.Generator().manual_seed(0)}


def test_each_environment_plays_its_share_of_the_games(table) -> None:
    games = result_of(play_games(*table, **options(7)))
    assert sorted(game.env for game in games) == [0, 0, 0, 1, 1, 2, 2]
    assert all(game.score == game.length <= 30 for game in games)


def test_in_a_vector_environment_a_game_without_an_end_is_the_last(table) -> None:
    table[1].longest_game = 5
    games = result_of(play_games(*table, **options(9)))
    assert [(game.env, game.score, game.length) for game in games] == [(i, 5, 5) for i in range(3)]


def lengths_of_games(env: str, **keys: str) -> tuple[list[int], Environments]:
    """Of two games in each of two environments by the most probable actions, where games are cut after 5 steps."""
    config = Config().change(env=env, **keys)
    with closing(make_environments(config.env, seed=0, num_envs=2, stream=1, evaluation=True, longest_game=5)) as envs:
        model = make_model(config.policy, envs.spec, critic="state").eval()
        games = result_of(play_games(model, envs, **options(4) | {"deterministic": True}))
        return [game.length for game in games], envs


def test_games_without_a_time_limit_are_cut_and_all_are_played() -> None:
    lengths, envs = lengths_of_games("CliffWalking-v1")
    assert lengths == [5] * 4 == [envs.longest_game] * 4


@pytest.mark.parametrize(("frame_skip", "steps"), [("auto", 200), ("6", 34)])
def test_games_with_a_time_limit_are_played_to_their_end(frame_skip: str, steps: int) -> None:
    lengths, envs = lengths_of_games("MountainCar-v0", frame_skip=frame_skip)
    assert lengths == [steps] * 4 and f"time limit {steps} steps" in envs.notes


def test_games_can_be_interrupted_before_every_step(table, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    step = Environments.step
    monkeypatch.setattr(Environments, "step", lambda self, actions: steps.append(1) or step(self, actions))
    games = play_games(*table, **options(7))
    for count in range(4):
        assert next(games) is None and len(steps) == count
    games.close()
    assert len(steps) == 3 and torch.is_grad_enabled()
