"""`vantage plot`: learning curves of runs, grouped by seeds, as a figure with a table, and as CSV."""

from __future__ import annotations

import csv as csv_module
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from textwrap import fill
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from vantage._host.extras import needs
from vantage._host.terminal import printable
from vantage.config.config import Config
from vantage.config.run import RunConfig
from vantage.config.runtimes import Sync
from vantage.errors import ConfigError
from vantage.keys.fields import in_text, nearest
from vantage.runs.directory import RunDirectory
from vantage.runs.files import whole_file
from vantage.runs.metrics import read_metrics

with needs("plot"):
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler
    from matplotlib.ticker import EngFormatter

log = logging.getLogger(__name__)

Axis = Literal["steps", "minutes", "frames"]
Aggregate = Literal["mean", "iqm"]
Points = NDArray[np.float64]
Lines = list[dict[str, float | None]]

_IGNORED = {"threads", "device", "vector", "env_timeout", "max_restarts", "replay_save_every",
            "ray_address", *(field.name for field in fields(RunConfig) if field.name != "steps")}
"""Keys that do not change what is learned: the seed, and what only computes, saves, evaluates or
ends a run."""
_GRID_POINTS = 500
_RESAMPLES = 2_000
# Okabe and Ito (2008), distinguishable with colour blindness; without yellow, which is too light on
# white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_X_LABELS = {"steps": "agent steps, all environments together",
             "minutes": "wall time of training, minutes",
             "frames": "frames of the environment, all environments together"}


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: `y` at each `x`, x rising."""

    config: Config
    x: Points
    y: Points


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of the same setting, aggregated over the range of x that all of them cover."""

    label: str
    """The algorithm, and the keys that differ from those of other groups."""
    env: str
    curves: tuple[Curve, ...]
    """The runs; empty for a group that was read from a CSV."""
    x: Points
    """Empty without a common range."""
    middle: Points
    """Mean or interquartile mean over the runs; a single run unchanged."""
    band: tuple[Points, Points] | None
    """95% bootstrap interval of `middle`; None for a single run."""


def plot(runs: str | Path | Iterable[str | Path], output: str | Path = "plot.png", *,
         x: Axis = "steps", metric: str = "rollout/ep_rew_mean", aggregate: Aggregate = "mean",
         csv: str | Path | None = None, trust: bool = False) -> list[Group]:
    """Draw `metric` of the runs, or of all runs in a folder, into `output` (png, svg or pdf), and the numbers to `csv`.

        for group in vantage.plot("runs/CartPole-v1", "curve.png"):
            print(group.label, group.middle[-1])

    Runs of one setting become one curve, their `aggregate` ("mean", or "iqm", the interquartile mean) by `x`
    ("steps", "minutes" or "frames"), with its 95% bootstrap interval as a band. Returns the curves. A warning names
    each run that is left out; ConfigError if none is left, and for an output that cannot be written. `trust` is that of
    `vantage.load`.
    """
    folders = [runs] if isinstance(runs, str | Path) else runs
    for name, value, values in (("x", x, get_args(Axis)),
                                ("aggregate", aggregate, get_args(Aggregate))):
        if value not in values:
            raise ConfigError(f"{name}={value!r} is not one of {', '.join(values)}")
    curves, problems = list[Curve](), list[str]()
    for path in {path.resolve(): path for folder in map(Path, folders)
                 for path in find_runs(folder)}.values():
        try:
            config = RunDirectory.open(path, trust=trust).config
            curves.append(make_curve(config, read_metrics(path), x, metric, source=path))
        except ConfigError as error:
            if not path.is_dir():
                raise
            problems.append(str(error))  # also of a run that was killed while it was made
    if not curves:
        raise ConfigError(problems[0] if problems else "nothing to plot: name at least one run "
                          "directory")
    for problem in problems:
        log.warning("left out: %s", problem)
    groups = group_curves(curves, aggregate)
    with whole_file(output, ".png", ".svg", ".pdf") as picture, \
            nullcontext() if csv is None else whole_file(csv, ".csv") as numbers:
        if numbers is not None:
            _write_csv(groups, numbers, x)
        save(draw(groups, x, metric, aggregate), picture, numbers)
    return groups


