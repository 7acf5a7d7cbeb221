"""Values of config keys and of users' hyperparameters, converted to the types of their fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from numbers import Integral
from operator import attrgetter
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, is_typeddict

from vantage.errors import ConfigError
from vantage.keys.json_text import parse, short_repr
from vantage.keys.objects import ObjectName, named
from vantage.keys.schedules import Schedule, coefficient, parse_number

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
    tuple: "a list such as 1,2",
    dict: 'a JSON object such as {"a": 1}',
    Any: "text, a number, a list or a dict",
}
"""The same for types that only fields of users' algorithms have. A list or dict may be JSON."""
_BOOLS: Mapping[Any, bool] = {"true": True, "false": False}
_WRONG = (KeyError, TypeError, ValueError, OverflowError)


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The types that a type hint joins, below the names that a program gave them.

    `Any` stands for object, and dict for a TypedDict.
    """
    if hasattr(hint, "__supertype__"):
        return kinds_of(hint.__supertype__)
    if type(hint).__name__ == "TypeAliasType":
        return kinds_of(hint.__value__)
    if get_origin(hint) in (Union, UnionType, Final):
        return tuple(kind for each in get_args(hint) for kind in kinds_of(each))
    if is_typeddict(hint):
        return (dict,)
    return (Any if hint in (object, Final) else hint,)


def is_convertible(hint: Any) -> bool:
    """Whether `typed` gives every value one of the types that `hint` joins."""
    return all(_is_known(kind) for kind in kinds_of(hint))


def _is_known(kind: Any) -> bool:
    if kind in (Any, tuple):
        return False
    empty: tuple[Any, ...] = ((), [], {})
    return (kind in (Schedule, NoneType, bool, int, float, str) or _is_enum(kind)
            or get_origin(kind) is Literal or any(_is_of(each, kind) for each in empty))


def typed(value: Any, hint: Any) -> Any:
    """`value`, typed or in text, converted to the type `hint`.

    A list of numbers may be one number, an array, or text with commas; numbers and flags may be
    those of numpy and torch. For a text field, a mapping becomes JSON and a sequence a list with
    commas, as env_kwargs and action_subset are written; a class, a function or another object
    becomes its name, see `vantage.keys.objects.named`. Of several types, that of the value counts;
    text is a number where it is just how that number is written. A list or dict of a user's
    algorithm may be JSON, and a list also text with commas.

    ValueError names the expected type; ConfigError for a wrong coefficient.
    """
    kinds = kinds_of(hint)
    with suppress(*_WRONG):
        return _container(value, kinds)
    value = _of_array(value)
    with suppress(*_WRONG):
        return _converted(value, kinds)
    if isinstance(value, str):
        with suppress(ValueError):
            return _container_in_text(value, kinds)
    expected = next(_expected(kind) for kind in kinds if kind is not NoneType)
    or_none = " or none" if NoneType in kinds else ""
    raise ValueError(f"{short_repr(value)} is not {expected}{or_none}")


def _converted(value: Any, kinds: tuple[Any, ...]) -> Any:
    """`value` as one of the types; an error of _WRONG if it has none of them."""
    if Any in kinds and isinstance(value, int | float | None):
        return value
    if NoneType in kinds and (value is None or _is_word(value, "none")):
        return None
    if Schedule in kinds and not (bool in kinds and isinstance(value, bool)):
        return coefficient(value)
    if len(kinds) > 1 and type(value) in {*kinds} - {str}:
        return value
    for kind in kinds:
        if kind is not str:
            with suppress(*_WRONG, ConfigError):
                converted = _of_kind(value, kind, kinds)
                if not (str in kinds and isinstance(value, str) and in_text(converted) != value):
                    return converted
    if str in kinds and not isinstance(value, bool):
        return _as_text(value)
    raise TypeError


def _of_kind(value: Any, kind: Any, kinds: tuple[Any, ...]) -> Any:
    """`value` as the one type `kind` of the `kinds`; an error of _WRONG if it is none."""
    if get_origin(kind) is Literal:
        return _same(value, get_args(kind), of=lambda choice: choice)
    if _is_enum(kind):
        if isinstance(value, kind):
            return value
        with suppress(KeyError):
            return _same(value, [*kind], of=attrgetter("value"))
        return kind[value]
    if kind is bool:
        word = value.lower() if isinstance(value, str) else value
        return value if isinstance(value, bool) else _BOOLS[word]
    if isinstance(value, bool):
        raise TypeError
    if (get_origin(kind) or kind) is tuple:
        return _tuple_or_number(value, kind, kinds)
    if kind is int and (isinstance(value, int) or re.fullmatch("-?[0-9]+", str(value))):
        return int(value)  # a float would lose the last digits beyond 2^53
    if kind not in (int, float):
        raise TypeError
    number = parse_number(value) if isinstance(value, str) else float(value)
    if kind is float:
        return number
    if number != int(number):
        raise ValueError
    return int(number)


def _same(value: Any, choices: Any, *, of: Callable[[Any], Any]) -> Any:
    """The first of the `choices` that is `value`, or whose text is; KeyError if none is."""
    for choice in choices:
        if type(of(choice)) is type(value) and of(choice) == value:
            return choice
    for choice in choices:
        if isinstance(value, str) and value in (in_text(of(choice)), str(of(choice))):
            return choice
    raise KeyError(value)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _is_word(value: Any, word: str) -> bool:
    return isinstance(value, str) and value.lower() == word


def _container(value: Any, kinds: tuple[Any, ...]) -> Any:
    """`value` as a list or dict of one of the types; ValueError if there is no such type."""
    whole = value.tolist() if hasattr(type(value), "tolist") else value
    if isinstance(whole, tuple):
        whole = [*whole]
    elif isinstance(whole, Mapping):
        whole = {**whole}
    for kind in kinds:
        if _is_container_of(whole, kind):
            return _with_keys_of(_listed(whole), kind)
    raise ValueError


def _is_container_of(value: Any, kind: Any) -> bool:
    """Whether `value` is a list or dict of a type, which only users' algorithms have."""
    return isinstance(value, list | dict) and (kind is Any or _is_of(value, kind))


