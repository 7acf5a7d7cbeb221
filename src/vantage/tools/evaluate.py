"""Evaluation of a run: whole games, raw scores, a frozen policy, seeds of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev

import torch

from vantage.config import Config
from vantage.envs import make_environments, resolve_env
from vantage.errors import ConfigError
from vantage.learning.play import play
from vantage.seeding import derive_seed
from vantage.system import cores_for
from vantage.training import load

STREAM = 2
"""Streams 0 and 1 are training's and the evaluations' beside it."""
_MOST_GAMES = 10**6
"""As of eval_episodes."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What `vantage evaluate --json` prints."""

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
        """As a JSON object."""
        return asdict(self)

    def sentence(self) -> str:
        """For a person."""
        actions = "most probable" if self.deterministic else "sampled"
        return (f"{self.env}: mean {self.return_mean:.2f} ± {self.return_std:.2f} (from {self.return_min:g} to "
                f"{self.return_max:g}) over {self.episodes} games of {self.length_mean:.0f} steps on average, "
                f"{actions} actions, {self.checkpoint}")


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes with one thread: more cost more than they give where one observation comes at a time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def evaluate(run: str | Path, *, episodes: int = 100, deterministic: bool | None = None, checkpoint: str = "auto",
             seed: int = 0, num_envs: int = 16, notify: Callable[[str], None] = warnings.warn) -> Evaluation:
    """Play `episodes` whole games with the policy of `run`.

    `deterministic` None: sampled actions on Atari, the most probable ones elsewhere. `checkpoint`: auto (best if there
    is one, else latest), latest, best, or a step. `notify` gets what is wrong with one that had to be passed over.
    """
    check_games(episodes, seed)
    agent = load(run, checkpoint=checkpoint)
    config = agent.config
    deterministic = acts_deterministically(config) if deterministic is None else deterministic
    torch.set_num_threads(cores_for(config.all_threads))
    envs = make_environments(seeded(config, seed), num_envs=min(num_envs, episodes), stream=STREAM, evaluation=True,
                             threads=config.all_threads)
    try:
        games = play(agent.model, envs, episodes=episodes, deterministic=deterministic,
                     generator=action_generator(seed))
    finally:
        envs.close()
    scores = [game.score for game in games]
    return Evaluation(config.env.id, len(games), deterministic, fmean(scores), pstdev(scores), min(scores), max(scores),
                      fmean(game.length for game in games), scores, agent.checkpoint, agent.step)


def check_games(episodes: int, seed: int) -> None:
    """ConfigError where the numbers make no games."""
    if episodes < 1:
        raise ConfigError(f"episodes={episodes} is below 1")
    if episodes > _MOST_GAMES:
        raise ConfigError(f"episodes={episodes} is above {_MOST_GAMES:,}")
    if seed < 0:
        raise ConfigError(f"seed={seed} is below 0")


def acts_deterministically(config: Config) -> bool:
    """What is usual where nothing was said: sampled actions on Atari, the most probable ones elsewhere."""
    return resolve_env(config.env.id, config.env.atari_protocol).family != "atari"


def seeded(config: Config, seed: int) -> Config:
    """`config` with the seed of its evaluation's environments."""
    return config.override({"seed": derive_seed(seed, "evaluate")}, source="evaluate")


def action_generator(seed: int) -> torch.Generator:
    """Where an evaluation's sampled actions come from."""
    return torch.Generator().manual_seed(derive_seed(seed, "evaluate", "actions"))