def save(figure: Figure, picture: Path, csv: Path | None) -> None:
    """Write the figure; a PNG names its environments, and the numbers that it shows by their digest."""
    metadata = {"Title": figure.axes[0].get_title()}
    if csv is not None:
        metadata["Source"] = digest(csv)
    figure.savefig(picture, dpi=160,
                   metadata=metadata if picture.suffix.lower() == ".png" else None)


def digest(csv: Path) -> str:
    """SHA-256 of a file of numbers, as the metadata of its picture has it."""
    return f"sha256:{hashlib.sha256(csv.read_bytes()).hexdigest()}"


def find_runs(path: Path) -> list[Path]:
    """The run `path`, or all runs below it; `path` itself if there is none."""
    runs = [] if (path / "config.json").exists() else sorted(file.parent for file in path.rglob("config.json"))
    return runs or [path]


def make_curve(config: Config, lines: Lines, x: Axis, metric: str, *, source: Path) -> Curve:
    """`metric` of a run with these lines of metrics; ConfigError, which names `source`, if they have none."""
    # A dictionary, so that the last of several lines at one x wins.
    points = {at: value for line in lines if (value := line.get(metric)) is not None
              and (at := _position(line, x, metric)) is not None}
    if not points:
        names = {name for line in lines for name, value in line.items() if value is not None
                 and "/" in name}
        raise ConfigError(f"{source} has no finite value of {metric} by {x} yet; perhaps no game "
                          f"has ended{nearest(metric, names)}; it has "
                          f"{', '.join(sorted(names)) or 'no metrics yet'}")
    xs, ys = np.array(sorted(points.items()), dtype=np.float64).T
    return Curve(config, xs, ys)


def _position(line: Mapping[str, float | None], x: Axis, metric: str) -> float | None:
    """The x of a line; an evaluation counts at the step of the policy that it played, not at its end."""
    if x == "minutes":
        seconds = line.get("seconds")
        return None if seconds is None else seconds / 60
    logged, frames = line["step"] or 0, line.get("time/frames")
    step = line.get("eval/step") if metric.startswith("eval/") else None
    step = logged if step is None else step
    return step if x == "steps" else None if frames is None else frames * step / max(1, logged)


def group_curves(curves: Sequence[Curve], aggregate: Aggregate = "mean") -> list[Group]:
    """Group curves of the same setting; labels contain the keys that differ between groups."""
    grouped: dict[tuple[tuple[str, Any], ...], list[Curve]] = {}
    for curve in curves:
        grouped.setdefault(tuple(_setting(curve.config).items()), []).append(curve)
    settings = [dict(key) for key in grouped]
    return [_aggregated(_label(setting, settings), members, aggregate)
            for setting, members in zip(settings, grouped.values(), strict=True)]


def _setting(config: Config) -> dict[str, Any]:
    """The keys of a config that change what is learned."""
    # Longer training alone does not: `steps` counts as the length of the schedules.
    values = {**config.flat(), "steps": config.schedule_steps}
    # Ranks share every update, so that their number does not change it; Hogwild's workers do not.
    ignored = {*_IGNORED, "num_workers"} if isinstance(config.runtime, Sync) else _IGNORED
    return {name: value for name, value in values.items() if name not in ignored}


def _label(setting: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> str:
    """The algorithm, the environment if there are several, and the keys that differ among settings of both."""
    words = [setting["algo"]] + [setting["env"]] * (len({other["env"] for other in settings}) > 1)
    rivals = [other for other in settings
              if (other["algo"], other["env"]) == (setting["algo"], setting["env"])]
    return " ".join(words + [f"{name}={in_text(value)}" for name, value in setting.items()
                             if len({rival.get(name) for rival in rivals}) > 1])


def _aggregated(label: str, curves: Sequence[Curve], aggregate: Aggregate) -> Group:
    if len(curves) == 1:
        return Group(f"{label} (1 seed)", curves[0].config.env.id, tuple(curves), curves[0].x,
                     curves[0].y, None)
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.linspace(first, last, _GRID_POINTS) if first < last else np.empty(0)
    values = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])
    unit = "seeds" if len({curve.config.run.seed for curve in curves}) == len(curves) else "runs"
    return Group(f"{label} ({len(curves)} {unit})", curves[0].config.env.id, tuple(curves), x,
                 middle(values, aggregate), bootstrap_interval(values, aggregate))


