"""A search's Optuna study: its storage and its trials. A trial and its retries share an index."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import SuccessiveHalvingPruner
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Engine, event

from vantage.errors import ConfigError
from vantage.tools.search.plan import Plan

GRACE_SECONDS = 90
"""Time without a heartbeat after which a trial of another machine is retried."""
_LOCK_SECONDS = 60
"""Longest wait for another writer of an SQLite file."""
with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
    RETRY = RetryHeartbeatStaleTrialCallback(max_retry=3, inherit_intermediate_values=True)
    """Enqueues a trial again whose process was killed or whose machine is gone."""


def open_storage(url: str | None, directory: Path) -> RDBStorage:
    """The storage at `url`, which machines may share, or study.db in the locked directory."""
    address = url or str(directory / "study.db")
    if address.endswith(".db") and "://" not in address:
        address = f"sqlite:///{Path(address).resolve()}?timeout={_LOCK_SECONDS}"
    try:
        if address == "sqlite://" or ":memory:" in address:
            raise ValueError("processes cannot share a database in memory")
        with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
            # Heartbeats only on a shared storage: after a suspend, a machine's own ones are stale.
            # The ping is for servers that close a connection between two trials.
            storage = RDBStorage(address, engine_kwargs={"pool_pre_ping": True},
                                 grace_period=GRACE_SECONDS,
                                 heartbeat_interval=None if url is None else 15,
                                 heartbeat_stale_trial_callback=RETRY)
        if storage.engine.name == "sqlite":
            _begin_exclusively(storage.engine)
        return storage
    except Exception as error:
        why = str(error).partition("\n")[0].replace(address, "it")
        if url is None:
            raise ConfigError(f"cannot write {directory}/study.db: {why}; free space there, or "
                              "choose another --run") from None
        raise ConfigError(f"cannot use --storage: {why}; give a file that ends in .db, or a URL "
                          "such as postgresql://USER@HOST/NAME whose driver is there") from None


def _begin_exclusively(engine: Engine) -> None:
    """Let a transaction of SQLite lock the database before it reads.

    Optuna reads that a trial waits, then sets it running. SQLite has no SELECT ... FOR UPDATE, so
    two processes could take the same trial:
    https://docs.sqlalchemy.org/en/20/dialects/sqlite.html, transactions.
    """
    def leave_begin_to_us(connection: Any, _: object) -> None:
        connection.isolation_level = None

    event.listen(engine, "connect", leave_begin_to_us)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    engine.dispose()  # connections from before


def load_study(plan: Plan, storage: RDBStorage) -> optuna.Study:
    """The study of `plan`, created if it does not exist."""
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    digest = hashlib.sha256(json.dumps(plan.definition(), sort_keys=True).encode()).hexdigest()
    pruner = SuccessiveHalvingPruner(min_resource=plan.rungs[0], reduction_factor=plan.reduction)
    name = f"vantage {plan.algo} {plan.base.env.id} {digest[:12]}"
    return optuna.create_study(storage=storage, study_name=name, direction="maximize",
                               load_if_exists=True, pruner=pruner)


def enqueue(study: optuna.Study, plan: Plan, total: int) -> None:
    """Create the trials that the study lacks, up to `total`.

    They wait in the study before any of them runs, so that each grid point exists once. Optuna's
    GridSampler may draw a point in several processes, and cannot vary keys together.
    """
    present = {trial.user_attrs["index"] for trial in distinct(study)}
    for index in range(total):
        if index not in present:
            params = dict(plan.points[index]) if plan.points else {}
            study.enqueue_trial(params, user_attrs={"index": index})


def distinct(study: optuna.Study) -> list[FrozenTrial]:
    """The newest trial of each index: a retry replaces the trial before.

    So does a trial that two machines enqueued.
    """
    newest = {}
    for trial in study.get_trials(deepcopy=False):
        if "index" in trial.user_attrs:
            newest[trial.user_attrs["index"]] = trial
    return [newest[index] for index in sorted(newest)]


def in_state(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=states)


def requeue(study: optuna.Study, workers: Collection[str] | None = None) -> None:
    """Return running trials, or those of `workers`, to the queue; they keep values and runs."""
    for trial in in_state(study, TrialState.RUNNING):
        if workers is None or trial.user_attrs.get("worker") in workers:
            study._storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)


def retry(study: optuna.Study, trial: FrozenTrial, error: str) -> None:
    """Fail a running trial and enqueue it again, unless that has been done too often."""
    study._storage.set_trial_user_attr(trial._trial_id, "error", error)
    # First the new one, so that a kill between the two loses no trial.
    RETRY(study, study._storage.get_trial(trial._trial_id))
    study._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
