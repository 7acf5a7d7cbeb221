"""Whole games with a frozen policy, for evaluation. Touches neither training's environments nor its generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vantage.envs import Environments
from vantage.learning.collect import Position
from vantage.models.actor_critic import ActorCritic
from vantage.types import Episode


@torch.no_grad()
def play(model: ActorCritic, envs: Environments, *, episodes: int, deterministic: bool,
         generator: torch.Generator, should_stop: Callable[[], bool] = lambda: False) -> list[Episode]:
    """`episodes` whole games, raw scores, in the order in which they ended; fewer once `should_stop` turns true.

    A game that goes on for `envs.longest_game` steps counts with its score so far, and is the last of its environment.
    Each environment plays a fixed share of the games, so that short ones are not counted more often than long ones.
    """
    quota = [episodes // envs.num_envs + (i < episodes % envs.num_envs) for i in range(envs.num_envs)]
    device = next(model.parameters()).device
    position = Position.after(envs.reset(), model.initial_state(envs.num_envs), device)
    finished: list[Episode] = []
    scores, lengths = [0.0] * envs.num_envs, [0] * envs.num_envs
    while any(quota) and not should_stop():
        params, state = model.step(position.obs, position.is_first, position.state, position.action_mask)
        step = envs.step(_choose(model, params, generator, deterministic=deterministic))
        position = Position.after(step, state, device)
        ended = list(step.episodes)
        for env in range(envs.num_envs):
            scores[env], lengths[env] = scores[env] + float(step.rewards[env]), lengths[env] + 1
            if step.is_first[env]:
                scores[env], lengths[env] = 0.0, 0
            elif lengths[env] >= envs.longest_game and quota[env]:
                ended.append(Episode(env, scores[env], lengths[env]))
                quota[env] = 1
        for episode in ended:
            if quota[episode.env]:
                quota[episode.env] -= 1
                finished.append(episode)
    return finished


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant of a game: what it came to so far, and what the policy expects."""

    value: float
    """V of the observation, in the units of the rewards that the policy learnt from."""
    score: float
    length: int
    over: bool
    """The game ended here, or is cut as too long."""


@torch.no_grad()
def moments(model: ActorCritic, envs: Environments, *, deterministic: bool,
            generator: torch.Generator) -> Iterator[Moment]:
    """Every instant of the games that `play` would play in a single environment, from reset to end, game after game.

    The environment stands still while the caller has the moment. A game that is cut after `envs.longest_game` steps is
    the last.
    """
    longest = envs.longest_game
    device = next(model.parameters()).device
    position = Position.after(envs.reset(), model.initial_state(1), device)
    score, length, ended = 0.0, 0, False
    while True:
        params, values, state = model.step_with_values(position.obs, position.is_first, position.state,
                                                       position.action_mask)
        cut = not ended and length >= longest
        yield Moment(float(values[0]), score, length, ended or cut)
        if cut:
            return
        step = envs.step(_choose(model, params, generator, deterministic=deterministic))
        position = Position.after(step, state, device)
        new, ended = bool(step.is_first[0]), bool(step.episodes)
        score, length = (0.0, 0) if new else (score + float(step.rewards[0]), length + 1)


def _choose(model: ActorCritic, params: Tensor, generator: torch.Generator, *, deterministic: bool) -> np.ndarray:
    """Actions [B, *action] of the distributions that `params` [B, P] describe."""
    distribution = model.distribution
    actions = distribution.mode(params) if deterministic else distribution.sample(params, generator)
    return actions.cpu().numpy()
