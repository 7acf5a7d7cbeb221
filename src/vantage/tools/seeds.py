"""`vantage train --seeds`: several seeds of one config, each an ordinary run in a process of its own."""

from __future__ import annotations

import logging
import shlex
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any

from vantage._host.processes import stop_signals_blocked
from vantage._host.system import available_cores
from vantage._host.terminal import MessageHandler
from vantage.config.config import Config
from vantage.config.runtimes import Hogwild, Ray
from vantage.errors import ConfigError, VantageError
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.directory import RunDirectory
from vantage.runs.files import read_text, write_atomically
from vantage.runs.lock import locked
from vantage.runs.metrics import FILE_NAME
from vantage.runs.names import folder_of, make_directory
from vantage.runtimes.child_processes import Process, start
from vantage.runtimes.machine import threads_of
from vantage.runtimes.progress import goal_reached
from vantage.runtimes.training import resume_updates, train_updates
from vantage.tools.display import say
from vantage.tools.progress_line import LINE_EVERY_SECONDS, progress_line
from vantage.tools.scores import EPISODES, Row, score, write_results
from vantage.types import Report

_FILE = "seeds.json"
_STOP, _SAVED, _EVALUATING = "stop", "stopped and saved", f"playing {EPISODES} games"


def train_seeds(config: Config, seeds: int, jobs: int, run: str | None,
                stop: Callable[[], bool]) -> Path:
    """Train `seeds` seeds from the config's on, up to `jobs` at a time, and summarise them; returns their directory.

    The runs are DIR/seed-N in the directory `run`, by default runs/ENV/ALGO-N. If `run` holds unfinished seeds of the
    same config, they go on. Where `stop` returns True, all runs are saved and nothing is summarised. VantageError if a
    seed fails, also to save itself.
    """
    directory = _directory(config, run)
    numbers = range(config.run.seed, config.run.seed + seeds)
    say(f"{directory}: {seeds} seeds, {min(jobs, seeds)} at a time")
    fleet = _Fleet(config, directory, jobs)
    fleet.train(numbers, stop)
    if fleet.scores and not fleet.stopped:
        done = sorted(fleet.scores)
        text = write_results(directory, [directory / f"seed-{seed}" for seed in done],
                             [row for seed in done for row in fleet.scores[seed]],
                             command=shlex.join(["vantage", *sys.argv[1:]]))
        say(f"{text}\nin {directory}: curve.png and curve.csv, the mean with its 95% bootstrap interval; scores.csv; "
            "protocol.json; table.md")
    if fleet.failed:
        raise VantageError(f"{len(fleet.failed)} of {seeds} seeds failed: see their messages "
                           f"above; the same command with --run {shlex.quote(str(directory))} "
                           "tries them again")
    return directory


