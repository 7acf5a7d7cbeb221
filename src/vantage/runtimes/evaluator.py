"""Evaluations during training: whole games with the current policy in separate environments."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from statistics import fmean

import torch

from vantage._host.seeding import derive_seed
from vantage.agents.evaluation_settings import (
    acts_most_probably,
    evaluation_envs,
    plays_both_ways,
    torch_threads,
)
from vantage.config.config import Config
from vantage.envs.interface import LONGEST_GAME
from vantage.envs.make import make_environments
from vantage.learning.evaluation import play_games
from vantage.models.actor_critic import ActorCritic
from vantage.runs.info_numbers import info_metrics, numbers_of
from vantage.types import Episode

STREAM = 1
"""Stream of the environments' seeds; training has 0."""

PRETEST = 20
"""Games that an evaluation with a goal plays first; it plays the others if these reach the goal."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result of one evaluation."""

    metrics: dict[str, float]
    solved: bool
    """The games reached `stop_at_eval`, and so did the second games."""
    score: float
    """The score for best/: the mean of the second games if they were played, else of the first."""
    steps: int
    """Agent steps of all its games."""


class Evaluator:
    """Plays the evaluations of a run. Its environments are built once, and `close` closes them.

    The run's seed and the step alone decide the games of an evaluation: environments are reset with
    seeds of their own at each, whatever they played before.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        run = config.run
        # In this process: others would compete with those that train.
        self._envs = make_environments(
            replace(config.env, vector="sync"), seed=run.seed, stream=STREAM, evaluation=True,
            num_envs=evaluation_envs(config, run.eval_episodes), threads=config.all_threads)
        try:
            self._envs.reset()  # builds all of them, so that errors come before the first step
        except BaseException:
            self.close()
            raise
        self.deterministic = acts_most_probably(config, self._envs.spec)

    def close(self) -> None:
        self._envs.close()

    def evaluate(self, model: ActorCritic, step: int, *, longest_game: int,
                 best: float | None = None
                 ) -> Generator[None, None, EvaluationResult | None]:
        """Play `config.run.eval_episodes` games, yielding before each step.

        `acts_most_probably` decides between most probable and sampled actions. Except on Atari, the
        same games are also played the other way, for the log alone. A mean that reaches `best` or
        `stop_at_eval` may be luck: as many new games are then played, and their mean decides.
        Games without a time limit are cut after `longest_game` steps. 0 means that no training game
        has ended yet; the result is then None if the environment has no time limit.
        """
        if longest_game == 0 and self._envs.is_endless:
            return None
        seed = derive_seed(self._config.run.seed, "eval games", step)
        self._envs.cut_games_after(longest_game or LONGEST_GAME)
        with torch_threads(self._config.all_threads):  # data-parallel ranks wait meanwhile
            games, reached = yield from self._first_games(model, step, seed)
            played = list(games)
            metrics = self._metrics(games)
            score = metrics["eval/mean_reward"]
            if plays_both_ways(self._config):
                others = yield from self._play(model, step, len(games), seed=seed, other_way=True)
                played += others
                means = {self.deterministic: score, not self.deterministic: mean_of(others)}
                metrics["eval/mean_reward_deterministic"] = means[True]
                metrics["eval/mean_reward_sampled"] = means[False]
            if reached or (best is not None and score >= best):
                seed = derive_seed(self._config.run.seed, "second eval games", step)
                again = yield from self._play(model, step, self._config.run.eval_episodes,
                                              seed=seed)
                played += again
                score = metrics["eval/second_mean_reward"] = mean_of(again)
            goal = self._config.run.stop_at_eval
            solved = reached and goal is not None and score >= goal
        return EvaluationResult(metrics, solved, score, sum(game.length for game in played))

    def _first_games(self, model: ActorCritic, step: int,
                     seed: int) -> Generator[None, None, tuple[list[Episode], bool]]:
        """The games whose mean is `eval/mean_reward`, and whether they reach `stop_at_eval`."""
        goal = self._config.run.stop_at_eval
        total = self._config.run.eval_episodes
        if goal is None:
            return (yield from self._play(model, step, total, seed=seed)), False
        games = yield from self._play(model, step, min(PRETEST, total), seed=seed)
        if len(games) < total and mean_of(games) >= goal:
            games += yield from self._play(model, step, total - len(games))
        return games, mean_of(games) >= goal and len(games) >= total

    def _play(self, model: ActorCritic, step: int, episodes: int, *, seed: int | None = None,
              other_way: bool = False) -> Generator[None, None, list[Episode]]:
        """The first games of `seed`, or those that follow the ones before."""
        generator = torch.Generator(next(model.parameters()).device)
        generator.manual_seed(derive_seed(self._config.run.seed, "eval", step, seed or 0))
        return play_games(model, self._envs, episodes=episodes, seed=seed, generator=generator,
                          deterministic=self.deterministic is not other_way)

    def _metrics(self, games: list[Episode]) -> dict[str, float]:
        cut = sum(game.cut for game in games)
        return {"eval/mean_reward": mean_of(games),
                "eval/mean_ep_length": fmean(game.length for game in games),
                "eval/cut_games": cut, "eval/deterministic": float(self.deterministic),
                **info_metrics("eval", (numbers_of(game.info) for game in games))}


def mean_of(games: list[Episode]) -> float:
    """Their mean raw score."""
    return fmean(game.score for game in games)
