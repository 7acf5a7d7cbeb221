"""`vantage train --seeds`: several seeds of one config, each an ordinary run in a process of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import signal
import sys
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from vantage.config import Config
from vantage.config_groups import Hogwild, Ray
from vantage.errors import ConfigError, VantageError
from vantage.machine import threads_of
from vantage.processes import deaf_to_signals, tied_process
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.directory import RunDirectory, directory_name, make_directory
from vantage.runs.files import read_text, write_atomically
from vantage.runtimes.progress import goal_reached
from vantage.system import available_cores
from vantage.tools.display import LINE_EVERY_SECONDS, progress_line, say
from vantage.tools.scores import EPISODES, Row, score, write_results
from vantage.training import resume_updates, train_updates
from vantage.types import Report

_FILE = "seeds.json"
_STOP, _EVALUATING = "stop", f"playing {EPISODES} games"


class Stopping(Protocol):
    """Whether a signal has arrived, and which."""

    signal: int

    def requested(self) -> bool:
        """A signal has arrived."""


def train_seeds(config: Config, seeds: int, jobs: int, run: str | None, stop: Stopping) -> int:
    """Train `seeds` seeds from the config's on, up to `jobs` at a time, and summarise them; returns the exit status.

    The runs are DIR/seed-N in the directory `run`, by default runs/ENV/ALGO-N. If `run` holds unfinished seeds of the
    same config, they go on. A stop saves all runs.
    """
    directory = _directory(config, run)
    numbers = range(config.run.seed, config.run.seed + seeds)
    say(f"{directory}: {seeds} seeds, {min(jobs, seeds)} at a time")
    with _Lines(numbers, stop) as lines:
        fleet = _Fleet(share_cores(config, jobs) if jobs > 1 else config, directory, jobs, lines)
        fleet.train(numbers, stop)
    command = shlex.join(["vantage", *sys.argv[1:]])
    if stop.signal:
        again = command if run is not None else f"{command} --run {shlex.quote(str(directory))}"
        say(f"stopped by {signal.Signals(stop.signal).name}, all runs saved; go on with: {again}")
        return 128 + stop.signal
    if fleet.scores:
        done = sorted(fleet.scores)
        text = write_results(directory, [directory / f"seed-{seed}" for seed in done],
                             [row for seed in done for row in fleet.scores[seed]], command=command)
        say(f"{text}\nin {directory}: curve.png and curve.csv, the mean with its 95% bootstrap interval; scores.csv; "
            "protocol.json; table.md")
    if len(fleet.scores) < seeds:
        raise VantageError(f"{seeds - len(fleet.scores)} of {seeds} seeds failed: see their messages above; the same "
                           f"command with --run {shlex.quote(str(directory))} tries them again")
    return 0


def share_cores(config: Config, jobs: int) -> Config:
    """`config` with its share of the cores where `jobs` runs train at a time; what it sets itself stays."""
    if isinstance(config.runtime, Ray):
        from vantage.runtimes.ray_cluster import share

        return config.change(num_workers=config.runtime.num_workers or share(config, jobs))
    if isinstance(config.runtime, Hogwild):
        return config.change(num_workers=config.runtime.num_workers or max(1, available_cores() // jobs))
    return config.change(threads=config.runtime.threads or threads_of(config, jobs))


def updates_to(target: int, run: Path, config: Config, argv: Sequence[str]) -> Generator[Report | None]:
    """The updates that a run lacks up to `target` steps, from its newest checkpoint; none if it is done."""
    if newest_step(run) is None:
        if run.exists():  # killed before its first checkpoint
            shutil.rmtree(run)
        yield from train_updates(config, run=run, argv=argv)
        return
    directory, checkpoint = RunDirectory.open(run), load_latest(run)
    progress: Any = checkpoint.state["progress"]
    ended = checkpoint.step >= target or goal_reached(progress, config)
    if not ended or progress.get("evaluation_due"):
        yield from resume_updates(run, steps=target)
    elif directory.read_summary().get("status") != "done" and directory.config.run.steps <= target:
        # Killed between its last checkpoint and the metrics of that step: train the last part again.
        shutil.rmtree(checkpoint.path)
        yield from updates_to(target, run, config, argv)


def _directory(config: Config, run: str | None) -> Path:
    """The directory of the seeds: new, or `run` with seeds of the same config."""
    path = None if run is None else Path(run)
    if path is not None and (path / _FILE).exists():
        saved = Config.from_json(read_text(path / _FILE), source=str(path / _FILE)).flat()
        if changed := [name for name, value in config.flat().items() if saved.get(name) != value]:
            raise ConfigError(f"{path} holds seeds of another config, which differs in {', '.join(changed)}; repeat "
                              "its command to go on, or choose another --run")
        return path
    try:
        path = make_directory(path, Path("runs") / directory_name(config.env.id) / config.algo.rpartition(":")[2])
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
    lines: _Lines
    scores: dict[int, list[Row]] = field(default_factory=dict)
    running: dict[Connection, tuple[int, BaseProcess]] = field(default_factory=dict)
    stopped: bool = False

    def train(self, seeds: Sequence[int], stop: Stopping) -> None:
        """Train and evaluate all `seeds`, or stop and save them."""
        waiting = deque(seeds)
        while self.running or (waiting and not self.stopped):
            if not self.stopped and stop.requested():
                self._stop()
            while waiting and not self.stopped and len(self.running) < self.jobs:
                self._start(waiting.popleft())
            for ready in connection.wait(list(self.running), timeout=0.2):
                assert isinstance(ready, Connection)
                self._receive(ready)

    def _start(self, seed: int) -> None:
        ours, theirs = get_context("spawn").Pipe()
        config = self.config.change(seed=seed)
        process = tied_process(get_context("spawn"), f"seed-{seed}", _train_one, config,
                               self.directory / f"seed-{seed}", sys.argv, theirs)
        with deaf_to_signals():
            process.start()
        theirs.close()
        self.running[ours] = seed, process

    def _receive(self, ready: Connection) -> None:
        """Show a message of a run, or take it off the list if its process has ended."""
        seed, process = self.running[ready]
        try:
            message = ready.recv()
        except (EOFError, OSError):
            process.join()
            del self.running[ready]
            if process.exitcode and not (self.stopped and self.lines.last[seed] == _EVALUATING):
                self.lines.show(seed, f"failed (exit status {process.exitcode})")
            return
        if isinstance(message, list):
            self.scores[seed] = message
            message = "  ".join(f"{row['checkpoint']} {row['return_mean']:.1f}" for row in message) + ", done"
        if isinstance(message, Report):
            self.lines.show(seed, progress_line(self.config, message, {}), final=message.status != "running")
        else:
            self.lines.show(seed, message)

    def _stop(self) -> None:
        """Ask the runs to save; an evaluation has nothing to save and ends at once."""
        self.stopped = True
        for ours, (seed, process) in self.running.items():
            if self.lines.last[seed] == _EVALUATING:
                process.kill()
            with contextlib.suppress(OSError):  # it has just ended
                ours.send(_STOP)


def _train_one(config: Config, run: Path, argv: Sequence[str], parent: Connection) -> None:
    """In its process: train or go on with a run, evaluate it, and send reports, warnings and at last its scores."""
    logging.getLogger("vantage").addHandler(_Sender(parent))
    try:
        if not _is_done(run):
            with closing(updates_to(config.run.steps, run, config, argv)) as updates:  # saves the run if it is stopped
                for update in updates:
                    if update is not None and update.metrics:
                        parent.send(update)
                    if parent.poll():
                        return
        parent.send(_EVALUATING)
        parent.send(score(run))
    except VantageError as error:
        parent.send(f"error: {error}")
        raise SystemExit(error.status) from None


def _is_done(run: Path) -> bool:
    return (run / "summary.json").exists() and RunDirectory.open(run).read_summary().get("status") == "done"


class _Sender(logging.Handler):
    """Sends warnings to the main process."""

    def __init__(self, parent: Connection) -> None:
        super().__init__(logging.WARNING)
        self.parent = parent

    def emit(self, record: logging.LogRecord) -> None:
        """Send the message without its logger and level."""
        self.parent.send(f"warning: {self.format(record)}")


class _Lines:
    """The newest line of each seed: a live table on a terminal, otherwise printed, progress every 10 s."""

    def __init__(self, seeds: Sequence[int], stop: Any) -> None:
        self.last = dict.fromkeys(seeds, "waiting")
        self.shown_at = dict.fromkeys(seeds, -LINE_EVERY_SECONDS)
        console = Console(force_terminal=sys.stdout.isatty())
        self.live = Live(console=console, get_renderable=self._table, refresh_per_second=2) if console.is_terminal \
            else None
        stop.display = self

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                self.live.stop()

    def show(self, seed: int, text: str, *, final: bool = True) -> None:
        """Show `text` as the line of a seed; printed only if 10 s have passed since its last one, or if `final`."""
        self.last[seed] = text
        if self.live is None and (final or monotonic() - self.shown_at[seed] >= LINE_EVERY_SECONDS):
            self.shown_at[seed] = monotonic()
            say(f"seed {seed}: {text}")

    def stopping(self, text: str) -> None:
        """Show that a signal has arrived. Called by its handler, at any point of the program."""
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode())

    def _table(self) -> Text:
        return Text("\n".join(f"seed {seed}: {text}" for seed, text in self.last.items()), overflow="ellipsis",
                    no_wrap=True)
