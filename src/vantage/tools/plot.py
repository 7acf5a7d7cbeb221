"""`vantage plot`: learning curves as a figure with a table below it, and as CSV. The numbers come from `curves`."""

from __future__ import annotations

import csv as csv_module
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import cycle, product
from pathlib import Path
from textwrap import fill
from typing import get_args

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from vantage.errors import ConfigError
from vantage.tools.curves import Aggregate, Axis, Group, group_curves, read_curve
from vantage.tools.output import whole_file

# Okabe and Ito (2008), distinguishable with colour blindness; without yellow, which is too light on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES = [{"color": colour, "linestyle": dashes} for dashes, colour in product(("-", "--", ":"), _COLOURS)]
_X_LABELS = {
    "steps": "agent steps, all environments together",
    "minutes": "wall time of training, minutes",
    "frames": "frames of the environment, all environments together",
}
_Y_LABELS = {
    "rollout/ep_rew_mean": "raw score, mean of the last 100 training episodes",
    "eval/mean_reward": "raw score, mean of an evaluation's episodes",
    "rollout/ep_len_mean": "episode length, agent steps, mean of the last 100",
    "train/entropy": "entropy of the policy, nats",
    "time/fps": "agent steps per second",
}


def plot(runs: Sequence[Path], output: Path, *, x: Axis = "steps", metric: str = "rollout/ep_rew_mean",
         aggregate: Aggregate = "mean", smooth: float = 0.0, csv: Path | None = None,
         trust: bool = False) -> list[Group]:
    """Draw `metric` of the runs into `output` (png, svg or pdf), and write the same numbers to `csv`.

    Runs that differ only in the seed become one curve, their mean or interquartile mean, with its 95% bootstrap
    interval as a band. `smooth` in [0, 1) is the weight of the past in a moving average, as in TensorBoard. Returns the
    groups. ConfigError for a run without the metric and for an output that cannot be written.
    """
    if not 0 <= smooth < 1:
        raise ConfigError(f"smooth={smooth} is not in [0, 1); 0 shows the metric as recorded")
    if aggregate not in get_args(Aggregate):
        raise ConfigError(f"aggregate={aggregate!r} is not one of {', '.join(get_args(Aggregate))}")
    if not runs:
        raise ConfigError("nothing to plot: name at least one run directory")
    with whole_file(output, ".png", ".svg", ".pdf") as picture, \
            nullcontext() if csv is None else whole_file(csv, ".csv") as numbers:
        unique = {path.resolve(): path for path in runs}
        groups = group_curves([read_curve(path, x, metric, smooth, trust=trust) for path in unique.values()], aggregate)
        _figure(groups, x, metric, aggregate, smooth).savefig(picture, dpi=160)
        if numbers is not None:
            _write_csv(groups, numbers, x)
    return groups


def table(groups: Sequence[Group], x: Axis) -> list[tuple[str, str, str]]:
    """For each group its label, its last value with the 95% interval, and its highest value with its x."""
    rows = []
    for group in groups:
        ending, highest = "no common range", ""
        if len(group.x):
            ending = f"{group.middle[-1]:.5g}"
            if group.band is not None:
                ending += f" ({group.band[0][-1]:.5g} to {group.band[1][-1]:.5g})"
            peak = group.middle.argmax()
            at = f"{group.x[peak]:.1f} min" if x == "minutes" else EngFormatter(sep="", places=1)(group.x[peak])
            highest = f"{group.middle[peak]:.5g} at {at}"
        rows.append((group.label, ending, highest))
    return rows


def _figure(groups: Sequence[Group], x: Axis, metric: str, aggregate: Aggregate, smooth: float) -> Figure:
    # A Figure without pyplot, whose global state would change in a notebook that calls this.
    figure = Figure(figsize=(8, 4.4 + 0.2 * (len(groups) + 2)), layout="constrained")
    axes = figure.add_subplot()
    for group, style, words in zip(groups, cycle(_STYLES), table(groups, x), strict=False):
        label, ending, highest = words
        axes.plot(group.x, group.middle, **style, linewidth=2, label=fill(f"{label}: {ending}, highest {highest}", 110))
        if group.band is not None:
            axes.fill_between(group.x, *group.band, color=style["color"], alpha=0.18, linewidth=0)
            for curve in group.curves:
                axes.plot(curve.x, curve.y, **style, linewidth=0.6, alpha=0.35)
    envs = list(dict.fromkeys(group.curves[0].config.env.id for group in groups))
    axes.set_title(", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments", fontsize=13)
    axes.set_xlabel(_X_LABELS[x])
    axes.set_ylabel(_Y_LABELS.get(metric, metric) + (f"\nrunning mean, smooth = {smooth:g}" if smooth else ""))
    if x != "minutes":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(color="0.9", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    bands = any(group.band is not None for group in groups)
    middle = {"mean": "mean", "iqm": "interquartile mean"}[aggregate]
    figure.legend(loc="outside lower left", frameon=False, fontsize=8.5, title_fontsize=8.5, alignment="left",
                  title=f"value at the end: {middle} and 95% bootstrap interval; thin: each run" if bands else None)
    return figure


def _write_csv(groups: Sequence[Group], path: Path, x: Axis) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv_module.writer(file)
        writer.writerow(["group", "runs", x, "value", "low", "high"])
        for group in groups:
            for i, at in enumerate(group.x):
                band = ["", ""] if group.band is None else [f"{bound[i]:.6g}" for bound in group.band]
                writer.writerow([group.label, len(group.curves), f"{at:.10g}", f"{group.middle[i]:.6g}", *band])
