"""A process of a search, which trains trials in run directories that it can resume."""

from __future__ import annotations

import errno
import logging
import sys
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import current_process
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean

import optuna
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from vantage._host.seeding import derive_seed
from vantage.config.config import Config
from vantage.errors import VantageError
from vantage.runs.lock import HeldError
from vantage.runs.meta import read_object
from vantage.runs.metrics import read_metrics
from vantage.tools.child_runs import ForeignRunError, updates_to
from vantage.tools.search.plan import Plan
from vantage.tools.search.study import distinct, in_state, load_study, open_storage

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@dataclass(frozen=True, slots=True)
class Worker:
    """Trains trials; as a function, the objective of the study.

    It ends on a stop and on errors of the machine. The main process then requeues its trial.
    """

    plan: Plan
    url: str | None
    directory: Path
    jobs: int
    stop: Connection
    verbose: bool = True
    """Log a line for each trial."""

    def work(self) -> None:
        """Train waiting trials until none is left or the other end of `stop` is closed."""
        logging.basicConfig(format="- %(message)s")
        study = load_study(self.plan, open_storage(self.url, self.directory))
        if self.verbose:
            optuna.logging.set_verbosity(optuna.logging.INFO)

        def stop_without_trials(study: optuna.Study, _: object) -> None:
            if not in_state(study, TrialState.WAITING):
                study.stop()

        if in_state(study, TrialState.WAITING):
            study.optimize(self, catch=(Exception,), callbacks=[stop_without_trials])

    def __call__(self, trial: optuna.Trial) -> float:
        if trial.number not in {other.number for other in distinct(trial.study)}:
            raise VantageError("another process has taken the last trial, or enqueued it too")
        trial.set_user_attr("worker", current_process().name)
        try:
            return self._train_trial(trial)
        except optuna.TrialPruned:
            raise
        except Exception as error:
            if is_of_machine(error):
                raise SystemExit(str(error)) from None
            trial.set_user_attr("error", f"{type(error).__name__}: {error}")
            raise

    def _train_trial(self, trial: optuna.Trial) -> float:
        """Train all seeds from rung to rung until the end, or until the trial is pruned."""
        plan = self.plan
        # A sampler for each trial: one for each process would repeat its first draws after every
        # start.
        sampler_seed = derive_seed(plan.base.run.seed, "search", trial.user_attrs["index"])
        trial.study.sampler = TPESampler(seed=sampler_seed)
        values = plan.suggest(trial)
        folder = self._folder(trial)
        compared = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        last = plan.rungs[-1]
        for rung in plan.rungs:
            if rung in compared and rung != last:  # before a kill or a stop
                continue
            scores: dict[int, float | None] = {}
            steps = 0
            for seed in plan.seeds:
                run = folder / f"seed-{seed}"
                scores[seed] = self._train_run(run, plan.config(values, seed), rung)
                steps += read_object(run / "summary.json")["steps"]
            trial.set_user_attr("scores", scores)
            trial.set_user_attr("steps", steps)
            numbers = [score for score in scores.values() if score is not None]
            if len(numbers) < len(scores):
                continue
            value = fmean(numbers)
            if rung not in compared:
                trial.report(value, rung)
            if rung == last:
                return value
            if trial.should_prune():
                raise optuna.TrialPruned
        raise VantageError(f"no {plan.metric} in {last:,} steps; give more --steps")

    def _folder(self, trial: optuna.Trial) -> Path:
        """The folder of the trial's runs; a new one if this machine cannot read the former."""
        if "runs" in trial.user_attrs:
            folder = Path(trial.user_attrs["runs"])
            if folder.is_dir():
                return folder
        folder = self.directory.resolve() / f"trial-{trial.user_attrs['index']:03d}"
        trial.set_user_attr("runs", str(folder))
        return folder

    def _train_run(self, run: Path, config: Config, target: int) -> float | None:
        """Train a run up to `target` steps from where it is; the newest value of the metric."""
        config = config.change(steps=target, schedule_steps=config.schedule_steps)
        argv = sys.argv
        if self.url:  # which may hold a password
            argv = [word.replace(self.url, "URL") for word in argv]
        # Closing saves the run if it is stopped.
        with closing(updates_to(target, run, config, argv, self.jobs)) as updates:
            stopped = any(self.stop.poll() for _ in updates)
        if stopped:
            raise SystemExit
        for line in reversed(read_metrics(run)):
            value = line.get(self.plan.metric)
            if value is not None:
                return value
        return None


def is_of_machine(error: BaseException | None) -> bool:
    """Whether the trial itself is not the cause: the disk is, or a run is locked or not one's own.

    A killed process that still ends holds such a lock. Without the key, a run is someone else's.
    """
    while error is not None:
        if isinstance(error, HeldError | ForeignRunError):
            return True
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
