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
        self.mask, self.widest, self.render_mode = mask, widest, render_mode
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
