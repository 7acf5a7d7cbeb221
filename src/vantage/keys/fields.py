"""Config keys: how a field of a config dataclass is declared, converted from text, and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import isfinite
from typing import Any

from vantage.errors import ConfigError
from vantage.keys.given_fields import arguments_of
from vantage.keys.import_paths import colon_form
from vantage.keys.json_text import parse, short_repr
from vantage.keys.objects import is_code
from vantage.keys.other_libraries import POLICIES
from vantage.keys.python_values import config_value
from vantage.keys.schedules import Schedule
from vantage.keys.suggestions import nearest
from vantage.keys.type_hints import type_hints
from vantage.keys.typed_values import in_short, is_convertible, kinds_of, typed

_LARGEST_INTEGER = 10**18
"""Bound of whole numbers without a bound of their own: torch and numpy count in 64 bits."""


def key(default: Any, help: str, *, choices: tuple[str, ...] = (), low: float | None = None,
        high: float | None = None, open: bool = False, fixed: bool = False) -> Any:
    """A field of a config dataclass: its default, its line in --help, and its allowed values.

    The bounds are inclusive and hold for every element of a list and every value of a schedule.
    With `open`, the key also takes code: an import path module:Class, a class or an object. A
    `fixed` number of an algorithm cannot be set between updates.
    """
    rules = {"help": help, "choices": choices, "low": low, "high": high, "open": open,
             "fixed": fixed}
    return field(default=default, metadata=rules)


def check_fields(instance: Any) -> None:
    """Convert the fields of a config dataclass to their types and check them.

    In a user's class, values of types that `typed` does not know stay as they are. ConfigError for
    the first value that `key` does not allow.
    """
    kind = instance.__class__
    is_own = kind.__module__.startswith("vantage.")
    hints = type_hints(kind)
    for f in arguments_of(kind):
        hint = hints[f.name]
        value = getattr(instance, f.name)
        if is_own or is_convertible(hint):
            converted = convert_object(f.name, value, hint, f.metadata)
            if converted is not value:
                object.__setattr__(instance, f.name, converted)
                value = converted
        _check(f.name, value, f.metadata)


def _check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    """ConfigError for a value that the `rules` of `key` do not allow."""
    choices = rules.get("choices")
    is_open = rules.get("open", False)
    if choices and value not in choices and not (is_open and is_code(value)):
        if isinstance(value, str) and value in POLICIES:
            raise ConfigError(f"{name}={value!r} is a policy of Stable-Baselines3; give "
                              f"{POLICIES[value]}")
        class_path = ""
        if is_open:
            class_path = colon_form(value) or ", module:Class"
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}{class_path}"
                          f"{nearest(str(value), choices)}")
    numbers = value.values if isinstance(value, Schedule) else value
    for number in numbers if isinstance(numbers, tuple) else (numbers,):
        if isinstance(number, int | float):
            _check_number(name, value, number, rules)


def _check_number(name: str, value: Any, number: float, rules: Mapping[str, Any]) -> None:
    """Check one number of `value`."""
    low = rules.get("low")
    high = rules.get("high")
    text = short_repr(value) if isinstance(value, int) else f"{in_short(value):.80}"
    if isinstance(number, int):
        low = -_LARGEST_INTEGER if low is None else low
        high = _LARGEST_INTEGER if high is None else high
    elif not isfinite(number):
        raise ConfigError(f"{name}={text} is not finite; give a number")
    if low is not None and number < low:
        raise ConfigError(f"{name}={text} is below {low:g}, the smallest allowed value")
    if high is not None and number > high:
        raise ConfigError(f"{name}={text} is above {high:,.15g}, the largest allowed value")


def read_json_object(text: str, *, source: str) -> dict[str, Any]:
    """The JSON object in `text`; ConfigError names `source`."""
    try:
        values = parse(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{source} holds {type(values).__name__}, not a JSON object")
    return values


def convert(name: str, value: Any, hint: Any, *, source: str = "") -> Any:
    """As `typed`; ConfigError names the key, and `source` if there is one."""
    try:
        return typed(value, hint)
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{source}: {name}={error}" if source else f"{name}={error}") from None


def convert_object(name: str, value: Any, hint: Any, rules: Mapping[str, Any]) -> Any:
    """As `convert`, also for the objects that a key with these `rules` takes."""
    if Schedule not in kinds_of(hint):  # a coefficient may be a function
        value = config_value(name, value, rules)
    return convert(name, value, hint)
