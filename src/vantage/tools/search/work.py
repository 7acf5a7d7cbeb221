"""A process of the search: it trains one run after another up to the steps it is told. It knows nothing of trials."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING

from vantage.config import Config
from vantage.config_groups import Hogwild
from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import RunDirectory
from vantage.runs.lock import HeldError, locked
from vantage.system import available_cores, deaf_to_signals, tied_process
from vantage.tools.search.measure import last_value, reached, value_at

if TYPE_CHECKING:
    from collections.abc import Generator

    from vantage.types import Report

_OF_THE_MACHINE = {"steps", "schedule_steps", "device", "threads"}
"""Keys that a trial's run may have otherwise: how far it has come, and what its machine has."""

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

LOCK_SECONDS = 60.0
"""How long a run may still be held by a process that is on its way out."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Train the run `path` of `config` up to `target` steps, from where it is; `metric` is what counts at the end."""

    path: Path
    config: Config
    target: int
    metric: str


@dataclass(frozen=True, slots=True)
class Reached:
    """A run on its way."""

    step: int
    value: float | None


@dataclass(frozen=True, slots=True)
class Note:
    """What a person should know once."""

    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a segment."""

    step: int
    value: float | None
    """The metric there; None if it has none yet."""
    interrupted: bool = False
    """It was told to stop, and has saved; it may have more to do."""
    error: str = ""
    """What ended it otherwise."""
    stuck: bool = False
    """The error is the disk's, which other runs would meet too."""


class Worker:
    """A process and what it is doing, seen from the search."""

    def __init__(self, jobs: int, argv: Sequence[str]) -> None:
        context = get_context("spawn")
        self.connection, there = context.Pipe()
        self.process: BaseProcess = tied_process(context, "vantage-search", _serve, there, jobs, tuple(argv))
        with deaf_to_signals():
            self.process.start()
        there.close()

    def send(self, segment: Segment | None) -> None:
        """Have it train `segment`; None stops what it does, with a checkpoint."""
        try:
            self.connection.send(segment)
        except OSError:  # it is gone, which whoever listens to it learns
            return

    def end(self) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _serve(connection: Connection, jobs: int, argv: Sequence[str]) -> None:
    """Train what comes through the pipe until it is closed."""
    segments: SimpleQueue[Segment | None] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(connection, segments, stop), daemon=True).start()
    while (segment := segments.get()) is not None:
        try:
            outcome = _train(segment, jobs, argv, stop.is_set, connection.send)
        except (BrokenPipeError, ConnectionResetError):  # the search is gone
            break
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            outcome = Outcome(0, None, error=_words(error), stuck=_is_of_the_disk(error))
        try:
            connection.send(outcome)
        except OSError:
            break


def _listen(connection: Connection, segments: SimpleQueue[Segment | None], stop: threading.Event) -> None:
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            stop.set()
            segments.put(None)
            return
        if message is None:
            stop.set()
        else:  # the search sends it once the former has ended, so that no stop is forgotten here
            stop.clear()
            segments.put(message)


def _words(error: BaseException) -> str:
    cause = error.__cause__
    text = str(error) if isinstance(error, VantageError) else f"{type(error).__name__}: {error}"
    return text if cause is None else f"{text} ({type(cause).__name__}: {cause})"


def _is_of_the_disk(error: BaseException | None) -> bool:
    """It is, or came of, a disk that is full, read-only or failing."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False


def _train(segment: Segment, jobs: int, argv: Sequence[str], should_stop: Callable[[], bool],
           tell: Callable[[Reached | Note], None]) -> Outcome:
    """Train the run up to the segment's target; a run that is there already is only read."""
    path, metric = segment.path, segment.metric
    from vantage.runs.checkpoint import newest_step

    _wait_until_free(path)
    _check_own(segment)

    def notify(text: str) -> None:
        tell(Note(text))

    checkpoint, step = reached(path, segment.target), 0
    if checkpoint is not None:
        value = value_at(path, segment.target, metric, checkpoint, should_stop=should_stop, notify=notify)
        return Outcome(checkpoint.step, value, should_stop())
    with closing(_begin_or_go_on(segment, jobs, argv)) as updates:
        for report in updates:
            if report is not None:
                step = report.step
                tell(Reached(step, report.metrics.get("rollout/ep_rew_mean")))
            if should_stop():
                break
    if should_stop():
        step = newest_step(path) or step
    # At its target too: the stop may have cut its last evaluation short, which whoever goes on finds out.
    return Outcome(step, last_value(path, metric), should_stop())


def _begin_or_go_on(segment: Segment, jobs: int, argv: Sequence[str]) -> Generator[Report | None]:
    from vantage.runs.checkpoint import newest_step
    from vantage.training import resume_updates, train_updates

    path, config, target = segment.path, segment.config, segment.target
    if newest_step(path) is not None:
        return resume_updates(path, steps=target)
    if path.exists():  # killed before its first checkpoint
        shutil.rmtree(path)
    cores = max(1, available_cores() // jobs)
    if isinstance(config.runtime, Hogwild):
        config = config.change(num_workers=config.runtime.num_workers or cores)
    else:
        config = config.change(threads=config.runtime.threads or cores)
    # Up to the first comparison, on schedules that run over the whole trial.
    config = config.change(steps=target, schedule_steps=config.run.schedule_steps or config.run.steps)
    return train_updates(config, run=path, argv=argv)


def _check_own(segment: Segment) -> None:
    """ConfigError if the run that is there is of another config than the segment's."""
    from vantage.runs.checkpoint import newest_step

    if newest_step(segment.path) is None:
        return
    asked, found = segment.config, RunDirectory.open(segment.path).config
    machine = {*_OF_THE_MACHINE, *(("num_workers",) if asked.runtime != "hogwild" or not asked.num_workers else ())}
    different = [f"{key.name}={getattr(found, key.name)!r} instead of {getattr(asked, key.name)!r}"
                 for key in fields(Config) if key.name not in machine and
                 getattr(found, key.name) != getattr(asked, key.name)]
    if different:
        raise ConfigError(f"{segment.path} is another run, with {', '.join(different)}; move it away, or search with "
                          "another --run")


def _wait_until_free(run: Path) -> None:
    """Until no process writes into the run: a killed search's may take a moment to end."""
    deadline = monotonic() + LOCK_SECONDS
    while run.is_dir():
        try:
            with locked(run):
                return
        except HeldError:
            if monotonic() > deadline:
                raise
            sleep(0.1)

