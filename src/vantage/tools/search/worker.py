"""A worker process of a search: it trains one trial after another, in run directories that it can resume."""

from __future__ import annotations

import errno
import logging
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from vantage.config import Config
from vantage.config_groups import Hogwild
from vantage.errors import ConfigError, VantageError
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.directory import RunDirectory
from vantage.runs.lock import HeldError, locked
from vantage.runs.metrics import read_metrics
from vantage.runtimes.progress import goal_reached
from vantage.seeding import derive_seed
from vantage.system import available_cores
from vantage.tools.search.plan import Plan
from vantage.tools.search.space import Choices, Value
from vantage.tools.search.study import distinct, load_study, open_storage, requeue, values_of
from vantage.training import resume_updates, train_updates

_LOCK_SECONDS = 60.0
"""How long to wait for a killed search's process to release a run."""
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def work(connection: Connection, plan: Plan, url: str | None, directory: Path, jobs: int, argv: Sequence[str]) -> None:
    """Train waiting trials until none is left. A message on `connection`, or its end, means stop."""
    log = logging.getLogger("vantage")
    log.addHandler(_MessageSender(connection))
    log.setLevel(logging.INFO)
    storage = open_storage(url, directory)
    study = load_study(plan, storage)
    worker = _Worker(connection, plan, storage, directory, jobs, argv)
    while not connection.poll() and study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.optimize(worker.objective, n_trials=1, catch=(Exception,))
    connection.send(("end", 0))


