"""A window in which a run's policy plays in real time, also while the run trains."""

from __future__ import annotations

import logging
import shlex
from contextlib import closing
from pathlib import Path

import torch

from vantage._host.seeding import derive_seed
from vantage.agents.agent import load
from vantage.agents.evaluate import load_player, single_game
from vantage.agents.evaluation_settings import torch_threads
from vantage.errors import VantageError
from vantage.learning.evaluation import game_steps
from vantage.runs.checkpoint import newest_step
from vantage.runs.hub import local_path
from vantage.tools.frames import draw_frame, step_words
from vantage.tools.window import Window

log = logging.getLogger(__name__)


def watch(run: str | Path, *, deterministic: bool | None = None, checkpoint: str | int = "latest",
          seed: int = 0, trust: bool = False) -> None:
    """Show games until the user closes the window or presses Esc or q.

    With `checkpoint` latest, each game is played by the newest checkpoint at its start. The other
    options are those of `evaluate`. ConfigError without a display.
    """
    path = local_path(run)
    follow = checkpoint == "latest" and path.is_dir()
    if checkpoint == "latest" and not follow:
        checkpoint = "auto"  # an exported file has one policy
    agent, deterministic = load_player(path, checkpoint, deterministic, episodes=1, seed=seed,
                                       trust=trust)
    step = agent.step
    generator = torch.Generator().manual_seed(derive_seed(seed, "watch", "actions"))
    window = Window(f"vantage watch {run}", f"without one: vantage record {shlex.quote(str(run))} "
                    "-o video.mp4")
    game = single_game(agent.config, derive_seed(seed, "watch", 0))
    with torch_threads(1), closing(window), closing(game) as envs:
        for played in game_steps(agent.model, envs, deterministic=deterministic,
                                 generator=generator):
            window.show(draw_frame(envs.render(), *step_words(played), f"trained {step:,}"))
            if not window.wait(envs.fps) or "q" in window.keys:
                return
            if not (played.over and follow and (newest_step(path) or 0) > step):
                continue
            try:
                newer = load(path, checkpoint="latest", trust=trust)
            except VantageError as error:  # removed meanwhile, or damaged: try after the next game
                log.warning("still at step %s: %s", f"{step:,}", error)
            else:
                agent.model.load_state_dict(newer.model.state_dict())
                step = newer.step
