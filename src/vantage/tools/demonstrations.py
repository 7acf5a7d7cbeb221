"""Recording demonstrations: an agent's games, and games step by step as a person plays them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vantage.agents.agent import Agent
from vantage.agents.evaluate import action_generator, load_player, single_game
from vantage.agents.evaluation_settings import torch_threads
from vantage.envs.reader import WHOLE
from vantage.envs.vector_env import Environments
from vantage.errors import ConfigError
from vantage.learning.act_inputs import to_numpy
from vantage.learning.demonstrations import Array, Demonstrations, within_bounds
from vantage.learning.evaluation import game_steps
from vantage.models.actor_critic import ActorCritic
from vantage.runs.demonstration_file import SUFFIX, write_demonstrations
from vantage.runs.files import check_name
from vantage.runs.handed_over import handed_over
from vantage.types import EnvSpec

log = logging.getLogger(__name__)


class Games:
    """Games of the first of some environments, collected step by step."""

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec
        self._rows: list[tuple[dict[str, Array], Array, Array | None, float]] = []
        self._before: tuple[dict[str, Array], Array | None] = ({}, None)
        self.lengths: list[int] = []
        """Of the complete games."""

    def observe(self, obs: Any, mask: Any) -> None:
        """Copy what the next action follows, before the environments use its memory again."""
        named = obs if isinstance(obs, Mapping) else {WHOLE: obs}
        parts = {name: np.array(to_numpy(part[0])) for name, part in named.items()}
        self._before = (parts, None if mask is None else np.array(to_numpy(mask[0])))

    def add(self, action: Array, step: Any) -> None:
        """Add the policy's `action` and what it led to; steps without an effect are left out."""
        if bool(to_numpy(step.valid)[0]):
            parts, allowed = self._before
            in_env_units = self._spec.action.to_env(np.array(action))
            self._rows.append((parts, in_env_units, allowed, float(step.rewards[0])))
        if any(episode.env == 0 for episode in step.episodes):
            self.end()

    def end(self) -> None:
        """Complete the game."""
        length = len(self._rows) - sum(self.lengths)
        if length:
            self.lengths.append(length)

    def complete(self) -> Demonstrations:
        """All complete games. ConfigError if there is none."""
        rows = self._rows[:sum(self.lengths)]
        if not rows:
            raise ConfigError("no game was played to its end, so there are no demonstrations to "
                              "write; play one")
        obs, actions, masks, rewards = zip(*rows, strict=True)
        return Demonstrations(
            {name: np.stack([each[name] for each in obs]) for name in obs[0]},
            within_bounds(np.stack(actions), self._spec.action), tuple(self.lengths),
            np.stack(masks) if self._spec.masked else None, np.array(rewards, np.float32))

    def write(self, output: str | Path, env: str) -> Demonstrations:
        """Write all complete games of `env` to a file. ConfigError if there is none."""
        demonstrations = self.complete()
        write_demonstrations(output, demonstrations, env=env, spec=self._spec)
        return demonstrations

    def keep(self, output: str | Path, env: str) -> str:
        """Write the games that had ended before an interruption; returns what became of them.

        A file that exists stays: it may have more games.
        """
        if not self.lengths:
            return "interrupted before the end of the first game; nothing was written"
        if Path(output).exists():
            return f"interrupted; {output}, which existed before, is left as it was"
        return f"interrupted; {output} holds the games that had ended: {self.write(output, env)}"


def record_demonstrations(run: str | Path | Agent, output: str | Path, *, episodes: int = 20,
                          deterministic: bool | None = None, checkpoint: str | int = "auto",
                          seed: int = 0, trust: bool = False, env: Any = None, network: Any = None,
                          memory: Any = None, algorithm: Any = None) -> Demonstrations:
    """Write games of a `run` or an agent to a .safetensors file, as demonstrations for another.

        vantage.record_demonstrations("runs/CartPole-v1/ppo-1", "expert.safetensors")
        vantage.train("a2c", env="CartPole-v1", demonstrations="expert.safetensors")

    The games are those that `vantage.evaluate` plays with num_envs=1; on Atari only the first
    is the same. `episodes`, `deterministic`, `checkpoint`, `seed`, `trust`, `env`, `network`,
    `memory` and `algorithm` are its options. `output` appears once it is complete; after Ctrl-C
    or an error a new one holds the games that had ended. ConfigError for an output that cannot be
    written.
    """
    objects = handed_over(env=env, network=network, memory=memory, algorithm=algorithm)
    check_name(output, SUFFIX)
    agent, deterministic = load_player(run, checkpoint, deterministic, episodes=episodes, seed=seed,
                                       trust=trust, call="record_demonstrations", objects=objects)
    config = agent.config
    with torch_threads(1), closing(single_game(config, seed, draws=False)) as envs:
        games = Games(envs.spec)
        try:
            _play(games, agent.model, envs, episodes, deterministic=deterministic,
                  generator=action_generator(seed))
        except BaseException:
            log.warning(games.keep(output, config.env.id))
            raise
        return games.write(output, config.env.id)


def _play(games: Games, model: ActorCritic, envs: Environments, episodes: int, *,
          deterministic: bool, generator: torch.Generator) -> None:
    while len(games.lengths) < episodes:
        for played in game_steps(model, envs, deterministic=deterministic, generator=generator):
            if played.last is not None:
                actions, step = played.last
                games.add(to_numpy(actions)[0], step)
            if len(games.lengths) >= episodes:
                break
            if played.length >= envs.longest_game:  # the environment would never end it
                games.end()
                break
            games.observe(played.position.obs, played.position.action_mask)
