"""A window in which a run's policy plays in real time, game after game, also while the run trains."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from vantage.agent import Agent
from vantage.errors import VantageError
from vantage.learning.play import moments
from vantage.runs.checkpoint import fitting, load_latest, newest_step
from vantage.runs.policy_file import SUFFIX
from vantage.seeding import derive_seed
from vantage.tools.evaluate import load_player, one_thread, shown_game
from vantage.tools.frames import Canvas, game_words
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
    checkpoint = "auto" if is_exported and checkpoint == "latest" else checkpoint
    agent, deterministic = load_player(run, checkpoint, deterministic, episodes=1, seed=seed, trust=trust)
    window = Window(f"vantage watch {run}", remedy=f"without one: vantage record {run} -o video.mp4")
    try:
        step: int | None = agent.step
        session = 0
        with one_thread():
            while step is not None:  # a game that is cut as too long is the last of its environment
                step = _play(window, agent, step, derive_seed(seed, "watch", session), deterministic,
                             Path(run) if follow else None)
                session += 1
    finally:
        window.close()


def _play(window: Window, agent: Agent, step: int, seed: int, deterministic: bool, follow: Path | None) -> int | None:
    """Play games in one environment; returns the training step of the agent's weights, None once the person is done."""
    envs = shown_game(agent.config, seed)
    generator = torch.Generator().manual_seed(derive_seed(seed, "watch", "actions"))
    canvas = None
    try:
        for moment in moments(agent.model, envs, deterministic=deterministic, generator=generator):
            screen = envs.render()
            canvas = canvas or Canvas(screen)
            window.show(canvas.draw(screen, game_words(moment.score, moment.value, f"step {moment.length:,}",
                                                       f"trained {step:,}")))
            if not window.wait(envs.fps):
                return None
            if moment.over and follow is not None:
                step = _reload(agent, follow, step)
    finally:
        envs.close()
    return step


def _reload(agent: Agent, run: Path, step: int) -> int:
    """Load the weights of a checkpoint newer than `step`; returns the step of the agent's weights."""
    newest = newest_step(run)
    if newest is None or newest <= step:
        return step
    try:
        newer = load_latest(run)
        with fitting(newer.path):
            agent.model.load_state_dict(newer.tensors["model"])
    except VantageError as error:  # removed while it was read, or damaged: the next game tries again
        log.warning("still at step %s: %s", f"{step:,}", error)
        return step
    return newer.step
