"""Evaluation of a run: whole games, raw scores, a frozen policy, separate seeds. Not that of a run in training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev

import torch

from vantage.agent import Agent, load
from vantage.config import Config
from vantage.envs import Environments, make_environments, make_rendered, resolve_env
from vantage.errors import ConfigError
from vantage.learning.play import play
from vantage.seeding import derive_seed
from vantage.system import cores_for

STREAM = 2
"""Streams 0 and 1 belong to training and to evaluations during training."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The output of `vantage evaluate --json`."""

    env: str
    episodes: int
    deterministic: bool
    return_mean: float
    return_std: float
    return_min: float
    return_max: float
    length_mean: float
    returns: list[float]
    checkpoint: str
    step: int

    def as_dict(self) -> dict[str, object]:
        """The JSON object."""
        return asdict(self)

    def sentence(self) -> str:
        """One line for a person."""
        actions = "most probable" if self.deterministic else "sampled"
        return (f"{self.env}: mean {self.return_mean:.2f} ± {self.return_std:.2f} (from {self.return_min:g} to "
                f"{self.return_max:g}) over {self.episodes} games of {self.length_mean:.0f} steps on average, "
                f"{actions} actions, {self.checkpoint}")


def evaluate(run: str | Path, *, episodes: int = 100, deterministic: bool | None = None, checkpoint: str = "auto",
             seed: int = 0, num_envs: int = 16, trust: bool = False) -> Evaluation:
    """Play `episodes` whole games with the policy of `run`.

    `deterministic` None: sampled actions on Atari, the most probable action elsewhere. `checkpoint`: auto (best if
    there is one, else latest), latest, best, or a step. `trust` is that of `vantage.load`.
    """
    agent, deterministic = load_player(run, checkpoint, deterministic, episodes=episodes, seed=seed, trust=trust)
    config = agent.config
    torch.set_num_threads(cores_for(config.all_threads))
    envs = make_environments(config.env, seed=derive_seed(seed, "evaluate"), stream=STREAM,
                             num_envs=min(num_envs, episodes), evaluation=True, threads=config.all_threads)
    try:
        games = play(agent.model, envs, episodes=episodes, deterministic=deterministic,
                     generator=action_generator(seed))
    finally:
        envs.close()
    scores = [game.score for game in games]
    return Evaluation(config.env.id, len(games), deterministic, fmean(scores), pstdev(scores), min(scores), max(scores),
                      fmean(game.length for game in games), scores, agent.checkpoint, agent.step)


def load_player(run: str | Path, checkpoint: str, deterministic: bool | None, *, episodes: int,
                seed: int, trust: bool) -> tuple[Agent, bool]:
    """The agent of `run`, and whether it takes the most probable action; `deterministic` None is as in `evaluate`."""
    if not 1 <= episodes <= 10**6:  # as eval_episodes
        raise ConfigError(f"episodes={episodes} is " + ("below 1" if episodes < 1 else "above 1,000,000"))
    if seed < 0:
        raise ConfigError(f"seed={seed} is below 0")
    agent = load(run, checkpoint=checkpoint, trust=trust)
    if deterministic is None:
        deterministic = resolve_env(agent.config.env.id, agent.config.env.atari_protocol).family != "atari"
    return agent, deterministic


def shown_game(config: Config, seed: int) -> Environments:
    """One environment of an evaluation that renders its screen."""
    return make_rendered(config.env, seed=derive_seed(seed, "evaluate"), stream=STREAM)


def action_generator(seed: int) -> torch.Generator:
    """The source of an evaluation's sampled actions."""
    return torch.Generator().manual_seed(derive_seed(seed, "evaluate", "actions"))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread, which is fastest for one observation at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
