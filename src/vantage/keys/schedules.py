"""Coefficients that may change during a run: numbers and schedules, as text and as values.

    7e-4                          constant
    linear:7e-4:0                 from the first value to the second over the run
    cosine:7e-4:1e-5              half a cosine from the first value to the second
    piecewise:0=7e-4,1M=1e-4      each value holds from its point on; points are in agent steps or,
                                  as 50%, in percent of the run
    curve:0,7e-4,0                straight lines between values at equal distances over the run
    kl:0.01                       lr alone: adapted to a KL divergence, from 3e-4 or as kl:0.01:1e-3

In Python, a function of the progress from 0 to 1 is a schedule too, such as
`lambda progress: 7e-4 * (1 - progress)`. It is sampled once, at 101 points, and becomes a curve, so
that a file can hold it and a resumed run follows the same curve.

A schedule depends on the step and on the number of `steps` that the run was first given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import signature
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.json_text import short_repr

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([kKmMbB]?)", re.ASCII)
_SAMPLES = 101
_LONGEST_REPR = 60
KL = "kl"
"""Kind of a learning rate that follows a KL divergence; its values are the target and the start."""
LOWEST_RATE = 1e-6
HIGHEST_RATE = 1e-2
_FIRST_RATE = 3e-4


def parse_number(text: str) -> float:
    """The number in `text`, such as 1e6, 10M or 500k; ValueError for anything else."""
    match = _NUMBER.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise ValueError(f"{text!r} is not a number; write for example 5e-4, 1e6, 10M or 500k")
    return float(match[1]) * _FACTORS[match[2].lower()]


@dataclass(frozen=True, slots=True, repr=False)
class Schedule:
    """A coefficient as a function of the progress of the run.

        Schedule.parse("linear:1e-3:0")
        Schedule.of(lambda progress: 1e-3 * (1 - progress))

    Schedules with the same kind, values and points are equal, whatever their text.
    """

    kind: str
    values: tuple[float, ...]
    points: tuple[tuple[float, bool], ...] = ()
    """For piecewise: where each value begins, and whether that is a share of the run instead of a
    step."""
    text: str = field(default="", compare=False)
    """The notation; of a function, the curve of its samples."""

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str) -> Schedule:
        """The schedule that `text` denotes; ConfigError names the notation otherwise."""
        kind, _, rest = text.strip().partition(":")
        points: tuple[tuple[float, bool], ...] = ()
        try:
            if kind == "piecewise":
                pairs = [pair.split("=") for pair in rest.split(",")]
                values = tuple(parse_number(value) for _, value in pairs)
                points = _rising_points([place.strip() for place, _ in pairs])
            elif kind in ("linear", "cosine"):
                first, last = rest.split(":")
                values = (parse_number(first), parse_number(last))
            elif kind == "curve":
                values = tuple(map(parse_number, rest.split(",")))
                if len(values) < 2:
                    raise ValueError("a single value")
            elif kind == KL:
                target, _, start = rest.partition(":")
                values = (parse_number(target), parse_number(start) if start else _FIRST_RATE)
                if values[0] <= 0 or not LOWEST_RATE <= values[1] <= HIGHEST_RATE:
                    raise ValueError("out of range")
            else:
                raise ValueError("an unknown kind")
        except ValueError:
            raise ConfigError(
                f"{text!r} is not a schedule: write a number such as 5e-4 or 10M, linear:A:B, "
                "cosine:A:B, curve:A,B,C, piecewise:0=A,1M=B,50%=C with points that rise from 0, "
                f"or for lr kl:TARGET:START with a START from {LOWEST_RATE:g} to {HIGHEST_RATE:g}"
            ) from None
        if not all(map(math.isfinite, values)):
            raise ConfigError(f"{text!r:.80} is not finite; give a number")
        return cls(kind, values, points, text.strip())

    @classmethod
    def of(cls, function: Callable[[float], float]) -> Schedule:
        """The curve through the values of `function` at progress 0, 0.01, ..., 1.

        ConfigError if it raises an exception or returns anything but a finite number.
        """
        name = getattr(function, "__name__", type(function).__name__)
        _check_direction(function, name)
        values = []
        for index in range(_SAMPLES):
            progress = index / (_SAMPLES - 1)
            try:
                value: Any = function(progress)
            except Exception as error:
                reason = " ".join(str(error).split())
                raise ConfigError(
                    f"{name} raised {type(error).__name__} at progress {progress:g}: "
                    f"{reason:.200}; give a function such as lambda progress: "
                    "1e-3 * (1 - progress)") from error
            try:
                values.append(_finite(value))
            except (TypeError, ValueError, OverflowError):
                raise ConfigError(f"{name} returned {short_repr(value):.80} at progress "
                                  f"{progress:g}; return a finite number") from None
        return cls("curve", tuple(values), text="curve:" + ",".join(map(repr, values)))

    def __mul__(self, factor: float) -> Schedule:
        """The schedule with each of its values multiplied by `factor`.

        A kl schedule multiplies only its start, within the limits.
        """
        values = tuple(value * factor for value in self.values)
        if self.kind == KL:
            values = (self.values[0], min(HIGHEST_RATE, max(LOWEST_RATE, values[1])))
        return Schedule(self.kind, values, self.points, self._notation(values))

    __rmul__ = __mul__

    def _notation(self, values: tuple[float, ...]) -> str:
        """The text of this schedule with other `values`."""
        if self.kind == "piecewise":
            places = (part.partition("=")[0] for part in self.text.partition(":")[2].split(","))
            pairs = zip(places, values, strict=True)
            return "piecewise:" + ",".join(f"{place}={value!r}" for place, value in pairs)
        separator = "," if self.kind == "curve" else ":"
        return f"{self.kind}:" + separator.join(map(repr, values))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        if len(self.text) > _LONGEST_REPR:
            return f"<Schedule {self.short()}>"
        return f"Schedule.parse({self.text!r})"

    def short(self) -> str:
        """The text in at most about 60 characters, for people."""
        if len(self.text) <= _LONGEST_REPR:
            return self.text
        if self.kind != "curve":
            return f"{self.text[:_LONGEST_REPR]}..."
        return f"curve from {self.values[0]:.4g} to {self.values[-1]:.4g}"

    def __call__(self, step: int, steps: int) -> float:
        """The value at `step` of a run of `steps`; past the end it stays at the last value.

        A kl schedule returns its start.
        """
        if self.kind == KL:
            return self.values[1]
        progress = min(1.0, step / max(1, steps))
        if self.kind == "piecewise":
            return self._piece(step, steps, progress)
        if self.kind == "curve":
            place = progress * (len(self.values) - 1)
            before = min(int(place), len(self.values) - 2)
            first, last = self.values[before:before + 2]
            return first + (last - first) * (place - before)
        first, last = self.values
        if self.kind == "cosine":
            return last + (first - last) * 0.5 * (1 + math.cos(math.pi * progress))
        return first + (last - first) * progress

    def is_zero(self, first: int, last: int, steps: int) -> bool:
        """Whether it is 0 at every step from `first` to before `last`, where none is below 0."""
        places = [at * steps if is_share else at for at, is_share in self.points]
        if self.kind == "curve":
            pieces = len(self.values) - 1
            places = [steps * index / pieces for index in range(pieces + 1)]
        inner = [math.ceil(place) for place in places if first < place < last]
        return all(self(step, steps) == 0 for step in (first, *inner, max(first, last - 1)))

    def _piece(self, step: int, steps: int, progress: float) -> float:
        """The value of the last point passed; of two at one step, of the later in the text."""
        passed = []
        for index, (at, is_share) in enumerate(self.points):
            if at <= (progress if is_share else step):
                passed.append((at * steps if is_share else at, index))
        return self.values[max(passed)[1]]


Coefficient = float | Schedule
"""A hyperparameter that may change during a run."""


def coefficient(value: float | str | Schedule | Callable[[float], float]) -> Coefficient:
    """The coefficient for a number, text, a schedule or a function of the progress.

    ConfigError for anything else, and for numbers that are not finite.
    """
    if isinstance(value, Schedule):
        return value
    if isinstance(value, str):
        try:
            number = parse_number(value)
        except ValueError:
            return Schedule.parse(value)
        if not math.isfinite(number):
            raise ConfigError(f"{value:.80} is not finite; give a number")
        return number
    if callable(value):
        return Schedule.of(value)
    try:
        return _finite(value)
    except ValueError:
        raise ConfigError(f"{value!r:.80} is not finite; give a number") from None
    except OverflowError:
        raise ConfigError(f"{short_repr(value)} is too large; give a smaller one") from None
    except TypeError:
        raise ConfigError(f"{value!r:.80} is not a number, a schedule such as linear:1e-3:0, or a "
                          "function of the progress from 0 to 1") from None


def value_at(value: Coefficient | str, step: int, steps: int) -> float:
    """The value of a coefficient at `step` of a run of `steps`."""
    if isinstance(value, str):  # of a user's own algorithm
        value = coefficient(value)
    return value(step, steps) if isinstance(value, Schedule) else float(value)


def _check_direction(function: Callable[[float], float], name: str) -> None:
    """ConfigError if the parameter's name says that it falls from 1 to 0, as elsewhere."""
    try:
        parameters = list(signature(function).parameters)
    except (TypeError, ValueError):  # of a function written in C
        return
    if parameters and re.search("remain|left", parameters[0], re.IGNORECASE):
        raise ConfigError(f"{name}: its parameter {parameters[0]} receives the progress, which "
                          "rises from 0 to 1; write for example lambda progress: "
                          "1e-3 * (1 - progress)")


def _rising_points(places: list[str]) -> tuple[tuple[float, bool], ...]:
    """The points of a piecewise schedule.

    ValueError unless they begin at 0, and those in steps and those in percent rise.
    """
    points = []
    for place in places:
        number = parse_number(place.removesuffix("%"))
        is_share = place.endswith("%")
        points.append((number / 100 if is_share else number, is_share))
    if points[0][0] != 0 or min(points)[0] != 0:
        raise ValueError("points begin at 0")
    for unit in (True, False):
        same = [at for at, is_share in points if is_share is unit]
        if same != sorted(set(same)):
            raise ValueError("points rise")
    return tuple(points)


def _finite(value: Any) -> float:
    """`value` as a float; TypeError unless it is a number, ValueError unless it is finite."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number
