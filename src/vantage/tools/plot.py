"""`vantage plot`: learning curves of runs as a figure with a table, and as CSV."""

from __future__ import annotations

import csv as csv_module
import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from textwrap import fill
from typing import Any, Protocol, get_args

from vantage._host.extras import needs
from vantage._host.terminal import printable
from vantage.errors import ConfigError
from vantage.keys.objects import shown_name
from vantage.runs.directory import RunDirectory
from vantage.runs.files import whole_file
from vantage.runs.handed_over import code_of, run_of
from vantage.runs.meta import meta_of
from vantage.runs.metrics import read_metrics
from vantage.tools.curves import Aggregate, Axis, Curve, Group, group_curves, make_curve

with needs("plot"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler
    from matplotlib.ticker import EngFormatter

log = logging.getLogger(__name__)


class HasRun(Protocol):
    """An agent or a trainer."""

    @property
    def run(self) -> Path | None:
        """The run directory."""


# Okabe and Ito (2008), distinguishable with colour blindness; without yellow, which is too light on
# white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_X_LABELS = {"steps": "agent steps, all environments together",
             "minutes": "wall time of training, minutes",
             "frames": "frames of the environment, all environments together"}


class Curves(list[Group]):
    """The curves of a figure, which notebooks show."""

    def __init__(self, groups: Iterable[Group], path: Path) -> None:
        super().__init__(groups)
        self.path = path
        """The figure."""

    def __repr__(self) -> str:
        number = "1 curve" if len(self) == 1 else f"{len(self)} curves"
        return f"<{shown_name(self.path)}: {number}>"

    def _repr_svg_(self) -> str | None:
        content = self._content(".svg")
        return None if content is None else content.decode()

    def _repr_png_(self) -> bytes | None:
        return self._content(".png")

    def _content(self, suffix: str) -> bytes | None:
        """The figure's file, if it has this suffix and still exists."""
        if self.path.suffix.lower() != suffix or not self.path.is_file():
            return None
        return self.path.read_bytes()


Runs = str | Path | HasRun | Iterable[str | Path | HasRun]
"""A run, a folder of runs or an agent; or several of them."""


def plot(runs: Runs, output: str | Path = "plot.png", *,
         x: Axis = "steps", metric: str = "rollout/ep_rew_mean", aggregate: Aggregate = "mean",
         csv: str | Path | None = None, trust: bool = False) -> Curves:
    """Draw `metric` of runs or agents, or of all runs in a folder, into `output` (png, svg or pdf).

        for group in vantage.plot("runs/CartPole-v1", "curve.png"):
            print(group.label, group.middle[-1])

    Runs of one setting become one curve, their `aggregate` ("mean", or "iqm", the interquartile
    mean) by `x` ("steps", "minutes" or "frames"), with its 95% bootstrap interval as a band.
    Returns the curves, a list that a notebook shows as the figure, and writes their numbers to
    `csv`. A warning names each run that is left
    out; ConfigError if none is left, and for an output that cannot be written. `trust` is that of
    `vantage.load`.
    """
    for name, value, choices in (("x", x, get_args(Axis)),
                                 ("aggregate", aggregate, get_args(Aggregate))):
        if value not in choices:
            raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}")
    folders = [runs] if isinstance(runs, str | Path) or hasattr(runs, "run") else runs
    groups = group_curves(_read_curves(folders, x, metric, trust=trust), aggregate)
    with (whole_file(output, ".png", ".svg", ".pdf") as picture,
          nullcontext() if csv is None else whole_file(csv, ".csv") as numbers):
        if numbers is not None:
            _write_csv(groups, numbers, x)
        save(draw(groups, x, metric, aggregate), picture, numbers)
    return Curves(groups, Path(output))


def _read_curves(folders: Iterable[Any], x: Axis, metric: str, *,
                 trust: bool) -> list[Curve]:
    """The curves of all runs in `folders`; a warning for each run without one.

    ConfigError if none has one.
    """
    paths: dict[Path, Path] = {}  # by the resolved path: a run counts once
    for folder in folders:
        for path in find_runs(Path(run_of(folder))):
            paths[path.resolve()] = path
    curves = []
    problems = []
    for path in paths.values():
        try:
            directory = RunDirectory.open(path, trust=trust)
            code = code_of(directory.config, meta_of(path), path)
            curves.append(make_curve(directory.config, read_metrics(path), x, metric, source=path,
                                     code=code))
        except ConfigError as error:
            if not path.is_dir():
                raise
            problems.append(str(error))  # also of a run that was killed while it was made
    if not paths:
        raise ConfigError("nothing to plot: name at least one run directory")
    if not curves:
        raise ConfigError(problems[0])
    for problem in problems:
        log.warning("left out: %s", problem)
    return curves


