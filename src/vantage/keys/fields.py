"""Config keys: how a field of a config dataclass is declared, converted from text, and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field, fields
from math import isfinite
from numbers import Integral
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from vantage.errors import ConfigError
from vantage.keys.import_paths import colon_form
from vantage.keys.json_text import parse, short_repr
from vantage.keys.objects import ObjectName, is_code, named
from vantage.keys.other_libraries import POLICIES
from vantage.keys.python_values import config_value
from vantage.keys.schedules import Schedule, coefficient, parse_number
from vantage.keys.suggestions import nearest
from vantage.keys.type_hints import type_hints

_LARGEST_INTEGER = 10**18
"""Bound of whole numbers without a bound of their own: torch and numpy count in 64 bits."""
_EXPECTED = {
    bool: "true or false",
    int: "a whole number such as 10, 1e6 or 10M",
    float: "a number",
    str: "text",
    tuple[int, ...]: "a list of whole numbers such as 64,64",
    tuple[float, ...]: "a list of numbers",
}
_EXPECTED_BY_USERS = {
    list: "a list such as 1,2 or [1, 2]",
    dict: 'a JSON object such as {"a": 1}',
    Any: "text, a number, a list or a dict",
}
"""The same for types that only fields of users' algorithms have. A list or dict may be JSON."""
_CONVERTED = {*_EXPECTED, Schedule, NoneType} - {str}


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

    In a user's class, text and fields of types that no key of Vantage has stay as they are.
    ConfigError for the first value that `key` does not allow.
    """
    kind = instance.__class__
    is_own = kind.__module__.startswith("vantage.")
    hints = type_hints(kind)
    for f in fields(instance):
        hint = hints[f.name]
        value = getattr(instance, f.name)
        if is_own or _CONVERTED.issuperset(kinds_of(hint)):
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


def typed(value: Any, hint: Any) -> Any:
    """`value`, typed or in text, converted to the type `hint`.

    A list of numbers may be one number, an array, or text with commas; numbers and flags may be
    those of numpy and torch. For a text field, a mapping becomes JSON and a sequence a list with
    commas, as env_kwargs and action_subset are written; a class, a function or another object
    becomes its name, see `vantage.keys.objects.named`. A list or dict of a user's algorithm may be
    JSON, and a list also text with commas.

    ValueError names the expected type; ConfigError for a wrong coefficient.
    """
    kinds = kinds_of(hint)
    whole = value.tolist() if hasattr(type(value), "tolist") else value
    whole = [*whole] if isinstance(whole, tuple) else whole
    if _is_container(whole, kinds):
        return whole
    value = _of_array(value)
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        return _converted(value, kinds)
    if isinstance(value, str):
        with suppress(ValueError):
            return _container_in_text(value, kinds)
    expected = next(_expected(kind) for kind in kinds if kind is not NoneType)
    or_none = " or none" if NoneType in kinds else ""
    raise ValueError(f"{short_repr(value)} is not {expected}{or_none}")


def _converted(value: Any, kinds: tuple[Any, ...]) -> Any:
    """`value` as one of the types.

    KeyError, TypeError, ValueError or OverflowError if it has none of them.
    """
    if Any in kinds and isinstance(value, int | float | None):
        return value
    word = value.lower() if isinstance(value, str) else value
    if NoneType in kinds and word in (None, "none"):
        return None
    if bool in kinds:
        return value if isinstance(value, bool) else {"true": True, "false": False}[word]
    if Schedule in kinds:
        return coefficient(value)
    if isinstance(value, bool):
        raise TypeError
    for kind in kinds:
        if get_origin(kind) is tuple:
            return _list_or_number(value, get_args(kind)[0], kinds)
    if str in kinds:
        return _as_text(value)
    if int in kinds and (isinstance(value, int) or re.fullmatch("-?[0-9]+", str(value))):
        return int(value)  # a float would lose the last digits beyond 2^53
    number = parse_number(value) if isinstance(value, str) else float(value)
    if float in kinds:
        return number
    if int in kinds and number == int(number):
        return int(number)
    raise TypeError


def _container_in_text(value: str, kinds: tuple[Any, ...]) -> Any:
    """The list or dict in `value`, which is JSON or a list with commas.

    Where any type may be meant, other text stays as it is. ValueError if no type fits.
    """
    # 1,2 is a list too, but 1 is none where any type may be meant.
    for text in (value,) if Any in kinds else (value, f"[{value}]"):
        with suppress(ValueError):
            parsed = parse(text)
            if _is_container(parsed, kinds):
                return parsed
    if Any in kinds:
        return None if value.lower() == "none" else value
    parts = value.split(",")
    if _is_container(parts, kinds) and _holds_text(kinds):
        return parts
    raise ValueError


def _is_container(value: Any, kinds: tuple[Any, ...]) -> bool:
    """Whether `value` is a list or dict of one of the types, which only users' algorithms have."""
    return isinstance(value, list | dict) and any(
        kind is Any or _has_type(value, kind) for kind in kinds)


def _holds_text(kinds: tuple[Any, ...]) -> bool:
    """Whether one of the types is list[str]."""
    return any(get_origin(kind) is list and str in get_args(kind) for kind in kinds)


def _expected(kind: Any) -> str:
    """A type in words."""
    return _EXPECTED.get(kind) or _EXPECTED_BY_USERS.get(get_origin(kind) or kind) or str(kind)


def _of_array(value: Any) -> Any:
    """The numbers, flags and texts of an array of numpy or torch; other values as they are."""
    if not hasattr(type(value), "tolist"):
        return value
    listed = value.tolist()
    while isinstance(listed, list) and len(listed) == 1:
        listed = listed[0]
    return listed


def _has_type(value: Any, hint: Any) -> bool:
    kind = get_origin(hint) or hint
    return isinstance(kind, type) and isinstance(value, kind)


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The types that a type hint joins."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def plain(value: Any) -> Any:
    """The value of a key as JSON holds it: a schedule as text, a tuple as a list."""
    if isinstance(value, Schedule):
        return value.text
    return list(value) if isinstance(value, tuple) else value


def in_text(value: Any) -> str:
    """The value of a key as flags take it, such as 64,64, linear:1e-3:0, true and none."""
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, tuple):
        return ",".join(map(short_repr, value))
    return str(value).lower() if isinstance(value, bool | None) else str(value)


def in_short(value: Any) -> str:
    """`in_text` for people: of a curve of many values only the first and the last."""
    return value.short() if isinstance(value, Schedule) else in_text(value)


def _list_or_number(value: Any, element: Any, kinds: tuple[Any, ...]) -> Any:
    """A tuple of elements of a type; a single element itself if `kinds` include its type."""
    parts = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, str):
        parts = [part for part in value.split(",") if part.strip()]
    numbers = tuple(typed(part, element) for part in parts)
    return numbers[0] if len(numbers) == 1 and element in kinds else numbers


def _as_text(value: Any) -> str:
    if isinstance(value, ObjectName):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # of an enum, its value
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, Integral | PathLike):
        return str(value)
    if value is None:
        raise TypeError
    return repr(float(value)) if hasattr(value, "__float__") else named(value)
