"""Evaluations during training: whole games with the current policy in separate environments."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from statistics import fmean

import torch

from vantage.config import Config
from vantage.envs import LONGEST_GAME, is_atari, make_environments
from vantage.learning.play import play_games
from vantage.models.actor_critic import ActorCritic
from vantage.seeding import derive_seed
from vantage.types import Episode

STREAM = 1
"""Stream of the environments' seeds; training has 0."""

PRETEST = 20
"""Games that an evaluation plays first where it can end the run; the others only if these reach the goal."""

MOST_ENVS = 16


def evaluate_policy(model: ActorCritic, config: Config, step: int, *, longest_game: int = LONGEST_GAME
                    ) -> Generator[None, None, tuple[dict[str, float], bool]]:
    """Play `config.run.eval_episodes` games, yielding before each step; returns metrics and whether the task is solved.

    Except on Atari, the games are played both by the most probable and by sampled actions; the metrics are those of the
    better ones. Games without a time limit are cut after `longest_game` steps. With `stop_at_eval`, the first games
    must reach it before the others are played.
    """
    run = config.run
    generator, goal, episodes = torch.Generator(next(model.parameters()).device), run.stop_at_eval, run.eval_episodes
    results: dict[bool, tuple[list[Episode], int]] = {}
    for deterministic in ways(config):
        generator.manual_seed(derive_seed(run.seed, "eval", step))
        # In this process: to start others takes seconds at every evaluation.
        envs = make_environments(replace(config.env, vector="sync"), seed=run.seed, stream=STREAM,
                                 num_envs=even_envs(episodes), evaluation=True, threads=config.all_threads,
                                 longest_game=longest_game)
        games: list[Episode] = []
        with closing(envs), torch_threads(config.all_threads):  # data-parallel ranks wait meanwhile
            for total in [episodes] if goal is None else [min(PRETEST, episodes), episodes]:
                games += yield from play_games(model, envs, episodes=total - len(games), deterministic=deterministic,
                                               generator=generator)
                if goal is None or len(games) == episodes or fmean(game.score for game in games) < goal:
                    break
        results[deterministic] = games, sum(game.length >= envs.longest_game for game in games)
    means = {way: fmean(game.score for game in games) for way, (games, _) in results.items()}
    shown = max(means, key=lambda way: means[way])
    games, cut = results[shown]
    metrics = {"eval/mean_reward": means[shown], "eval/mean_ep_length": fmean(game.length for game in games),
               "eval/cut_games": cut, "eval/deterministic": float(shown)}
    if len(means) > 1:
        metrics |= {"eval/mean_reward_deterministic": means[True], "eval/mean_reward_sampled": means[False]}
    return metrics, goal is not None and means[shown] >= goal and len(games) >= episodes


def ways(config: Config) -> tuple[bool, ...]:
    """Ways to act in evaluations, deterministic (True) and sampled (False); on Atari, with long games, only sampled."""
    return (False,) if is_atari(config.env.id) else (True, False)


def even_envs(episodes: int, most: int = MOST_ENVS) -> int:
    """The number of environments, at most `most`, that splits the games most evenly: few steps are then wasted."""
    rounds = -(-episodes // most)
    return -(-episodes // rounds)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads; one is fastest for one observation at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
