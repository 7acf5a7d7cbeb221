"""`vantage search` from its options to its results: checks, processes, tables and plots."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

from vantage.errors import ConfigError, VantageError
from vantage.runs.lock import HeldError, locked
from vantage.system import deaf_to_signals, tied_process
from vantage.tools.display import say
from vantage.tools.search.directory import find_directory
from vantage.tools.search.plan import Plan, Pruner, Sampler, check_start
from vantage.tools.search.space import MAX_POINTS, read_grid, read_space

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options beside config keys."""

    grid: str | None = None
    space: str | None = None
    trials: int | None = None
    seeds: int = 1
    jobs: int = 1
    sampler: Sampler | None = None
    pruner: Pruner | None = None
    """None: asha for a space, none for a grid."""
    reduction: int | None = None
    min_steps: int | None = None
    storage: str | None = None
    run: str | None = None


class Stopping(Protocol):
    """Whether a signal has arrived, and which."""

    signal: int

    def requested(self) -> bool:
        """A signal has arrived."""


def check_libraries() -> None:
    """ConfigError where Optuna is missing."""
    if find_spec("optuna") is None:
        raise ConfigError("vantage search needs optuna, which is missing: pip install 'vantage-rl[search]'")


def search(algo: str, env: str, shared: Mapping[str, Any], options: Options, stop: Stopping) -> int:
    """Run the search, or go on with it; returns the command's exit status."""
    plan, total = make_plan(algo, env, shared, options)
    check_start(plan)
    from vantage.tools.search.study import open_storage

    if options.storage is not None:  # before the directory exists
        open_storage(options.storage, Path())
    directory = find_directory(plan.algo, plan.base.env.id, plan.definition(),
                               None if options.run is None else Path(options.run))
    try:
        with locked(directory):
            return _Search(plan, directory, options).run(total, stop)
    except HeldError:
        raise ConfigError(f"{directory}: this search is running already; stop that one first, or choose another "
                          "--run to search beside it with a --storage that both have") from None


def make_plan(algo: str, env: str, shared: Mapping[str, Any], options: Options) -> tuple[Plan, int]:
    """The plan and its number of trials; ConfigError where options contradict each other or have no effect."""
    if (options.grid is None) == (options.space is None):
        raise ConfigError("what is to be searched? Give --grid FILE.json or --space FILE.json"
                          + (", not both" if options.grid is not None else ""))
    for name, number, most in (("--jobs", options.jobs, 1_024), ("--trials", options.trials, MAX_POINTS)):
        if number is not None and not 1 <= number <= most:
            raise ConfigError(f"{name} {number} is " + ("below 1" if number < 1 else f"above {most:,}"))
    space = read_grid(Path(options.grid)) if options.grid is not None else read_space(Path(options.space or ""))
    if space.points is not None:
        if options.trials is not None:
            raise ConfigError(f"--trials {options.trials}: a grid has as many trials as points; leave it out")
        if options.sampler is not None:
            raise ConfigError(f"--sampler {options.sampler} has no effect on a grid, which runs every point; leave it "
                              "out")
    plan = Plan(algo, env, shared, space, seeds=options.seeds, sampler=options.sampler or "tpe",
                pruner=options.pruner or ("asha" if space.points is None else "none"),
                reduction=3 if options.reduction is None else options.reduction, min_steps=options.min_steps)
    for name, value in (("--min-steps", options.min_steps), ("--reduction", options.reduction),
                        ("--pruner", options.pruner if options.pruner == "asha" else None)):
        if value is not None and len(plan.rungs) == 1:
            raise ConfigError(f"{name} {value} has no effect" + (
                " without pruning; leave it out, or give --pruner asha" if plan.pruner == "none" else
                f": trials of {plan.base.run.steps:,} steps are first compared at their end; give a smaller "
                "--eval-every or more --steps"))
    return plan, options.trials or (30 if space.points is None else len(space.points))


