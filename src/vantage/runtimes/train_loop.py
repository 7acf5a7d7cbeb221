"""A run from its first update to its last, whatever its runtime: when it stops, what is saved, how it ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Protocol

from vantage.errors import CheckpointError
from vantage.runtimes.recorder import Recorder, Status
from vantage.types import Report


class Run(Protocol):
    """What a runtime is to `follow`."""

    recorder: Recorder

    @property
    def finished(self) -> bool:
        """A stop condition of the config holds."""

    def advance(self, should_stop: Callable[[], bool]) -> None:
        """Go on for a moment; raises what ends the run. `should_stop` cuts short what takes long."""

    def finish(self, should_stop: Callable[[], bool]) -> None:
        """Stop, make the evaluation that is due of a run that is finished, unless `should_stop`, and save.

        CheckpointError where that cannot be saved.
        """

    def save(self, *, failed: bool = False) -> None:
        """Write a checkpoint if that is possible. `failed`: nothing follows it."""

    def close(self, status: Status) -> None:
        """Let go of processes and environments, and write down how the run ended."""


def follow(run: Run, should_stop: Callable[[], bool]) -> Generator[Report]:
    """Train until a stop condition; yields a report from time to time, and one at the end.

    Closing the generator, and `should_stop` turning true, end the run after the current update with a checkpoint. An
    error, or a KeyboardInterrupt, ends it with a checkpoint of the last update, whose environments begin new episodes.
    """
    status: Status = "failed"
    recorder, owner = run.recorder, os.getpid()
    try:
        # Asked once: what comes in while workers stop may take a mean below its goal again.
        while not (finished := run.finished) and not should_stop():
            run.advance(should_stop)
            if recorder.progress.due(recorder.config.run.log_every_seconds):
                yield recorder.report()
        goal = recorder.goal
        run.finish(should_stop)
        status = "done" if finished or run.finished else "interrupted"
        if goal:
            recorder.notify(f"ended: {goal}")
    except GeneratorExit:
        if os.getpid() == owner:
            run.finish(lambda: True)
        status = "interrupted"
        raise
    except CheckpointError:
        raise
    except KeyboardInterrupt:
        run.save(failed=True)
        status = "interrupted"
        raise
    except Exception:
        run.save(failed=True)
        raise
    finally:
        if os.getpid() == owner:  # a fork of the process has only the memory of the run
            run.close(status)
    if recorder.last_report is not None:
        yield recorder.last_report
