"""An evaluation that can end the run: the first games decide whether the others are played."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from rollouts import begun

import vantage
from vantage.runtimes.evaluator import evaluate_policy, even_envs
from vantage.types import Episode


@pytest.mark.parametrize(("goal", "games", "first", "rest", "played", "mean", "solved"), [
    (1.0, 100, 0.9, 2.0, [20], 0.9, False),
    (1.0, 100, 1.0, 1.0, [20, 80], 1.0, True),
    (1.0, 100, 2.0, 0.5, [20, 80], 0.8, False),
    (1.0, 20, 1.0, 0.0, [20], 1.0, True),
    (None, 100, 0.0, 1.0, [100], 0.8, False),
], ids=["falls short", "passes", "passes at first alone", "has no more games", "ends no run"])
def test_an_evaluation_that_can_end_the_run_plays_all_games_only_if_the_first_twenty_reach_the_goal(
        goal: float | None, games: int, first: float, rest: float, played: list[int], mean: float, solved: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[bool, list[int]] = {True: [], False: []}

    def play(*args: Any, episodes: int, deterministic: bool, **options: Any) -> Generator[None, None, list[Episode]]:
        """The first twenty games of an evaluation score `first`, all others `rest`; by sampled actions 10 less."""
        before, less = sum(asked[deterministic]), 0 if deterministic else 10
        asked[deterministic].append(episodes)
        yield
        return [Episode(0, (first if game < 20 else rest) - less, 1) for game in range(before, before + episodes)]

    metrics, reached = evaluated(play, monkeypatch, eval_episodes=games, stop_at_eval=goal)
    assert asked[True] == played and metrics["eval/mean_reward"] == pytest.approx(mean) and reached is solved
    assert asked[False] == [games if goal is None else min(games, 20)]


def evaluated(play: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[dict[str, float], bool]:
    """An evaluation whose games are those of `play`."""
    monkeypatch.setattr("vantage.runtimes.evaluator.play_games", play)
    config = vantage.configure("a2c", env="CartPole-v1", threads=1, eval_every=1_000, **options)
    with begun(config) as one:
        evaluation = evaluate_policy(one.model, config, 0)
    with pytest.raises(StopIteration) as end:
        while True:
            next(evaluation)
    return end.value.value  # type: ignore[no-any-return]


@pytest.mark.parametrize("better", [True, False])
def test_the_better_of_both_ways_to_play_counts_and_both_are_logged(
        better: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(*args: Any, episodes: int, deterministic: bool, **options: Any) -> Generator[None, None, list[Episode]]:
        yield
        return [Episode(0, 5.0 if deterministic is better else 3.0, 500) for _ in range(episodes)]

    metrics, _ = evaluated(play, monkeypatch, eval_episodes=2)
    assert metrics["eval/mean_reward"] == 5 and metrics["eval/deterministic"] == better
    assert metrics["eval/mean_reward_deterministic"] == (5 if better else 3)
    assert metrics["eval/mean_reward_sampled"] == (3 if better else 5)
    assert metrics["eval/cut_games"] == 0, "500 steps are CartPole's own limit"


@pytest.mark.parametrize(("episodes", "envs"), [(1, 1), (16, 16), (17, 9), (20, 10), (100, 15)])
def test_environments_play_shares_that_differ_by_one_game_at_most(episodes: int, envs: int) -> None:
    assert even_envs(episodes) == envs


def test_an_evaluation_starts_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = vantage.configure("a2c", env="tiny:Bandit", threads=1, vector="async", num_envs=1, eval_episodes=2)
    with begun(config) as one:
        monkeypatch.setattr("vantage.envs.single.Workers", lambda *args: pytest.fail("processes"))
        assert len(list(evaluate_policy(one.model, config, 0))) > 0
