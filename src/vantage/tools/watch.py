"""A window in which a run's policy plays in real time, game after game, also while the run trains."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from vantage.envs import make_rendered
from vantage.errors import VantageError
from vantage.learning.play import moments
from vantage.runs.checkpoint import newest_step
from vantage.seeding import derive_seed
from vantage.tools.evaluate import STREAM, acts_deterministically, check_games, seeded
from vantage.tools.frames import Canvas, game_words
from vantage.tools.window import Window
from vantage.training import Agent, load


def watch(run: str | Path, *, deterministic: bool | None = None, checkpoint: str = "latest", seed: int = 0,
          notify: Callable[[str], None] = warnings.warn) -> None:
    """Show games until the person closes the window or presses Esc or q.

    With `checkpoint` latest each game is played by the newest checkpoint there is when it begins. `deterministic` and
    `notify` are as in `evaluate`. ConfigError without a display.
    """
    check_games(1, seed)
    agent = load(run, checkpoint=checkpoint, notify=notify)
    window = Window(f"vantage watch {run}", instead=f"without one: vantage record {run} -o video.mp4")
    try:
        deterministic = acts_deterministically(agent.config) if deterministic is None else deterministic
        torch.set_num_threads(1)  # more cost more than they give where one observation comes at a time
        round_ = 0
        while _play(window, agent, derive_seed(seed, "watch", round_), deterministic,
                    Path(run) if checkpoint == "latest" else None, notify):
            round_ += 1  # a game was cut as too long: its environment plays no other
    finally:
        window.close()


def _play(window: Window, agent: Agent, seed: int, deterministic: bool, follow: Path | None,
          notify: Callable[[str], None]) -> bool:
    """Games in one environment; False once the person is done."""
    envs = make_rendered(seeded(agent.config, seed), stream=STREAM)
    generator = torch.Generator().manual_seed(derive_seed(seed, "watch", "actions"))
    canvas, step = None, agent.step
    try:
        for moment in moments(agent.model, envs, deterministic=deterministic, generator=generator):
            screen = envs.render()
            canvas = canvas or Canvas(screen)
            window.show(canvas.draw(screen, game_words(moment.score, moment.value, f"step {moment.length:,}",
                                                       f"trained {step:,}")))
            if not window.wait(envs.fps):
                return False
            if moment.over and follow is not None:
                step = _reload(agent, follow, step, notify)
    finally:
        envs.close()
    return True


def _reload(agent: Agent, run: Path, step: int, notify: Callable[[str], None]) -> int:
    """Take over the weights of a checkpoint newer than `step`; the step of those that the agent has then."""
    newest = newest_step(run)
    if newest is None or newest <= step:
        return step
    try:
        newer = load(run, checkpoint="latest", notify=notify)
    except VantageError as error:  # pruned while it was read, or written badly: the next game looks again
        notify(f"still at step {step:,}: {error}")
        return step
    agent.model.load_state_dict(newer.model.state_dict())
    return newer.step
