"""Learning curves as numbers: metrics of runs, grouped by seeds, with a mean and an interval. No drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vantage.config import Config
from vantage.config_groups import RunConfig
from vantage.errors import ConfigError
from vantage.keys import nearest
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics

Axis = Literal["steps", "minutes", "frames"]
Aggregate = Literal["mean", "iqm"]
Points = NDArray[np.float64]

_IGNORED = ({"env_timeout", "max_restarts", "replay_save_every"}
            | {field.name for field in fields(RunConfig)} - {"steps", "schedule_steps"})
"""Keys that do not change what is learned: the seed, and what only saves, observes or ends a run."""
_GRID_POINTS = 500
_RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: `y` at each `x`, x rising."""

    config: Config
    x: Points
    y: Points


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that differ only in the seed, aggregated over the range of x that all of them cover."""

    label: str
    curves: tuple[Curve, ...]
    x: Points
    """Empty without a common range."""
    middle: Points
    """Mean or interquartile mean over the runs; a single run unchanged."""
    band: tuple[Points, Points] | None
    """95% bootstrap interval of `middle`; None for a single run."""


def read_curve(path: Path, x: Axis, metric: str, smooth: float, *, trust: bool = False) -> Curve:
    """`metric` of the run at `path`, smoothed as in TensorBoard; ConfigError if it has none."""
    config, lines = RunDirectory.open(path, trust=trust).config, read_metrics(path)
    # A dictionary, so that the last of several lines at one x wins.
    points = {at: value for line in lines
              if (value := line.get(metric)) is not None and (at := _position(line, x, metric)) is not None}
    if not points:
        names = {name for line in lines for name, value in line.items() if value is not None and "/" in name}
        raise ConfigError(f"{path} has no finite value of {metric} by {x} yet{nearest(metric, names)}; it has "
                          f"{', '.join(sorted(names)) or 'no metrics yet: plot it after some seconds of training'}")
    xs, ys = np.array(sorted(points.items()), dtype=np.float64).T
    total = mass = 0.0
    for i, y in enumerate(ys):  # the sum of w^k y divided by the sum of w^k, which has no bias at the start
        total, mass = smooth * total + y, smooth * mass + 1
        ys[i] = total / mass
    return Curve(config, xs, ys)


def group_curves(curves: Sequence[Curve], aggregate: Aggregate = "mean") -> list[Group]:
    """Group curves whose configs differ only in ignored keys; labels contain the keys that differ between groups."""
    grouped: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        key = tuple((name, value) for name, value in curve.config.flat().items() if name not in _IGNORED)
        grouped.setdefault(key, []).append(curve)
    configs = [members[0].config for members in grouped.values()]
    return [_aggregated(_label(members[0].config, configs), members, aggregate) for members in grouped.values()]


def interquartile_mean(values: Points) -> Points:
    """Mean over the first axis without the lowest and highest floor(n/4) of n values.

    Agarwal et al. 2021, arXiv:2108.13264, section 4.2.
    """
    cut = len(values) // 4
    middle: Points = np.sort(values, axis=0)[cut:len(values) - cut].mean(axis=0)
    return middle


def bootstrap_interval(values: Points, aggregate: Aggregate) -> tuple[Points, Points]:
    """95% percentile interval of the aggregate of `values` [runs, N], over runs resampled with replacement.

    Efron and Tibshirani 1993, section 13.3.
    """
    rng, size = np.random.default_rng(0), len(values)
    middles = [_middle(values[rng.integers(size, size=size)], aggregate) for _ in range(_RESAMPLES)]
    low, high = np.percentile(middles, (2.5, 97.5), axis=0)
    return low, high


def _aggregated(label: str, curves: Sequence[Curve], aggregate: Aggregate) -> Group:
    if len(curves) == 1:
        return Group(f"{label} (1 seed)", tuple(curves), curves[0].x, curves[0].y, None)
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.linspace(first, last, _GRID_POINTS) if first < last else np.empty(0)
    values = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])
    unit = "seeds" if len({curve.config.run.seed for curve in curves}) == len(curves) else "runs"
    return Group(f"{label} ({len(curves)} {unit})", tuple(curves), x, _middle(values, aggregate),
                 bootstrap_interval(values, aggregate))


def _middle(values: Points, aggregate: Aggregate) -> Points:
    mean: Points = interquartile_mean(values) if aggregate == "iqm" else values.mean(axis=0)
    return mean


def _label(config: Config, configs: Sequence[Config]) -> str:
    """The algorithm, the environment if there are several, and the keys that differ among runs of both."""
    words = [config.algo] + [config.env.id] * (len({other.env.id for other in configs}) > 1)
    rivals = [other.flat() for other in configs if (other.algo, other.env.id) == (config.algo, config.env.id)]
    return " ".join(words + [f"{name}={value}" for name, value in config.flat().items()
                             if name not in _IGNORED and len({rival.get(name) for rival in rivals}) > 1])


def _position(line: Mapping[str, float | None], x: Axis, metric: str) -> float | None:
    """The x of a line; an evaluation counts at the step of the policy that it played, not at its end."""
    if x == "minutes":
        seconds = line.get("seconds")
        return None if seconds is None else seconds / 60
    logged = line["step"] or 0
    step = line.get("eval/step") if metric.startswith("eval/") else None
    step = logged if step is None else step
    frames = line.get("time/frames")
    return step if x == "steps" else None if frames is None else frames * step / max(1, logged)
