"""A search's trials in an Optuna storage: who runs which, what they reached. It starts no process and trains nothing.

Optuna alone loses trials that a killed process left running, or, with its heartbeats, fails and copies them. Here a
trial keeps its number, its parameters and its runs until it has a value. Whoever runs it holds a lease, an attribute of
the trial that is renewed every few seconds; a trial whose lease has stopped changing is taken up by the next. Two that
take the same one at once both write their name, wait, and the one whose name stands has it; whoever finds another's
name on a trial of its own lets go of it. Storage and search directory on one machine need no waiting: the kernel's lock
on the directory says that whoever held it before is gone.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from vantage.errors import ConfigError, VantageError
from vantage.seeding import derive_seed
from vantage.tools.search.directory import without_password
from vantage.tools.search.plan import Plan
from vantage.tools.search.space import Choices, Domain, Value

BEAT_EVERY_SECONDS = 15.0
GRACE_SECONDS = 90.0
"""After so long without a beat a trial of another machine is taken for abandoned; by this machine's clock alone."""
SETTLE_SECONDS = 3.0
"""Longer than two writers of one storage take to see each other."""

_DRIVERS = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary",
            "MySQLdb": "mysqlclient, which needs a compiler; or give mysql+pymysql://... and pip install pymysql"}
"""What to install for a module that SQLAlchemy imports, where the names differ."""

_IN_MEMORY = re.compile(r"sqlite(\+\w+)?:///?(:memory:)?(\?.*)?")

_LEASE, _RUNS, _EXTRA, _STOPPED, _WENT_ON = "lease", "runs", "surplus", "stopped", "went_on"


@dataclass(slots=True)
class Trial:
    """A trial that this process runs."""

    number: int
    id: int
    values: dict[str, Value]
    """What it changes in the config."""
    runs: Path
    """Where its run directories are."""
    reached: int
    """The last step it was compared at; 0: none."""
    stopped: dict[int, int]
    """Seeds whose runs ended before their steps, by a stop condition of the config, and where."""

    def run(self, seed: int) -> Path:
        """The run directory of one of its seeds."""
        return self.runs / f"seed-{seed}"


@dataclass(frozen=True, slots=True)
class Row:
    """A trial as anyone may read it."""

    number: int
    state: str
    """waiting, running, complete, pruned or failed."""
    value: float | None
    """Of the whole trial, or at the last step it was compared at."""
    values: dict[str, Value]
    reached: int
    """The step that `value` is of; 0: of none."""
    steps: int
    """Agent steps of all its seeds together, where it has ended."""
    runs: str
    scores: dict[str, float]
    """The value of each seed."""
    error: str
    compared: dict[int, float]
    """Its value at each step it was compared at."""
    params: dict[str, Any]
    """As Optuna has them."""


