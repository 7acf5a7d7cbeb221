"""The files that say what to search: a grid of points, or ranges and choices. Keys and values only; no Optuna here."""

from __future__ import annotations

import itertools
import math
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args, get_type_hints

from vantage.config import Config
from vantage.errors import ConfigError
from vantage.keys import convert, nearest, read_json_object
from vantage.schedules import parse_number

Value = str | int | float | bool | None
Params = Mapping[str, Value]

_GAME = ("env_kwargs", "atari_protocol", "action_subset", "frame_skip", "max_frames", "noop_max", "random_start",
         "fire_on_reset", "max_episode_steps")
"""Keys that make another game of the environment, in evaluations too."""

_COMPARED = {
    "algo": "trials of one search have one algorithm; search each by a command of its own",
    "env": "scores of different environments do not compare; search each by a command of its own",
    "steps": "trials are compared at equal steps; give --steps",
    "schedule_steps": "it goes by --steps",
    "seed": "each trial runs --seeds of them, from --seed on",
    "eval_every": "trials are compared by the same evaluations; give --eval-every",
    "eval_every_seconds": "trials are compared by the same evaluations; give --eval-every",
    "eval_episodes": "trials are compared by the same evaluations; give --eval-episodes",
    "max_minutes": "trials are compared at equal steps; give --steps",
    **{key: f"scores of different games do not compare; give --{key.replace('_', '-')}" for key in _GAME},
}
"""Keys that cannot be searched, since they make what trials are compared by, and what to do instead."""

_RANGE_KEYS = ("low", "high", "log", "step", "as")
_MOST_POINTS = 10_000


@dataclass(frozen=True, slots=True)
class Choices:
    """One of these."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A number between `low` and `high`, both included."""

    low: float
    high: float
    whole: bool
    log: bool = False
    step: float | None = None
    text: str = "{}"
    """What the config key gets, {} being the number: linear:{}:0 searches the start of a schedule."""

    def value(self, number: float) -> Value:
        """What the config key gets for `number`: five digits of it, which people can read and type."""
        number = int(number) if self.whole else min(self.high, max(self.low, float(f"{number:.5g}")))
        return number if self.text == "{}" else self.text.replace("{}", repr(number))


Domain = Choices | Range


@dataclass(frozen=True, slots=True)
class Space:
    """What each key may be; of a grid also the points, in their order."""

    domains: Mapping[str, Domain]
    points: tuple[Params, ...] | None = None
    source: str = field(default="", compare=False)
    """The file it is in."""

    def refusal(self, point: Params, error: ConfigError) -> ConfigError:
        """`error`, which is about the config of `point`, with the file's name, and with the point if it names no key of
        that."""
        text = str(error).removeprefix("configure: ")
        if not any(re.search(rf"(?<![a-z]){name}(?![a-z_])", text.replace("-", "_")) for name in point):
            text = f"with {', '.join(f'{name}={value}' for name, value in point.items())}: {text}"
        return ConfigError(f"{self.source}: {text}")


def read_grid(path: Path) -> Space:
    """The grid in a JSON file: the full product of its lists; lists within one object go together."""
    axes = [_axis(name, part, str(path)) for name, part in _read(path).items()]
    names = [name for axis in axes for name in axis[0]]
    _check_once(names, str(path), "key")
    if math.prod(map(len, axes)) > _MOST_POINTS:
        raise ConfigError(f"{path}: {math.prod(map(len, axes)):,} points are more than {_MOST_POINTS:,}; use --space")
    points = tuple({name: value for part in parts for name, value in part.items()}
                   for parts in itertools.product(*axes))
    return Space({name: Choices(tuple(dict.fromkeys(point[name] for point in points))) for name in names}, points,
                 str(path))


def read_space(path: Path) -> Space:
    """The ranges and choices in a JSON file."""
    return Space({name: _domain(name, part, str(path)) for name, part in _read(path).items()}, source=str(path))


def extremes(space: Space) -> Iterator[dict[str, Value]]:
    """Points, all of a grid's or the ends of each range, that a config must take before anything is trained."""
    if space.points is not None:
        yield from map(dict, space.points)
        return
    ends = {name: part.values if isinstance(part, Choices) else (part.value(part.low), part.value(part.high))
            for name, part in space.domains.items()}
    first = {name: values[0] for name, values in ends.items()}
    yield first
    for name, values in ends.items():
        yield from ({**first, name: value} for value in values[1:])


def kinds(space: Space) -> Iterator[dict[str, Value]]:
    """Of the `extremes` the first, and each that brings a value of a key other than a coefficient."""
    coefficients = {key.name for key in fields(Config) if key.metadata.get("schedule")}
    seen: set[tuple[str, Value]] = set()
    for index, point in enumerate(extremes(space)):
        brought = {(name, value) for name, value in point.items() if name not in coefficients}
        if index == 0 or brought - seen:
            yield point
        seen |= brought


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")  # with the mark that Windows puts first, or without
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _check_once([name for name, _ in pairs], str(path), "key")
        return dict(pairs)

    parts = read_json_object(text, source=str(path), make=unique)
    if not parts:
        raise ConfigError(f"{path} names no key to search; write for example "
                          '{"lr": [1e-3, 7e-4]} for --grid, {"lr": {"low": 1e-4, "high": 1e-2, "log": true}} for '
                          "--space")
    return parts


