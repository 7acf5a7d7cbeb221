"""Evaluation of a finished run: whole games, raw scores, a frozen policy, separate seeds.

Evaluations during training are in `learning.evaluation`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from vantage._host.seeding import derive_seed
from vantage._host.system import available_cores
from vantage.agents.agent import STREAM, Agent, check_has_env, load_for
from vantage.agents.evaluation_settings import (
    evaluation_envs,
    even_envs,
    plays_both_ways,
    torch_threads,
)
from vantage.config.checks import check_sources
from vantage.config.config import Config
from vantage.envs.batched import is_vector
from vantage.envs.ids import resolve_env
from vantage.envs.make import make_environments, make_single
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, for_reader
from vantage.keys.call_words import answering
from vantage.keys.objects import is_object, shown_name
from vantage.learning.evaluation import play_games, result_of
from vantage.runs.handed_over import ARGUMENTS, handed_over, with_code_of
from vantage.runs.info_numbers import SUCCESS, info_means, numbers_of
from vantage.types import Episode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """Whole games of one policy; also the output of `vantage evaluate --json`."""

    env: str
    episodes: int
    """Number of games played to their end or to a step limit."""
    deterministic: bool
    """The policy took the most probable actions; False: it sampled."""
    return_mean: float
    """Mean of the raw scores."""
    return_std: float
    """Standard deviation of the raw scores over the games."""
    return_min: float
    return_max: float
    length_mean: float
    """Mean length of a game in agent steps."""
    returns: list[float]
    """Raw score of each game, in the order in which the games ended."""
    cut_games: int
    """Games cut at a step limit other than the environment's own; their scores so far count."""
    checkpoint: str
    """Directory of the checkpoint within the run."""
    step: int
    """Agent steps that the policy was trained for."""
    infos: list[Mapping[str, Any]] = field(default_factory=list, repr=False, compare=False)
    """Small values in the `info` of each game's last step, as `Episode.info` has them."""
    other: Evaluation | None = None
    """The same policy with the other way of choosing actions (`deterministic`)."""

    def __repr__(self) -> str:
        actions = "most probable" if self.deterministic else "sampled"
        return (f"<Evaluation on {shown_name(self.env)}: return {self.return_mean:.4g} ± "
                f"{self.return_std:.2g}, {self.episodes} games, {actions} actions"
                f"{self._success_in_words}>")

    @property
    def info_means(self) -> dict[str, float]:
        """Means of the numbers in the `info` of the games' last steps, `is_success` first."""
        return info_means(map(numbers_of, self.infos))

    @property
    def success_rate(self) -> float | None:
        """Mean `is_success` of the games that have it; None if none has."""
        return self.info_means.get(SUCCESS)

    @property
    def _success_in_words(self) -> str:
        rate = self.success_rate
        return "" if rate is None else f", success rate {rate:.3g}"

    def sentence(self) -> str:
        """A summary in one line, and a second line for `other`."""
        actions = "most probable" if self.deterministic else "sampled"
        cut = f", {self.cut_games} of them cut at a step limit" if self.cut_games else ""
        line = (f"{self.env}: mean {self.return_mean:.2f} ± {self.return_std:.2f} "
                f"(from {self.return_min:g} to {self.return_max:g}){self._success_in_words} "
                f"over {self.episodes} games of "
                f"{self.length_mean:.0f} steps on average{cut}, {actions} actions, "
                f"{self.checkpoint}")
        return line if self.other is None else f"{line}\n{self.other.sentence()}"