class Trials:
    """The study of `plan`, of `total` trials or as many as it has already.

    `directory`, where its runs go, is locked by this process. `storage` is one that others may use too; None: study.db
    in the directory, which is this process's alone.
    """

    def __init__(self, plan: Plan, directory: Path, storage: BaseStorage | None, total: int) -> None:
        self.plan, self.directory = plan, directory
        self.shared = storage is not None
        self._me = {"owner": uuid.uuid4().hex, "host": socket.gethostname(), "search": str(directory.resolve())}
        self._seen: dict[int, tuple[Any, float]] = {}
        self._storage = storage or open_storage(str(directory / "study.db"))
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(storage=self._storage, study_name=plan.name, direction="maximize",
                                    load_if_exists=True)
        self._study_id = self._storage.get_study_id_from_name(plan.name)
        if "objective" not in study.user_attrs:
            study.set_user_attr("objective", plan.objective)
            study.set_user_attr("definition", json.dumps(plan.definition()))
        counted = self._counted()
        if not counted and (runs := sorted(directory.glob("trial-*"))):
            raise ConfigError(f"{runs[0]} is there, but its storage has no trial: it is lost, or another; put it back, "
                              f"remove {directory}/trial-*, or choose another --run")
        self.total = max(total, len(counted))

    def take(self) -> Trial | None:
        """A trial to run: one that was left, else a new one, else none for now."""
        counted = self._counted()
        for frozen in counted:
            if self._is_left(frozen) and self._take_over(frozen):
                return self._prepared(frozen.number)
        return self._new() if len(counted) < self.total else None

    @property
    def over(self) -> bool:
        """All trials there are to be have ended."""
        counted = self._counted()
        return len(counted) >= self.total and all(frozen.state.is_finished() for frozen in counted)

    def beat(self, trials: list[Trial]) -> list[Trial]:
        """Renew the leases of `trials`; returns those that others have taken meanwhile."""
        lost = []
        for trial in trials:
            if self._owns(trial):
                self._write_lease(trial.id)
            else:
                lost.append(trial)
        return lost

    def compare(self, trial: Trial, step: int, value: float) -> bool:
        """Take in the value of `trial` at `step`; whether it is to go on from there."""
        if step not in self._storage.get_trial(trial.id).intermediate_values:
            self._storage.set_trial_intermediate_value(trial.id, step, value)
        trial.reached = step
        return self.goes_on(trial)

    def goes_on(self, trial: Trial) -> bool:
        """The verdict where `trial` was compared last; once it is to go on, what comes later does not change that."""
        frozen = self._storage.get_trial(trial.id)
        if self.plan.pruner == "none" or frozen.user_attrs.get(_WENT_ON, 0) >= trial.reached:
            return True
        if not self._is_promising(trial.number, trial.reached, frozen.intermediate_values[trial.reached]):
            return False
        with suppress(UpdateFinishedTrialError):  # another machine has ended it
            self._storage.set_trial_user_attr(trial.id, _WENT_ON, trial.reached)
        return True

    def stopped(self, trial: Trial, seed: int, step: int) -> None:
        """A seed's run ended before its steps."""
        trial.stopped[seed] = step
        self._storage.set_trial_user_attr(trial.id, _STOPPED, {str(key): at for key, at in trial.stopped.items()})

    def complete(self, trial: Trial, value: float, scores: dict[int, float], steps: int) -> None:
        """The trial has its value."""
        self._end(trial, TrialState.COMPLETE, value, scores=scores, steps=steps)

    def prune(self, trial: Trial, scores: dict[int, float], steps: int) -> float:
        """The trial is not worth going on with; its value, which is returned, is that of the last comparison."""
        value = self._storage.get_trial(trial.id).intermediate_values[trial.reached]
        self._end(trial, TrialState.PRUNED, value, scores=scores, steps=steps)
        return value

    def fail(self, trial: Trial, error: str, steps: int) -> None:
        """The trial will have no value."""
        self._end(trial, TrialState.FAIL, None, error=error, steps=steps)

    def leave(self, trial: Trial) -> None:
        """Let go of a trial that has not ended, for whoever comes next."""
        if self._owns(trial):
            self._storage.set_trial_state_values(trial.id, TrialState.WAITING)

    def rows(self) -> list[Row]:
        """All trials, by number."""
        return [self._row(frozen) for frozen in self._counted()]

    def as_completed(self, step: int | None) -> optuna.Study:
        """A copy in memory of the trials that have a value at `step`, or at the end, each complete with it."""
        copied = optuna.create_study(direction="maximize")
        for frozen in self._counted():
            row = self._row(frozen)
            value = row.compared.get(step) if step is not None else row.value if row.state == "complete" else None
            if value is not None:
                copied.add_trial(optuna.trial.create_trial(params=frozen.params, distributions=frozen.distributions,
                                                           value=value))
        return copied

    # Whose a trial is.

    def _counted(self) -> list[FrozenTrial]:
        """The trials by number, without those that were one too many when two machines made the last at once."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return sorted((t for t in trials if _EXTRA not in t.user_attrs), key=lambda trial: trial.number)

    def _is_left(self, frozen: FrozenTrial) -> bool:
        """Nobody runs it, as far as one can tell from here."""
        if frozen.state is TrialState.WAITING:
            return True
        lease = frozen.user_attrs.get(_LEASE)
        if frozen.state is not TrialState.RUNNING or (lease and lease["owner"] == self._me["owner"]):
            return False
        if self._is_own(lease):
            return True
        former, since = self._seen.get(frozen.number, (None, 0.0))
        if former != (lease,):
            self._seen[frozen.number] = ((lease,), time.monotonic())
            return False
        return time.monotonic() - since > GRACE_SECONDS

    def _is_own(self, lease: dict[str, Any] | None) -> bool:
        """Its last owner held the lock that this process holds now."""
        return not self.shared or (lease is not None and all(lease[key] == self._me[key] for key in ("host", "search")))

    def _take_over(self, frozen: FrozenTrial) -> bool:
        """Whether this process now has it."""
        trial_id = self._id_of(frozen.number)
        now = self._storage.get_trial(trial_id)
        lease = now.user_attrs.get(_LEASE)
        if now.state is not frozen.state or lease != frozen.user_attrs.get(_LEASE):
            return False
        self._write_lease(trial_id)
        if not self._is_own(lease):
            time.sleep(SETTLE_SECONDS)
            now = self._storage.get_trial(trial_id)
            if now.user_attrs[_LEASE]["owner"] != self._me["owner"]:
                return False
        if now.state is TrialState.WAITING:
            return self._storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        return now.state is TrialState.RUNNING

    def _new(self) -> Trial | None:
        """The next trial, unless another machine made the last one meanwhile."""
        trial_id = self._storage.create_new_trial(self._study_id)
        self._write_lease(trial_id)
        number = self._storage.get_trial(trial_id).number
        if sum(frozen.number < number for frozen in self._counted()) >= self.total:
            self._storage.set_trial_user_attr(trial_id, _EXTRA, True)
            self._storage.set_trial_state_values(trial_id, TrialState.FAIL)
            return None
        return self._prepared(number)

    def _owns(self, trial: Trial) -> bool:
        frozen = self._storage.get_trial(trial.id)
        return frozen.state is TrialState.RUNNING and frozen.user_attrs[_LEASE]["owner"] == self._me["owner"]

    def _write_lease(self, trial_id: int) -> None:
        self._storage.set_trial_user_attr(trial_id, _LEASE, {**self._me, "pid": os.getpid(), "beat": time.time()})

    def _is_promising(self, number: int, step: int, value: float) -> bool:
        """It is among the best 1 / reduction of what has come to `step`: Li et al. 2020, arXiv:1810.05934.

        Of equals those that went on come first. Optuna's pruner lets all of them go on, on Pong at first every trial,
        and one whose process was killed between its verdict and the deed.
        """
        others = [frozen for frozen in self._counted()
                  if frozen.number != number and step in frozen.intermediate_values]
        ahead = sum(other.intermediate_values[step] > value or (
            other.intermediate_values[step] == value and not (other.state is TrialState.PRUNED
                                                              and other.last_step == step)) for other in others)
        return ahead < max(1, (len(others) + 1) // self.plan.reduction)

    # What a trial is.

    def _prepared(self, number: int) -> Trial:
        """The trial with all its parameters and a place for its runs: what it had, and what it lacked."""
        trial_id = self._id_of(number)
        self._choose(number, trial_id)
        frozen = self._storage.get_trial(trial_id)
        runs, stopped = frozen.user_attrs.get(_RUNS), frozen.user_attrs.get(_STOPPED, {})
        if runs is None or not Path(runs).is_dir():  # new, or its machine's disk is not to be reached from here
            runs = str(self.directory.resolve() / f"trial-{number:03d}")
            self._storage.set_trial_user_attr(trial_id, _RUNS, runs)
            stopped = {}
            self._storage.set_trial_user_attr(trial_id, _STOPPED, stopped)
        return Trial(number, trial_id, self.plan.values(frozen.params), Path(runs), frozen.last_step or 0,
                     {int(seed): step for seed, step in stopped.items()})

    def _choose(self, number: int, trial_id: int) -> None:
        """Give the trial the parameters that it has not got yet."""
        points, domains = self.plan.space.points, self.plan.space.domains
        chosen = self._storage.get_trial(trial_id).params
        if points is not None:
            for name, value in points[number].items():
                if name not in chosen:
                    distribution = _distribution(domains[name])
                    self._storage.set_trial_param(trial_id, name, distribution.to_internal_repr(value), distribution)
            return
        # A sampler of its own for each trial: one that began anew in each process would repeat its first choices.
        seed = derive_seed(self.plan.base.seed, "search", number)
        sampler: BaseSampler = TPESampler(seed=seed) if self.plan.sampler == "tpe" else RandomSampler(seed=seed)
        study = optuna.load_study(study_name=self.plan.name, storage=self._storage, sampler=sampler)
        study.get_trials(deepcopy=False)  # after which the cache of the storage knows a trial that another process made
        trial = optuna.trial.Trial(study, trial_id)
        for name, domain in domains.items():
            _suggest(trial, name, domain)

    def _end(self, trial: Trial, state: TrialState, value: float | None, **attributes: Any) -> None:
        """Finish the trial, unless it is another's by now: the storage takes one end of each."""
        if not self._owns(trial):
            return
        for name, attribute in attributes.items():
            self._storage.set_trial_user_attr(trial.id, name, attribute)
        try:
            self._storage.set_trial_state_values(trial.id, state, None if value is None else [value])
        except UpdateFinishedTrialError:
            return

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def _row(self, frozen: FrozenTrial) -> Row:
        names = {TrialState.FAIL: "failed"}
        attributes, compared = frozen.user_attrs, frozen.intermediate_values
        value = frozen.values[0] if frozen.values else compared[max(compared)] if compared else None
        reached = self.plan.base.steps if frozen.state is TrialState.COMPLETE else max(compared, default=0)
        scores = {str(seed): score for seed, score in attributes.get("scores", {}).items()}
        return Row(frozen.number, names.get(frozen.state, frozen.state.name.lower()), value,
                   self.plan.values(frozen.params), reached, int(attributes.get("steps", 0)),
                   str(attributes.get(_RUNS, "")), scores, str(attributes.get("error", "")), dict(compared),
                   dict(frozen.params))


