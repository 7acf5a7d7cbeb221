"""What a search leaves behind: its trials in order, results.csv, best.json and the pictures."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib
import optuna
from matplotlib import pyplot
from optuna.trial import FixedTrial, FrozenTrial, TrialState
from optuna.visualization import matplotlib as plots

from vantage.errors import ConfigError
from vantage.keys.typed_values import plain
from vantage.runs.files import write_atomically
from vantage.runs.trust import SIGNATURE, signature
from vantage.tools.plot import plot
from vantage.tools.search.options import Trial
from vantage.tools.search.plan import Plan

_ORDER = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.WAITING,
          TrialState.FAIL)


def rank(trial: FrozenTrial) -> tuple[float, ...]:
    """A sort key: complete trials by value, then pruned ones by steps, then the others.

    Of equal trials the one that learned sooner comes first.
    """
    value = -float("inf") if trial.values is None else trial.values[0]
    mean = fmean(trial.intermediate_values.values() or [0.0])
    return (_ORDER.index(trial.state), -(trial.last_step or 0), -value, -mean,
            trial.user_attrs["index"])


def plain_trial(plan: Plan, trial: FrozenTrial) -> Trial:
    """A trial of the study without Optuna's types."""
    attrs = trial.user_attrs
    has_failed = trial.state is TrialState.FAIL
    compared_at = trial.last_step or 0
    if trial.state is TrialState.COMPLETE:
        compared_at = plan.base.run.steps
    has_all_keys = trial.params.keys() == plan.domains.keys()
    return Trial(
        index=attrs["index"],
        state="failed" if has_failed else trial.state.name.lower(),
        value=trial.intermediate_values.get(compared_at),
        compared_at=compared_at,
        steps=attrs.get("steps", 0),
        keys=plan.suggest(FixedTrial(trial.params)) if has_all_keys else {},
        scores={int(seed): score for seed, score in attrs.get("scores", {}).items()},
        runs=attrs.get("runs", ""),
        error=attrs.get("error", "") if has_failed else "",
    )


def write_results(plan: Plan, trials: Sequence[Trial], directory: Path) -> None:
    """results.csv in the order of `trials`, best.json for `vantage train --from-search`."""
    rows = [_row(plan, trial) for trial in trials]
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(directory / "results.csv", text.getvalue())
    best = trials[0]
    if best.state != "complete":
        return
    flat = plan.config(best.keys, plan.seeds[0]).flat()
    config = {name: plain(value) for name, value in flat.items()}
    content = {
        "trial": best.index,
        "value": best.value,
        "objective": plan.objective,
        "keys": best.keys,
        "runs": best.runs,
        "config": config,
        SIGNATURE: signature(json.dumps(config)),
    }
    write_atomically(directory / "best.json", json.dumps(content, indent=2))


def _row(plan: Plan, trial: Trial) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.index,
        "state": trial.state,
        "value": trial.value,
        "compared_at": trial.compared_at,
        "steps": trial.steps,
    }
    for name in plan.domains:
        row[name] = trial.keys.get(name, "")
    for seed in plan.seeds:
        row[f"seed_{seed}"] = trial.scores.get(seed)
    row["runs"] = trial.runs
    row["error"] = trial.error
    return row


def write_plots(plan: Plan, study: optuna.Study, trials: Sequence[Trial], directory: Path) -> None:
    """history.png, slices.png and importance.png by Optuna, curves.png of the three best trials."""
    backend = matplotlib.get_backend(auto_select=False)
    figures = set(pyplot.get_fignums())
    pyplot.switch_backend("agg")
    drawings: dict[str, Callable[[optuna.Study], object]] = {
        "history": plots.plot_optimization_history,
        "slices": plots.plot_slice,
        "importance": plots.plot_param_importances,
    }
    for name, draw in drawings.items():
        # There may be too few trials.
        with (warnings.catch_warnings(action="ignore"),
              contextlib.suppress(ValueError, RuntimeError)):
            draw(study)
            pyplot.gcf().savefig(directory / f"{name}.png", dpi=160, bbox_inches="tight")
        for number in set(pyplot.get_fignums()) - figures:
            pyplot.close(number)
    with contextlib.suppress(ImportError):  # the former backend cannot draw here
        pyplot.switch_backend(backend or "agg")
    runs: list[Path] = []
    for trial in trials[:3]:
        if trial.state == "complete":
            runs += sorted(Path(trial.runs).glob("seed-*"))
    with contextlib.suppress(ConfigError):  # runs of another machine, or no metric yet
        plot(runs, directory / "curves.png", metric=plan.metric)
