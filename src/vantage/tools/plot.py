"""`vantage plot`: learning curves as a figure with a table below it, and as CSV. The numbers come from `curves`."""

from __future__ import annotations

import csv as csv_module
from collections.abc import Sequence
from itertools import cycle, product
from pathlib import Path
from typing import get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from vantage.errors import ConfigError
from vantage.tools.curves import Aggregate, Axis, Group, group_curves, read_curve
from vantage.tools.output import whole_file

_FORMATS = (".png", ".svg", ".pdf")
# Okabe and Ito (2008), distinguishable with colour blindness; without yellow, which is too light on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES = [(colour, dashes) for dashes, colour in product(("-", "--", ":"), _COLOURS)]
_X_LABELS = {
    "steps": "agent steps, all environments together",
    "minutes": "wall time of training, minutes",
    "frames": "frames of the environment, all environments together",
}
_Y_LABELS = {
    "rollout/ep_rew_mean": "raw score, mean of the last 100 training episodes",
    "rollout/ep_rew_min": "raw score, lowest of the last 100 training episodes",
    "rollout/ep_rew_max": "raw score, highest of the last 100 training episodes",
    "rollout/ep_len_mean": "episode length, agent steps, mean of the last 100",
    "eval/mean_reward": "raw score, mean of an evaluation's episodes",
    "eval/mean_ep_length": "episode length in evaluation, agent steps",
    "train/entropy": "entropy of the policy, nats",
    "time/fps": "agent steps per second",
    "time/memory_mib": "resident memory, MiB",
}
_AGGREGATES = {"mean": "mean", "iqm": "interquartile mean"}
_ROW, _LABEL_WIDTH = 0.2, 54  # inches of a table row; characters of its first column


def plot(runs: Sequence[Path], output: Path, *, x: Axis = "steps", metric: str = "rollout/ep_rew_mean",
         aggregate: Aggregate = "mean", smooth: float = 0.0, csv: Path | None = None,
         trust: bool = False) -> list[Group]:
    """Draw `metric` of the runs into `output` (png, svg or pdf), and write the same numbers to `csv`.

    Runs that differ only in the seed become one curve, their mean or interquartile mean, with its 95% bootstrap
    interval as a band. `smooth` in [0, 1) is the weight of the past in a moving average, as in TensorBoard. Returns the
    groups. ConfigError for a run without the metric and for an output that cannot be written.
    """
    if output.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{output}: the name must end in {', '.join(_FORMATS)}")
    if csv is not None and csv.suffix.lower() != ".csv":
        raise ConfigError(f"{csv}: the name of the table must end in .csv")
    if not 0 <= smooth < 1:
        raise ConfigError(f"smooth={smooth} is not in [0, 1); 0 shows the metric as recorded")
    if aggregate not in get_args(Aggregate):
        raise ConfigError(f"aggregate={aggregate!r} is not one of {', '.join(get_args(Aggregate))}")
    if not runs:
        raise ConfigError("nothing to plot: name at least one run directory")
    unique = {path.resolve(): path for path in runs}
    groups = group_curves([read_curve(path, x, metric, smooth, trust=trust) for path in unique.values()], aggregate)
    with whole_file(output) as picture:
        _figure(groups, x, metric, aggregate, smooth).savefig(picture, dpi=160)
        if csv is not None:
            with whole_file(csv) as numbers:
                _write_csv(groups, numbers, x)
    return groups


def table(groups: Sequence[Group], x: Axis) -> list[tuple[str, str, str]]:
    """For each group its label, its last value with the 95% interval, and its highest value with its x."""
    peaks = [group.peak() for group in groups]
    return [(group.label, group.ending(), "" if peak is None else f"{peak[0]:.5g} at {_format_x(peak[1], x)}")
            for group, peak in zip(groups, peaks, strict=True)]


def _format_x(value: float, x: Axis) -> str:
    if x == "minutes":
        return f"{value:.1f} min"
    return f"{value:.0f}" if value < 1_000 else EngFormatter(sep="", places=1)(value)


def _figure(groups: Sequence[Group], x: Axis, metric: str, aggregate: Aggregate, smooth: float) -> Figure:
    # A Figure without pyplot, whose global state would change in a notebook that calls this.
    below = _ROW * (len(groups) + 2)
    figure = Figure(figsize=(8, 4.4 + below), layout="constrained")
    axes, under = figure.subplots(2, height_ratios=(4.4, below))
    for group, (colour, dashes) in zip(groups, cycle(_STYLES), strict=False):
        _draw_group(axes, group, colour, dashes)
    envs = list(dict.fromkeys(group.curves[0].config.env.id for group in groups))
    axes.set_title(", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments", fontsize=13)
    axes.set_xlabel(_X_LABELS[x])
    axes.set_ylabel(_Y_LABELS.get(metric, metric) + (f"\nrunning mean, smooth = {smooth:g}" if smooth else ""))
    if x != "minutes":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("0.5")
    axes.tick_params(color="0.5")
    _draw_table(under, groups, x, aggregate)
    return figure


def _draw_group(axes: Axes, group: Group, colour: str, dashes: str) -> None:
    marker = "o" if group.band is None and len(group.x) <= 30 else ""
    if group.band is not None:
        for curve in group.curves:
            axes.plot(curve.x, curve.y, color=colour, linewidth=0.6, alpha=0.35)
        axes.fill_between(group.x, *group.band, color=colour, alpha=0.18, linewidth=0)
    axes.plot(group.x, group.middle, color=colour, linestyle=dashes, linewidth=2, marker=marker, markersize=4)


def _draw_table(axes: Axes, groups: Sequence[Group], x: Axis, aggregate: Aggregate) -> None:
    """Legend and results in one: a row for each group."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(len(groups) + 1.5, -0.5)
    bands = any(group.band is not None for group in groups)
    caption = f"{_AGGREGATES[aggregate]}, 95% bootstrap interval; thin: each run" if bands else ""
    for i, (label, ending, peak) in enumerate([(caption, "at the end", "highest"), *table(groups, x)]):
        short = label if len(label) <= _LABEL_WIDTH else f"{label[:_LABEL_WIDTH // 2]}…{label[-_LABEL_WIDTH // 2 + 1:]}"
        for at, text, side in ((0.06 if i else 0, short, "left"), (0.8, ending, "right"), (1, peak, "right")):
            axes.text(at, i, text, fontsize=8.5, va="center", ha=side, color="0" if i else "0.4")
    for i, (colour, dashes) in zip(range(1, len(groups) + 1), cycle(_STYLES), strict=False):
        axes.plot((0, 0.045), (i, i), color=colour, linestyle=dashes, linewidth=2)


def _write_csv(groups: Sequence[Group], path: Path, x: Axis) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv_module.writer(file)
        writer.writerow(["group", "runs", x, "value", "low", "high"])
        for group in groups:
            for i, at in enumerate(group.x):
                band = ["", ""] if group.band is None else [f"{bound[i]:.6g}" for bound in group.band]
                writer.writerow([group.label, len(group.curves), f"{at:.10g}", f"{group.middle[i]:.6g}", *band])