def share_cores(config: Config, jobs: int) -> Config:
    """`config` with its share of the cores where `jobs` runs train at a time; what it sets itself stays."""
    if isinstance(config.runtime, Ray):
        from vantage.runtimes.ray_cluster import share

        return config.change(num_workers=config.runtime.num_workers or share(config, jobs))
    if isinstance(config.runtime, Hogwild):
        return config.change(num_workers=config.runtime.num_workers
                             or max(1, available_cores() // jobs))
    return config.change(threads=config.runtime.threads or threads_of(config, jobs))


def updates_to(target: int, run: Path, config: Config, argv: Sequence[str],
               jobs: int = 1) -> Generator[Report | None]:
    """The updates that a run lacks up to `target` steps, from its newest checkpoint; none if it is done.

    A new run takes its share of the cores, where `jobs` train at a time.
    """
    if not (run / "config.json").exists():
        with suppress(OSError):  # killed while it was made: it holds nothing else
            (run / "meta.json").unlink(missing_ok=True)
            run.rmdir()
        shared = share_cores(config, jobs) if jobs > 1 else config
        yield from train_updates(shared, asked=config, run=run, argv=argv)
        return
    # Killed before its first checkpoint.
    if newest_step(run) is None and not (run / "best").exists():
        with locked(run):
            (run / FILE_NAME).unlink(missing_ok=True)
        yield from resume_updates(run, steps=target)
        return
    checkpoint = load_latest(run)
    progress: Any = checkpoint.state["progress"]
    ended = checkpoint.step >= target or goal_reached(progress, config)
    if not ended or progress.get("evaluation_due"):
        yield from resume_updates(run, steps=target)


def _directory(config: Config, run: str | None) -> Path:
    """The directory of the seeds: new, or `run` with seeds of the same config."""
    path = None if run is None else Path(run)
    if path is not None and (path / _FILE).exists():
        saved = Config.from_json(read_text(path / _FILE), source=str(path / _FILE)).flat()
        if changed := [name for name, value in config.flat().items() if saved.get(name) != value]:
            raise ConfigError(f"{path} holds seeds of another config, which differs in "
                              f"{', '.join(changed)}; repeat its command to go on, or choose "
                              "another --run")
        return path
    try:
        path = make_directory(path, folder_of(config, Path("runs")))
        write_atomically(path / _FILE, config.to_json())
    except OSError as error:
        raise ConfigError(f"cannot create {run or 'runs'}: {error.strerror}; choose another --run") from None
    return path


@dataclass(slots=True)
class _Fleet:
    """The processes of the runs, and the scores of those that have ended."""

    config: Config
    directory: Path
    jobs: int
    scores: dict[int, list[Row]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    evaluating: set[int] = field(default_factory=set)
    saved: set[int] = field(default_factory=set)
    """Seeds that a stop has ended."""
    running: dict[int, Process] = field(default_factory=dict)
    shown_at: dict[int, float] = field(default_factory=dict)
    stopped: bool = False

    def train(self, seeds: Sequence[int], stop: Callable[[], bool]) -> None:
        """Train and evaluate all `seeds`, or stop and save them."""
        waiting = deque(seeds)
        while self.running or (waiting and not self.stopped):
            if not self.stopped and stop():
                self.stopped = True
                for seed in self.running:
                    self._stop(seed)
            while waiting and not self.stopped and len(self.running) < self.jobs:
                self._start(waiting.popleft())
            wait([source for each in self.running.values()
                  for source in (each.connection, each.process.sentinel)], 0.2)
            for seed, process in list(self.running.items()):
                for message in process.messages():
                    self._receive(seed, message)

    def _start(self, seed: int) -> None:
        with stop_signals_blocked():
            self.running[seed] = start(get_context("spawn"), f"seed-{seed}", _train_one,
                                       self.config.change(seed=seed),
                                       self.directory / f"seed-{seed}", sys.argv, self.jobs)

    def _stop(self, seed: int) -> None:
        """Ask a run to save; an evaluation has nothing to save and ends at once."""
        process = self.running[seed]
        if seed in self.evaluating:
            self.saved.add(seed)
            process.process.kill()
        else:
            with suppress(OSError):  # it has just ended
                process.connection.send(_STOP)

    def _receive(self, seed: int, message: Any) -> None:
        """Show a message of a run, or take it off the list if its process has ended."""
        if isinstance(message, VantageError):  # also where it has ended well
            self.running.pop(seed).end()
            if seed not in self.scores and seed not in self.saved:
                self.failed.add(seed)
                self._show(seed, f"error: {message}")
        elif isinstance(message, Report):
            self._show(seed, progress_line(self.config, message, {}),
                       final=message.status != "running")
        elif isinstance(message, list):
            self.scores[seed] = message
            self._show(seed,
                       "  ".join(f"{row['checkpoint']} {row['return_mean']:.1f}"
                                 for row in message) + ", done")
        else:
            self._show(seed, message)
            if message == _SAVED:
                self.saved.add(seed)
            if message == _EVALUATING:
                self.evaluating.add(seed)
                if self.stopped:
                    self._stop(seed)

    def _show(self, seed: int, text: str, *, final: bool = True) -> None:
        """Print `text` as the line of a seed, only if 10 s have passed since its last one, or if `final`."""
        if final or monotonic() - self.shown_at.get(seed,
                                                    -LINE_EVERY_SECONDS) >= LINE_EVERY_SECONDS:
            self.shown_at[seed] = monotonic()
            say(f"seed {seed}: {text}")


def _train_one(parent: Connection, config: Config, run: Path, argv: Sequence[str],
               jobs: int) -> None:
    """In its process: train or go on with a run, evaluate it, and send reports, warnings and at last its scores."""
    logging.getLogger("vantage").addHandler(
        MessageHandler(lambda text: parent.send(f"warning: {text}"), logging.WARNING))
    if not _is_done(run):
        # Closing saves the run if it is stopped.
        with closing(updates_to(config.run.steps, run, config, argv, jobs)) as updates:
            stopped = False
            for update in updates:
                if update is not None and update.metrics:
                    parent.send(update)
                if stopped := parent.poll():
                    break
        if stopped:
            parent.send(_SAVED)
            return
    parent.send(_EVALUATING)
    parent.send(score(run))


def _is_done(run: Path) -> bool:
    return (run / "summary.json").exists() and RunDirectory.open(run).read_summary().get("status") == "done"
