"""The main process of a search: it starts workers, restarts those that die, and writes the results."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import Pipe, connection, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import uuid4

import matplotlib
import optuna
from matplotlib import pyplot
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FixedTrial, FrozenTrial, TrialState
from optuna.visualization import matplotlib as plots

from vantage._host.processes import stop_signals_blocked, tied_process
from vantage.errors import ConfigError, VantageError
from vantage.keys.fields import plain
from vantage.runs.files import write_atomically
from vantage.runs.trust import SIGNATURE, signature
from vantage.tools.plot import plot
from vantage.tools.search.options import Options, SearchResult, Trial
from vantage.tools.search.plan import Plan
from vantage.tools.search.study import distinct, enqueue, in_state, load_study, open_storage, requeue, retry
from vantage.tools.search.worker import Worker

log = logging.getLogger(__name__)

WAITING, RUNNING = TrialState.WAITING, TrialState.RUNNING


def train_all(plan: Plan, options: Options, directory: Path,
              stop: Callable[[], bool]) -> SearchResult:
    """Train all trials of a search in `directory`, whose lock the caller holds, until `stop` returns True."""
    study = load_study(plan, open_storage(options.storage, directory))
    if not study.trials and (runs := sorted(directory.glob("trial-*"))):
        raise ConfigError(f"{runs[0]} exists, but its storage has no trial; put the storage back, "
                          f"remove {directory}/trial-*, or choose another --run")
    enqueue(study, plan, len(plan.points) if plan.points else options.trials or 30)
    log.info(f"{directory}: {len(distinct(study))} trials, compared after "
             f"{', '.join(f'{at:,}' for at in plan.rungs)} steps by the {plan.objective}")
    try:
        stopped = train(study, plan, options, directory, stop)
    finally:
        ranking = ranked(study)
        rows = tuple(describe(plan, trial) for trial in ranking)
        write_results(plan, rows, directory)
    best = rows[0]
    config = plan.config(best.keys, plan.seeds[0]) if best.state == "complete" else None
    if config is not None and not stopped:
        write_plots(plan, study, rows, directory)
    elif not stopped:
        errors = sorted({trial.user_attrs.get("error", "no heartbeat") for trial in ranking})
        raise VantageError(f"no trial has a value: {'; '.join(errors[:3])}. See "
                           f"{directory}/results.csv. Failed trials are not tried again: search "
                           "anew with another --run")
    return SearchResult(directory, rows, config)


def train(study: optuna.Study, plan: Plan, options: Options, directory: Path,
          stop: Callable[[], bool]) -> bool:
    """Run up to `jobs` workers until no trial waits or runs, here or on another machine; returns whether `stop` did."""
    context, (reader, writer) = get_context("spawn"), Pipe(duplex=False)
    worker = Worker(plan, options.storage, directory, options.jobs, reader,
                    verbose=log.isEnabledFor(logging.INFO))
    processes = list[BaseProcess]()
    names: list[str] = []
    # Without a shared storage all trials are of this machine.
    own = names if options.storage is not None else None
    requeue(study, own)  # what a killed search left
    try:
        while not (stopped := stop()) and (processes or in_state(study, WAITING, RUNNING)):
            if not processes:
                with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                    optuna.storages.fail_stale_trials(study)  # of other machines
            waiting, running = len(in_state(study, WAITING)), len(in_state(study, RUNNING))
            while waiting and len(processes) < min(options.jobs, waiting + running):
                names.append(uuid4().hex)
                processes.append(tied_process(context, names[-1], worker.work))
                with stop_signals_blocked():
                    processes[-1].start()
            connection.wait([process.sentinel for process in processes], timeout=1.0)
            for process in [process for process in processes if not process.is_alive()]:
                processes.remove(process)
                retry_trial_of(process, study)
    finally:
        writer.close()  # asks the workers to stop
        for process in processes:
            process.join()
        requeue(study, own)
    return stopped


def retry_trial_of(process: BaseProcess, study: optuna.Study) -> None:
    """Retry the trial of a killed worker; VantageError if it was not killed in a trial."""
    trials = [trial for trial in in_state(study, RUNNING)
              if trial.user_attrs.get("worker") == process.name]
    if process.exitcode and (process.exitcode > 0 or not trials):
        raise VantageError(f"a worker of the search ended (exit status {process.exitcode}); "
                           "correct what the messages above name, then repeat the search; a script "
                           "that searches needs if __name__ == '__main__'")
    for trial in trials if process.exitcode else ():
        why = f"its process ended (exit status {process.exitcode}); if memory was short, give fewer --jobs"
        log.warning("trial %d: %s", trial.user_attrs["index"], why)
        retry(study, trial, why)


def ranked(study: optuna.Study) -> list[FrozenTrial]:
    """Complete trials by value, then pruned ones by steps; of equal trials the one that learned sooner comes first."""
    order = ("COMPLETE", "PRUNED", "RUNNING", "WAITING", "FAIL")
    return sorted(distinct(study), key=lambda trial: (
        order.index(trial.state.name), -(trial.last_step or 0), -(trial.values or [-float("inf")])[0],
        -fmean(trial.intermediate_values.values() or [0.0]), trial.user_attrs["index"]))


def describe(plan: Plan, trial: FrozenTrial) -> Trial:
    """A trial of the study without Optuna's types."""
    attrs, state = trial.user_attrs, "failed" if trial.state is TrialState.FAIL else trial.state.name.lower()
    complete = trial.params.keys() == plan.domains.keys()
    reached = plan.base.run.steps if trial.state is TrialState.COMPLETE else trial.last_step or 0
    return Trial(
        attrs["index"], state, trial.intermediate_values.get(reached), reached, attrs.get("steps", 0),
        plan.suggest(FixedTrial(trial.params)) if complete else {},
        {int(seed): score for seed, score in attrs.get("scores", {}).items()}, attrs.get("runs", ""),
        attrs.get("error", "") if state == "failed" else "")


