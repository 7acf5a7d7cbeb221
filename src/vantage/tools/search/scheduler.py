"""The main process of a search: it starts workers, restarts those that die, and ends the search.

Each worker runs Optuna's `study.optimize`. Without a shared storage there are no heartbeats, so the
main process returns trials of ended workers to the queue itself.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from multiprocessing import Pipe, connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import uuid4

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState

from vantage._host.processes import stop_signals_blocked, tied_process
from vantage.errors import ConfigError, VantageError
from vantage.tools.search.options import Options, SearchResult
from vantage.tools.search.plan import Plan
from vantage.tools.search.results import plain_trial, rank, write_plots, write_results
from vantage.tools.search.study import (
    distinct,
    enqueue,
    in_state,
    load_study,
    open_storage,
    requeue,
    retry,
)
from vantage.tools.search.worker import Worker

log = logging.getLogger(__name__)

WAITING = TrialState.WAITING
RUNNING = TrialState.RUNNING
_DEFAULT_TRIALS = 30


def train_all(plan: Plan, options: Options, directory: Path,
              stop: Callable[[], bool]) -> SearchResult:
    """Train all trials of a search in `directory`, locked by the caller, until `stop` is True."""
    study = load_study(plan, open_storage(options.storage, directory))
    runs = sorted(directory.glob("trial-*"))
    if runs and not study.trials:
        raise ConfigError(f"{runs[0]} exists, but its storage has no trial; put the storage back, "
                          f"remove {directory}/trial-*, or choose another --run")
    enqueue(study, plan, len(plan.points) if plan.points else options.trials or _DEFAULT_TRIALS)
    rungs = ", ".join(f"{rung:,}" for rung in plan.rungs)
    log.info(f"{directory}: {len(distinct(study))} trials, compared after {rungs} steps by the "
             f"{plan.objective}")
    try:
        stopped = train(study, plan, options, directory, stop)
    finally:
        ranking = sorted(distinct(study), key=rank)
        trials = tuple(plain_trial(plan, trial) for trial in ranking)
        write_results(plan, trials, directory)
    best = trials[0]
    if best.state != "complete":
        if stopped:
            return SearchResult(directory, trials, None)
        errors = sorted({trial.user_attrs.get("error", "no heartbeat") for trial in ranking})
        raise VantageError(f"no trial has a value: {'; '.join(errors[:3])}. See "
                           f"{directory}/results.csv. Failed trials are not tried again: search "
                           "anew with another --run")
    if not stopped:
        write_plots(plan, study, trials, directory)
    return SearchResult(directory, trials, plan.config(best.keys, plan.seeds[0]))


def train(study: optuna.Study, plan: Plan, options: Options, directory: Path,
          stop: Callable[[], bool]) -> bool:
    """Run up to `jobs` workers until no trial waits or runs; returns whether `stop` ended that.

    Trials of other machines count too.
    """
    reader, writer = Pipe(duplex=False)
    worker = Worker(plan, options.storage, directory, options.jobs, reader,
                    verbose=log.isEnabledFor(logging.INFO))
    processes: list[BaseProcess] = []
    names: list[str] = []
    # Without a shared storage all trials are of this machine.
    own = names if options.storage is not None else None
    requeue(study, own)  # what a killed search left
    try:
        while True:
            stopped = stop()
            if stopped or not (processes or in_state(study, WAITING, RUNNING)):
                return stopped
            if not processes:
                with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                    optuna.storages.fail_stale_trials(study)  # of other machines
            num_waiting = len(in_state(study, WAITING))
            num_open = num_waiting + len(in_state(study, RUNNING))
            while num_waiting and len(processes) < min(options.jobs, num_open):
                names.append(uuid4().hex)
                processes.append(_start(worker, names[-1]))
            connection.wait([process.sentinel for process in processes], timeout=1.0)
            for process in list(processes):
                if not process.is_alive():
                    processes.remove(process)
                    retry_trial_of(process, study)
    finally:
        writer.close()  # asks the workers to stop
        for process in processes:
            process.join()
        requeue(study, own)


def _start(worker: Worker, name: str) -> BaseProcess:
    process = tied_process(get_context("spawn"), name, worker.work)
    with stop_signals_blocked():
        process.start()
    return process


def retry_trial_of(process: BaseProcess, study: optuna.Study) -> None:
    """Retry the trial of a killed worker; VantageError if it was not killed in a trial."""
    status = process.exitcode
    if not status:
        return
    trials = [trial for trial in in_state(study, RUNNING)
              if trial.user_attrs.get("worker") == process.name]
    if status > 0 or not trials:
        raise VantageError(f"a worker of the search ended (exit status {status}); correct what the "
                           "messages above name, then repeat the search; a script that searches "
                           "needs if __name__ == '__main__'")
    why = f"its process ended (exit status {status}); if memory was short, give fewer --jobs"
    for trial in trials:
        log.warning("trial %d: %s", trial.user_attrs["index"], why)
        retry(study, trial, why)
