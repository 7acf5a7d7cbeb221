"""The trials of a search in an Optuna study, and the processes that train them. It prints nothing."""

from __future__ import annotations

import errno
import logging
import re
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import NopPruner, SuccessiveHalvingPruner
from optuna.samplers import RandomSampler, TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from vantage.config import Config
from vantage.config_groups import Hogwild
from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import RunDirectory
from vantage.runs.lock import HeldError, locked
from vantage.runs.metrics import read_metrics
from vantage.seeding import derive_seed
from vantage.system import available_cores
from vantage.tools.search.plan import Plan
from vantage.tools.search.space import Choices, Value

GRACE_SECONDS = 90
"""A trial of another machine without a heartbeat for so long is retried."""
LOCK_SECONDS = 60.0
"""How long to wait for a killed search's process to let go of a run."""
MAX_KILLS = 3
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_DRIVERS = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
"""Packages of modules that SQLAlchemy imports, where the names differ."""


def open_storage(url: str | None, directory: Path) -> RDBStorage:
    """The storage at `url`, which machines may share, or study.db of the directory, whose lock this process holds."""
    name = url or str(directory / "study.db")
    if "://" not in name and not name.endswith(".db"):
        raise ConfigError(f"--storage {name} is no storage; give a URL such as postgresql://USER@HOST/NAME, or a file "
                          "whose name ends in .db (SQLite)")
    if re.fullmatch(r"sqlite(\+\w+)?:///?(:memory:)?(\?.*)?", name):
        raise ConfigError(f"--storage {name} is kept in memory and lost with the command; give a file: sqlite:///FILE.db")
    address = name if "://" in name else f"sqlite:///{Path(name).resolve()}"
    # SQLite waits so long for another writer; a server may have closed the connection since the last trial.
    options: dict[str, Any] = {"connect_args": {"timeout": 60}} if address.startswith("sqlite") else \
        {"pool_pre_ping": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # heartbeats
            if url is None:
                return RDBStorage(address, engine_kwargs=options)
            return RDBStorage(address, engine_kwargs=options, heartbeat_interval=15, grace_period=GRACE_SECONDS,
                              heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(
                                  max_retry=MAX_KILLS, inherit_intermediate_values=True))
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        remedy = "give another --storage, or another --run if it is the search's own"
        if isinstance(cause, ModuleNotFoundError) and cause.name is not None:
            remedy = f"its driver is missing: pip install {_DRIVERS.get(cause.name, cause.name)}"
        why = str(getattr(cause, "orig", None) or cause).strip().splitlines()  # SQLAlchemy's text may hold the URL
        raise ConfigError(f"cannot use the storage {without_password(name)}: {why[0] if why else cause!r}; {remedy}"
                          ) from None


def without_password(storage: str) -> str:
    """A storage's URL without its password."""
    return re.sub(r"([?&]password=)[^&]*", r"\1***", re.sub(r"(://[^/@:]*):.*@", r"\1:***@", storage))


def load_study(plan: Plan, storage: RDBStorage) -> optuna.Study:
    """The study of `plan`, created if it does not exist."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        pruner = NopPruner() if plan.pruner == "none" else SuccessiveHalvingPruner(
            min_resource=plan.rungs[0], reduction_factor=plan.reduction)
        return optuna.create_study(storage=storage, study_name=plan.name, direction="maximize", load_if_exists=True,
                                   pruner=pruner)


def enqueue(study: optuna.Study, plan: Plan, total: int) -> None:
    """Create the trials that the study lacks, up to `total`.

    They wait in the study before any of them runs, so that each grid point exists once: GridSampler may draw a point
    in several processes, and it knows no keys that vary together.
    """
    present = {trial.user_attrs.get("index") for trial in study.get_trials(deepcopy=False)}
    for index in range(total):
        if index not in present:
            point = {} if plan.space.points is None else dict(plan.space.points[index])
            study.enqueue_trial(point, user_attrs={"index": index})


def distinct(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The newest retry of each trial by index. Duplicates, of machines that enqueued at the same time, are left out."""
    newest: dict[int, FrozenTrial] = {}
    for trial in trials:
        index = trial.user_attrs.get("index")
        history = RetryHeartbeatStaleTrialCallback.retry_history
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            if index is not None and (index not in newest or newest[index].number in history(trial)):
                newest[index] = trial
    return [newest[index] for index in sorted(newest)]


def requeue(storage: RDBStorage, trial: FrozenTrial | optuna.Trial) -> None:
    """Give a running trial back to the queue with its number, values and runs."""
    storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)


