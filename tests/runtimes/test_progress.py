"""The counters of a run: when an evaluation or the end is due, and what is logged of its games."""

from __future__ import annotations

import pytest

import vantage
from vantage.runtimes.progress import Advance, Progress
from vantage.types import Episode


def test_a_clock_that_ran_out_evaluates_no_policy_twice() -> None:
    progress = Progress(1)
    assert not progress.unevaluated_for(1e-9), "no step was made"
    progress.add(Advance(steps=1))
    assert progress.unevaluated_for(1e-9) and not progress.unevaluated_for(1000) and not progress.unevaluated_for(0)
    progress.evaluated()
    assert not progress.unevaluated_for(1e-9)


def test_scores_are_logged_by_their_mean_worst_and_best_of_the_last_hundred() -> None:
    progress = Progress(1)
    assert not [name for name in progress.metrics() if "ep_rew" in name], "no game is over"
    progress.add(Advance(steps=1, episodes=tuple(Episode(0, float(score), 5) for score in (-900, 900, *range(100)))))
    found = progress.metrics()
    assert [found[f"rollout/ep_rew_{what}"] for what in ("min", "mean", "max")] == [0, 49.5, 99]


def test_the_goal_of_training_games_is_their_mean_over_the_window() -> None:
    config = vantage.configure("a2c", env="CartPole-v1", stop_at_return=20.0, return_window=2)
    progress = Progress(1, window=config.run.return_window)
    for score, reached in ((60.0, False), (-30.0, False), (69.0, False), (-29.0, True)):
        progress.add(Advance(steps=1, episodes=(Episode(0, score, 5),)))
        assert (progress.goal_reached(config) is not None) is reached, score


def test_evaluations_wait_until_they_and_the_last_one_fit_into_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("vantage.runtimes.progress.perf_counter", lambda: now)
    progress = Progress(1)
    progress.add(Advance(steps=1_000, episodes=(Episode(0, 1.0, 10),), env_seconds=70, act_seconds=30))
    now = 100.0  # ten steps a second
    assert not progress.has_time_for(6, 0.1), "6 games take 6 s, twice that is more than 10"
    assert progress.has_time_for(5, 0.1) and progress.has_time_for(10**6, 1)
    progress.add(Advance(eval_seconds=8.0))
    progress.last_eval_seconds = 8.0
    now = 239.0
    assert not progress.has_time_for(5, 0.1), "8 + 2 * 8 s"
    now = 240.0
    assert progress.has_time_for(5, 0.1)


def test_before_the_first_evaluation_its_games_are_expected_to_take_as_long_as_playing_without_learning(
        monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("vantage.runtimes.progress.perf_counter", lambda: now)
    progress = Progress(1)
    progress.add(Advance(steps=1_000, episodes=(Episode(0, 1.0, 10),), env_seconds=1, act_seconds=1, learn_seconds=98))
    now = 100.0
    assert progress.has_time_for(250, 0.1) and not progress.has_time_for(251, 0.1), "2 ms a step"
    resumed = Progress(1)
    resumed.load(progress.state())
    assert resumed.has_time_for(250, 0.1) and not resumed.has_time_for(251, 0.1)
