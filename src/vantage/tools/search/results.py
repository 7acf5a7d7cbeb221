"""What a search leaves when it ends: results.csv, results.md, and pictures of what mattered."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vantage.errors import ConfigError
from vantage.runs.directory import write_atomically
from vantage.tools.plot import plot
from vantage.tools.search.plan import Plan
from vantage.tools.search.show import View, ranked, short
from vantage.tools.search.space import Choices, Range
from vantage.tools.search.study import Row, Trials

_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "0.65"
_CURVES = 3
"""So many of the best trials are in curves.png."""
_BEST_SHARE = 0.25
"""Which trials importance.png tells from the rest; the usual tenth of some dozens is too few to estimate from."""


def write_tables(plan: Plan, view: View, directory: Path) -> list[Path]:
    """results.csv with every trial, by number; results.md with the best first."""
    names = list(plan.space.domains)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    seeds = [str(seed) for seed in plan.trial_seeds()]
    writer.writerow(["trial", "state", "value", "compared_at", "steps", *names, *(f"seed_{seed}" for seed in seeds),
                     "runs", "error"])
    for row in view.rows:
        writer.writerow([row.number, row.state, "" if row.value is None else row.value, row.reached, row.steps,
                         *(row.values.get(name, "") for name in names), *(row.scores.get(seed, "") for seed in seeds),
                         row.runs, row.error])
    write_atomically(directory / "results.csv", text.getvalue())
    write_atomically(directory / "results.md", _markdown(plan, view, names, directory))
    return [directory / "results.csv", directory / "results.md"]


def _markdown(plan: Plan, view: View, names: Sequence[str], directory: Path) -> str:
    spent = sum(row.steps for row in view.rows)
    whole = view.count("complete", "pruned") * plan.base.steps * plan.seeds
    lines = [f"# {plan.algo} on {plan.base.env}", "", f"{view.sentence()}.", "",
             f"Value: {plan.objective}. A trial is {plan.base.steps:,} agent steps"
             + (f" on each of {plan.seeds} seeds" if plan.seeds > 1 else "")
             + (f", compared at {', '.join(f'{step:,}' for step in plan.rungs[:-1])}" if len(plan.rungs) > 1 else "")
             + f". Steps spent: {spent:,}"
             + (f", {1 - spent / whole:.0%} less than without pruning." if whole and len(plan.rungs) > 1 else "."), ""]
    if view.best:
        seed = plan.base.seed + plan.seeds
        lines += [f"Train the best with: `vantage train --from-search {directory} --seed {seed}`", ""]
    lines += [f"| trial | | value | {' | '.join(names)} | steps |", "|---:|---|---:|" + "---|" * len(names) + "---:|"]
    for row in ranked(view.rows):
        value = "" if row.value is None else f"{row.value:.6g}" + ("" if row.state == "complete" else
                                                                   f" at {row.reached:,}")
        keys = " | ".join(short(row.values[name]).replace("|", "\\|") if name in row.values else "" for name in names)
        lines.append(f"| {row.number} | {row.state} | {value} | {keys} | {row.steps:,} |")
    failed = [f"- Trial {row.number} failed: {row.error}" for row in view.rows if row.error]
    return "\n".join([*lines, *(["", *failed] if failed else []), ""])


def write_plots(trials: Trials, view: View, directory: Path) -> list[Path]:
    """history.png, slices.png, importance.png and curves.png, as far as there is something to show."""
    figures = {"history": _history(view), "slices": _slices(view), "importance": _importance(trials, view)}
    written = []
    for name, figure in figures.items():
        if figure is not None:
            figure.savefig(directory / f"{name}.png", dpi=160)
            written.append(directory / f"{name}.png")
    best = [row for row in ranked(view.rows) if row.state == "complete"][:_CURVES]
    runs = [run for row in best for run in sorted(Path(row.runs).glob("seed-*"))]
    try:
        if runs:
            plot(runs, directory / "curves.png", metric=view.plan.metric)
            written.append(directory / "curves.png")
    except ConfigError:  # another machine's runs, or no metric yet
        pass
    return written


def _plain(axes: Axes) -> None:
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("0.5")
    axes.tick_params(color="0.5")


def _history(view: View) -> Figure | None:
    rows = [row for row in view.rows if row.value is not None and row.state in ("complete", "pruned")]
    if not rows:
        return None
    figure = Figure(figsize=(8, 4.4), layout="constrained")
    axes = figure.subplots()
    _scatter(axes, [row.number for row in rows], rows)
    best, steps = -float("inf"), []
    for row in rows:
        if row.state == "complete" and row.value is not None and row.value > best:
            best = row.value
        if best > -float("inf"):
            steps.append((row.number, best))
    if steps:
        axes.step(*zip(*steps, strict=True), where="post", color=_ORANGE, linewidth=2, label="best so far")
    axes.set_title(f"{view.plan.algo} on {view.plan.base.env}: {len(view.rows)} trials", fontsize=13)
    axes.set_xlabel("trial")
    axes.set_ylabel(_axis_label(view))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _plain(axes)
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    return figure


def _axis_label(view: View) -> str:
    return view.plan.objective.replace(" (", "\n(")


def _scatter(axes: Axes, xs: Sequence[Any], rows: Sequence[Row]) -> None:
    for state, colour, marker, label in (("pruned", _GREY, "x", "pruned, value where it was"),
                                         ("complete", _BLUE, "o", "complete")):
        chosen = [i for i, row in enumerate(rows) if row.state == state]
        if chosen:
            axes.scatter([xs[i] for i in chosen], [rows[i].value or 0.0 for i in chosen], color=colour, marker=marker,
                         s=28, label=label)


def _slices(view: View) -> Figure | None:
    domains = view.plan.space.domains
    rows = [row for row in view.rows if row.value is not None and row.state in ("complete", "pruned")
            and domains.keys() <= row.params.keys()]
    if not rows:
        return None
    columns = min(3, len(domains))
    lines = -(-len(domains) // columns)
    figure = Figure(figsize=(1 + 3.2 * columns, 0.6 + 2.8 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axes, (name, domain) in zip(grid, domains.items(), strict=False):
        if isinstance(domain, Choices):
            places = {value: i for i, value in enumerate(domain.values)}
            _scatter(axes, [places[row.params[name]] for row in rows], rows)
            slanted = max(len(short(value)) for value in domain.values) * len(domain.values) > 28
            axes.set_xticks(range(len(places)), [short(value) for value in domain.values],
                            **({"rotation": 30, "ha": "right"} if slanted else {}))
            axes.set_xlim(-0.5, len(places) - 0.5)
        else:
            _scatter(axes, [row.params[name] for row in rows], rows)
            if domain.log:
                axes.set_xscale("log")
        axes.set_xlabel(_range_label(name, domain) if isinstance(domain, Range) else name)
        _plain(axes)
    for axes in grid[len(domains):]:
        axes.set_axis_off()
    for axes in grid[::columns]:
        axes.set_ylabel(_axis_label(view), fontsize=8)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=2, frameon=False)
    return figure


def _range_label(name: str, domain: Range) -> str:
    return name if domain.text == "{}" else f"{name} = {domain.text.replace('{}', 'x')}, x"


def _importance(trials: Trials, view: View) -> Figure | None:
    """PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255), which needs no library besides Optuna.

    Over what all trials have: their value at the first comparison, or at the end where there is no pruning.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    rungs = view.plan.rungs
    step = rungs[0] if len(rungs) > 1 else None
    study = trials.as_completed(step)
    values = {trial.value for trial in study.trials}
    varied = [name for name in view.plan.space.domains
              if len({trial.params[name] for trial in study.trials if name in trial.params}) > 1]
    if len(study.trials) < 4 or len(values) < 2 or not varied:
        return None
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_BEST_SHARE)
    found = get_param_importances(study, evaluator=evaluator, params=varied)
    names = list(reversed(found))
    figure = Figure(figsize=(8, 1.4 + 0.34 * len(names)), layout="constrained")
    axes = figure.subplots()
    bars = axes.barh(names, [found[name] for name in names], color=_BLUE)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.margins(x=0.1)
    axes.set_title("which key decides whether a trial is among the best quarter", fontsize=13)
    axes.set_xlabel(f"share (PED-ANOVA) over {len(study.trials)} trials, by their value "
                    + ("at the end" if step is None else f"at {step:,} steps, which all of them have"))
    _plain(axes)
    axes.grid(False, axis="y")
    return figure
