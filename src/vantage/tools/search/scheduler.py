"""The main process of a search: it starts the workers, follows them and writes the results."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import warnings
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean
from typing import cast

import optuna
from optuna.trial import FrozenTrial, TrialState

from vantage.errors import ConfigError, VantageError
from vantage.system import deaf_to_signals, tied_process
from vantage.tools.display import say
from vantage.tools.search.command import Stopping
from vantage.tools.search.plan import Plan
from vantage.tools.search.results import write_best, write_plots, write_tables
from vantage.tools.search.study import (
    MAX_KILLS,
    distinct,
    enqueue,
    load_study,
    open_storage,
    requeue,
    values_of,
    without_password,
)
from vantage.tools.search.worker import work

_SUMMARY_EVERY_SECONDS = 30


class Scheduler:
    """One search in `directory`, whose lock the caller holds."""

    def __init__(self, plan: Plan, directory: Path, url: str | None, jobs: int, stop: Stopping) -> None:
        self.plan, self.directory, self.url, self.jobs, self.stop = plan, directory, url, jobs, stop
        self.storage = open_storage(url, directory)
        self.study = load_study(plan, self.storage)
        self.workers: dict[Connection, BaseProcess] = {}
        self.trial_ids: dict[Connection, int] = {}
        self.notes: set[str] = set()
        self.disk_error = ""

    def run(self, total: int) -> int:
        """Train `total` trials and write the results; returns the exit status."""
        if not self._trials() and (runs := sorted(self.directory.glob("trial-*"))):
            raise ConfigError(f"{runs[0]} exists, but its storage has no trial; put the storage back, remove "
                              f"{self.directory}/trial-*, or choose another --run")
        enqueue(self.study, self.plan, total)
        rows = distinct(self._trials())
        say(f"{self.directory}: {self.plan.algo} on {self.plan.base.env.id}, {len(rows)} trials of "
            f"{self.plan.base.run.steps:,} steps" + f" on {self.plan.seeds} seeds" * (self.plan.seeds > 1))
        say(f"- value: {self.plan.objective}")
        if len(self.plan.rungs) > 1:
            say(f"- pruned by successive halving at {', '.join(f'{step:,}' for step in self.plan.rungs[:-1])} steps")
        if total < len(rows):
            say(f"- --trials {total}: the study has {len(rows)} already; they stay, and none is added")
        self._reclaim()
        try:
            self._train()
        finally:
            self._end_workers()
        return self._finish()

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states or None)

    def _train(self) -> None:
        """Run up to `jobs` workers until no trial waits or runs, here or on another machine."""
        summary_time = time.monotonic()
        while not self.stop.requested() and not self.disk_error:
            waiting, running = len(self._trials(TrialState.WAITING)), len(self._trials(TrialState.RUNNING))
            while len(self.workers) < self.jobs and len(self.workers) < waiting + len(self.trial_ids):
                self._start_worker()
            if not self.workers:
                if not running and not waiting:
                    return
                self._reclaim()
            self._receive(1.0)
            if time.monotonic() - summary_time > _SUMMARY_EVERY_SECONDS:
                summary_time = time.monotonic()
                say(_summary(ranked(distinct(self._trials()))))

    def _start_worker(self) -> None:
        context = get_context("spawn")
        here, there = context.Pipe()
        process = tied_process(context, "vantage-search", work, there, self.plan, self.url, self.directory, self.jobs,
                               [without_password(word) for word in sys.argv])
        with deaf_to_signals():
            process.start()
        there.close()
        self.workers[here] = process

    def _receive(self, seconds: float) -> None:
        """Handle the messages of workers that arrive within `seconds`."""
        if not self.workers:
            time.sleep(seconds)
        for connection in cast("list[Connection]", wait(list(self.workers), seconds)):
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                self._remove(connection)
                continue
            if kind == "trial":
                self.trial_ids[connection] = content
            elif kind == "end":
                self.trial_ids.pop(connection, None)
            elif kind == "disk error":
                self.disk_error = content
            elif content not in self.notes:
                self.notes.add(content)
                say(f"- {content}")

    def _remove(self, connection: Connection) -> None:
        """Remove a worker that has ended. A trial that it left running returns to the queue, `MAX_KILLS` times."""
        process, trial_id = self.workers.pop(connection), self.trial_ids.pop(connection, None)
        process.join()
        if trial_id is None or (trial := self.storage.get_trial(trial_id)).state is not TrialState.RUNNING:
            return
        kills = trial.user_attrs.get("kills", 0) + 1
        self.storage.set_trial_user_attr(trial_id, "kills", kills)
        if kills < MAX_KILLS:
            say(f"- trial {trial.number}: its process ended (exit status {process.exitcode}); it resumes from its "
                "checkpoint")
            requeue(self.storage, trial)
            return
        self.storage.set_trial_user_attr(trial_id, "error", f"its process was killed {kills} times (exit status "
                                         f"{process.exitcode}); if memory was short, give fewer --jobs")
        self.storage.set_trial_state_values(trial_id, TrialState.FAIL)

    def _reclaim(self) -> None:
        """Requeue the trials that a killed search left running: those of this directory, whose lock is held here."""
        for trial in self._trials(TrialState.RUNNING):
            if self.url is None or trial.user_attrs.get("owner") == str(self.directory.resolve()):
                requeue(self.storage, trial)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(self.study)  # of other machines

    def _end_workers(self) -> None:
        for connection in self.workers:
            with contextlib.suppress(OSError):  # it has just ended
                connection.send(None)
        while self.workers:
            self._receive(1.0)

    def _finish(self) -> int:
        rows = ranked(distinct(self._trials()))
        best, plan = _best(rows), self.plan
        write_tables(plan, rows, self.directory)
        if best is not None:
            write_best(plan, best, self.directory)
        if self.disk_error:
            raise VantageError(f"the search cannot go on: {self.disk_error}; repair that, then repeat the command")
        if self.stop.signal:
            say(f"stopped by {signal.Signals(self.stop.signal).name}, trials saved; {_summary(rows)}. The same command "
                "goes on")
            return 128 + self.stop.signal
        say(_summary(rows))
        if best is None:
            errors = sorted({trial.user_attrs.get("error", "no heartbeat") for trial in rows})
            raise VantageError(f"no trial has a value: {len(rows)} of {len(rows)} failed: {'; '.join(errors[:3])}. See "
                               f"{self.directory}/results.md. Failed trials are not tried again: search anew with "
                               "another --run")
        write_plots(plan, self.study, rows, self.directory)
        say(f"best: trial {best.user_attrs['index']}, {best.value:.6g}, {plan.objective}")
        for name, value in values_of(plan, best.params).items():
            say(f"  --{name.replace('_', '-')} {value}")
        say(f"Next: vantage train --from-search {self.directory} --seed {plan.base.run.seed + plan.seeds}")
        return 0


def ranked(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Complete trials by value, then pruned ones by steps; of equal trials the one that learned sooner comes first."""
    order = {"COMPLETE": 0, "PRUNED": 1, "RUNNING": 2, "WAITING": 3, "FAIL": 4}
    return sorted(trials, key=lambda trial: (
        order[trial.state.name], -(trial.last_step or 0), -(trial.values or [-float("inf")])[0],
        -fmean(trial.intermediate_values.values()) if trial.intermediate_values else 0, trial.number))


def _best(rows: list[FrozenTrial]) -> FrozenTrial | None:
    """The complete trial with the highest value, of `ranked` rows."""
    return rows[0] if rows and rows[0].state is TrialState.COMPLETE else None


def _summary(rows: list[FrozenTrial]) -> str:
    """Counts and the best trial, of `ranked` rows."""
    best = _best(rows)
    count = {name: sum(trial.state.name == name for trial in rows) for name in ("COMPLETE", "PRUNED", "FAIL")}
    return (f"{sum(count.values())} of {len(rows)} trials ended: {count['COMPLETE']} complete, {count['PRUNED']} "
            f"pruned, {count['FAIL']} failed"
            + (f"; best {best.value:.6g} (trial {best.user_attrs['index']})" if best else ""))
