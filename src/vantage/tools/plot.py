"""Learning curves: runs as a figure and as CSV. Reads metrics.jsonl, writes only the files that it is told to."""

from __future__ import annotations

import csv as csv_module
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import cycle, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from numpy.typing import NDArray

from vantage.config import Config, nearest
from vantage.errors import ConfigError
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics

Axis = Literal["steps", "minutes", "frames"]
Points = NDArray[np.float64]

_FORMATS = (".png", ".svg", ".pdf")
_GRID_POINTS = 500
# Okabe and Ito (2008), told apart also by the colour-blind; yellow left out, too light on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_X_LABELS = {
    "steps": "agent steps, all environments together",
    "minutes": "wall time of training, minutes",
    "frames": "frames of the environment, all environments together",
}
_Y_LABELS = {
    "rollout/ep_rew_mean": "raw score, mean of the last 100 training episodes",
    "rollout/ep_len_mean": "episode length, agent steps, mean of the last 100",
    "eval/mean_reward": "raw score, mean of an evaluation's episodes",
    "eval/mean_ep_length": "episode length in evaluation, agent steps",
    "train/entropy": "entropy of the policy, nats",
    "time/fps": "agent steps per second",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: `y` at each `x`, x rising."""

    config: Config
    x: Points
    y: Points


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ in nothing but the seed, and their mean and deviation where all of them have data."""

    label: str
    curves: tuple[Curve, ...]
    x: Points
    mean: Points
    deviation: Points | None
    """Sample standard deviation over the runs; None for a single run."""


def plot(runs: Sequence[Path], output: Path, *, x: Axis = "steps", metric: str = "rollout/ep_rew_mean",
         smooth: float = 0.0, csv: Path | None = None) -> Path:
    """Draw `metric` of the runs into `output` (png, svg or pdf), and the same numbers into `csv` if it is given.

    Runs that differ only in the seed become one curve, their mean, with a band of one standard deviation to each side.
    `smooth` in [0, 1) is the weight of the past in a running mean, as in TensorBoard. ConfigError for a run without
    the metric and for an output that cannot be written.
    """
    if output.suffix.lower() not in _FORMATS:
        raise ConfigError(f"{output}: the name must end in {', '.join(_FORMATS)}")
    if not 0 <= smooth < 1:
        raise ConfigError(f"smooth={smooth} is not in [0, 1); 0 shows the metric as recorded")
    if not runs:
        raise ConfigError("nothing to plot: name at least one run directory")
    unique = {path.resolve(): path for path in runs}
    groups = group_curves([_read_curve(path, x, metric, smooth) for path in unique.values()])
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _draw(groups, x, metric, smooth).savefig(output, dpi=160)
        if csv is not None:
            _write_csv(groups, csv, x)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or output}: {error.strerror}; choose another output") from None
    return output


def group_curves(curves: Sequence[Curve]) -> list[Group]:
    """Curves by config without the seed, in the order given, labelled by what tells them apart."""
    grouped: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        key = tuple(getattr(curve.config, f.name) for f in fields(Config) if f.name != "seed")
        grouped.setdefault(key, []).append(curve)
    configs = [members[0].config for members in grouped.values()]
    return [_summarise(_label(members[0].config, configs), members) for members in grouped.values()]


def _summarise(label: str, curves: Sequence[Curve]) -> Group:
    if len(curves) == 1:
        return Group(f"{label} (1 seed)", tuple(curves), curves[0].x, curves[0].y, None)
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.linspace(first, last, _GRID_POINTS) if first < last else np.empty(0)
    values = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])
    what = "seeds" if len({curve.config.seed for curve in curves}) == len(curves) else "runs"
    return Group(f"{label} ({len(curves)} {what})", tuple(curves), x,
                 values.mean(axis=0), values.std(axis=0, ddof=1))


def _label(config: Config, configs: Sequence[Config]) -> str:
    """The algorithm, the environment if there are several, and the keys that differ among runs of both."""
    words = [config.algo] + [config.env] * (len({other.env for other in configs}) > 1)
    rivals = [other for other in configs if (other.algo, other.env) == (config.algo, config.env)]
    for f in fields(Config):
        if f.name != "seed" and len({getattr(rival, f.name) for rival in rivals}) > 1:
            words.append(f"{f.name}={getattr(config, f.name)}")
    return " ".join(words)


