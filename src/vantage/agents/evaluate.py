"""Evaluation of a run: whole games, raw scores, a frozen policy, separate seeds. Not that of a run in training."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from vantage._host.seeding import derive_seed
from vantage._host.system import available_cores
from vantage.agents.agent import STREAM, Agent, load_for
from vantage.agents.evaluation_settings import evaluation_envs, even_envs, plays_both_ways, torch_threads
from vantage.config.checks import check_sources
from vantage.config.config import Config
from vantage.envs.batched import is_vector
from vantage.envs.ids import resolve_env
from vantage.envs.make import make_environments, make_single
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError
from vantage.learning.evaluation import play_games, result_of
from vantage.runs.handed_over import handed_over
from vantage.types import Episode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """Whole games of one policy; also the output of `vantage evaluate --json`."""

    env: str
    episodes: int
    """Games that were played to their end or to a step limit."""
    deterministic: bool
    """Actions were the most probable ones; False: they were sampled."""
    return_mean: float
    """Mean of the raw scores."""
    return_std: float
    """Their standard deviation over the games played."""
    return_min: float
    return_max: float
    length_mean: float
    """Agent steps of a game."""
    returns: list[float]
    """The raw score of each game, in the order in which they ended."""
    cut_games: int
    """Games that were cut at a step limit that is not the environment's own; their scores so far count."""
    checkpoint: str
    """The directory of the policy, within the run."""
    step: int
    """Agent steps that the policy was trained for."""
    other: Evaluation | None = None
    """The same policy played the other way, by sampled actions or by the most probable ones."""

    def __repr__(self) -> str:
        actions = "most probable" if self.deterministic else "sampled"
        return (f"<Evaluation on {self.env}: return {self.return_mean:.4g} ± {self.return_std:.2g}, {self.episodes} "
                f"games, {actions} actions>")

    def sentence(self) -> str:
        """One line for a person, and one for the other way to play."""
        actions = "most probable" if self.deterministic else "sampled"
        cut = f", {self.cut_games} of them cut at a step limit" if self.cut_games else ""
        line = (f"{self.env}: mean {self.return_mean:.2f} ± {self.return_std:.2f} (from {self.return_min:g} to "
                f"{self.return_max:g}) over {self.episodes} games of {self.length_mean:.0f} steps on average{cut}, "
                f"{actions} actions, {self.checkpoint}")
        return line if self.other is None else f"{line}\n{self.other.sentence()}"


def evaluate(run: str | Path | Agent, *, episodes: int = 100, deterministic: bool | None = None,
             checkpoint: str = "auto", seed: int = 0, num_envs: int | None = None, max_episode_steps: int = 0,
             trust: bool = False, env: Any = None, network: Any = None, memory: Any = None,
             algorithm: Any = None) -> Evaluation:
    """Play `episodes` whole games with the policy of `run`, or with an agent.

        result = vantage.evaluate("runs/CartPole-v1/a2c-1", episodes=20)
        print(result.return_mean, result.returns)

    `deterministic` True plays the most probable actions, False sampled ones; None: as the run's evaluations, by its
    `eval_deterministic`, and except on Atari, whose games are long, the other way as well. `num_envs` games are played
    at a time, by default 16, and of a vector environment as many as it was trained with; `seed` seeds the environments
    and the sampled actions. `checkpoint`: auto (best if there is one, else latest), latest, best, or a
    step. `max_episode_steps` cuts games; 0: the run's own limit, or 10,000 where there is none. `trust`, `env`,
    `network`, `memory` and `algorithm` are those of `vantage.load`.
    """
    check_games(episodes, seed, num_envs)
    agent, _ = load_player(run, checkpoint, deterministic, episodes=episodes, seed=seed, trust=trust, call="evaluate",
                           objects=handed_over(env=env, network=network, memory=memory, algorithm=algorithm))
    if max_episode_steps:
        agent = replace(agent, config=agent.config.change(max_episode_steps=max_episode_steps))
    return evaluate_policy(agent, episodes=episodes, deterministic=deterministic, seed=seed, num_envs=num_envs)


