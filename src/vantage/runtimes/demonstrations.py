"""Demonstrations of a run: where they are read, their copy in its directory, and cloning."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.schedules import Schedule
from vantage.learning.cloning import DEMONSTRATIONS, Cloning
from vantage.learning.learner import Learner
from vantage.runs.checkpoint import Checkpoint
from vantage.runs.demonstration_file import (
    FILE,
    read_demonstrations,
    read_source,
    write_demonstrations,
)

log = logging.getLogger(__name__)


def add_demonstrations(learner: Learner, config: Config, run: Path,
                       checkpoint: Checkpoint | None) -> dict[str, float]:
    """Let `learner` learn from the demonstrations of `config`, if it names some.

    A new run clones them, and keeps a copy in its directory `run`, from which it is resumed.
    Returns the metrics of cloning. ConfigError if the copy is needed and is not what it was.
    """
    if config.cloning.demonstrations is None:
        return {}
    spec = learner.model.spec
    copy = run / FILE
    if checkpoint is None:
        demonstrations = read_source(config, spec)
        write_demonstrations(copy, demonstrations, env=config.env.id, spec=spec)
    elif _is_over(config, checkpoint.step):
        return {}
    else:
        if not copy.is_file():
            raise ConfigError(f"{copy} is missing, and demo_coef={config.cloning.demo_coef} still "
                              "needs it; put it back")
        demonstrations = read_demonstrations(copy, spec)
    cloning = Cloning(learner.model, demonstrations, seed=config.run.seed,
                      num_ranks=config.num_processes)
    learner.cloning = cloning
    if checkpoint is None:
        log.info(f"cloning {demonstrations}")
        metrics = cloning.clone(learner.flat, config.cloning.demo_passes)
        learner.restart_averages()
        return metrics
    saved = checkpoint.tensors.get(DEMONSTRATIONS, {}).get("digest")
    if saved is None or not torch.equal(saved, cloning.digest):
        raise ConfigError(f"{copy} is not the file that this run has learned from; put that back")
    return {}


def _is_over(config: Config, step: int) -> bool:
    """Whether demonstrations have no weight from `step` on."""
    coef = config.cloning.demo_coef
    if not isinstance(coef, Schedule):
        return coef == 0
    return coef.is_zero(step, config.run.steps, config.schedule_steps)
