"""A game of two players in turn, by PettingZoo's AEC interface, as an environment of one of them.

The package is not imported: `other_interfaces` recognises games by their methods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from vantage.envs.agent_spaces import AgentSpaces, agent_spaces
from vantage.envs.config import EnvConfig
from vantage.envs.ids import EnvId
from vantage.envs.interface import MASK, Info
from vantage.envs.other_interfaces import IN_TURNS, metadata_of, takes_turns
from vantage.envs.outcomes import OutcomeError
from vantage.errors import ConfigError

_NOT_IN_TURNS = ", a PettingZoo AECEnv; give one, or leave self_play out"


@dataclass(slots=True)
class Opponent:
    """The opponent in all rows; until there is a `player`, moves are random."""

    player: Any = None
    """Called at the start (`begin`) and end of each game, and for each of its moves (`act`)."""


class TwoPlayers(gym.Env[Any, Any]):
    """The learner plays either side, at random, and an opponent moves within its steps.

    At a game's end, `info["is_success"]` says whether the learner has won.
    """

    def __init__(self, game: Any, agents: AgentSpaces, opponent: Opponent, row: int,
                 max_steps: float) -> None:
        """`max_steps` is the time limit, in steps of the learner."""
        self.game = game
        self.observation_space = agents.observation
        self.action_space: Any = agents.action
        self.metadata = metadata_of(game)
        self.render_mode = getattr(game, "render_mode", None)
        self._agents = agents
        self._opponent = opponent
        self._row = row
        self._max_steps = max_steps

    def reset(self, *, seed: int | None = None,
              options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.game.reset(seed=seed)
        self._learner = self._agents.names[self.np_random.integers(2)]
        self._score = 0.0
        self._steps = 0
        if self._opponent.player is not None:
            self._opponent.player.begin(self._row)
        self._let_opponent_move()
        if any(self._ends()):
            raise OutcomeError("the game ended before the learner's first move")
        return self._observe(self._learner)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        before = self._score
        self._steps += 1
        self._move(action)
        self._let_opponent_move()
        terminated, truncated = self._ends()
        truncated = truncated or self._steps >= self._max_steps
        obs, info = self._observe(self._learner)
        if terminated or truncated:
            info["is_success"] = self._score > 0
            if self._opponent.player is not None:
                self._opponent.player.end(self._row, self._score)
        return obs, self._score - before, terminated, truncated and not terminated, info

    def render(self) -> Any:
        return self.game.render()

    def close(self) -> None:
        self.game.close()

    def _let_opponent_move(self) -> None:
        """Play the opponent's moves until the learner is to move or the game is over."""
        while self.game.agent_selection != self._learner and not any(self._ends()):
            obs, info = self._observe(self.game.agent_selection)
            mask = info.get(MASK)
            if mask is not None and not np.any(mask):
                raise OutcomeError(f"the action_mask of {self.game.agent_selection} allows nothing")
            if self._opponent.player is not None:
                move = self._opponent.player.act(self._row, obs, mask)
            else:
                allowed = np.ones(self.action_space.n) if mask is None else mask
                move = self.np_random.choice(np.flatnonzero(allowed))
            self._move(self.action_space.start + move)

    def _move(self, action: Any) -> None:
        """The player to move acts."""
        self.game.step(action)
        self._score += float(self.game.rewards[self._learner])

    def _ends(self) -> tuple[bool, bool]:
        """Whether the task has ended, and whether a time limit has cut the game."""
        return any(self.game.terminations.values()), any(self.game.truncations.values())

    def _observe(self, agent: str) -> tuple[Any, Info]:
        obs, mask = self._agents.split(self.game.observe(agent), self.game.infos.get(agent, {}))
        return obs, {} if mask is None else {MASK: mask}


def check_no_self_play(config: EnvConfig, env: EnvId) -> None:
    """ConfigError for self_play on an environment without turns."""
    if config.self_play:
        raise _refusal(env, _NOT_IN_TURNS)


def two_players(env: EnvId, opponent: Opponent, row: int, config: EnvConfig,
                created: Any) -> TwoPlayers:
    """The environment of `env`, as it is `created`, for a learner. ConfigError for other games."""
    if not takes_turns(created):
        raise _refusal(env, _NOT_IN_TURNS)
    agents = agent_spaces(created, env)
    if len(agents.names) != 2:
        raise _refusal(env, f": it has {len(agents.names)}; leave self_play out and {IN_TURNS}")
    if not isinstance(agents.action, gym.spaces.Discrete):
        raise _refusal(env, f" with Discrete actions: its actions are {agents.action!s:.80}; "
                       "leave self_play out")
    return TwoPlayers(created, agents, opponent, row, config.max_episode_steps or math.inf)


def _refusal(env: EnvId, why: str) -> ConfigError:
    return ConfigError(f"env={env.name!r} has no self-play, which is for two players in turn{why}")
