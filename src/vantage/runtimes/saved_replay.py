"""The replay of a run that is resumed."""

from __future__ import annotations

import logging
from pathlib import Path

from vantage.errors import CheckpointError
from vantage.learning.replay import Replay
from vantage.runs.checkpoint import load_replay

log = logging.getLogger(__name__)


def restore_replay(replay: Replay, run: Path, step: int) -> None:
    """Load the replay of the run, saved with the checkpoint of `step`.

    Logs a warning where there is none or it is of another step.
    """
    try:
        saved = load_replay(run)
        if saved is None:
            raise CheckpointError("none was saved")
        replay.load(saved[1])
    except (CheckpointError, KeyError, RuntimeError, ValueError) as error:
        log.warning(f"the replay is filled again before updates use it: {error}; "
                    "this resume is not exact")
    else:
        if saved[0] != step:
            log.warning(f"the replay was saved at step {saved[0]:,}, the checkpoint at "
                        f"{step:,}: it is good to learn from, but this resume is not exact")
