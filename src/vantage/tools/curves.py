"""Learning curves as numbers: runs read from metrics.jsonl, seeds gathered in groups, what stands for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.keys import nearest
from vantage.runs.directory import RunDirectory
from vantage.runs.metrics import read_metrics

Axis = Literal["steps", "minutes", "frames"]
Aggregate = Literal["mean", "iqm"]
Points = NDArray[np.float64]

_APART = ("seed", "env_timeout", "max_restarts", "save_every", "replay_save_every", "keep_checkpoints", "eval_every",
          "eval_every_seconds", "eval_episodes", "log_every_seconds", "tensorboard", "log_weights", "max_minutes",
          "stop_at_eval", "stop_at_return")
"""Keys that do not make two runs different settings: what is saved, watched and written, and when a run ends."""
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
    """Runs that differ in nothing but the seed, and what stands for them where all of them have data."""

    label: str
    curves: tuple[Curve, ...]
    x: Points
    middle: Points
    """Mean or interquartile mean over the runs; a single run itself."""
    band: tuple[Points, Points] | None
    """95% bootstrap interval of `middle` over the runs; None for a single run."""

    def ending(self) -> str:
        """`middle` and its interval at the end, for a person."""
        if not len(self.x):
            return "no common range"
        text = f"{self.middle[-1]:.5g}"
        return text if self.band is None else f"{text} ({self.band[0][-1]:.5g} to {self.band[1][-1]:.5g})"

    def peak(self) -> tuple[float, float] | None:
        """The highest of `middle`, and its x."""
        if not len(self.x):
            return None
        at = int(np.argmax(self.middle))
        return float(self.middle[at]), float(self.x[at])


def read_curve(path: Path, x: Axis, metric: str, smooth: float, *, trust: bool = False) -> Curve:
    """`metric` of the run at `path`; ConfigError if it has none."""
    config = RunDirectory.open(path, trust=trust).config
    records = read_metrics(path)
    if not records:
        raise ConfigError(f"{path} has no metrics yet: nothing to plot until it has trained for some seconds")
    names = {name for record in records for name in record if "/" in name}
    for name in [metric] + ["time/frames"] * (x == "frames"):
        if name not in names:
            raise ConfigError(f"{path} has no metric {name!r}{nearest(name, names)}; it has {', '.join(sorted(names))}")
    # By x, so that of several records at one place the last one holds.
    points = {at: value for record in records
              if (value := record.get(metric)) is not None and (at := _position(record, x, metric)) is not None}
    if not points:
        raise ConfigError(f"{path} has recorded no finite value of {metric} yet")
    xs = sorted(points)
    values = np.array([points[at] for at in xs], dtype=np.float64)
    return Curve(config, np.array(xs, dtype=np.float64), _smoothed(values, smooth))


def group_curves(curves: Sequence[Curve], aggregate: Aggregate = "mean") -> list[Group]:
    """Curves by config without the seed and the like, in the order given, labelled by what tells them apart."""
    grouped: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        key = tuple((name, value) for name, value in curve.config.flat().items() if name not in _APART)
        grouped.setdefault(key, []).append(curve)
    configs = [members[0].config for members in grouped.values()]
    return [_summarise(_label(members[0].config, configs), members, aggregate) for members in grouped.values()]


def interquartile_mean(values: Points) -> Points:
    """Mean over the first axis without its lowest and highest quarter, of n values floor(n/4) at each end.

    Agarwal et al. 2021, arXiv:2108.13264, section 4.2.
    """
    cut = len(values) // 4
    middle: Points = np.sort(values, axis=0)[cut:len(values) - cut].mean(axis=0)
    return middle


def bootstrap_interval(values: Points, aggregate: Aggregate) -> tuple[Points, Points]:
    """95% interval of the aggregate of `values` [runs, N]: percentiles over runs drawn anew with replacement.

    Efron and Tibshirani 1993, section 13.3.
    """
    draws = np.random.default_rng(0).integers(len(values), size=(len(values), _RESAMPLES))
    parts = np.array_split(draws, max(1, draws.size // 1_000), axis=1)  # at most about 1,000 curves at a time
    low, high = np.percentile(np.concatenate([_middle(values[part], aggregate) for part in parts]), (2.5, 97.5), axis=0)
    return low, high


def _summarise(label: str, curves: Sequence[Curve], aggregate: Aggregate) -> Group:
    if len(curves) == 1:
        return Group(f"{label} (1 seed)", tuple(curves), curves[0].x, curves[0].y, None)
    first, last = max(curve.x[0] for curve in curves), min(curve.x[-1] for curve in curves)
    x = np.linspace(first, last, _GRID_POINTS) if first < last else np.empty(0)
    values = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])
    what = "seeds" if len({curve.config.run.seed for curve in curves}) == len(curves) else "runs"
    return Group(f"{label} ({len(curves)} {what})", tuple(curves), x, _middle(values, aggregate),
                 bootstrap_interval(values, aggregate))


def _middle(values: Points, aggregate: Aggregate) -> Points:
    mean: Points = interquartile_mean(values) if aggregate == "iqm" else values.mean(axis=0)
    return mean


def _label(config: Config, configs: Sequence[Config]) -> str:
    """The algorithm, the environment if there are several, and the keys that differ among runs of both."""
    words = [config.algo] + [config.env.id] * (len({other.env.id for other in configs}) > 1)
    rivals = [other for other in configs if (other.algo, other.env.id) == (config.algo, config.env.id)]
    for name, value in config.flat().items():
        if name not in _APART and len({rival.flat().get(name) for rival in rivals}) > 1:
            words.append(f"{name}={value}")
    return " ".join(words)


def _position(record: Mapping[str, float | None], x: Axis, metric: str) -> float | None:
    """Where a record's `metric` belongs: an evaluation at the step whose policy it played, not where it was over."""
    told = record["step"] or 0
    step = record.get("eval/step") if metric.startswith("eval/") else None
    match x:
        case "steps":
            return told if step is None else step
        case "minutes":
            seconds = record.get("seconds")
            return None if seconds is None else seconds / 60
        case "frames":
            frames = record.get("time/frames")
            return frames if frames is None or step is None or not told else frames * step / told


def _smoothed(values: Points, weight: float) -> Points:
    """Exponential running mean without the bias of its start: the sums of w^k y and of w^k, one over the other."""
    result, total, mass = np.empty_like(values), 0.0, 0.0
    for i, value in enumerate(values):
        total, mass = weight * total + value, weight * mass + 1
        result[i] = total / mass
    return result
