"""The file that names the keys to search, as a grid of points or as ranges and choices. Optuna is not imported here."""

from __future__ import annotations

import itertools
import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.keys import convert, nearest, read_json_object
from vantage.schedules import parse_number

Value = str | int | float | bool | None
Params = Mapping[str, Value]

MAX_POINTS = 10_000
_RANGE_KEYS = ("low", "high", "log", "step", "as")
_FIXED = {
    "algo": "all trials of a search use one algorithm; search each with its own command",
    "runtime": "all trials of a search use one runtime; give --runtime",
    "env": "scores of different environments cannot be compared; search each with its own command",
    "schedule_steps": "it follows --steps",
    "seed": "each trial runs --seeds seeds, starting at --seed",
    **dict.fromkeys(("steps", "max_minutes"), "trials are compared at equal steps; give --steps"),
    **{key: f"trials are compared by the same evaluations; give --{flag}"
       for key, flag in (("eval_every", "eval-every"), ("eval_every_seconds", "eval-every"),
                         ("eval_episodes", "eval-episodes"))},
    **{key: f"scores of different games cannot be compared; give --{key.replace('_', '-')}"
       for key in ("env_kwargs", "atari_protocol", "action_subset", "frame_skip", "max_frames", "noop_max",
                   "random_start", "fire_on_reset", "max_episode_steps")},
}
"""Keys that cannot be searched because they define how trials are compared, with the remedy."""


@dataclass(frozen=True, slots=True)
class Choices:
    """One of several values."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, both inclusive."""

    low: float
    high: float
    whole: bool
    log: bool = False
    step: float | None = None
    text: str = "{}"
    """Template of the config value; {} is the number: linear:{}:0 searches the start of a schedule."""

    def value(self, number: float) -> Value:
        """The config value of `number`, rounded to five digits so that people can type it."""
        number = int(number) if self.whole else min(self.high, max(self.low, float(f"{number:.5g}")))
        return number if self.text == "{}" else self.text.replace("{}", repr(number))


@dataclass(frozen=True, slots=True)
class Space:
    """The values that each key may take; `points` lists the combinations of a grid in order."""

    domains: Mapping[str, Choices | Range]
    points: tuple[Params, ...] | None = None
    source: str = field(default="", compare=False)

    def extremes(self) -> Iterator[dict[str, Value]]:
        """Every point of a grid, or points that together hold the ends of all ranges and all choices."""
        if self.points is not None:
            yield from map(dict, self.points)
            return
        ends = {name: domain.values if isinstance(domain, Choices) else (domain.value(domain.low),
                                                                         domain.value(domain.high))
                for name, domain in self.domains.items()}
        first = {name: values[0] for name, values in ends.items()}
        yield first
        for name, values in ends.items():
            yield from ({**first, name: value} for value in values[1:])

    def representatives(self) -> Iterator[dict[str, Value]]:
        """The first extreme, and each that introduces a value of a key other than a schedule."""
        schedules = {key for key, (_, rules) in Config.every_key().items() if rules.get("schedule")}
        seen: set[tuple[str, Value]] = set()
        for index, point in enumerate(self.extremes()):
            values = {item for item in point.items() if item[0] not in schedules}
            if index == 0 or values - seen:
                yield point
            seen |= values

    def explain(self, point: Params, error: ConfigError) -> ConfigError:
        """`error` with the file's name, and with the values of `point` unless it already names one of its keys."""
        text = str(error).removeprefix("configure: ")
        if not names_key(point, text):
            text = f"with {', '.join(f'{name}={value}' for name, value in point.items())}: {text}"
        return ConfigError(f"{self.source}: {text}")


def names_key(point: Params, text: str) -> bool:
    """Whether `text` contains a key of `point`, or its flag."""
    return any(re.search(rf"(?<![a-z]){name}(?![a-z_])", text.replace("-", "_")) for name in point)


def read_grid(path: Path) -> Space:
    """The grid in a JSON file: the product of its lists; the lists inside one object vary together."""
    axes = [_axis(name, part, str(path)) for name, part in _read(path).items()]
    names = [name for axis in axes for name in axis[0]]
    _check_unique(names, str(path), "key")
    if (count := math.prod(map(len, axes))) > MAX_POINTS:
        raise ConfigError(f"{path}: {count:,} points are more than {MAX_POINTS:,}; use --space")
    points = tuple({name: value for part in parts for name, value in part.items()}
                   for parts in itertools.product(*axes))
    return Space({name: Choices(tuple(dict.fromkeys(point[name] for point in points))) for name in names}, points,
                 str(path))


def read_space(path: Path) -> Space:
    """The ranges and choices in a JSON file."""
    return Space({name: _domain(name, part, str(path)) for name, part in _read(path).items()}, source=str(path))