def middle(values: Points, aggregate: Aggregate) -> Points:
    """The mean of `values` [runs, N], or the interquartile mean, without the lowest and highest floor(runs/4) values.

    Agarwal et al. 2021, arXiv:2108.13264, section 4.2.
    """
    cut = len(values) // 4 if aggregate == "iqm" else 0
    mean: Points = np.sort(values, axis=0)[cut:len(values) - cut].mean(axis=0)
    return mean


def bootstrap_interval(values: Points, aggregate: Aggregate) -> tuple[Points, Points]:
    """95% percentile interval of the aggregate of `values` [runs, N], over runs resampled with replacement.

    Efron and Tibshirani 1993, section 13.3.
    """
    draws = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    low, high = np.percentile([middle(values[draw], aggregate) for draw in draws], (2.5, 97.5),
                              axis=0)
    return low, high


def table(groups: Sequence[Group], x: Axis) -> list[tuple[str, str, str]]:
    """For each group its label, its last value with the 95% interval, and its highest value with its x."""
    rows = []
    for group in groups:
        ending, highest = "no common range", ""
        if len(group.x):
            low_high = group.band and f" ({group.band[0][-1]:.5g} to {group.band[1][-1]:.5g})"
            peak = group.middle.argmax()
            at = f"{group.x[peak]:.1f} min" if x == "minutes" else EngFormatter(sep="", places=1)(group.x[peak])
            ending, highest = f"{group.middle[-1]:.5g}{low_high or ''}", f"{group.middle[peak]:.5g} at {at}"
        rows.append((group.label, ending, highest))
    return rows


def draw(groups: Sequence[Group], x: Axis, metric: str, aggregate: Aggregate = "mean") -> Figure:
    """The figure of the groups, with their table as its legend."""
    # A Figure without pyplot, whose global state would change in a notebook that calls this.
    figure = Figure(figsize=(8, 4.4 + 0.2 * (len(groups) + 2)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_prop_cycle(cycler(linestyle=("-", "--", ":")) * cycler(color=_COLOURS))
    for group, (label, ending, highest) in zip(groups, table(groups, x), strict=True):
        words = _plain(f"{label}: {ending}, highest {highest}", 110)
        dot = "o" if len(group.x) == 1 else ""  # no line goes through one point
        line, = axes.plot(group.x, group.middle, linewidth=2, marker=dot, label=words)
        if group.band is not None:
            axes.fill_between(group.x, *group.band, color=line.get_color(), alpha=0.18, linewidth=0)
            for curve in group.curves:
                axes.plot(curve.x, curve.y, color=line.get_color(), linestyle=line.get_linestyle(),
                          linewidth=0.6, alpha=0.35)
    axes.set_title(_plain(", ".join({group.env: None for group in groups}), 80), fontsize=13)
    axes.set_xlabel(_X_LABELS[x])
    axes.set_ylabel(_plain(metric, 80))
    if x != "minutes":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(color="0.9", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    bands = any(group.band is not None for group in groups)
    thin = "; thin: each run" if any(len(group.curves) > 1 for group in groups) else ""
    name = "interquartile mean" if aggregate == "iqm" else "mean"
    figure.legend(loc="outside lower left", frameon=False, fontsize=8.5, title_fontsize=8.5,
                  alignment="left",
                  title=f"value at the end: {name} and 95% bootstrap interval{thin}" if bands
                  else None)
    return figure


def _plain(text: str, width: int) -> str:
    """`text` in lines of `width`, without Matplotlib's mathtext and what it cannot draw, as in ids of someone else."""
    return fill(printable(text), width).replace("$", r"\$")


def _write_csv(groups: Sequence[Group], path: Path, x: Axis) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv_module.writer(file)
        writer.writerow(["group", "runs", x, "value", "low", "high"])
        for group in groups:
            for i, at in enumerate(group.x):
                band = ["", ""] if group.band is None else [f"{bound[i]:.6g}" for bound in group.band]
                writer.writerow([group.label, len(group.curves), f"{at:.10g}",
                                 f"{group.middle[i]:.6g}", *band])