def values_of(plan: Plan, params: dict[str, Any]) -> dict[str, Value]:
    """The config values of a trial's Optuna parameters."""
    domains = plan.space.domains
    return {name: value if isinstance(domain := domains[name], Choices) else domain.value(value)
            for name, value in params.items() if name in domains}


def work(connection: Connection, plan: Plan, url: str | None, directory: Path, jobs: int, argv: Sequence[str]) -> None:
    """Train waiting trials until none is left. Anything readable on `connection`, its end included, means stop."""
    storage = open_storage(url, directory)
    study = load_study(plan, storage)
    worker = _Worker(connection, plan, storage, directory, jobs, argv)
    while not connection.poll() and study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        study.optimize(worker.objective, n_trials=1, catch=(Exception,))
    connection.send(("end", 0))


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
            if _is_disk_error(error):
                requeue(self.storage, trial)
                self.connection.send(("stuck", _describe(error)))
                raise SystemExit(0) from None
            trial.set_user_attr("error", _describe(error))
            raise

    def _train_trial(self, trial: optuna.Trial) -> float:
        values = self._suggest(trial)
        runs = Path(trial.user_attrs.get("runs", ""))
        if "runs" not in trial.user_attrs or not runs.is_dir():  # new, or on a disk that this machine cannot read
            runs = self.directory.resolve() / f"trial-{trial.user_attrs['index']:03d}"
            trial.set_user_attr("runs", str(runs))
        compared = self.storage.get_trial(trial._trial_id).intermediate_values
        value, scores = None, {}
        for rung in self.plan.rungs:
            last = rung == self.plan.rungs[-1]
            if rung in compared and not last:
                continue
            for seed in self.plan.trial_seeds:
                scores[seed] = self._train_run(trial, runs / f"seed-{seed}", self.plan.config(values, seed), rung)
            steps = sum(int(RunDirectory.open(runs / f"seed-{seed}").read_summary()["steps"]) for seed in scores)
            trial.set_user_attr("steps", steps)
            trial.set_user_attr("scores", {str(seed): score for seed, score in scores.items()})
            finite = [score for score in scores.values() if score is not None]
            value = fmean(finite) if len(finite) == len(scores) else None
            if value is not None and rung not in compared:
                trial.report(value, rung)
                if not last and trial.should_prune():
                    raise optuna.TrialPruned
        if value is None:
            raise VantageError(f"no {self.plan.metric} in {self.plan.rungs[-1]:,} steps: no game has ended; give more "
                               "--steps")
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
        from vantage.training import resume_updates, train_updates

        _wait_until_free(run)
        cores = max(1, available_cores() // self.jobs)
        state = _run_state(run, config, target)
        if state != "done":
            if state == "new":
                key = "num_workers" if isinstance(config.runtime, Hogwild) else "threads"
                config = config.change(**{key: getattr(config.runtime, key) or cores}, steps=target,
                                       schedule_steps=config.run.schedule_steps or config.run.steps)
                updates = train_updates(config, run=run, argv=self.argv)
            else:
                updates = resume_updates(run, steps=target)
            with _messages_to(self.connection), closing(updates):
                for _ in updates:
                    if self.connection.poll():
                        break
        if self.connection.poll():
            requeue(self.storage, trial)
            raise SystemExit(0)
        return next((value for record in reversed(read_metrics(run))
                     if (value := record.get(self.plan.metric)) is not None), None)


class _Notes(logging.Handler):
    """Sends log messages to the search's process."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        self._connection.send(("note", self.format(record)))


@contextmanager
def _messages_to(connection: Connection) -> Iterator[None]:
    logger, handler = logging.getLogger("vantage"), _Notes(connection)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _run_state(run: Path, config: Config, target: int) -> str:
    """"new", "begun" or "done" up to `target`, with what a kill left half-written removed."""
    from vantage.runs.checkpoint import load_latest, newest_step
    from vantage.runtimes.progress import goal_reached

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
    if checkpoint.step < target and not goal_reached(progress, config):
        return "begun"
    if progress.get("evaluation_due"):
        return "begun"
    if directory.read_summary().get("status") == "done":
        return "done"
    # Killed between its last checkpoint and the record of that step's metrics: train the last part again.
    shutil.rmtree(sorted((run / "checkpoints").glob("step-*"))[-1])
    return _run_state(run, config, target)


def _wait_until_free(run: Path) -> None:
    """Wait until the process of a killed search has released the run."""
    deadline = time.monotonic() + LOCK_SECONDS
    while run.is_dir():
        try:
            with locked(run):
                return
        except HeldError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _describe(error: BaseException) -> str:
    text = str(error) if isinstance(error, VantageError) else f"{type(error).__name__}: {error}"
    cause = error.__cause__
    return text if cause is None else f"{text} ({type(cause).__name__}: {cause})"


def _is_disk_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
