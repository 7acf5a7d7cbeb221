"""An evaluation that can end the run: the first games decide whether the others are played."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from test_actor_learner import begun

import vantage
from vantage.runtimes.evaluator import evaluate_policy
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
    asked: list[int] = []

    def play(*args: Any, episodes: int, **options: Any) -> Generator[None, None, list[Episode]]:
        """The first twenty games of an evaluation score `first`, all others `rest`."""
        before = sum(asked)
        asked.append(episodes)
        yield
        return [Episode(0, first if game < 20 else rest, 1) for game in range(before, before + episodes)]

    monkeypatch.setattr("vantage.runtimes.evaluator.play_games", play)
    config = vantage.configure("a2c", env="CartPole-v1", threads=1, eval_every=1_000, eval_episodes=games,
                               stop_at_eval=goal)
    with begun(config) as one:
        evaluation = evaluate_policy(one.model, config, 0)
    with pytest.raises(StopIteration) as end:
        while True:
            next(evaluation)
    metrics, reached = end.value.value
    assert asked == played and metrics["eval/mean_reward"] == pytest.approx(mean) and reached is solved


def test_an_evaluation_starts_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = vantage.configure("a2c", env="tiny:Bandit", threads=1, vector="async", num_envs=1, eval_episodes=2)
    with begun(config) as one:
        monkeypatch.setattr("vantage.envs.single.Workers", lambda *args: pytest.fail("processes"))
        assert len(list(evaluate_policy(one.model, config, 0))) > 0
