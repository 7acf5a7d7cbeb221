"""Evaluations during training: whole games with the current policy in separate environments."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from statistics import fmean

import torch

from vantage.config import Config
from vantage.envs import make_environments, resolve_env
from vantage.learning.play import play_games
from vantage.models.actor_critic import ActorCritic
from vantage.seeding import derive_seed
from vantage.types import Episode

STREAM = 1
"""Stream of the environments' seeds; training has 0."""

PRETEST = 20
"""Games that an evaluation plays first where it can end the run; the others only if these reach the goal."""


def evaluate_policy(model: ActorCritic, config: Config, step: int
                    ) -> Generator[None, None, tuple[dict[str, float], bool]]:
    """Play `config.run.eval_episodes` games; yields before each step, returns metrics and whether the task is solved.

    With `stop_at_eval`, the first games must reach it before the others are played.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(derive_seed(config.run.seed, "eval", step))
    deterministic = resolve_env(config.env.id, config.env.atari_protocol).family != "atari"
    goal, episodes = config.run.stop_at_eval, config.run.eval_episodes
    # In this process: to start others takes seconds at every evaluation.
    envs = make_environments(replace(config.env, vector="sync"), seed=config.run.seed, num_envs=min(episodes, 16),
                             stream=STREAM, evaluation=True, threads=config.all_threads)
    own_threads = torch.get_num_threads()
    torch.set_num_threads(config.all_threads)  # data-parallel ranks wait meanwhile
    games: list[Episode] = []
    try:
        for total in [episodes] if goal is None else [min(PRETEST, episodes), episodes]:
            games += yield from play_games(model, envs, episodes=total - len(games), deterministic=deterministic,
                                           generator=generator)
            mean = fmean(game.score for game in games)
            if len(games) == episodes or (goal is not None and mean < goal):
                break
    finally:
        torch.set_num_threads(own_threads)
        envs.close()
    solved = goal is not None and mean >= goal and len(games) >= episodes
    return {"eval/mean_reward": mean, "eval/mean_ep_length": fmean(game.length for game in games)}, solved
