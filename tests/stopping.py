"""Stops runs at a chosen update, as a signal does, and reads what they saved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from torch import Tensor

import vantage
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runtimes.training import resume_updates, train_updates


def stop_after(count: int, run: Path, config: vantage.Config | None = None,
               *, meanwhile: Callable[[], object] = lambda: None) -> int:
    """Begin a run, or without a config resume it, and close it after `count` yields; returns the step saved last.

    A yield follows each update and precedes each step of an evaluation.
    """
    with closing(resume_updates(run) if config is None else train_updates(config, run=run)) as updates:
        for number, _ in enumerate(updates):
            if number == count:
                break
            meanwhile()
    return newest_step(run) or 0


def saved_tensors(run: Path) -> dict[str, Tensor]:
    """All tensors of the newest checkpoint, by group/name."""
    return {f"{group}/{name}": tensor for group, tensors in load_latest(run).tensors.items()
            for name, tensor in tensors.items()}
