"""A search's Optuna study, and the worker process that trains its trials in run directories that it can resume."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import shutil
import sys
import warnings
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import current_process
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from vantage.config import Config
from vantage.config_groups import Hogwild
from vantage.errors import ConfigError, VantageError
from vantage.runs.checkpoint import load_latest, newest_step
from vantage.runs.directory import RunDirectory
from vantage.runs.lock import HeldError
from vantage.runs.metrics import read_metrics
from vantage.runtimes.progress import goal_reached
from vantage.seeding import derive_seed
from vantage.system import available_cores
from vantage.tools.search.plan import Plan
from vantage.training import resume_updates, train_updates
from vantage.types import Report

GRACE_SECONDS = 90
"""A trial of another machine is retried after this time without a heartbeat."""
RETRIES = 3
"""How often a trial is retried whose process was killed or whose machine is gone."""
with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
    RETRY = RetryHeartbeatStaleTrialCallback(max_retry=RETRIES, inherit_intermediate_values=True)


def open_storage(url: str | None, directory: Path) -> RDBStorage:
    """The storage at `url`, which machines may share, or study.db of the directory, whose lock this process holds."""
    address = url or str(directory / "study.db")
    if address.endswith(".db") and "://" not in address:
        address = f"sqlite:///{Path(address).resolve()}?timeout=60"  # seconds to wait for another writer
    try:
        if address == "sqlite://" or ":memory:" in address:
            raise ValueError("processes cannot share a database in memory")
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            # Heartbeats only on a shared storage: after a suspend, a machine's own ones are stale. The ping is for
            # servers that close a connection between two trials.
            return RDBStorage(address, engine_kwargs={"pool_pre_ping": True}, grace_period=GRACE_SECONDS,
                              heartbeat_interval=None if url is None else 15, heartbeat_stale_trial_callback=RETRY)
    except Exception as error:
        why = str(error).partition("\n")[0].replace(address, "it")
        raise ConfigError(f"cannot use --storage: {why}; give a file that ends in .db, or a URL such as "
                          "postgresql://USER@HOST/NAME whose driver is there") from None


def load_study(plan: Plan, storage: RDBStorage) -> optuna.Study:
    """The study of `plan`, created if it does not exist."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    digest = hashlib.sha256(json.dumps(plan.definition(), sort_keys=True).encode()).hexdigest()
    pruner = SuccessiveHalvingPruner(min_resource=plan.rungs[0], reduction_factor=plan.reduction)
    return optuna.create_study(storage=storage, study_name=f"vantage {plan.algo} {plan.base.env.id} {digest[:12]}",
                               direction="maximize", load_if_exists=True, pruner=pruner)


def enqueue(study: optuna.Study, plan: Plan, total: int) -> None:
    """Create the trials that the study lacks, up to `total`.

    They wait in the study before any of them runs, so that each grid point exists once: GridSampler may draw a point
    in several processes, and it knows no keys that vary together.
    """
    present = {trial.user_attrs["index"] for trial in distinct(study)}
    for index in range(total):
        if index not in present:
            study.enqueue_trial(dict(plan.points[index]) if plan.points else {}, user_attrs={"index": index})


def distinct(study: optuna.Study) -> list[FrozenTrial]:
    """The newest trial of each index: a retry replaces the trial before, as does one that two machines enqueued."""
    trials = (trial for trial in study.get_trials(deepcopy=False) if "index" in trial.user_attrs)
    newest = {trial.user_attrs["index"]: trial for trial in trials}
    return [newest[index] for index in sorted(newest)]


def requeue(study: optuna.Study, trial: FrozenTrial | optuna.Trial) -> None:
    """Return a running trial to the queue, with its number, values and runs."""
    study._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)