def evaluate_policy(agent: Agent, *, episodes: int, deterministic: bool | None, seed: int,
                    num_envs: int | None) -> Evaluation:
    """`evaluate` of a loaded policy."""
    check_games(episodes, seed, num_envs)
    shown = agent.deterministic if deterministic is None else deterministic
    both = deterministic is None and plays_both_ways(agent.config)
    result, *others = evaluate_agent(agent, (shown, not shown) if both else (shown,), episodes=episodes, seed=seed,
                                     num_envs=num_envs)
    return replace(result, other=others[0]) if others else result


def evaluate_agent(agent: Agent, ways: Sequence[bool], *, episodes: int, seed: int = 0,
                   num_envs: int | None = None) -> list[Evaluation]:
    """`evaluate` of a loaded policy, in these ways to play: by the most probable actions (True), by sampled ones.

    The environments are built once; the ways play the same games.
    """
    config, own = agent.config, derive_seed(seed, "evaluate")
    if num_envs is None:
        num_envs = evaluation_envs(config, episodes)
    elif not is_vector(resolve_env(config.env.id, config.env.atari_protocol)):
        num_envs = even_envs(episodes, num_envs)
    envs = make_environments(config.env, seed=own, stream=STREAM, num_envs=num_envs, evaluation=True)
    results = []
    with closing(envs), torch_threads(config.all_threads or available_cores()):
        for way in ways:
            games = result_of(play_games(agent.model, envs, episodes=episodes, deterministic=way, seed=own,
                                         generator=action_generator(seed)))
            results.append(_summary(agent, envs, games, episodes, deterministic=way))
    return results


def _summary(agent: Agent, envs: Environments, games: list[Episode], episodes: int, *,
             deterministic: bool) -> Evaluation:
    config = agent.config
    if len(games) < episodes:
        log.warning("%d of %d games were played: %s does not reset a game without an end; give a time limit in "
                    "env_kwargs", len(games), episodes, config.env.id)
    scores, cut = [game.score for game in games], sum(game.length >= envs.longest_game for game in games)
    return Evaluation(config.env.id, len(games), deterministic, fmean(scores), pstdev(scores), min(scores), max(scores),
                      fmean(game.length for game in games), scores, cut, agent.checkpoint, agent.step)


def load_player(run: str | Path | Agent, checkpoint: str, deterministic: bool | None, *, episodes: int,
                seed: int, trust: bool, call: str = "record", objects: Mapping[str, Any] | None = None
                ) -> tuple[Agent, bool]:
    """The agent of `run`, which may be one already, and whether it takes the most probable actions.

    `deterministic` None: as `Agent.deterministic` says. `call` is the function of Vantage to which code that the run
    cannot name, the `objects`, is to be handed over.
    """
    check_games(episodes, seed)
    if not isinstance(run, Agent):
        agent = load_for(call, run, checkpoint=checkpoint, trust=trust, objects=objects or {})
    elif checkpoint != "auto" or objects:
        raise ConfigError(f"{run} is loaded already; give its run to choose a checkpoint or other code")
    else:
        agent = run
    check_sources(agent.config)
    return agent, agent.deterministic if deterministic is None else deterministic


def check_games(episodes: int, seed: int, num_envs: int | None = None) -> None:
    """ConfigError for numbers that no evaluation can have."""
    if not 1 <= episodes <= 10**6:  # as eval_episodes
        raise ConfigError(f"episodes={episodes} is " + ("below 1" if episodes < 1 else "above 1,000,000"))
    if not 0 <= seed < 2**63:  # as that of training
        raise ConfigError(f"seed={seed} is " + ("below 0" if seed < 0 else f"above {2**63 - 1:,}"))
    if num_envs is not None and num_envs < 1:
        raise ConfigError(f"num_envs={num_envs} is below 1")


def shown_game(config: Config, seed: int) -> Environments:
    """One environment of an evaluation that renders its screen."""
    return make_single(config.env, seed=derive_seed(seed, "evaluate"), stream=STREAM,
                       num_envs=config.envs_per_process)


def action_generator(seed: int) -> torch.Generator:
    """The source of an evaluation's sampled actions."""
    return torch.Generator().manual_seed(derive_seed(seed, "evaluate", "actions"))