def write_results(plan: Plan, trials: Sequence[Trial], directory: Path) -> None:
    """results.csv in the order of `trials`, best.json for `vantage train --from-search`."""
    rows: list[dict[str, Any]] = [{
        "trial": trial.index, "state": trial.state, "value": trial.value, "compared_at": trial.compared_at,
        "steps": trial.steps, **{name: trial.keys.get(name, "") for name in plan.domains},
        **{f"seed_{seed}": trial.scores.get(seed) for seed in plan.seeds}, "runs": trial.runs, "error": trial.error}
        for trial in trials]
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(directory / "results.csv", text.getvalue())
    if (best := trials[0]).state == "complete":
        chosen = plan.config(best.keys, plan.seeds[0])
        config = {name: plain(value) for name, value in chosen.flat().items()}
        write_atomically(directory / "best.json", json.dumps(
            {"trial": best.index, "value": best.value, "objective": plan.objective, "keys": best.keys,
             "runs": best.runs, "config": config, SIGNATURE: signature(json.dumps(config))}, indent=2))


def write_plots(plan: Plan, study: optuna.Study, trials: Sequence[Trial], directory: Path) -> None:
    """history.png, slices.png and importance.png by Optuna, curves.png of the three best trials."""
    backend, own = matplotlib.get_backend(auto_select=False), set(pyplot.get_fignums())
    pyplot.switch_backend("agg")
    drawings: dict[str, Callable[[optuna.Study], object]] = {
        "history": plots.plot_optimization_history, "slices": plots.plot_slice,
        "importance": plots.plot_param_importances}
    for name, draw in drawings.items():
        # Too few trials.
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(ValueError, RuntimeError):
            draw(study)
            pyplot.gcf().savefig(directory / f"{name}.png", dpi=160, bbox_inches="tight")
        for number in {*pyplot.get_fignums()} - own:
            pyplot.close(number)
    with contextlib.suppress(ImportError):  # it cannot draw here
        pyplot.switch_backend(backend or "agg")
    complete = [trial for trial in trials if trial.state == "complete"]
    runs = [run for trial in complete[:3] for run in sorted(Path(trial.runs).glob("seed-*"))]
    with contextlib.suppress(ConfigError):  # runs of another machine, or no metric yet
        plot(runs, directory / "curves.png", metric=plan.metric)