def find_runs(path: Path) -> list[Path]:
    """The run `path`, or all runs below it; `path` itself if there is none."""
    if (path / "config.json").exists():
        return [path]
    return sorted(file.parent for file in path.rglob("config.json")) or [path]


def save(figure: Figure, picture: Path, csv: Path | None) -> None:
    """Write the figure; the metadata of a PNG name its environments, and its numbers' digest."""
    metadata = {"Title": figure.axes[0].get_title()}
    if csv is not None:
        metadata["Source"] = digest(csv)
    is_png = picture.suffix.lower() == ".png"
    figure.savefig(picture, dpi=160, metadata=metadata if is_png else None)


def digest(csv: Path) -> str:
    """SHA-256 of a file of numbers, as the metadata of its picture has it."""
    return f"sha256:{hashlib.sha256(csv.read_bytes()).hexdigest()}"


def summary_rows(groups: Sequence[Group], x: Axis) -> list[tuple[str, str, str]]:
    """For each group its label, last value with the 95% interval, and highest value with its x."""
    rows = []
    for group in groups:
        if not len(group.x):
            rows.append((group.label, "no common range", ""))
            continue
        ending = f"{group.middle[-1]:.5g}"
        if group.band is not None:
            low, high = group.band
            ending += f" ({low[-1]:.5g} to {high[-1]:.5g})"
        peak = group.middle.argmax()
        if x == "minutes":
            position = f"{group.x[peak]:.1f} min"
        else:
            position = EngFormatter(sep="", places=1)(group.x[peak])
        rows.append((group.label, ending, f"{group.middle[peak]:.5g} at {position}"))
    return rows


def draw(groups: Sequence[Group], x: Axis, metric: str, aggregate: Aggregate = "mean") -> Figure:
    """The figure of the groups, with their summary as its legend."""
    # A Figure without pyplot, whose global state would change in a notebook that calls this.
    figure = Figure(figsize=(8, 4.4 + 0.2 * (len(groups) + 2)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_prop_cycle(cycler(linestyle=("-", "--", ":")) * cycler(color=_COLOURS))
    for group, (label, ending, highest) in zip(groups, summary_rows(groups, x), strict=True):
        _draw_group(axes, group, _plain(f"{label}: {ending}, highest {highest}", 110))
    envs = dict.fromkeys(group.env for group in groups)
    axes.set_title(_plain(", ".join(envs), 80), fontsize=13)
    axes.set_xlabel(_X_LABELS[x])
    axes.set_ylabel(_plain(metric, 80))
    if x != "minutes":
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.grid(color="0.9", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(title=_legend_title(groups, aggregate), loc="outside lower left", frameon=False,
                  fontsize=8.5, title_fontsize=8.5, alignment="left")
    return figure


def _draw_group(axes: Axes, group: Group, label: str) -> None:
    marker = "o" if len(group.x) == 1 else ""  # no line goes through one point
    line, = axes.plot(group.x, group.middle, linewidth=2, marker=marker, label=label)
    if group.band is None:
        return
    axes.fill_between(group.x, *group.band, color=line.get_color(), alpha=0.18, linewidth=0)
    for curve in group.curves:
        axes.plot(curve.x, curve.y, color=line.get_color(), linestyle=line.get_linestyle(),
                  linewidth=0.6, alpha=0.35)


def _legend_title(groups: Sequence[Group], aggregate: Aggregate) -> str | None:
    if all(group.band is None for group in groups):
        return None
    name = "interquartile mean" if aggregate == "iqm" else "mean"
    title = f"value at the end: {name} and 95% bootstrap interval"
    if any(len(group.curves) > 1 for group in groups):
        title += "; thin: each run"
    return title


def _plain(text: str, width: int) -> str:
    """`text` in lines of `width`, without mathtext and characters that Matplotlib cannot draw."""
    return fill(printable(text), width).replace("$", r"\$")


def _write_csv(groups: Sequence[Group], path: Path, x: Axis) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv_module.writer(file)
        writer.writerow(["group", "runs", x, "value", "low", "high"])
        for group in groups:
            for i, position in enumerate(group.x):
                band = ["", ""]
                if group.band is not None:
                    band = [f"{bound[i]:.6g}" for bound in group.band]
                writer.writerow([group.label, len(group.curves), f"{position:.10g}",
                                 f"{group.middle[i]:.6g}", *band])
