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
from vantage.runs.weights import SUFFIX
from vantage.seeding import derive_seed
from vantage.tools.evaluate import STREAM, acts_deterministically, check_games, one_thread, seeded
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
    single = Path(run).suffix == SUFFIX and not Path(run).is_dir()  # an exported policy, which has no checkpoints
    agent = load(run, checkpoint="auto" if single and checkpoint == "latest" else checkpoint)
    window = Window(f"vantage watch {run}", instead=f"without one: vantage record {run} -o video.mp4")
    try:
        deterministic = acts_deterministically(agent.config) if deterministic is None else deterministic
        follow = Path(run) if checkpoint == "latest" and not single else None
        round_, step = 0, agent.step
        with one_thread():
            while not (done := _play(window, agent, step, derive_seed(seed, "watch", round_), deterministic, follow,
                                     notify))[0]:
                round_, step = round_ + 1, done[1]  # a game was cut as too long: its environment plays no other
    finally:
        window.close()


def _play(window: Window, agent: Agent, step: int, seed: int, deterministic: bool, follow: Path | None,
          notify: Callable[[str], None]) -> tuple[bool, int]:
    """Games in one environment: whether the person is done, and the step of the agent's weights."""
    envs = make_rendered(seeded(agent.config, seed), stream=STREAM)
    generator = torch.Generator().manual_seed(derive_seed(seed, "watch", "actions"))
    canvas = None
    try:
        for moment in moments(agent.model, envs, deterministic=deterministic, generator=generator):
            screen = envs.render()
            canvas = canvas or Canvas(screen)
            window.show(canvas.draw(screen, game_words(moment.score, moment.value, f"step {moment.length:,}",
                                                       f"trained {step:,}")))
            if not window.wait(envs.fps):
                return True, step
            if moment.over and follow is not None:
                step = _reload(agent, follow, step, notify)
    finally:
        envs.close()
    return False, step


def _reload(agent: Agent, run: Path, step: int, notify: Callable[[str], None]) -> int:
    """Take over the weights of a checkpoint newer than `step`; the step of those that the agent has then."""
    newest = newest_step(run)
    if newest is None or newest <= step:
        return step
    try:
        newer = load(run, checkpoint="latest")
    except VantageError as error:  # pruned while it was read, or written badly: the next game looks again
        notify(f"still at step {step:,}: {error}")
        return step
    agent.model.load_state_dict(newer.model.state_dict())
    return newer.step
