"""Config keys: how a field of a config dataclass is declared, converted from text, and checked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from math import isfinite
from numbers import Integral
from types import NoneType
from typing import Any, get_args

from vantage.errors import ConfigError
from vantage.schedules import Schedule, parse_number

_EXPECTED = {bool: "true or false", int: "a whole number such as 10, 1e6 or 10M", float: "a number", str: "text"}


def key(default: Any, help: str, *, choices: tuple[str, ...] = (), schedule: bool = False, low: float | None = None,
        high: float | None = None, open: bool = False) -> Any:
    """A field of a config dataclass: its default, its line in --help, and the values it takes (bounds inclusive).

    With `open` the key also takes an import path module:Class. A `schedule` is text in the notation of
    `vantage.schedules`; its bounds hold for every value that it passes through.
    """
    return field(default=default, metadata={
        "help": help, "choices": choices, "schedule": schedule, "low": low, "high": high, "open": open})


def check_fields(instance: Any) -> None:
    """Raise ConfigError for the first field of a config dataclass whose value `key` does not allow."""
    for f in fields(instance):
        value, rules = getattr(instance, f.name), f.metadata
        choices, low, high = rules.get("choices"), rules.get("low"), rules.get("high")
        if choices and value not in choices and not (rules["open"] and ":" in value):
            raise ConfigError(f"{f.name}={value!r} is not one of {', '.join(choices)}{nearest(str(value), choices)}")
        try:
            numbers = Schedule.parse(value).values if rules.get("schedule") else (value,)
        except ConfigError as error:
            raise ConfigError(f"{f.name}={error}") from None
        for number in numbers:
            if not isinstance(number, int | float):
                continue
            if not isfinite(number):
                raise ConfigError(f"{f.name}={value} is not finite; give a number")
            if low is not None and number < low:
                raise ConfigError(f"{f.name}={value} is below {low:g}, the smallest allowed value")
            if high is not None and number > high:
                raise ConfigError(f"{f.name}={value} is above {high:,.15g}, the largest allowed value")


def nearest(name: str, candidates: Iterable[str]) -> str:
    """'; did you mean X?' for the nearest of `candidates`, or an empty string."""
    lower = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean {lower[close[0]]}?" if close else ""


def read_json_object(text: str, *, source: str) -> dict[str, Any]:
    """The JSON object in `text`; ConfigError names `source`."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is no JSONDecodeError
        raise ConfigError(f"{source} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{source} holds {type(values).__name__}, not a JSON object")
    return values


def whole_numbers(name: str, text: str, largest: int, example: str) -> tuple[int, ...]:
    """The numbers of a comma-separated list such as 64,64; ConfigError unless each is from 1 to `largest`."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = (0,)
    if any(not 1 <= number <= largest for number in numbers):
        raise ConfigError(f"{name}={text!r} is not a list of whole numbers from 1 to {largest:,}; write for example "
                          f"{example}")
    return numbers


def convert(name: str, value: Any, hint: Any, *, source: str = "") -> Any:
    """`value`, typed or in text, as the type `hint`; ConfigError says what was expected."""
    try:
        return typed(value, hint)
    except ValueError as error:
        raise ConfigError(f"{source}{': ' * bool(source)}{name}={error}") from None


def typed(value: Any, hint: Any) -> Any:
    """`value`, typed or in text, as the type `hint`; ValueError says what was expected.

    For a text field a mapping becomes JSON and a sequence a comma-separated list, as env_kwargs and hidden are written.
    """
    kinds = get_args(hint) or (hint,)
    word = value.lower() if isinstance(value, str) else value
    try:
        if NoneType in kinds and word in (None, "none"):
            return None
        if bool in kinds:
            return value if isinstance(value, bool) else {"true": True, "false": False}[word]
        if isinstance(value, bool):
            raise TypeError
        if str in kinds:
            return _as_text(value)
        if int in kinds and (isinstance(value, int) or str(value).isdecimal()):
            return int(value)  # a float would lose the last digits above 2^53
        number = parse_number(value) if isinstance(value, str) else float(value)
        if float in kinds:
            return number
        if number == int(number):
            return int(number)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    expected = next(_EXPECTED[kind] for kind in kinds if kind is not NoneType)
    raise ValueError(f"{value!r} is not {expected}{' or none' * (NoneType in kinds)}")


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    if isinstance(value, str | Integral):
        return str(value)
    return repr(float(value))
