"""A window in which a run's policy plays in real time, game after game, also while the run trains."""

from __future__ import annotations

import logging
from contextlib import closing
from itertools import count
from pathlib import Path

import torch

from vantage.errors import VantageError
from vantage.models.actor_critic import ActorCritic
from vantage.runs.checkpoint import fitting, load_latest, newest_step
from vantage.runs.policy_file import SUFFIX
from vantage.seeding import derive_seed
from vantage.tools.evaluate import load_player, one_thread, shown_game
from vantage.tools.frames import shown_games
from vantage.tools.window import Window

log = logging.getLogger(__name__)


def watch(run: str | Path, *, deterministic: bool | None = None, checkpoint: str = "latest", seed: int = 0,
          trust: bool = False) -> None:
    """Show games until the person closes the window or presses Esc or q.

    With `checkpoint` latest, each game is played by the newest checkpoint at its start. The other options are those of
    `evaluate`. ConfigError without a display.
    """
    is_exported = Path(run).suffix == SUFFIX and not Path(run).is_dir()  # one policy, without checkpoints
    follow = checkpoint == "latest" and not is_exported
    agent, deterministic = load_player(run, "auto" if checkpoint == "latest" and is_exported else checkpoint,
                                       deterministic, episodes=1, seed=seed, trust=trust)
    step = agent.step
    window = Window(f"vantage watch {run}", f"without one: vantage record {run} -o video.mp4")
    with one_thread(), closing(window):
        for session in count():  # a game that is cut as too long is the last of its environment
            game_seed = derive_seed(seed, "watch", session)
            generator = torch.Generator().manual_seed(derive_seed(game_seed, "watch", "actions"))
            with closing(shown_game(agent.config, game_seed)) as envs:
                for moment, frame in shown_games(agent.model, envs, lambda: f"trained {step:,}",
                                                 deterministic=deterministic, generator=generator):
                    window.show(frame)
                    if not window.wait(envs.fps) or "q" in window.keys:
                        return
                    if moment.over and follow:
                        step = _reload(agent.model, Path(run), step)


def _reload(model: ActorCritic, run: Path, step: int) -> int:
    """Load the weights of a checkpoint newer than `step`; returns the step of the model's weights."""
    if (newest_step(run) or 0) <= step:
        return step
    try:
        newer = load_latest(run)
        with fitting(newer.path):
            model.load_state_dict(newer.tensors["model"])
    except VantageError as error:  # removed while it was read, or damaged: the next game tries again
        log.warning("still at step %s: %s", f"{step:,}", error)
        return step
    return newer.step
