"""Whole games with a frozen policy, for evaluations and for showing them.

Nothing is learned or drawn here.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vantage.envs.interface import Step
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError, for_reader
from vantage.learning.act_inputs import to_numpy
from vantage.learning.collect import Position, reset_envs, step_envs
from vantage.models.actor_critic import ActorCritic
from vantage.types import Episode

log = logging.getLogger(__name__)

Result = TypeVar("Result")

NOTED_STEPS = 2_000
"""Steps without the end of a game after which a warning says so."""


def result_of(games: Generator[None, None, Result]) -> Result:
    """What `games` returns at its end."""
    while True:
        try:
            next(games)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


@torch.no_grad()
def play_games(model: ActorCritic, envs: Environments, *, episodes: int, deterministic: bool,
               generator: torch.Generator, seed: int | None = None,
               may_be_fewer: bool = False) -> Generator[None, None, list[Episode]]:
    """Play `episodes` games, yielding before every step; returns them in the order of their ends.

    With a `seed` these are the first games of that seed, else the next ones. Each environment plays
    a fixed share of the games, its first ones: otherwise short games would be counted more often
    than long ones. If there are more environments than games, the games of some do not count. With
    several agents, `episodes` is rounded up to a multiple of them, so that each plays as many. A
    game that reaches `envs.longest_game` steps is cut, and is then the last of its environment,
    which cannot be reset. With `may_be_fewer`, a cut game is also the last of an environment that
    could be, as long as no game has ended by itself, and a warning says so after `NOTED_STEPS`.
    """
    _check_fits(model, envs)
    remaining = _shares(episodes, envs.num_envs, envs.spec.agents)
    device = next(model.parameters()).device
    position = Position.after(reset_envs(envs, seed), model.initial_state(envs.num_envs), device)
    scores = np.zeros(envs.num_envs)
    lengths = np.zeros(envs.num_envs, np.int64)
    finished: list[Episode] = []
    steps = 0
    has_end = not (may_be_fewer and envs.is_endless)
    while any(remaining):
        yield
        steps += 1
        if steps == NOTED_STEPS and not has_end:
            log.warning(no_end_in_evaluation(steps, int(envs.longest_game)))
        params, state = model.step(position.obs, position.is_first, position.state,
                                   position.action_mask)
        step = step_envs(envs, choose(model, params, generator, deterministic=deterministic),
                         model, position.obs)
        position = Position.after(step, state, device)
        is_first = to_numpy(step.is_first)
        scores = np.where(is_first, 0.0, scores + to_numpy(step.rewards))
        lengths = np.where(is_first, 0, lengths + 1)
        terminated = to_numpy(step.terminated)
        ended = {each.env: replace(each, cut=each.length >= envs.longest_game
                                   and not terminated[each.env]) for each in step.episodes}
        for env in np.flatnonzero(lengths >= envs.longest_game).tolist():
            if env not in ended:
                ended[env] = Episode(env, float(scores[env]), int(lengths[env]), cut=True)
                remaining[env] = min(remaining[env], 1)
        has_end = has_end or not all(each.cut for each in ended.values())
        for env, episode in ended.items():
            if not has_end:
                remaining[env] = min(remaining[env], 1)
            if remaining[env]:
                remaining[env] -= 1
                finished.append(episode)
    return finished


def _shares(episodes: int, num_envs: int, agents: int) -> list[int]:
    """How many games of each row count: as many for all agents of a copy."""
    share, rest = divmod(-(-episodes // agents), num_envs // agents)
    return [share + (env // agents < rest) for env in range(num_envs)]


def no_end_in_evaluation(steps: int, longest: int) -> str:
    """The warning that no game has ended yet."""
    return for_reader(f"no game has ended in {steps:,} steps, and the environment has no time "
                      f"limit: games are cut after {longest:,} steps; end them in the environment "
                      "or, unless it is a vector environment, by --max-episode-steps")


@dataclass(frozen=True, slots=True)
class GameStep:
    """One step of a game: its score and length so far, and the policy's value estimate."""

    position: Position
    last: tuple[Tensor, Step] | None
    """The actions that led here and what came of them; None after a reset."""

    value: float
    """V of the observation, in the units of the rewards that the policy was trained on."""
    score: float
    length: int
    over: bool
    """The game ended here."""


@torch.no_grad()
def game_steps(model: ActorCritic, envs: Environments, *, deterministic: bool,
               generator: torch.Generator) -> Iterator[GameStep]:
    """Every step of the games that `play_games` would play in a single environment.

    The environment does not move between yields, so the caller can render it. Of several agents,
    the value is that of the first, and the score their mean.
    """
    _check_fits(model, envs)
    device = next(model.parameters()).device
    position = Position.after(reset_envs(envs), model.initial_state(envs.num_envs), device)
    last = None
    score = 0.0
    length = 0
    agents = envs.num_envs
    while True:
        params, values, state = model.step_with_values(
            position.obs, position.is_first, position.state, position.action_mask)
        yield GameStep(position, last, float(values[0]), score, length, agents == 0)
        actions = choose(model, params, generator, deterministic=deterministic)
        step = step_envs(envs, actions, model, position.obs)
        last = (actions, step)
        position = Position.after(step, state, device)
        if agents == 0:
            score = 0.0
            length = 0
            agents = envs.num_envs
        else:
            score += float(step.rewards.mean())
            length += 1
            agents -= len(step.episodes)


def _check_fits(model: ActorCritic, envs: Environments) -> None:
    """Raises ConfigError if the environment has other spaces than the policy was trained on."""
    if not envs.spec.differences(model.acting_spec):
        return
    for what, here, trained in envs.spec.differences(model.spec):
        raise ConfigError(f"the environment has {what} {here}, the policy was trained with "
                          f"{trained}; restore the environment, or the config that names it")


def choose(model: ActorCritic, params: Tensor, generator: torch.Generator, *,
           deterministic: bool) -> Tensor:
    """Actions [B, *action] of the distributions with parameters `params` [B, P]."""
    distribution = model.distribution
    return distribution.mode(params) if deterministic else distribution.sample(params, generator)
