"""The counters of a run: when an evaluation or the end is due, and what is logged of its games."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vantage
from vantage.runs.info_numbers import numbers_of
from vantage.runtimes.progress import Advance, Progress
from vantage.types import Episode


def test_a_clock_that_ran_out_evaluates_no_policy_twice() -> None:
    progress = Progress(1)
    assert not progress.unevaluated_for(1e-9), "no step was made"
    progress.add(Advance(steps=1))
    assert progress.unevaluated_for(1e-9) and not progress.unevaluated_for(1000) and not progress.unevaluated_for(0)
    progress.restart_evaluation_clock()
    assert not progress.unevaluated_for(1e-9)


def test_scores_are_logged_by_their_mean_worst_and_best_of_the_last_hundred() -> None:
    progress = Progress(1)
    assert not [name for name in progress.metrics() if "ep_rew" in name], "no game is over"
    progress.add(Advance(steps=1, episodes=tuple(Episode(0, float(score), 5) for score in (-900, 900, *range(100)))))
    found = progress.metrics()
    assert [found[f"rollout/ep_rew_{what}"] for what in ("min", "mean", "max")] == [0, 49.5, 99]


def test_numbers_of_the_last_infos_are_logged_by_their_mean_over_the_window() -> None:
    progress = Progress(1, window=3)
    infos = ({"is_success": True}, {"is_success": True, "coins": 4, "name": "x"}, {"coins": 7.0, "bad": math.inf},
             {"is_success": False, "coins": 1})
    progress.add(Advance(steps=1, episodes=tuple(Episode(0, 1.0, 5, info) for info in infos)))
    assert list(progress.recent_numbers[0]) == ["is_success", "coins"], "the success comes first"
    resumed = Progress(1, window=3)
    resumed.load(progress.state())
    for each in (progress, resumed):
        found = {name: value for name, value in each.metrics().items() if "info" in name or "success" in name}
        assert found == {"rollout/success_rate": 0.5, "rollout/info/coins": 4.0}
    many = {f"n{i:02}": i for i in range(40)} | {"is_success": 1, "": 2, "a" * 65: 3}
    assert list(numbers_of(many)) == ["is_success", *(f"n{i:02}" for i in range(31))]
    assert numbers_of({0: 1.0, "log": {1: 2.0, "kept": 3.0}}) == {"kept": 3.0}, "names are texts"


@pytest.mark.parametrize(("info", "says"), [
    ({"is_sucess": True}, "info has 'is_sucess', and the success rate is the mean of 'is_success'; rename it"),
    ({"success": True}, "info has 'success', and the success rate is the mean of 'is_success'; rename it"),
    ({"is_success": None}, "info['is_success'] is None, which counts for no success rate; give True or False"),
    ({"is_success": np.ones(2, bool)}, "info['is_success'] is an array of bool of shape (2,): [True, True], which "
                                       "counts for no success rate; give True or False"),
    ({"is_success": np.ones(1, bool), "is_successor": 1}, "")])
def test_a_success_that_counts_for_no_rate_is_named_once(
        info: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress(1)
    for _ in range(2):
        progress.add(Advance(steps=1, episodes=(Episode(0, 1.0, 5, info), Episode(1, 1.0, 5, info))))
    assert caplog.messages == ([says] if says else [])
    assert progress.metrics().get("rollout/success_rate") == (None if says else 1)


def test_the_goal_of_training_games_is_their_mean_over_the_window() -> None:
    config = vantage.configure("a2c", env="CartPole-v1", stop_at_return=20.0, return_window=2)
    progress = Progress(1, window=config.run.return_window)
    for score, reached in ((60.0, False), (-30.0, False), (69.0, False), (-29.0, True)):
        progress.add(Advance(steps=1, episodes=(Episode(0, score, 5),)))
        assert (progress.goal_reached(config) is not None) is reached, score


def test_evaluations_wait_until_they_and_the_last_one_fit_into_their_share_of_the_steps() -> None:
    progress = Progress(1)
    progress.add(Advance(steps=1_000, episodes=(Episode(0, 1.0, 10),)))
    assert not progress.may_evaluate(6, 0.1), "6 games take 60 steps, twice that is more than 100"
    assert progress.may_evaluate(5, 0.1) and progress.may_evaluate(10**6, 1)
    progress.eval_steps = progress.last_eval_steps = 80
    progress.add(Advance(steps=1_399))
    assert not progress.may_evaluate(5, 0.1), "80 + 2 * 80 steps"
    progress.add(Advance(steps=1))
    resumed = Progress(1)
    resumed.load(progress.state())
    assert progress.may_evaluate(5, 0.1) and resumed.may_evaluate(5, 0.1)


def test_metrics_are_means_over_updates_but_a_rating_is_the_last_one() -> None:
    total = Advance()
    for loss, rating in ((1.0, 10.0), (3.0, 30.0), (5.0, 20.0)):
        total += Advance(updates=1, metrics={"train/policy_loss": loss, "self_play/elo": rating})
    assert total.means() == {"train/policy_loss": 3.0, "self_play/elo": 20.0}
    total += Advance(updates=1, metrics={"train/policy_loss": 7.0})
    assert total.means() == {"train/policy_loss": 4.0, "self_play/elo": 20.0}