class _Search:
    """The main process: owns the directory, starts the workers, writes the results."""

    def __init__(self, plan: Plan, directory: Path, options: Options) -> None:
        from vantage.tools.search.study import load_study, open_storage

        self.plan, self.directory, self.options = plan, directory, options
        self.storage = open_storage(options.storage, directory)
        self.study: optuna.Study = load_study(plan, self.storage)
        self.workers: dict[Any, BaseProcess] = {}
        self.trial_ids: dict[Any, int] = {}
        self.notes: set[str] = set()
        self.stuck = ""

    def run(self, total: int, stop: Stopping) -> int:
        """Train all trials and write the results; returns the exit status."""
        from vantage.tools.search.study import enqueue

        if not self.study.get_trials(deepcopy=False) and (runs := sorted(self.directory.glob("trial-*"))):
            raise ConfigError(f"{runs[0]} exists, but its storage has no trial; put the storage back, remove "
                              f"{self.directory}/trial-*, or choose another --run")
        enqueue(self.study, self.plan, total)
        say(f"{self.directory}: {self.plan.algo} on {self.plan.base.env.id}, {len(self.rows())} trials of "
            f"{self.plan.base.run.steps:,} steps" + f" on {self.plan.seeds} seeds" * (self.plan.seeds > 1))
        say(f"- value: {self.plan.objective}")
        if len(self.plan.rungs) > 1:
            say(f"- pruned by successive halving at {', '.join(f'{step:,}' for step in self.plan.rungs[:-1])} steps")
        if self.options.trials is not None and self.options.trials < len(self.rows()):
            say(f"- --trials {total}: the study has {len(self.rows())} already; they stay, and none is added")
        self._reclaim()
        try:
            self._train(stop)
        finally:
            self._end_workers()
        return self._finish(stop)

    def rows(self) -> list[FrozenTrial]:
        """All trials by index."""
        from vantage.tools.search.study import distinct

        return distinct(self.study.get_trials(deepcopy=False))

    def _train(self, stop: Stopping) -> None:
        last_line = time.monotonic()
        while not stop.requested() and not self.stuck:
            waiting, running = (sum(trial.state.name == state for trial in self.study.get_trials(deepcopy=False))
                                for state in ("WAITING", "RUNNING"))
            while len(self.workers) < self.options.jobs and len(self.workers) < waiting + len(self.trial_ids):
                self._start_worker()
            if not self.workers and not running and not waiting:
                return
            if not self.workers:
                self._reclaim()
            self._listen(1.0)
            if time.monotonic() - last_line > 30:
                last_line = time.monotonic()
                say(self.summary())

    def _start_worker(self) -> None:
        from vantage.tools.search.study import without_password, work

        context = get_context("spawn")
        here, there = context.Pipe()
        process = tied_process(context, "vantage-search", work, there, self.plan, self.options.storage, self.directory,
                               self.options.jobs, [without_password(word) for word in sys.argv])
        with deaf_to_signals():
            process.start()
        there.close()
        self.workers[here] = process

    def _listen(self, seconds: float) -> None:
        if not self.workers:
            time.sleep(seconds)
            return
        ready: list[Any] = wait(list(self.workers), seconds)
        for connection in ready:
            try:
                kind, content = connection.recv()
            except (EOFError, OSError):
                self._remove(connection)
                continue
            if kind == "trial":
                self.trial_ids[connection] = content
            elif kind == "end":
                self.trial_ids.pop(connection, None)
            elif kind == "stuck":
                self.stuck = content
            elif content not in self.notes:
                self.notes.add(content)
                say(f"- {content}")

    def _remove(self, connection: Any) -> None:
        """Forget a process that has ended; a trial that it left running returns to the queue, or fails for good."""
        from optuna.trial import TrialState

        from vantage.tools.search.study import MAX_KILLS, requeue

        process, trial_id = self.workers.pop(connection), self.trial_ids.pop(connection, None)
        process.join()
        trial = None if trial_id is None else self.storage.get_trial(trial_id)
        if trial is None or trial.state is not TrialState.RUNNING:
            return
        kills = trial.user_attrs.get("kills", 0) + 1
        self.storage.set_trial_user_attr(trial._trial_id, "kills", kills)
        if kills < MAX_KILLS:
            say(f"- trial {trial.number}: its process ended (exit status {process.exitcode}); it goes on from its "
                "checkpoint")
            requeue(self.storage, trial)
            return
        self.storage.set_trial_user_attr(trial._trial_id, "error", f"its process was killed {kills} times (exit status "
                                         f"{process.exitcode}); if memory was short, give fewer --jobs")
        self.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)

    def _reclaim(self) -> None:
        """Requeue the trials that a killed search left running: those of this directory, whose lock is held here."""
        import optuna
        from optuna.trial import TrialState

        from vantage.tools.search.study import requeue

        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if self.options.storage is None or trial.user_attrs.get("owner") == str(self.directory.resolve()):
                requeue(self.storage, trial)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(self.study)  # of other machines

    def _end_workers(self) -> None:
        for connection in self.workers:
            with contextlib.suppress(OSError):  # it has just ended
                connection.send(None)
        while self.workers:
            self._listen(1.0)

    def summary(self) -> str:
        """Counts and the best trial."""
        rows, best = self.rows(), self.best()
        count = {name: sum(trial.state.name == name for trial in rows) for name in ("COMPLETE", "PRUNED", "FAIL")}
        return (f"{sum(count.values())} of {len(rows)} trials ended: {count['COMPLETE']} complete, {count['PRUNED']} "
                f"pruned, {count['FAIL']} failed"
                + (f"; best {best.value:.6g} (trial {best.user_attrs['index']})" if best else ""))

    def best(self) -> FrozenTrial | None:
        """The complete trial with the highest value."""
        return next((trial for trial in ranked(self.rows()) if trial.state.name == "COMPLETE"), None)

    def _finish(self, stop: Stopping) -> int:
        from vantage.tools.search.results import write_best, write_plots, write_tables

        rows, best = ranked(self.rows()), self.best()
        write_tables(self.plan, rows, self.directory)
        if best is not None:
            write_best(self.plan, best, self.directory)
        if self.stuck:
            raise VantageError(f"the search cannot go on: {self.stuck}; once that is mended the same command goes on")
        if stop.signal:
            say(f"stopped by {signal.Signals(stop.signal).name}, trials saved; {self.summary()}. The same command goes "
                "on")
            return 128 + stop.signal
        say(self.summary())
        if best is None:
            errors = {trial.user_attrs.get("error", "no heartbeat") for trial in rows}
            raise VantageError(f"no trial has a value: {len(rows)} of {len(rows)} failed: "
                               f"{'; '.join(sorted(errors)[:3])}. See {self.directory}/results.md. "
                               "Failed trials are not tried again: search anew with "
                               "another --run")
        write_plots(self.plan, self.study, rows, self.directory)
        from vantage.tools.search.study import values_of

        say(f"best: trial {best.user_attrs['index']}, {best.value:.6g}, {self.plan.objective}")
        for name, value in values_of(self.plan, best.params).items():
            say(f"  --{name.replace('_', '-')} {value}")
        say(f"Next: vantage train --from-search {self.directory} --seed {self.plan.base.run.seed + self.plan.seeds}")
        return 0


def ranked(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Complete trials by value, then pruned ones by how far they got; of equals the one that learned sooner."""
    order = {"COMPLETE": 0, "PRUNED": 1, "RUNNING": 2, "WAITING": 3, "FAIL": 4}
    return sorted(trials, key=lambda trial: (
        order[trial.state.name], -(trial.last_step or 0), -(trial.values or [-float("inf")])[0],
        -fmean(trial.intermediate_values.values()) if trial.intermediate_values else 0, trial.number))
