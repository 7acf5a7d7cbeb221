"""The Optuna study of a search: its storage and its queue of trials."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import NopPruner, SuccessiveHalvingPruner
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState

from vantage.errors import ConfigError
from vantage.tools.search.plan import Plan
from vantage.tools.search.space import Choices, Value

GRACE_SECONDS = 90
"""A trial of another machine is retried after this time without a heartbeat."""
MAX_KILLS = 3
_DRIVERS = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient"}
"""Packages of modules that SQLAlchemy imports, where the names differ."""


def open_storage(url: str | None, directory: Path) -> RDBStorage:
    """The storage at `url`, which machines may share, or study.db of the directory, whose lock this process holds."""
    name = url or str(directory / "study.db")
    if "://" not in name and not name.endswith(".db"):
        raise ConfigError(f"--storage {name} is no storage; give a URL such as postgresql://USER@HOST/NAME, or a file "
                          "whose name ends in .db (SQLite)")
    if re.fullmatch(r"sqlite(\+\w+)?:///?(:memory:)?(\?.*)?", name):
        raise ConfigError(f"--storage {name} is in memory and lost with the command; give a file: sqlite:///FILE.db")
    address = name if "://" in name else f"sqlite:///{Path(name).resolve()}"
    # Seconds that SQLite waits for another writer; a server may have closed the connection since the last trial.
    engine: dict[str, Any] = {"connect_args": {"timeout": 60}} if address.startswith("sqlite") else \
        {"pool_pre_ping": True}
    heartbeats: dict[str, Any] = {} if url is None else {"heartbeat_interval": 15, "grace_period": GRACE_SECONDS}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # heartbeats
            if heartbeats:
                heartbeats["heartbeat_stale_trial_callback"] = RetryHeartbeatStaleTrialCallback(
                    max_retry=MAX_KILLS, inherit_intermediate_values=True)
            return RDBStorage(address, engine_kwargs=engine, **heartbeats)
    except Exception as error:
        raise _storage_error(name, error) from None


def _storage_error(name: str, error: BaseException) -> ConfigError:
    while error.__cause__ is not None:
        error = error.__cause__
    remedy = "give another --storage, or another --run if it is the search's own"
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        remedy = f"its driver is missing: pip install {_DRIVERS.get(error.name, error.name)}"
    why = str(getattr(error, "orig", None) or error).strip().splitlines()  # SQLAlchemy's text may contain the URL
    return ConfigError(f"cannot use the storage {without_password(name)}: {why[0] if why else repr(error)}; {remedy}")


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
    """Return a running trial to the queue with its number, values and runs."""
    storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)


def values_of(plan: Plan, params: dict[str, Any]) -> dict[str, Value]:
    """The config values of a trial's Optuna parameters."""
    domains = plan.space.domains
    return {name: value if isinstance(domain := domains[name], Choices) else domain.value(value)
            for name, value in params.items() if name in domains}
