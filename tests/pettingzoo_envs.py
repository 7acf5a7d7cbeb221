"""Environments of several agents by PettingZoo's interface, which need no PettingZoo."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

Info = dict[str, Any]


class Relay:
    """A parallel environment by PettingZoo's interface: the action that repeats the bit seen pays 1.

    Agent k leaves after k + 2 steps, so that the best returns are 2, 3 and 4.
    """

    metadata: Info = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, mask: str = "", widest: int = 3, render_mode: str | None = None) -> None:
        self.possible_agents = ["a", "b", "c"]
        self.agents: list[str] = []
        self.mask = mask
        self.widest = widest
        self.render_mode = render_mode
        self.rng = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        box = spaces.Box(-1, 10, (self.widest if agent == "c" else 3,), np.float32)
        if self.mask == "obs":
            return spaces.Dict({"observation": box, "action_mask": spaces.Box(0, 1, (2,), np.int8)})
        return box

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def seen(self) -> tuple[Info, Info]:
        """Observations and infos of the agents that are there; with masks, only the right action is allowed."""
        self.bits = dict(zip(self.possible_agents, self.rng.integers(2, size=3).tolist(), strict=True))
        boxes = {agent: np.array([self.bits[agent], self.t, k], np.float32)
                 for k, agent in enumerate(self.possible_agents) if agent in self.agents}
        allowed = {agent: np.eye(2, dtype=np.int8)[self.bits[agent]] for agent in boxes}
        infos: Info = {agent: {"t": self.t} for agent in boxes}
        if self.mask == "info":
            infos = {agent: {"action_mask": allowed[agent]} for agent in boxes}
        if self.mask == "obs":
            return {agent: {"observation": boxes[agent], "action_mask": allowed[agent]} for agent in boxes}, infos
        return boxes, infos

    def reset(self, seed: int | None = None, options: Info | None = None) -> tuple[Info, Info]:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.t = self.possible_agents[:], 0
        return self.seen()

    def step(self, actions: dict[str, Any]) -> tuple[Info, Info, Info, Info, Info]:
        assert list(actions) == self.agents
        self.t += 1
        rewards = {agent: float(action == self.bits[agent]) for agent, action in actions.items()}
        obs, infos = self.seen()
        ended = {agent: self.t >= self.possible_agents.index(agent) + 2 for agent in self.agents}
        self.agents = [agent for agent in self.agents if not ended[agent]]
        return obs, rewards, ended, dict.fromkeys(ended, False), infos

    def render(self) -> np.ndarray:
        return np.full((20, 30, 3), 10 * self.t, np.uint8)

    def close(self) -> None:
        """Holds nothing."""


class TicTacToe:
    """A game of two players by PettingZoo's AEC interface; without `masks`, an occupied square loses the game."""

    metadata: Info = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    lines = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))

    def __init__(self, masks: bool = True, players: int = 2, render_mode: str | None = None) -> None:
        self.masks, self.render_mode = masks, render_mode
        self.possible_agents = ["x", "o", "z"][:players]
        self.infos: Info = {}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        board = spaces.Box(0, 1, (18,), np.float32)
        mask = spaces.Box(0, 1, (9,), np.int8)
        return spaces.Dict({"observation": board, "action_mask": mask}) if self.masks else board

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(9)

    def reset(self, seed: int | None = None, options: Info | None = None) -> None:
        self.board = np.zeros(9, np.int64)
        self.agent_selection = "x"
        self.set_end(False, 0)

    def set_end(self, over: bool, reward_of_x: float) -> None:
        self.rewards = {"x": reward_of_x, "o": -reward_of_x}
        self.terminations = dict.fromkeys("xo", over)
        self.truncations = dict.fromkeys("xo", False)

    def observe(self, agent: str) -> Any:
        me = 1 if agent == "x" else 2
        obs = np.concatenate([self.board == me, self.board == 3 - me]).astype(np.float32)
        return {"observation": obs, "action_mask": (self.board == 0).astype(np.int8)} if self.masks else obs

    def step(self, action: Any) -> None:
        sign = 1 if self.agent_selection == "x" else -1
        mark = 1 if sign == 1 else 2
        is_lost = self.board[action] > 0
        self.board[action] = mark
        is_won = not is_lost and any((self.board[[*line]] == mark).all() for line in self.lines)
        self.set_end(is_lost or is_won or bool(self.board.all()), sign * (int(is_won) - int(is_lost)))
        self.agent_selection = "o" if sign == 1 else "x"

    def agent_iter(self) -> Any:
        """PettingZoo's loop, which Vantage does not use."""

    def last(self) -> Any:
        """As `agent_iter`."""

    def render(self) -> np.ndarray:
        return np.full((20, 30, 3), 20 * int((self.board > 0).sum()), np.uint8)

    def close(self) -> None:
        """Holds nothing."""
