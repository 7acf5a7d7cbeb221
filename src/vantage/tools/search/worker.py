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
from vantage.runs.directory import RunDirectory
from vantage.runs.lock import HeldError
from vantage.runs.metrics import read_metrics
from vantage.tools.search.plan import Plan
from vantage.tools.search.study import distinct, in_state, load_study, open_storage
from vantage.tools.seeds import updates_to


@dataclass(frozen=True, slots=True)
class Worker:
    """Trains trials; as a function, the objective of the study.

    It ends on a stop and where the machine is at fault, and leaves its trial running, for the main
    process to requeue.
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
        plan, index = self.plan, trial.user_attrs["index"]
        # A sampler for each trial: one for each process would repeat its first draws after every
        # start.
        trial.study.sampler = TPESampler(seed=derive_seed(plan.base.run.seed, "search", index))
        values = plan.suggest(trial)
        folder = Path(trial.user_attrs.get("runs", ""))
        # New, or on a disk that this machine cannot read.
        if "runs" not in trial.user_attrs or not folder.is_dir():
            folder = self.directory.resolve() / f"trial-{index:03d}"
            trial.set_user_attr("runs", str(folder))
        runs = {seed: folder / f"seed-{seed}" for seed in plan.seeds}
        compared = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        for rung in plan.rungs:
            if rung in compared and rung != plan.rungs[-1]:  # before a kill or a stop
                continue
            scores = {seed: self._train_run(run, plan.config(values, seed), rung)
                      for seed, run in runs.items()}
            trial.set_user_attr("scores", scores)
            trial.set_user_attr("steps",
                                sum(RunDirectory.open(run).read_summary()["steps"]
                                    for run in runs.values()))
            if None in scores.values():
                continue
            value = fmean(score for score in scores.values() if score is not None)
            if rung not in compared:
                trial.report(value, rung)
            if rung == plan.rungs[-1]:
                return value
            if trial.should_prune():
                raise optuna.TrialPruned
        raise VantageError(f"no {plan.metric} in {plan.rungs[-1]:,} steps; give more --steps")

    def _train_run(self, run: Path, config: Config, target: int) -> float | None:
        """Train a run up to `target` steps from where it is; the newest value of the metric."""
        config = config.change(steps=target, schedule_steps=config.schedule_steps)
        # No password.
        argv = [word.replace(self.url, "URL") if self.url else word for word in sys.argv]
        # Saves the run if it is stopped.
        with closing(updates_to(target, run, config, argv, self.jobs)) as updates:
            stopped = any(self.stop.poll() for _ in updates)
        if stopped:
            raise SystemExit
        return next((value for record in reversed(read_metrics(run))
                     if (value := record.get(self.plan.metric)) is not None), None)


def is_of_machine(error: BaseException | None) -> bool:
    """Whether the disk is the cause, so that other trials would fail as well, or a killed process that still ends."""
    if isinstance(error, HeldError) or (
            isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)):
        return True
    return error is not None and is_of_machine(error.__cause__ or error.__context__)
