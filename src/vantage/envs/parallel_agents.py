"""PettingZoo's parallel environments as a vector environment with a row for each agent.

The package is not imported: `other_interfaces` recognises environments by their methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from vantage.envs.agent_spaces import AgentSpaces, agent_spaces
from vantage.envs.batched import batched_environments
from vantage.envs.build import check_pictures, create_one
from vantage.envs.built import is_built
from vantage.envs.config import EnvConfig
from vantage.envs.failures import close_quietly, named_errors
from vantage.envs.ids import EnvId
from vantage.envs.in_use import check_distinct, check_unused, note_player
from vantage.envs.interface import MASK, Array, Info, Seeds, Simulators
from vantage.envs.options import check_without_wrappers
from vantage.envs.outcomes import OutcomeError
from vantage.envs.parallel_game import ParallelGame
from vantage.envs.spaces import make_observer
from vantage.envs.two_players import check_no_self_play


def waiting_rows(over: Array, lengths: Array, agents: int) -> tuple[Array, Array]:
    """Rows [B] in which no action follows, and those whose environment begins its next episode.

    `over` [B] is True where an episode ended at the last step. Where an agent has left and others
    go on, its episode's length is 0 and theirs are not.
    """
    if agents == 1:
        return over, over
    left = (lengths == 0) & any_of_agents(lengths > 0, agents)
    waiting = over | left
    return waiting, ~any_of_agents(~waiting, agents)


def any_of_agents(flags: Array, agents: int) -> Array:
    """Rows of the environments that have a True among the `flags` [B] of their agents."""
    rows: Array = flags.reshape(-1, agents).any(axis=1).repeat(agents)
    return rows


class ParallelAgents(VectorEnv[Any, Any, Any]):
    """Copies of a parallel environment; row i is agent i % A of copy i // A, with A agents each.

    A copy is reset in the step after its last agents have left. Until then, the rows of agents that
    left before repeat their last observation.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "autoreset_mode": AutoresetMode.NEXT_STEP, "reset_mask": True}

    def __init__(self, envs: Sequence[Any], agents: AgentSpaces, max_steps: float) -> None:
        self.games = [ParallelGame(env, agents) for env in envs]
        self.num_envs = len(envs) * len(agents.names)
        self.single_observation_space = agents.observation
        self.single_action_space = agents.action
        self.observation_space = batch_space(agents.observation, self.num_envs)
        self.action_space = batch_space(agents.action, self.num_envs)
        self._mask_size = 0
        """The length of action masks; 0 before an agent has had one."""
        self.cut_after(max_steps)

    def cut_after(self, steps: float) -> float:
        """Truncate games after `steps`; returns `steps`."""
        for game in self.games:
            game.max_steps = steps
        return steps

    def reset(self, *, seed: Any = None,
              options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the copies with a row in options["reset_mask"], by default all."""
        which = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        num_agents = self.num_envs // len(self.games)
        for i, game in enumerate(self.games):
            row = i * num_agents
            if which[row:row + num_agents].any():
                game.reset(seed[row] if isinstance(seed, list) else seed)
        return self._obs(), self._infos()

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        each = iter(tuple(iterate(self.action_space, actions)))
        for game in self.games:
            game.step([next(each) for _ in game.names])
        return (self._obs(), self._all("rewards"), self._all("terminated"),
                self._all("truncated"), self._infos())

    def close_extras(self, **_: Any) -> None:
        for game in self.games:
            close_quietly(game.env)
            game.closed = True

    def _all(self, name: str) -> Array:
        return np.array([value for game in self.games for value in getattr(game, name)])

    def _obs(self) -> Any:
        space: gym.Space[Any] = self.single_observation_space
        rows = [obs for game in self.games for obs in game.obs]
        batch: Any = create_empty_array(space, self.num_envs)
        try:
            return concatenate(space, rows, batch)
        except (KeyError, IndexError, TypeError, ValueError):
            _, observe = make_observer(space)
            for name, obs in zip(self.games[0].names * len(self.games), rows, strict=True):
                try:
                    observe(obs)
                except (LookupError, TypeError, ValueError) as error:
                    raise OutcomeError(f"of agent {name}, {error}; correct the observation or "
                                       "observation_space") from None
            raise

    def _infos(self) -> Info:
        """Infos of all rows in Gymnasium's form, with masks if an agent has one.

        Values are in arrays of objects: those of two agents may differ in type and shape.
        """
        info: Info = {}
        for row, own in enumerate(own for game in self.games for own in game.infos):
            for key, value in own.items():
                if isinstance(key, str) and not key.startswith("_"):
                    info.setdefault(key, np.full(self.num_envs, None))[row] = value
                    info.setdefault(f"_{key}", np.zeros(self.num_envs, bool))[row] = True
        masks = [mask for game in self.games for mask in game.masks]
        self._mask_size = next((len(mask) for mask in masks if mask is not None), self._mask_size)
        if self._mask_size:
            info[MASK] = np.array([np.ones(self._mask_size, bool) if mask is None else mask
                                   for mask in masks])
        return info


def several_agents(config: EnvConfig, env: EnvId, seeds: Seeds, first: Any, *, num_envs: int,
                   rendered: bool, longest_game: int) -> Simulators:
    """Simulators of `num_envs` copies of the environment `first`, which is one of them.

    `longest_game` cuts games after so many steps, unless the config has a limit; 0 cuts none.
    """
    check_no_self_play(config, env)
    check_without_wrappers(config, f"{env.name} has several agents", "vector", "reset_options",
                           "short_episode_steps")
    if rendered:
        check_pictures(env, first)
    envs = [first]
    try:
        with named_errors(lambda: f"{env.name} cannot be built"):
            agents = agent_spaces(first, env)
            for _ in range(num_envs - 1):
                envs.append(create_one(env, config, rendered=rendered))
        check_distinct([getattr(each, "unwrapped", each) for each in envs], env.name)
        limit = config.max_episode_steps or longest_game or math.inf
        vector = ParallelAgents(envs, agents, limit)
        for game in vector.games:
            check_unused(game.env, env.name)
            note_player(game)
        rows = len(agents.names)
        seeds.first_env *= rows
        seeds.agents = agents.names
        simulators = batched_environments(config, env, seeds, vector, evaluation=False,
                                          longest_game=longest_game)
    except BaseException:
        for each in [] if is_built(config) else envs:
            close_quietly(each)
        raise
    note = (f"{num_envs} copies of {rows} agents each, in this process: a row of the batch is an "
            "agent, and all share one policy")
    is_cut_later = longest_game and not config.max_episode_steps
    return replace(simulators, spec=replace(simulators.spec, agents=rows), notes=(note,),
                   single=lambda: first, longest_game=limit,
                   is_endless=bool(is_cut_later),
                   cut_after=vector.cut_after if is_cut_later else None)