def _listed(value: Any) -> Any:
    """`value` with the tuples, arrays and numbers of numpy in it as JSON holds them."""
    if isinstance(value, Mapping):
        return {_listed(key): _listed(part) for key, part in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [_listed(part) for part in value]
    return value.tolist() if hasattr(type(value), "tolist") else value


def _with_keys_of(value: Any, kind: Any) -> Any:
    """`value`, with numbers for the keys of a dict[int, ...], which are text in JSON."""
    key = get_args(kind)[:1]
    if isinstance(value, dict) and key in ((int,), (float,)):
        return {typed(name, key[0]): part for name, part in value.items()}
    return value


def _container_in_text(value: str, kinds: tuple[Any, ...]) -> Any:
    """The list or dict in `value`, which is JSON or a list with commas.

    Where any type may be meant, other text stays as it is. ValueError if no type fits.
    """
    # 1,2 is a list too, but 1 is none where any type may be meant.
    for text in (value,) if Any in kinds else (value, f"[{value}]"):
        with suppress(ValueError):
            return _container(parse(text), kinds)
    if Any in kinds:
        return None if _is_word(value, "none") else value
    parts = value.split(",")
    if any(_is_container_of(parts, kind) for kind in kinds) and _holds_text(kinds):
        return parts
    raise ValueError


def _holds_text(kinds: tuple[Any, ...]) -> bool:
    """Whether one of the types is list[str]."""
    return any(get_origin(kind) is list and str in get_args(kind) for kind in kinds)


def _expected(kind: Any) -> str:
    """A type in words."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(in_text, get_args(kind)))}"
    if _is_enum(kind):
        return f"one of {', '.join(in_text(each.value) for each in kind)}"
    return _EXPECTED.get(kind) or _EXPECTED_BY_USERS.get(get_origin(kind) or kind) or str(kind)


def _of_array(value: Any) -> Any:
    """The numbers, flags and texts of an array of numpy or torch; other values as they are."""
    if not hasattr(type(value), "tolist"):
        return value
    listed = value.tolist()
    while isinstance(listed, list) and len(listed) == 1:
        listed = listed[0]
    return listed


def _is_of(value: Any, hint: Any) -> bool:
    kind = get_origin(hint) or hint
    return kind is not Any and isinstance(kind, type) and isinstance(value, kind)


def _tuple_or_number(value: Any, kind: Any, kinds: tuple[Any, ...]) -> Any:
    """A tuple of the type `kind`; a single element itself if `kinds` include its type."""
    parts = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, str):
        parts = [part for part in value.split(",") if part.strip()]
    elements = get_args(kind) or (Any, ...)
    if elements == (Any, ...):
        return tuple(parts)
    if elements[1:] != (...,):
        return tuple(typed(part, each) for part, each in zip(parts, elements, strict=True))
    numbers = tuple(typed(part, elements[0]) for part in parts)
    return numbers[0] if len(numbers) == 1 and elements[0] in kinds else numbers


def _as_text(value: Any) -> str:
    if isinstance(value, ObjectName):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # of an enum, its value
    if isinstance(value, Enum):
        return _as_text(value.value)
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, Integral | PathLike):
        return str(value)
    if value is None:
        raise TypeError
    return repr(float(value)) if hasattr(value, "__float__") else named(value)


def plain(value: Any) -> Any:
    """The value of a key as JSON holds it: a schedule as text, a tuple as a list."""
    if isinstance(value, Schedule):
        return value.text
    if isinstance(value, Enum):
        return value.value
    return [plain(part) for part in value] if isinstance(value, tuple) else value


def in_text(value: Any) -> str:
    """The value of a key as flags take it, such as 64,64, linear:1e-3:0, true and none."""
    if isinstance(value, Enum):
        return in_text(value.value)
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, tuple):
        return ",".join(short_repr(part) if type(part) is int else in_text(part) for part in value)
    return str(value).lower() if isinstance(value, bool | None) else str(value)


def in_short(value: Any) -> str:
    """`in_text` for people: of a curve of many values only the first and the last."""
    return value.short() if isinstance(value, Schedule) else in_text(value)