@answering(n_eval_episodes="episodes")
def evaluate(run: str | Path | Agent, *, episodes: int = 100, deterministic: bool | None = None,
             checkpoint: str | int = "auto", seed: int = 0, num_envs: int | None = None,
             max_episode_steps: int = 0, trust: bool = False, env: Any = None, network: Any = None,
             memory: Any = None, algorithm: Any = None) -> Evaluation:
    """Play `episodes` whole games with the policy of `run`, or with an agent.

        result = vantage.evaluate("runs/CartPole-v1/a2c-1", episodes=20)
        print(result.return_mean, result.returns)

    - `episodes` is rounded up with several agents, so that each plays as many.
    - `deterministic`: True takes the most probable actions, False samples. None follows the run's
      `eval_deterministic`, and also plays the other way, except on Atari, whose games are long.
    - `num_envs`: games played at a time; by default 16, or the number that a vector environment was
      trained with.
    - `seed` seeds the environments and the sampled actions.
    - `checkpoint`: auto (best if there is one, else latest), latest, best, or a step.
    - `max_episode_steps` cuts games, in place of the environment's own limit; 0: the run's limit,
      or 10,000 without one, where fewer than `episodes` are played if none ends by itself.
    - `trust`, `env`, `network`, `memory` and `algorithm`: as for `vantage.load`. With an agent,
      `env` is the environment to play in.
    """
    check_games(episodes, seed, deterministic, num_envs)
    objects = handed_over(env=env, network=network, memory=memory, algorithm=algorithm)
    agent, _ = load_player(run, checkpoint, deterministic, episodes=episodes, seed=seed,
                           trust=trust, call="evaluate", objects=objects)
    if max_episode_steps:
        agent = replace(agent, config=agent.config.change(max_episode_steps=max_episode_steps))
    return evaluate_policy(agent, episodes=episodes, deterministic=deterministic, seed=seed,
                           num_envs=num_envs)


def evaluate_policy(agent: Agent, *, episodes: int, deterministic: bool | None, seed: int,
                    num_envs: int | None) -> Evaluation:
    """`evaluate` for a policy that is already loaded."""
    check_games(episodes, seed, deterministic, num_envs)
    if deterministic is not None:
        ways = [deterministic]
    elif plays_both_ways(agent.config):
        ways = [agent.deterministic, not agent.deterministic]
    else:
        ways = [agent.deterministic]
    results = evaluate_agent(agent, ways, episodes=episodes, seed=seed, num_envs=num_envs)
    return results[0] if len(results) == 1 else replace(results[0], other=results[1])


def evaluate_agent(agent: Agent, ways: Sequence[bool], *, episodes: int, seed: int = 0,
                   num_envs: int | None = None) -> list[Evaluation]:
    """An evaluation for each of `ways`: True takes the most probable actions, False samples.

    The environments are built once, and all ways play the same games.
    """
    config = agent.config
    env_seed = derive_seed(seed, "evaluate")
    if num_envs is None:
        num_envs = evaluation_envs(config, episodes)
    elif not is_vector(resolve_env(config.env.id, config.env.atari_protocol)):
        num_envs = even_envs(episodes, num_envs)
    envs = make_environments(config.env, seed=env_seed, stream=STREAM, num_envs=num_envs,
                             evaluation=True)
    results = []
    with closing(envs), torch_threads(config.all_threads or available_cores()):
        for deterministic in ways:
            playing = play_games(agent.model, envs, episodes=episodes, deterministic=deterministic,
                                 seed=env_seed, generator=action_generator(seed),
                                 may_be_fewer=True)
            games = result_of(playing)
            results.append(_summary(agent, envs, games, episodes, deterministic=deterministic))
    return results


def _summary(agent: Agent, envs: Environments, games: list[Episode], episodes: int, *,
             deterministic: bool) -> Evaluation:
    env_id = agent.config.env.id
    if len(games) < episodes:
        remedy = for_reader("end its games in the environment or, unless it is a vector "
                            "environment, by --max-episode-steps")
        log.warning("%d of %d games were played: %s has no time limit, and a game that reaches %s "
                    "steps is the last of its environment; %s", len(games), episodes, env_id,
                    f"{envs.longest_game:,.0f}", remedy)
    scores = [game.score for game in games]
    return Evaluation(
        env=env_id,
        episodes=len(games),
        deterministic=deterministic,
        return_mean=fmean(scores),
        return_std=pstdev(scores),
        return_min=min(scores),
        return_max=max(scores),
        length_mean=fmean(game.length for game in games),
        returns=scores,
        cut_games=sum(game.cut for game in games),
        checkpoint=agent.checkpoint,
        step=agent.step,
        infos=[dict(game.info) for game in games],
    )