class _MessageSender(logging.Handler):
    """Sends log messages to the search's main process."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        self._connection.send(("note", self.format(record)))


class _Worker:
    """Trains one trial after another in this process."""

    def __init__(self, connection: Connection, plan: Plan, storage: RDBStorage, directory: Path, jobs: int,
                 argv: Sequence[str]) -> None:
        self.connection, self.plan, self.storage, self.directory = connection, plan, storage, directory
        self.jobs, self.argv = jobs, argv

    def objective(self, trial: optuna.Trial) -> float:
        """The value of a trial; on a stop, or a disk error, the trial returns to the queue and the process ends."""
        if trial.number not in {other.number for other in distinct(trial.study.get_trials(deepcopy=False))}:
            raise VantageError("another machine enqueued the same trial")
        self.connection.send(("trial", trial._trial_id))
        trial.set_user_attr("owner", str(self.directory.resolve()))
        try:
            return self._train_trial(trial)
        except optuna.TrialPruned:
            raise
        except Exception as error:
            if is_disk_error(error):
                requeue(self.storage, trial)
                self.connection.send(("disk error", describe(error)))
                raise SystemExit(0) from None
            trial.set_user_attr("error", describe(error))
            raise

    def _train_trial(self, trial: optuna.Trial) -> float:
        """Train all seeds from rung to rung until the end, or until the trial is pruned."""
        values, plan = self._suggest(trial), self.plan
        runs = Path(trial.user_attrs.get("runs", ""))
        if "runs" not in trial.user_attrs or not runs.is_dir():  # new, or on a disk that this machine cannot read
            runs = self.directory.resolve() / f"trial-{trial.user_attrs['index']:03d}"
            trial.set_user_attr("runs", str(runs))
        compared = self.storage.get_trial(trial._trial_id).intermediate_values
        value = None
        for rung in plan.rungs:
            last = rung == plan.rungs[-1]
            if rung in compared and not last:
                continue
            paths = {seed: runs / f"seed-{seed}" for seed in plan.trial_seeds}
            scores = {seed: self._train_run(trial, path, plan.config(values, seed), rung)
                      for seed, path in paths.items()}
            trial.set_user_attr("steps", sum(int(RunDirectory.open(path).read_summary()["steps"])
                                             for path in paths.values()))
            trial.set_user_attr("scores", {str(seed): score for seed, score in scores.items()})
            finite = [score for score in scores.values() if score is not None]
            value = fmean(finite) if len(finite) == len(scores) else None
            if value is not None and rung not in compared:
                trial.report(value, rung)
                if not last and trial.should_prune():
                    raise optuna.TrialPruned
        if value is None:
            raise VantageError(f"no {plan.metric} in {plan.rungs[-1]:,} steps: no game has ended; give more --steps")
        return value

    def _suggest(self, trial: optuna.Trial) -> dict[str, Value]:
        # A sampler for each trial: one for each process would repeat its first draws after every start.
        seed = derive_seed(self.plan.base.run.seed, "search", trial.user_attrs["index"])
        trial.study.sampler = RandomSampler(seed=seed) if self.plan.sampler == "random" else TPESampler(seed=seed)
        params: dict[str, Any] = {}
        for name, domain in self.plan.space.domains.items():
            if isinstance(domain, Choices):
                params[name] = trial.suggest_categorical(name, domain.values)
            elif domain.whole:
                params[name] = trial.suggest_int(name, int(domain.low), int(domain.high), log=domain.log,
                                                 step=int(domain.step or 1))
            else:
                params[name] = trial.suggest_float(name, domain.low, domain.high, log=domain.log, step=domain.step)
        return values_of(self.plan, params)

    def _train_run(self, trial: optuna.Trial, run: Path, config: Config, target: int) -> float | None:
        """Train a run up to `target` steps from where it is; the newest value of the metric."""
        _wait_until_free(run)
        state = run_state(run, config, target)
        if state != "done":
            if state == "new":
                key = "num_workers" if isinstance(config.runtime, Hogwild) else "threads"
                cores = max(1, available_cores() // self.jobs)
                config = config.change(**{key: getattr(config.runtime, key) or cores}, steps=target,
                                       schedule_steps=config.run.schedule_steps or config.run.steps)
                updates = train_updates(config, run=run, argv=self.argv)
            else:
                updates = resume_updates(run, steps=target)
            with closing(updates):  # saves the run if it is stopped
                for _ in updates:
                    if self.connection.poll():
                        break
        if self.connection.poll():
            requeue(self.storage, trial)
            raise SystemExit(0)
        return next((value for record in reversed(read_metrics(run))
                     if (value := record.get(self.plan.metric)) is not None), None)


def run_state(run: Path, config: Config, target: int) -> str:
    """"new", "begun" or "done" up to `target`. Incomplete files of a killed process are removed."""
    if newest_step(run) is None:
        if run.exists():  # killed before its first checkpoint
            shutil.rmtree(run)
        return "new"
    directory = RunDirectory.open(run)
    machine = {"steps", "schedule_steps", "device", "threads", "num_workers"}
    former = directory.config.flat()
    different = [f"{key}={former.get(key)!r} instead of {value!r}" for key, value in config.flat().items()
                 if key not in machine and former.get(key) != value]
    if different:
        raise ConfigError(f"{run} is another run, with {', '.join(different)}; move it away, or search with another "
                          "--run")
    checkpoint = load_latest(run)
    progress: Any = checkpoint.state["progress"]
    ended = checkpoint.step >= target or goal_reached(progress, config)
    if not ended or progress.get("evaluation_due"):
        return "begun"
    if directory.read_summary().get("status") == "done":
        return "done"
    # Killed between its last checkpoint and the metrics of that step: train the last part again.
    shutil.rmtree(sorted((run / "checkpoints").glob("step-*"))[-1])
    return run_state(run, config, target)


def _wait_until_free(run: Path) -> None:
    """Wait until the process of a killed search has released the run."""
    deadline = time.monotonic() + _LOCK_SECONDS
    while run.is_dir():
        try:
            with locked(run):
                return
        except HeldError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def describe(error: BaseException) -> str:
    text = str(error) if isinstance(error, VantageError) else f"{type(error).__name__}: {error}"
    cause = error.__cause__
    return text if cause is None else f"{text} ({type(cause).__name__}: {cause})"


def is_disk_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