def _read(path: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_unique([name for name, _ in pairs], str(path), "key")
        return dict(pairs)

    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows writes a byte-order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    parts = read_json_object(text, source=str(path), make=unique)
    if not parts:
        raise ConfigError(f'{path} names no key to search; write for example {{"lr": [1e-3, 7e-4]}} for --grid, '
                          '{"lr": {"low": 1e-4, "high": 1e-2, "log": true}} for --space')
    return parts


def _check_unique(items: list[str], source: str, kind: str) -> None:
    duplicate = next((item for index, item in enumerate(items) if item in items[:index]), None)
    if duplicate is not None:
        raise ConfigError(f"{source}: {duplicate} is there twice; give each {kind} once")


def _axis(name: str, part: Any, source: str) -> list[dict[str, Value]]:
    """The values of one entry of a grid: of one key, or of the keys of an object, which vary together."""
    lists = part if isinstance(part, dict) and part else {name: part}
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{source}: {key} holds {values!r}, which is no list of values; ranges are for --space")
    lengths = {key: len(values) for key, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(f"{source}: the lists in {name!r} differ in length: "
                          f"{', '.join(f'{key} has {length}' for key, length in lengths.items())}")
    columns = [[_value(key, value, source) for value in values] for key, values in lists.items()]
    rows = [dict(zip(lists, row, strict=True)) for row in zip(*columns, strict=True)]
    _check_unique([", ".join(f"{key}={value}" for key, value in row.items()) for row in rows], source, "value")
    return rows


def _hint(key: str, source: str) -> Any:
    """The type of a config key; ConfigError unless it may be searched."""
    keys = Config.every_key()
    if key in _FIXED:
        raise ConfigError(f"{source}: {key} cannot be searched: {_FIXED[key]}")
    if key not in keys:
        raise ConfigError(f"{source}: unknown key {key!r}{nearest(key, keys)}")
    return keys[key][0]


def _value(key: str, value: Any, source: str) -> Value:
    hint = _hint(key, source)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{source}: {key} holds {value}, which is not finite; give numbers up to 1e308")
    converted: Value = convert(key, value, hint, source=source)
    return converted


def _domain(name: str, part: Any, file: str) -> Choices | Range:
    _hint(name, file)
    if isinstance(part, list) and part:
        choices = tuple(_value(name, value, file) for value in part)
        _check_unique([f"{name}={value}" for value in choices], file, "value")
        return Choices(choices)
    if not isinstance(part, dict) or not {"low", "high"} <= part.keys():
        raise ConfigError(f"{file}: {name} holds {json.dumps(part)}; write a list of choices, or a range such as "
                          '{"low": 1e-4, "high": 1e-2, "log": true}')
    for key in part:
        if key not in _RANGE_KEYS:
            raise ConfigError(f"{file}: {name}: unknown word {key!r} of a range{nearest(key, _RANGE_KEYS)}; it has "
                              f"{', '.join(_RANGE_KEYS)}")
    return _range(name, part, f"{file}: {name}")


def _range(name: str, part: Mapping[str, Any], source: str) -> Range:
    numbers = {key: _number(part[key], f"{source}, {key}") for key in ("low", "high", "step") if key in part}
    low, high, step = numbers["low"], numbers["high"], numbers.get("step")
    log, text = part.get("log", False), part.get("as", "{}")
    whole = _is_whole(name, list(numbers.values()))
    if not isinstance(log, bool):
        problem = f"log={log!r} is not true or false"
    elif not isinstance(text, str) or text.count("{}") != 1:
        problem = f"as={text!r} must hold {{}} once, the number's place; write for example linear:{{}}:0"
    elif low >= high:
        problem = f"low={low:g} is not below high={high:g}"
    elif log and (low <= 0 or step is not None):
        problem = "a logarithmic range begins above 0 and has no step"
    elif math.isinf(high - low):
        problem = f"from low={low:g} to high={high:g} is too far to draw from; give a smaller range"
    elif whole and any(number != int(number) for number in numbers.values()):
        problem = f"{name} is a whole number; so must low, high and step be"
    elif step is not None and not 0 < step <= high - low:
        problem = f"step={step:g} is not above 0 and at most high - low"
    elif step is not None and (rest := (Decimal(repr(high)) - Decimal(repr(low))) % Decimal(repr(step))):
        below = high - float(rest)
        problem = (f"step={step:g} from low={low:g} does not reach high={high:g}; give high={below:g} or "
                   f"{below + step:g}")
    else:
        return Range(low, high, whole, log, step, text)
    raise ConfigError(f"{source}: {problem}")


def _number(value: Any, source: str) -> float:
    try:
        number = parse_number(value) if isinstance(value, str) else float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{source}: {reprlib.repr(value)} is not a number, or is too large") from None
    return number


def _is_whole(name: str, numbers: list[float]) -> bool:
    """Whether the key counts something. A key in text does if its numbers are whole, unless it is a schedule."""
    hint, rules = Config.every_key()[name]
    if str in (get_args(hint) or (hint,)):
        return not rules.get("schedule") and all(number == int(number) for number in numbers)
    return int in (get_args(hint) or (hint,))
