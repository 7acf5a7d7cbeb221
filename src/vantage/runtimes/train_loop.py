"""The training loop of every runtime: when a run ends, what is saved and how it is closed.

No learning here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Mapping
from typing import Any, Protocol

from vantage.config.config import Config
from vantage.errors import CheckpointError
from vantage.models.actor_critic import ActorCritic
from vantage.runtimes.recorder import Recorder, Status
from vantage.types import Report

log = logging.getLogger(__name__)


class Run(Protocol):
    """A run under one runtime, as `updates` uses it."""

    recorder: Recorder

    def advance(self) -> Generator[None]:
        """Train for one update, or for a moment; yields between the steps of an evaluation."""

    @property
    def config(self) -> Config:
        """The config in force."""

    def policy(self) -> ActorCritic:
        """The current policy; further updates may change its weights."""

    def save(self) -> None:
        """Write a checkpoint now. CheckpointError if that fails."""

    def change(self, values: Mapping[str, Any]) -> None:
        """Continue with other coefficients, in all processes.

        ConfigError for values that are not allowed.
        """

    def stop(self) -> None:
        """Make no further updates."""

    def evaluate(self) -> Generator[None]:
        """Evaluate the last policy; yields between the steps."""

    def close(self, status: Status) -> None:
        """Release processes and environments and record how the run ended."""


def updates(run: Run) -> Generator[Report | None]:
    """Train until a stop condition; yields after every update and during evaluations.

    Yields a report if one is due, otherwise None. The first report has no metrics, the last one has
    the status with which the run ended. Closing the generator saves a checkpoint and ends the run;
    an interrupted evaluation stays due. After an error or KeyboardInterrupt the checkpoint is that
    of the last update, without the state of environments: a resume begins new episodes.
    """
    status: Status = "failed"
    recorder = run.recorder
    owner = os.getpid()
    try:
        yield recorder.first_report()
        # Computed once an update: episodes that arrive while workers stop may lower the mean again.
        finished = recorder.finished
        while not finished:
            recorder.between_updates = False
            yield from run.advance()
            recorder.note_update()
            finished = recorder.finished
            if finished:
                break
            recorder.between_updates = True
            report_due = recorder.progress.due(recorder.config.run.log_every_seconds)
            yield recorder.report() if report_due else None
        goal = recorder.goal
        run.stop()
        evaluates = recorder.last_evaluation_due
        if evaluates:
            recorder.save()  # before games that may take minutes
            yield from run.evaluate()
        recorder.save(final=True, again=evaluates)
        status = "done"
        if goal:
            log.info("ended: %s", goal)
    except GeneratorExit:
        if os.getpid() == owner:
            run.stop()
            recorder.save(final=True)
        status = "interrupted"
        raise
    except CheckpointError:
        raise
    except (KeyboardInterrupt, Exception) as error:
        recorder.save()
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        raise
    finally:
        if os.getpid() == owner:  # a forked child only has a copy of the run
            run.close(status)
    if recorder.last_report is not None:
        yield recorder.last_report
