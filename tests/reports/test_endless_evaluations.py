"""Environments without a time limit whose games never end: what waits for an end says so."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tiny import Tiny

import vantage
from vantage.learning import evaluation


class Shop(Tiny):
    """Open for `days`; the reward is 1 a day."""

    def __init__(self, days: float = 10**9) -> None:
        super().__init__()
        self.limit = days

    def play(self, action: Any) -> tuple[Any, bool]:
        return 1.0, False


def lines_of(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


@pytest.mark.parametrize(("algo", "options"), [
    ("ppo", {"eval_every": 100, "max_eval_share": 1}), ("a2c", {"eval_every": 0}),
    ("a3c", {"eval_every": 100, "max_eval_share": 1, "num_workers": 1})])
def test_a_training_without_an_end_makes_no_evaluation_and_says_so(
        algo: str, options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = {"num_envs": 2, **options}
    if algo == "a3c":
        del keys["num_envs"]
    with caplog.at_level(logging.WARNING, "vantage"):
        vantage.train(algo, env=f"{__name__}:Shop", steps=600, hidden="4", threads=1, tensorboard=False,
                      rollout_length=20, run=tmp_path / "run", progress=False, **keys)
    last = "no episode has ended in"
    assert lines_of(caplog, last)[-1].endswith(
        "steps, so that the training has no return: train for longer, or end episodes in the environment or, "
        "unless it is a vector environment, by max_episode_steps")
    waits = lines_of(caplog, "evaluations wait for the first end")
    assert len(waits) == (0 if keys["eval_every"] == 0 else 1)
    metrics = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert not any("eval/mean_reward" in each for each in metrics)


def test_the_remedy_gives_a_return_and_evaluations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vantage"):
        agent = vantage.train("ppo", env=lambda: Shop(), steps=400, num_envs=2, rollout_length=20, hidden="4",
                              threads=1, eval_every=200, eval_episodes=2, max_eval_share=1, max_episode_steps=30,
                              run=tmp_path / "run", progress=False)
    assert agent.scores["eval/mean_reward"] == 30 and not lines_of(caplog, "no episode")


@pytest.mark.parametrize("vector", ["sync", "async"])
def test_an_evaluation_of_games_without_an_end_plays_one_in_each_environment_and_says_so(
        vector: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = vantage.train("ppo", env=lambda: Shop(), vector=vector, steps=40, num_envs=2, rollout_length=20, hidden="4",
                          threads=1, eval_every=0, run=tmp_path / "run", progress=False)
    monkeypatch.setattr(evaluation, "NOTED_STEPS", 20)
    monkeypatch.setattr("vantage.envs.make.make_environments.__kwdefaults__",
                        {**vantage.envs.make.make_environments.__kwdefaults__, "longest_game": 50})
    caplog.clear()
    with caplog.at_level(logging.WARNING, "vantage"):
        result = vantage.evaluate(agent, episodes=6, num_envs=2, deterministic=True)
    assert result.returns == [50, 50] and result.cut_games == 2
    assert lines_of(caplog, "no game has ended in 20 steps") == [
        "no game has ended in 20 steps, and the environment has no time limit: games are cut after 50 steps; "
        "end them in the environment or, unless it is a vector environment, by max_episode_steps"]
    assert "2 of 6 games were played" in caplog.text and "by max_episode_steps" in caplog.text
    assert vantage.evaluate(agent, episodes=6, num_envs=2, max_episode_steps=10,
                            deterministic=True).returns == [10] * 6


class Five(Shop):
    """The game ends by itself at its fifth step."""

    def play(self, action: Any) -> tuple[Any, bool]:
        return 1.0, self.t == 5


def test_a_game_that_ends_by_itself_at_the_step_limit_is_not_cut(tmp_path: Path) -> None:
    agent = vantage.train("a2c", env=lambda: Five(), steps=200, num_envs=2, rollout_length=5, hidden="4", threads=1,
                          eval_every=100, eval_episodes=2, max_eval_share=1, max_episode_steps=5,
                          run=tmp_path / "run", progress=False)
    metrics = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert {line["eval/cut_games"] for line in metrics if "eval/cut_games" in line} == {0}
    cut = {steps: vantage.evaluate(agent, episodes=4, num_envs=2, max_episode_steps=steps,
                                   deterministic=True).cut_games for steps in (4, 5, 6)}
    assert cut == {4: 4, 5: 0, 6: 0}