def load_player(run: str | Path | Agent, checkpoint: str | int, deterministic: bool | None, *,
                episodes: int, seed: int, trust: bool, call: str = "record",
                objects: Mapping[str, Any] | None = None) -> tuple[Agent, bool]:
    """The agent of `run`, which may be one already, and whether it takes the most probable actions.

    `deterministic` None follows `Agent.deterministic`. Messages name `call`, Vantage's function
    that receives the `objects`, which the run's files cannot name. With an agent, only `env` may be
    given: its other code is loaded already.
    """
    check_games(episodes, seed, deterministic)
    objects = dict(objects or {})
    if isinstance(run, Agent):
        if checkpoint != "auto" or objects.keys() - {"env"}:
            raise _loaded_already(run, call, checkpoint, objects)
        agent = run
        if objects:
            agent = replace(run, config=run.config.override(objects))
        check_has_env(agent, f"vantage.{call}(agent, ..., env=...)")
    else:
        own = handed_over(**with_code_of(run, dict.fromkeys(ARGUMENTS.values())))
        agent = load_for(call, run, checkpoint=checkpoint, trust=trust, objects=own | objects)
    check_sources(agent.config)
    return agent, agent.deterministic if deterministic is None else deterministic


def _loaded_already(agent: Agent, call: str, checkpoint: str | int,
                    objects: Mapping[str, Any]) -> ConfigError:
    """The error for `checkpoint` or code given together with an agent, which has its own."""
    source = "its run" if agent.run is None else repr(str(agent.run))
    flat = agent.config.flat()
    words = [source]
    if checkpoint != "auto":
        words.append(f"checkpoint={checkpoint!r}")
    words += [f"{name}=..." for key, name in ARGUMENTS.items()
              if key in objects or is_object(flat[key])]
    return ConfigError(f"{agent} is loaded already; to choose a checkpoint or other code, write "
                       f"vantage.{call}({', '.join(words)})")


def check_games(episodes: int, seed: int, deterministic: bool | None,
                num_envs: int | None = None) -> None:
    """ConfigError unless the numbers are whole and in range, and `deterministic` is a flag."""
    if deterministic not in (None, True, False):
        raise ConfigError(f"deterministic={deterministic!r:.80} is not True, False or None")
    for name, number in {"episodes": episodes, "seed": seed, "num_envs": num_envs or 1}.items():
        if not isinstance(number, Integral):
            raise ConfigError(f"{name}={number!r:.80} is not a whole number")
    if episodes < 1:
        raise ConfigError(f"episodes={episodes} is below 1")
    if episodes > 10**6:  # the limit of the key eval_episodes
        raise ConfigError(f"episodes={episodes} is above 1,000,000")
    if seed < 0:
        raise ConfigError(f"seed={seed} is below 0")
    if seed >= 2**63:  # the limit of the key seed
        raise ConfigError(f"seed={seed} is above {2**63 - 1:,}")
    if num_envs is not None and num_envs < 1:
        raise ConfigError(f"num_envs={num_envs} is below 1")


def single_game(config: Config, seed: int, *, draws: bool = True) -> Environments:
    """One evaluation environment, which can be rendered if it `draws`."""
    return make_single(config.env, seed=derive_seed(seed, "evaluate"), stream=STREAM, draws=draws,
                       num_envs=config.envs_per_process)


def action_generator(seed: int) -> torch.Generator:
    """Random generator for an evaluation's sampled actions."""
    return torch.Generator().manual_seed(derive_seed(seed, "evaluate", "actions"))