def _read_curve(path: Path, x: Axis, metric: str, smooth: float) -> Curve:
    config = RunDirectory.open(path).config
    records = read_metrics(path)
    if not records:
        raise ConfigError(f"{path} has no metrics yet: nothing to plot until it has trained for some seconds")
    names = {name for record in records for name in record if "/" in name}
    for name in [metric] + ["time/frames"] * (x == "frames"):
        if name not in names:
            raise ConfigError(f"{path} has no metric {name!r}{nearest(name, names)}; it has {', '.join(sorted(names))}")
    # By x, so that of several records at one place the last one holds.
    points = {at: value for record in records
              if (value := record.get(metric)) is not None and (at := _position(record, x)) is not None}
    if not points:
        raise ConfigError(f"{path} has recorded no finite value of {metric} yet")
    xs = sorted(points)
    values = np.array([points[at] for at in xs], dtype=np.float64)
    return Curve(config, np.array(xs, dtype=np.float64), _smoothed(values, smooth))


def _position(record: Mapping[str, float | None], x: Axis) -> float | None:
    match x:
        case "steps":
            return record["step"]
        case "minutes":
            seconds = record.get("seconds")
            return None if seconds is None else seconds / 60
        case "frames":
            return record.get("time/frames")


def _smoothed(values: Points, weight: float) -> Points:
    """Exponential running mean without the bias of its start: the sums of w^k y and of w^k, one over the other."""
    result, total, mass = np.empty_like(values), 0.0, 0.0
    for i, value in enumerate(values):
        total, mass = weight * total + value, weight * mass + 1
        result[i] = total / mass
    return result


def _draw(groups: Sequence[Group], x: Axis, metric: str, smooth: float) -> Figure:
    # A Figure of its own, never pyplot: nothing global changes in a notebook that calls this.
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for group, (dashes, colour) in zip(groups, cycle(product(("-", "--", ":"), _COLOURS)), strict=False):
        _draw_group(axes, group, colour, dashes)
    envs = list(dict.fromkeys(group.curves[0].config.env for group in groups))
    axes.set_title(", ".join(envs) if len(envs) <= 3 else f"{len(envs)} environments", fontsize=13)
    axes.set_xlabel(_X_LABELS[x])
    smoothing = f"\nrunning mean, smooth = {smooth:g}" if smooth else ""
    axes.set_ylabel(_Y_LABELS.get(metric, metric) + smoothing)
    if x != "minutes":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("0.5")
    axes.tick_params(color="0.5")
    bands = any(group.deviation is not None for group in groups)
    figure.legend(loc="outside lower center", ncols=2 if len(groups) > 4 else 1, frameon=False, fontsize=9,
                  title_fontsize=9, title="mean; band: ± 1 standard deviation; thin: each run" if bands else None)
    return figure


def _draw_group(axes: Axes, group: Group, colour: str, dashes: str) -> None:
    marker = "o" if len(group.curves[0].x) <= 30 else ""
    if group.deviation is not None:
        for curve in group.curves:
            axes.plot(curve.x, curve.y, color=colour, linewidth=0.6, alpha=0.35)
        low, high = group.mean - group.deviation, group.mean + group.deviation
        axes.fill_between(group.x, low, high, color=colour, alpha=0.18, linewidth=0)
        marker = ""
    axes.plot(group.x, group.mean, color=colour, linestyle=dashes, linewidth=2, marker=marker, markersize=4,
              label=group.label)


def _write_csv(groups: Sequence[Group], path: Path, x: Axis) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv_module.writer(file)
        writer.writerow(["group", "runs", x, "mean", "standard_deviation"])
        writer.writerows(row for group in groups for row in _rows(group))


def _rows(group: Group) -> Iterator[list[str]]:
    for i, at in enumerate(group.x):
        deviation = "" if group.deviation is None else f"{group.deviation[i]:.6g}"
        yield [group.label, str(len(group.curves)), f"{at:.10g}", f"{group.mean[i]:.6g}", deviation]
