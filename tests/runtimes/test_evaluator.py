"""An evaluation that can end the run: the first games decide whether the others are played."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Any

import pytest
from rollouts import begun

import vantage
from vantage.agents.evaluation_settings import even_envs
from vantage.envs.interface import LONGEST_GAME
from vantage.learning.evaluation import result_of
from vantage.runtimes.evaluator import EvaluationResult, Evaluator
from vantage.types import Episode


@pytest.mark.parametrize(("goal", "games", "first", "rest", "again", "played", "mean", "solved"), [
    (1.0, 100, 0.9, 2.0, 2.0, [20], 0.9, False),
    (1.0, 100, 1.0, 1.0, 1.0, [20, 80, 100], 1.0, True),
    (1.0, 100, 1.0, 1.0, 0.9, [20, 80, 100], 1.0, False),
    (1.0, 100, 2.0, 0.5, 2.0, [20, 80], 0.8, False),
    (1.0, 20, 1.0, 0.0, 1.0, [20, 20], 1.0, True),
    (None, 100, 0.0, 1.0, 0.0, [100], 0.8, False),
], ids=["falls short", "passes", "was lucky", "passes at first alone", "has no more games", "ends no run"])
def test_an_evaluation_ends_the_run_if_the_first_twenty_all_and_as_many_new_games_reach_the_goal(
        goal: float | None, games: int, first: float, rest: float, again: float, played: list[int], mean: float,
        solved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[bool, list[int]] = {True: [], False: []}
    seeds: set[int | None] = set()

    def play(*args: Any, episodes: int, deterministic: bool, seed: int | None = None,
             **options: Any) -> Generator[None, None, list[Episode]]:
        """Scores `first`, from the twentieth game on `rest`, of new games `again`; by sampled actions 10 less."""
        before, less = sum(asked[deterministic]), 0 if deterministic else 10
        asked[deterministic].append(episodes)
        seeds.add(seed)
        yield
        scores = [first if game < 20 else rest if game < games else again
                  for game in range(before, before + episodes)]
        return [Episode(0, score - less, 1) for score in scores]

    result = evaluated(play, monkeypatch, eval_episodes=games, stop_at_eval=goal)
    assert asked[True] == played and result.solved is solved
    assert result.metrics["eval/mean_reward"] == pytest.approx(mean)
    assert asked[False] == [min(games, sum(played))], "as many games the other way"
    if sum(played) > games:
        assert result.score == again and len(seeds - {None}) == 2, "games drawn anew"


def evaluated(play: Any, monkeypatch: pytest.MonkeyPatch, best: float | None = None,
              **options: Any) -> EvaluationResult:
    """An evaluation whose games are those of `play`."""
    monkeypatch.setattr("vantage.runtimes.evaluator.play_games", play)
    config = vantage.configure("a2c", env="CartPole-v1", threads=1, eval_every=1_000, **options)
    with begun(config) as one, closing(Evaluator(config)) as evaluator:
        return result_of(evaluator.evaluate(one.model, 0, longest_game=LONGEST_GAME, best=best))


@pytest.mark.parametrize("better", [True, False])
def test_the_way_of_the_config_counts_even_if_the_other_is_better_and_both_are_logged(
        better: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(*args: Any, episodes: int, deterministic: bool, **options: Any) -> Generator[None, None, list[Episode]]:
        yield
        return [Episode(0, 5.0 if deterministic is better else 3.0, 500) for _ in range(episodes)]

    result = evaluated(play, monkeypatch, eval_episodes=2, eval_deterministic=not better)
    metrics = result.metrics
    assert metrics["eval/mean_reward"] == result.score == 3 and metrics["eval/deterministic"] == (not better)
    assert metrics["eval/mean_reward_deterministic"] == (5 if better else 3)
    assert result.steps == 4 * 500
    assert metrics["eval/mean_reward_sampled"] == (3 if better else 5)
    assert metrics["eval/cut_games"] == 0, "500 steps are CartPole's own limit"


@pytest.mark.parametrize(("episodes", "envs"), [(1, 1), (16, 16), (17, 9), (20, 10), (100, 15)])
def test_environments_play_shares_that_differ_by_one_game_at_most(episodes: int, envs: int) -> None:
    assert even_envs(episodes) == envs


def test_an_evaluation_starts_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = vantage.configure("a2c", env="tiny:Bandit", threads=1, vector="async", num_envs=1, eval_episodes=2)
    with begun(config) as one:
        monkeypatch.setattr("vantage.envs.single.Workers", lambda *args: pytest.fail("processes"))
        with closing(Evaluator(config)) as evaluator:
            assert len(list(evaluator.evaluate(one.model, 0, longest_game=LONGEST_GAME))) > 0


@pytest.mark.parametrize(("first", "again", "best", "played", "score"), [
    (5.0, 9.0, None, 1, 5.0), (5.0, 9.0, 6.0, 1, 5.0), (7.0, 4.0, 6.0, 2, 4.0), (7.0, 6.5, 6.0, 2, 6.5)],
    ids=["nothing to beat", "below the best", "lucky", "better"])
def test_a_mean_that_reaches_the_best_is_judged_by_as_many_further_games(
        first: float, again: float, best: float | None, played: int, score: float,
        monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []

    def play(*args: Any, episodes: int, deterministic: bool, seed: int, **options: Any
             ) -> Generator[None, None, list[Episode]]:
        if deterministic:
            seeds.append(seed)
        yield
        return [Episode(0, first if len(seeds) < 2 else again, 10)] * episodes

    result = evaluated(play, monkeypatch, best=best, eval_episodes=3)
    assert len(set(seeds)) == played == len(seeds) and result.score == score
    assert result.metrics["eval/mean_reward"] == first
    assert result.metrics.get("eval/second_mean_reward") == (again if played == 2 else None)


@pytest.mark.parametrize(("env", "expected"), [("CartPole-v1", True), ("tiny:Picture", False),
                                               ("tiny:ContinuousTarget", True)])
def test_evaluations_sample_where_discrete_actions_follow_images(env: str, expected: bool) -> None:
    config = vantage.configure("a2c", env=env, threads=1)
    with closing(Evaluator(config)) as evaluator:
        assert evaluator.deterministic is expected
    with closing(Evaluator(config.change(eval_deterministic=not expected))) as evaluator:
        assert evaluator.deterministic is not expected