def _check_once(items: Sequence[str], source: str, kind: str) -> None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise ConfigError(f"{source}: {item} is there twice; give each {kind} once")
        seen.add(item)


def _axis(name: str, part: Any, source: str) -> list[dict[str, Value]]:
    """The values that one entry of a grid takes: a key's list, or an object of equally long lists."""
    lists = part if isinstance(part, dict) else {name: part}
    for key, values in lists.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{source}: {key} holds {values!r}, which is no list of values; ranges are for --space")
    lengths = {key: len(values) for key, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(f"{source}: lists that go together are equally long, and in {name!r} "
                          f"{', '.join(f'{key} has {length}' for key, length in lengths.items())}")
    if not lists:
        raise ConfigError(f"{source}: {name!r} holds no list; give the keys that go together")
    columns = {key: [_value(key, value, source) for value in values] for key, values in lists.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    _check_once([", ".join(f"{key}={value}" for key, value in row.items()) for row in rows], source, "value")
    return rows


def _value(key: str, value: Any, source: str) -> Value:
    """`value` as the config has it."""
    _check_key(key, source)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{source}: {key} holds {value}, which is not finite; give numbers up to 1e308")
    found: Value = convert(key, value, get_type_hints(Config)[key], source=source)
    return found


def _check_key(key: str, source: str) -> None:
    known = get_type_hints(Config)
    if key not in known:
        raise ConfigError(f"{source}: unknown key {key!r}{nearest(key, known)}")
    if key in _COMPARED:
        raise ConfigError(f"{source}: {key} cannot be searched: {_COMPARED[key]}")


def _domain(name: str, part: Any, file: str) -> Domain:
    _check_key(name, file)
    source = f"{file}: {name}"
    if isinstance(part, dict) and "choices" in part:
        if len(part) > 1:
            raise ConfigError(f"{source} has choices beside {', '.join(part.keys() - {'choices'})}; it takes one kind")
        part = part["choices"]
    if isinstance(part, list):
        if not part:
            raise ConfigError(f"{source} has no choices; give a list of values")
        choices = tuple(_value(name, value, file) for value in part)
        _check_once([f"{name}={value}" for value in choices], file, "value")
        return Choices(choices)
    if not isinstance(part, dict) or not {"low", "high"} <= part.keys():
        raise ConfigError(f"{source} holds {part!r}; write a list of choices, or a range such as "
                          '{"low": 1e-4, "high": 1e-2, "log": true}')
    for key in part:
        if key not in _RANGE_KEYS:
            raise ConfigError(f"{source}: unknown word {key!r} of a range{nearest(key, _RANGE_KEYS)}; it has "
                              f"{', '.join(_RANGE_KEYS)}")
    return _range(name, part, source)


def _range(name: str, part: Mapping[str, Any], source: str) -> Range:
    low, high = (_number(part[end], f"{source}, {end}") for end in ("low", "high"))
    step = None if part.get("step") is None else _number(part["step"], f"{source}, step")
    log, text = part.get("log", False), part.get("as", "{}")
    if not isinstance(log, bool):
        raise ConfigError(f"{source}: log={log!r} is not true or false")
    if not isinstance(text, str) or text.count("{}") != 1:
        raise ConfigError(f"{source}: as={text!r} does not hold {{}} once, the number's place; write for example "
                          "linear:{}:0")
    whole = _is_whole(name, (low, high, *([] if step is None else [step])))
    if low >= high:
        raise ConfigError(f"{source}: low={low:g} is not below high={high:g}")
    if log and (low <= 0 or step is not None):
        raise ConfigError(f"{source}: a logarithmic range begins above 0 and has no step; this has low={low:g}"
                          + ("" if step is None else f" and step={step:g}"))
    if step is not None and not 0 < step <= high - low:
        raise ConfigError(f"{source}: step={step:g} is not above 0 and at most high - low")
    if step is not None:
        _check_raster(low, high, step, source)
    if math.isinf(high - low):
        raise ConfigError(f"{source}: from low={low:g} to high={high:g} is too far to draw from; give a smaller range")
    if whole and any(number != int(number) for number in (low, high, step or 0)):
        raise ConfigError(f"{source}: {name} is a whole number; so must low, high and step be")
    return Range(low, high, whole, log, step, text)


def _check_raster(low: float, high: float, step: float, source: str) -> None:
    """ConfigError unless `high` is a number of steps from `low`, counted in decimals as they are written."""
    first, last, each = (Decimal(repr(number)) for number in (low, high, step))
    steps = (last - first) // each
    if steps * each != last - first:
        below, above = float(first + steps * each), float(first + (steps + 1) * each)
        raise ConfigError(f"{source}: step={step:g} from low={low:g} does not reach high={high:g}; give high={below:g} "
                          f"or {above:g}")


def _number(value: Any, source: str) -> float:
    try:
        number = parse_number(value) if isinstance(value, str) else float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{source}: {reprlib.repr(value)} is not a number, or is too large") from None
    return number


def _is_whole(name: str, numbers: tuple[float, ...]) -> bool:
    """Whether the key counts something; keys in text do if their numbers are whole, unless they are coefficients."""
    hint = get_type_hints(Config)[name]
    rules = next(f.metadata for f in fields(Config) if f.name == name)
    if str in (get_args(hint) or (hint,)):
        return not rules.get("schedule") and all(number == int(number) for number in numbers)
    return int in (get_args(hint) or (hint,))
