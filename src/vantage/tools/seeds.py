"""`vantage train --seeds`: seeds of one config, each an ordinary run in a process of its own."""

from __future__ import annotations

import logging
import shlex
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from vantage._host.processes import stop_signals_blocked
from vantage._host.terminal import MessageHandler
from vantage.config.config import Config
from vantage.config.flat import flatten, of_run
from vantage.errors import ConfigError, VantageError
from vantage.keys.fields import read_json_object
from vantage.runs.files import read_text, write_atomically
from vantage.runs.meta import read_object, reading
from vantage.runs.names import folder_of, make_directory
from vantage.runtimes.child_processes import Process, start, wait_for
from vantage.tools.child_runs import trusts, updates_to
from vantage.tools.display import say
from vantage.tools.progress_line import ProgressLines
from vantage.tools.scores import EPISODES, Row, score, write_results
from vantage.types import Report

_FILE = "seeds.json"
_STOP = "stop"
_SAVED = "stopped and saved"
_EVALUATING = f"playing {EPISODES} games"


def train_seeds(config: Config, seeds: int, jobs: int, run: str | None,
                stop: Callable[[], bool]) -> Path:
    """Train `seeds` seeds from the config's on and summarise them; returns their directory.

    Up to `jobs` train at a time. The runs are DIR/seed-N in the directory `run`, by default
    runs/ENV/ALGO-N. If `run` holds unfinished seeds of the same config, they continue. Once `stop`
    returns True, all runs are saved and nothing is summarised. VantageError if a seed fails, also
    to save itself.
    """
    directory = _directory(config, run)
    numbers = range(config.run.seed, config.run.seed + seeds)
    say(f"{directory}: {seeds} seeds, {min(jobs, seeds)} at a time")
    fleet = _Fleet(config, directory, jobs)
    fleet.train(numbers, stop)
    if fleet.scores and not fleet.stopped:
        runs = []
        rows = []
        for seed, own_rows in sorted(fleet.scores.items()):
            runs.append(directory / f"seed-{seed}")
            rows += own_rows
        command = shlex.join(["vantage", *sys.argv[1:]])
        say(write_results(directory, runs, rows, command=command))
    if fleet.failed:
        raise VantageError(f"{len(fleet.failed)} of {seeds} seeds failed: see their messages "
                           f"above; the same command with --run {shlex.quote(str(directory))} "
                           "tries them again")
    return directory


def _directory(config: Config, run: str | None) -> Path:
    """The directory of the seeds: new, or `run` with seeds of the same config."""
    path = None if run is None else Path(run)
    if path is not None and (path / _FILE).exists():
        with reading(path / _FILE):
            saved = of_run(_flat(read_text(path / _FILE), str(path / _FILE)))
        here = _flat(config.to_json(), _FILE)
        changed = [name for name, value in here.items() if saved.get(name) != value]
        if changed:
            raise ConfigError(f"{path} holds seeds of another config, which differs in "
                              f"{', '.join(changed)}; repeat its command to go on, or choose "
                              "another --run")
        return path
    try:
        path = make_directory(path, folder_of(config, Path("runs")), config)
        write_atomically(path / _FILE, config.to_json())
    except OSError as error:
        raise ConfigError(f"cannot create {run or 'runs'}: {error.strerror}; choose another --run"
                          ) from None
    return path


def _flat(text: str, source: str) -> dict[str, Any]:
    """The flat values of a config in JSON; the code that it names is not imported."""
    return flatten(read_json_object(text, source=source), source=source)


class _Fleet:
    """The processes of the runs, and the scores of those that have ended."""

    def __init__(self, config: Config, directory: Path, jobs: int) -> None:
        self.config = config
        self.directory = directory
        self.jobs = jobs
        self.running: dict[int, Process] = {}
        self.lines: dict[int, ProgressLines] = {}
        self.evaluating: set[int] = set()
        self.scores: dict[int, list[Row]] = {}
        self.failed: set[int] = set()
        self.saved: set[int] = set()
        """Seeds that a stop has ended."""
        self.stopped = False

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
            wait_for(self.running.values(), 0.2)  # a short time: `stop` may come meanwhile
            for seed, process in list(self.running.items()):
                for message in process.messages():
                    self._receive(seed, message)

    def _start(self, seed: int) -> None:
        config = self.config.change(seed=seed)
        run = self.directory / f"seed-{seed}"
        self.lines[seed] = ProgressLines(config)
        with stop_signals_blocked():
            self.running[seed] = start(get_context("spawn"), run.name, _train_one, config, run,
                                       sys.argv, self.jobs)

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
        """Show a message of a run; remove the run if its process has ended."""
        if isinstance(message, VantageError):  # also at the end of a run that succeeded
            self.running.pop(seed).end()
            if seed not in self.scores and seed not in self.saved:
                self.failed.add(seed)
                self._show(seed, f"error: {message}")
        elif isinstance(message, Report):
            line = self.lines[seed].line_if_due(message)
            if line is not None:
                self._show(seed, line)
        elif isinstance(message, list):
            self.scores[seed] = message
            means = [f"{row['checkpoint']} {row['return_mean']:.1f}" for row in message]
            self._show(seed, f"{'  '.join(means)}, done")
        else:
            self._show(seed, message)
            if message == _SAVED:
                self.saved.add(seed)
            if message == _EVALUATING:
                self.evaluating.add(seed)
                if self.stopped:
                    self._stop(seed)

    def _show(self, seed: int, text: str) -> None:
        say(f"seed {seed}: {text}")


def _train_one(parent: Connection, config: Config, run: Path, argv: Sequence[str],
               jobs: int) -> None:
    """Process of one seed: train or continue its run, evaluate it, and send its scores.

    Before them it sends reports and warnings.
    """
    logging.getLogger("vantage").addHandler(
        MessageHandler(lambda text: parent.send(f"warning: {text}"), logging.WARNING))
    if not _is_done(run):
        # Closing saves the run if it is stopped.
        with closing(updates_to(config.run.steps, run, config, argv, jobs)) as updates:
            stopped = False
            for update in updates:
                if update is not None and update.metrics:
                    parent.send(update)
                stopped = parent.poll()
                if stopped:
                    break
        if stopped:
            parent.send(_SAVED)
            return
    trusts(config, run)  # also a seed that was trained before
    parent.send(_EVALUATING)
    parent.send(score(run))


def _is_done(run: Path) -> bool:
    summary = run / "summary.json"
    return summary.exists() and read_object(summary).get("status") == "done"