def open_storage(name: str) -> BaseStorage:
    """The storage that a person means: a URL, or a file whose name ends in .db (SQLite) or .journal."""
    if "://" not in name and not name.endswith((".db", ".journal")):
        raise ConfigError(f"--storage {name} is no storage; give a URL such as postgresql://USER@HOST/NAME, or a file "
                          "whose name ends in .db (SQLite) or .journal")
    if _IN_MEMORY.fullmatch(name):
        raise ConfigError(f"--storage {name} is kept in memory and lost with the command; give a file: sqlite:///FILE.db")
    try:
        if "://" not in name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".journal") and "://" not in name:
            journal = JournalStorage(JournalFileBackend(name))
            journal.get_all_studies()  # which reads it
            return journal
        url = name if "://" in name else f"sqlite:///{Path(name).resolve()}"
        # SQLite waits so long for another writer; a server's connection may have been closed since the last trial.
        options: dict[str, Any] = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else \
            {"pool_pre_ping": True}
        return RDBStorage(url, engine_kwargs=options)
    except Exception as error:
        cause = _innermost(error)
        remedy = "give another --storage, or another --run if it is the search's own"
        if isinstance(cause, (ValueError, KeyError)) and name.endswith(".journal"):
            raise ConfigError(f"--storage {name} is no journal of Optuna's, or a damaged one ({_why(error)}); {remedy}"
                              ) from None
        if isinstance(cause, ModuleNotFoundError) and cause.name is not None:
            remedy = f"its driver is missing: pip install {_DRIVERS.get(cause.name, cause.name)}"
        raise ConfigError(f"cannot use the storage {without_password(name)}: {_why(error)}; {remedy}") from None


