"""Stops runs at a chosen update, as a signal does, and reads what they saved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import torch
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


def tensors_of_an_exact_resume(config: vantage.Config, folder: Path) -> dict[str, Tensor]:
    """What a whole run saves last, after asserting that one which was stopped and resumed saves the same bits."""
    list(vantage.Trainer(config, run=folder / "whole"))
    assert 0 < stop_after(3, folder / "parts", config) < config.run.steps
    list(vantage.Trainer.resume(folder / "parts"))
    whole, parts = saved_tensors(folder / "whole"), saved_tensors(folder / "parts")
    assert whole.keys() == parts.keys()
    assert not [name for name in whole if not torch.equal(whole[name], parts[name])]
    return whole
