"""Evaluations beside training: whole games in environments and with random streams of their own."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import torch

from vantage.config import Config
from vantage.envs import Environments, make_environments, resolve_env
from vantage.learning.play import play_games
from vantage.models.actor_critic import ActorCritic
from vantage.seeding import derive_seed
from vantage.types import Episode

STREAM = 1
"""The environments' seeds come from this stream; training has 0."""

PRETEST = 20
"""Games that tell whether the rest is worth playing, where an evaluation can end the run."""


def evaluate_policy(model: ActorCritic, config: Config, step: int,
                    should_stop: Callable[[], bool] = lambda: False) -> tuple[dict[str, float], bool] | None:
    """Metrics of `config.run.eval_episodes` games and whether they solve the task; None if `should_stop` turned true.

    With `stop_at_eval`, the first games must reach it before the others are played.
    """
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(derive_seed(config.run.seed, "eval", step))
    deterministic = resolve_env(config.env.id, config.env.atari_protocol).family != "atari"
    envs = make_environments(config, num_envs=min(config.run.eval_episodes, 16), stream=STREAM, evaluation=True,
                             threads=config.all_threads)
    own_threads = torch.get_num_threads()
    torch.set_num_threads(config.all_threads)  # other processes of an update wait meanwhile
    goal = config.run.stop_at_eval
    shares = [config.run.eval_episodes]
    if goal is not None and config.run.eval_episodes > PRETEST:
        shares = [PRETEST, config.run.eval_episodes - PRETEST]
    games: list[Episode] = []
    try:
        for share in shares:
            games += play(model, envs, episodes=share, deterministic=deterministic, generator=generator,
                          should_stop=should_stop)
            if should_stop():
                return None
            if goal is not None and fmean(game.score for game in games) < goal:
                break
    finally:
        torch.set_num_threads(own_threads)
        envs.close()
    mean = fmean(game.score for game in games)
    solved = goal is not None and mean >= goal and len(games) >= config.run.eval_episodes
    return {"eval/mean_reward": mean, "eval/mean_ep_length": fmean(game.length for game in games)}, solved


def play(model: ActorCritic, envs: Environments, *, should_stop: Callable[[], bool], **options: Any) -> list[Episode]:
    """The episodes of `play_games`; none once `should_stop` turns true."""
    games = play_games(model, envs, **options)
    while not should_stop():
        try:
            next(games)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
    return []