@contextmanager
def explaining() -> Iterator[None]:
    """Errors of the storage, and of the disk, in one line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OptunaError, SQLAlchemyError, OSError, json.JSONDecodeError) as error:
        raise VantageError(f"the search cannot go on: {_why(error)}; once that is mended the same command goes on"
                           ) from error


def _why(error: BaseException) -> str:
    """The database's own words, of the innermost cause; those of SQLAlchemy may hold the URL with its password."""
    error = _innermost(error)
    return (str(getattr(error, "orig", None) or error).strip() or type(error).__name__).splitlines()[0]


def _innermost(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _distribution(domain: Domain) -> BaseDistribution:
    if isinstance(domain, Choices):
        return CategoricalDistribution(domain.values)
    if domain.whole:
        step = 1 if domain.step is None else int(domain.step)
        return IntDistribution(int(domain.low), int(domain.high), log=domain.log, step=step)
    return FloatDistribution(domain.low, domain.high, log=domain.log, step=domain.step)


def _suggest(trial: optuna.trial.Trial, name: str, domain: Domain) -> None:
    if isinstance(domain, Choices):
        trial.suggest_categorical(name, domain.values)
    elif domain.whole:
        trial.suggest_int(name, int(domain.low), int(domain.high), log=domain.log, step=int(domain.step or 1))
    else:
        trial.suggest_float(name, domain.low, domain.high, log=domain.log, step=domain.step)