def in_state(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    """The trials in one of `states`."""
    return study.get_trials(deepcopy=False, states=states)


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that trains trials. It ends on a stop, on a full disk and where another process holds the run."""

    plan: Plan
    url: str | None
    directory: Path
    jobs: int
    stop: Connection

    def work(self) -> None:
        """Train waiting trials until none is left or the other end of `stop` is closed."""
        logging.basicConfig(format="- %(message)s")
        study = load_study(self.plan, open_storage(self.url, self.directory))
        optuna.logging.set_verbosity(optuna.logging.INFO)  # a line for each trial
        if in_state(study, TrialState.WAITING):
            study.optimize(self, catch=(Exception,), callbacks=[
                lambda study, _: None if in_state(study, TrialState.WAITING) else study.stop()])

    def __call__(self, trial: optuna.Trial) -> float:
        """The value of a trial."""
        if trial.number not in {other.number for other in distinct(trial.study)}:
            raise VantageError("another process has taken the last trial, or enqueued it too")
        trial.set_user_attr("worker", current_process().name)
        try:
            return self._train_trial(trial)
        except optuna.TrialPruned:
            raise
        except HeldError as error:  # by a killed process that has not ended yet
            raise SystemExit(str(error)) from None
        except Exception as error:
            if is_disk_error(error):
                requeue(trial.study, trial)
                raise SystemExit(str(error)) from None
            trial.set_user_attr("error", f"{type(error).__name__}: {error}")
            raise

    def _train_trial(self, trial: optuna.Trial) -> float:
        """Train all seeds from rung to rung until the end, or until the trial is pruned."""
        plan, index = self.plan, trial.user_attrs["index"]
        # A sampler for each trial: one for each process would repeat its first draws after every start.
        trial.study.sampler = TPESampler(seed=derive_seed(plan.base.run.seed, "search", index))
        values = plan.suggest(trial)
        runs = Path(trial.user_attrs.get("runs", ""))
        if "runs" not in trial.user_attrs or not runs.is_dir():  # new, or on a disk that this machine cannot read
            runs = self.directory.resolve() / f"trial-{index:03d}"
            trial.set_user_attr("runs", str(runs))
        compared = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        for rung in (rung for rung in plan.rungs if rung not in compared or rung == plan.rungs[-1]):
            paths = {seed: runs / f"seed-{seed}" for seed in plan.seeds}
            scores = {str(seed): self._train_run(trial, path, plan.config(values, seed), rung)
                      for seed, path in paths.items()}
            trial.set_user_attr("scores", scores)
            trial.set_user_attr("steps", sum(int(RunDirectory.open(path).read_summary()["steps"])
                                             for path in paths.values()))
            value = None if None in scores.values() else fmean(score for score in scores.values() if score is not None)
            if value is not None and rung not in compared:
                trial.report(value, rung)
                if rung != plan.rungs[-1] and trial.should_prune():
                    raise optuna.TrialPruned
        if value is None:
            raise VantageError(f"no {plan.metric} in {plan.rungs[-1]:,} steps; give more --steps")
        return value

    def _train_run(self, trial: optuna.Trial, run: Path, config: Config, target: int) -> float | None:
        """Train a run up to `target` steps from where it is; the newest value of the metric."""
        key = "num_workers" if isinstance(config.runtime, Hogwild) else "threads"
        cores = getattr(config.runtime, key) or max(1, available_cores() // self.jobs)
        config = config.change(**{key: cores}, steps=target, schedule_steps=config.schedule_steps)
        argv = [word.replace(self.url, "URL") if self.url else word for word in sys.argv]  # no password
        with closing(updates_to(target, run, config, argv)) as updates:  # saves the run if it is stopped
            stopped = any(self.stop.poll() for _ in updates)
        if stopped:
            requeue(trial.study, trial)
            raise SystemExit(0)
        return next((value for record in reversed(read_metrics(run))
                     if (value := record.get(self.plan.metric)) is not None), None)


def updates_to(target: int, run: Path, config: Config, argv: list[str]) -> Generator[Report | None]:
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


def is_disk_error(error: BaseException | None) -> bool:
    """Whether the disk is the cause, so that other trials would fail as well."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
        return True
    return error is not None and is_disk_error(error.__cause__ or error.__context__)
