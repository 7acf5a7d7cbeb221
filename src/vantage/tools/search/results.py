"""The files of a search's results: results.csv, results.md, best.json and plots."""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path

import optuna
from matplotlib import pyplot
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization import matplotlib as plots

from vantage.errors import ConfigError
from vantage.runs.directory import write_atomically
from vantage.tools.plot import plot
from vantage.tools.search.plan import Plan
from vantage.tools.search.study import values_of

_STATES = {TrialState.FAIL: "failed"}


def write_tables(plan: Plan, trials: Sequence[FrozenTrial], directory: Path) -> None:
    """results.csv with the trials by index; results.md in the order of `trials`."""
    names, seeds = list(plan.space.domains), [str(seed) for seed in plan.trial_seeds]
    header = ["trial", "state", "value", "compared_at", "steps", *names, *(f"seed_{seed}" for seed in seeds), "runs",
              "error"]
    rows = []
    for trial in trials:
        values, attrs = values_of(plan, trial.params), trial.user_attrs
        reached = plan.base.run.steps if trial.state is TrialState.COMPLETE else trial.last_step or 0
        value = trial.value if trial.values else trial.intermediate_values.get(reached, "")
        rows.append([attrs["index"], _STATES.get(trial.state, trial.state.name.lower()), value, reached,
                     attrs.get("steps", 0), *(values.get(name, "") for name in names),
                     *(attrs.get("scores", {}).get(seed, "") for seed in seeds), attrs.get("runs", ""),
                     attrs.get("error", "")])
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *sorted(rows, key=lambda row: row[0])])
    write_atomically(directory / "results.csv", text.getvalue())
    lines = [f"# {plan.algo} on {plan.base.env.id}", "", f"Value: {plan.objective}.", ""]
    table = [header[:-2], ["---"] * (len(header) - 2), *(row[:-2] for row in rows)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in table]
    lines += ["", *(f"- Trial {row[0]} failed: {row[-1]}" for row in rows if row[-1])]
    write_atomically(directory / "results.md", "\n".join([*lines, ""]))


def write_best(plan: Plan, best: FrozenTrial, directory: Path) -> None:
    """best.json, which `vantage train --from-search` reads."""
    values = values_of(plan, best.params)
    config = plan.config(values, plan.base.run.seed)
    write_atomically(directory / "best.json", json.dumps(
        {"trial": best.user_attrs["index"], "value": best.value, "objective": plan.objective, "keys": values,
         "runs": best.user_attrs["runs"], "config": config.flat()}, indent=2))


def write_plots(plan: Plan, study: optuna.Study, trials: Sequence[FrozenTrial], directory: Path) -> None:
    """history.png, slices.png and importance.png by Optuna, curves.png of the three best trials."""
    pyplot.switch_backend("agg")
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        for name, draw in (("history", plots.plot_optimization_history), ("slices", plots.plot_slice),
                           ("importance", plots.plot_param_importances)):
            if name == "importance" and len({trial.value for trial in complete}) < 2:
                continue
            try:
                draw(study)
                pyplot.gcf().savefig(directory / f"{name}.png", dpi=160, bbox_inches="tight")
            except (ValueError, RuntimeError):  # too few trials, or keys that do not vary
                pass
            finally:
                pyplot.close("all")
    runs = [run for trial in complete[:3] for run in sorted(Path(trial.user_attrs["runs"]).glob("seed-*"))]
    try:
        if runs:
            plot(runs, directory / "curves.png", metric=plan.metric)
    except ConfigError:  # runs of another machine, or no metric yet
        pass
