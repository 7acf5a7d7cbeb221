"""Learning curves of runs, grouped by setting and aggregated over seeds. `plot` draws them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vantage.config.config import Config
from vantage.config.run import RunConfig
from vantage.config.runtimes import Sync
from vantage.errors import ConfigError
from vantage.keys.metric_names import is_metric
from vantage.keys.suggestions import nearest
from vantage.keys.typed_values import in_short
from vantage.runs.info_numbers import SUCCESS

Axis = Literal["steps", "minutes", "frames"]
"""Quantity on the x axis of a curve."""
Aggregate = Literal["mean", "iqm"]
"""Over the runs of a curve: the mean, or the interquartile mean."""
Points = NDArray[np.float64]
"""Coordinates of a curve, [N] float64."""
Lines = list[dict[str, float | None]]
"""Lines of metrics.jsonl."""

# Keys that do not change what is learned: the seed, and those of speed, saving, evaluating and
# ending.
_RUN_KEYS = {field.name for field in fields(RunConfig)} - {"steps"}
_IGNORED = _RUN_KEYS | {"threads", "device", "vector", "env_timeout", "max_restarts",
                        "replay_save_every", "ray_address"}
_GRID_POINTS = 500
_RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Curve:
    """One run: `y` at each `x`, x rising."""

    config: Config
    x: Points
    y: Points
    run: str = ""
    """Its directory."""
    code: str = ""
    """Identifies code without an import path, see `code_of`."""


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


def make_curve(config: Config, lines: Lines, x: Axis, metric: str, *, source: Path,
               code: str = "") -> Curve:
    """`metric` in the `lines` of a run; ConfigError, which names `source`, if they have none."""
    points: dict[float, float] = {}  # the last of several lines at one x wins
    for line in lines:
        position = _position(line, x, metric)
        value = line.get(metric)
        if position is not None and value is not None:
            points[position] = value
    if not points:
        raise ConfigError(f"{source} has no {_absence(metric, x, lines)}")
    xs, ys = np.array(sorted(points.items()), dtype=np.float64).T
    return Curve(config, xs, ys, str(source), code)


def _position(line: Mapping[str, float | None], x: Axis, metric: str) -> float | None:
    """The x of a line; an evaluation counts at the step of its policy, not at that of its end."""
    if x == "minutes":
        seconds = line.get("seconds")
        return None if seconds is None else seconds / 60
    logged = line["step"] or 0
    evaluated = line.get("eval/step") if metric.startswith("eval/") else None
    step = logged if evaluated is None else evaluated
    if x == "steps":
        return step
    frames = line.get("time/frames")
    return None if frames is None else frames * step / max(1, logged)


def _absence(metric: str, x: Axis, lines: Lines) -> str:
    """What a run of these `lines` lacks and, if there is a similar metric, its name."""
    names = sorted({name for line in lines for name, value in line.items()
                    if "/" in name and value is not None})
    last = metric.rpartition("/")[2]
    ends = {name.rpartition("/")[2]: name for name in reversed(names)}
    same = [name for name in names if name != metric and name.rpartition("/")[2] == last]
    near = nearest(metric, names) or nearest(last, ends, ends.__getitem__)
    if same:
        near = f"; did you mean {' or '.join(same)}?"
    near = near or f"; it has {', '.join(names) or 'no metrics yet'}"
    if not is_metric(metric) and not any(metric in line for line in lines):
        return f"metric {metric}{near}"
    reason = "no game has ended"
    if last == "success_rate":
        reason += f' with info["{SUCCESS}"]'
    return f"finite value of {metric} by {x} yet; perhaps {reason}{near}"


def group_curves(curves: Sequence[Curve], aggregate: Aggregate = "mean") -> list[Group]:
    """Group curves of the same setting and code; labels contain the keys that differ between groups.

    Groups with the same keys, whose code differs, have the directory of their first run beside them.
    """
    members: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        values = {name: _hashable(value) for name, value in _setting(curve.config).items()}
        members.setdefault((curve.code, *values.items()), []).append(curve)
    groups = [*members.values()]
    settings = [_setting(same[0].config) for same in groups]
    labels = [_label(setting, settings) for setting in settings]
    names = [Path(same[0].run).name for same in groups]
    if len({*names}) < len(names):
        names = [same[0].run for same in groups]
    return [_aggregated(f"{label} {name}" if labels.count(label) > 1 else label, same, aggregate)
            for label, name, same in zip(labels, names, groups, strict=True)]


def _hashable(value: Any) -> Any:
    """A value of a config; a list or table as JSON."""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, sort_keys=True)
    return value


def _setting(config: Config) -> dict[str, Any]:
    """The keys of a config that change what is learned."""
    # Longer training alone does not: `steps` counts as the length of the schedules.
    values = {**config.flat(), "steps": config.schedule_steps}
    ignored = _IGNORED
    if isinstance(config.runtime, Sync):
        # Ranks share every update, so their number does not change it; Hogwild's workers do not.
        ignored = ignored | {"num_workers"}
    return {name: value for name, value in values.items() if name not in ignored}


def _label(setting: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> str:
    """The algorithm, the environment if there are several, and the keys in which settings differ.

    Settings are compared with those of the same algorithm and environment.
    """
    words = [setting["algo"]]
    if any(other["env"] != setting["env"] for other in settings):
        words.append(setting["env"])
    rivals = [other for other in settings
              if other["algo"] == setting["algo"] and other["env"] == setting["env"]]
    for name, value in setting.items():
        if any(rival.get(name) != value for rival in rivals):
            words.append(f"{name}={in_short(value)}")
    return " ".join(words)


def _aggregated(label: str, curves: Sequence[Curve], aggregate: Aggregate) -> Group:
    env = curves[0].config.env.id
    if len(curves) == 1:
        return Group(f"{label} (1 seed)", env, tuple(curves), curves[0].x, curves[0].y, None)
    first = max(curve.x[0] for curve in curves)
    last = min(curve.x[-1] for curve in curves)
    x = np.linspace(first, last, _GRID_POINTS) if first < last else np.empty(0)
    values = np.stack([np.interp(x, curve.x, curve.y) for curve in curves])
    num_seeds = len({curve.config.run.seed for curve in curves})
    unit = "seeds" if num_seeds == len(curves) else "runs"
    return Group(f"{label} ({len(curves)} {unit})", env, tuple(curves), x,
                 middle(values, aggregate), bootstrap_interval(values, aggregate))


def middle(values: Points, aggregate: Aggregate) -> Points:
    """The mean or the interquartile mean of `values` [runs, N].

    The latter is without the lowest and highest floor(runs/4) values. Agarwal et al. 2021,
    arXiv:2108.13264, section 4.2.
    """
    cut = len(values) // 4 if aggregate == "iqm" else 0
    mean: Points = np.sort(values, axis=0)[cut:len(values) - cut].mean(axis=0)
    return mean


def bootstrap_interval(values: Points, aggregate: Aggregate) -> tuple[Points, Points]:
    """95% percentile interval of the aggregate of `values` [runs, N], by resampling the runs.

    Efron and Tibshirani 1993, section 13.3.
    """
    samples = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    middles = [middle(values[sample], aggregate) for sample in samples]
    low, high = np.percentile(middles, (2.5, 97.5), axis=0)
    return low, high


