"""Config keys: how a field of a config dataclass is declared, converted from text, and checked."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from functools import cache
from inspect import get_annotations
from math import isfinite
from numbers import Integral
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from vantage.errors import ConfigError
from vantage.keys.import_paths import colon_form
from vantage.keys.json_text import parse, shown
from vantage.keys.objects import ObjectName, is_code, named
from vantage.keys.other_libraries import KEYS
from vantage.keys.schedules import Schedule, coefficient, parse_number

_LARGEST = 10**18
_EXPECTED = {bool: "true or false", int: "a whole number such as 10, 1e6 or 10M", float: "a number", str: "text",
             tuple[int, ...]: "a list of whole numbers such as 64,64", tuple[float, ...]: "a list of numbers"}
_CONVERTED = {*_EXPECTED, Schedule, NoneType} - {str}


@cache  # evaluating every annotation takes most of the time that a command needs to read flags
def type_hints(kind: type) -> dict[str, Any]:
    """The types of the fields of a class, by name.

    Worker processes receive a class of a script or a notebook without the names that only its annotations use. A type
    that cannot be evaluated there is Any: the value has been converted already.
    """
    try:
        return get_type_hints(kind)
    except NameError:
        parts = {name: (text, base.__module__) for base in reversed(kind.__mro__)
                 for name, text in get_annotations(base).items()}
        return {name: _type_hint(text, module) for name, (text, module) in parts.items()}


def _type_hint(annotation: Any, module: str) -> Any:
    try:
        return get_type_hints(type("_", (), {"__annotations__": {"_": annotation}, "__module__": module}))["_"]
    except NameError:
        return Any


def key(default: Any, help: str, *, choices: tuple[str, ...] = (), low: float | None = None,
        high: float | None = None, open: bool = False, fixed: bool = False) -> Any:
    """A field of a config dataclass: its default, its line in --help, and the values it takes (bounds inclusive).

    Bounds hold for every element of a list and every value of a schedule. With `open` the key also takes an import path
    module:Class. A `fixed` number of an algorithm cannot be set between updates.
    """
    return field(default=default, metadata={
        "help": help, "choices": choices, "low": low, "high": high, "open": open, "fixed": fixed})


def check_fields(instance: Any) -> None:
    """Convert the fields of a config dataclass to their types; ConfigError for the first that `key` does not allow.

    Fields of text and of types that no flag has stay as they are.
    """
    hints = type_hints(instance.__class__)
    for f in fields(instance):
        hint, given = hints[f.name], getattr(instance, f.name)
        value = convert(f.name, given, hint) if _CONVERTED.issuperset(kinds_of(hint)) else given
        if value is not given:
            object.__setattr__(instance, f.name, value)
        _check(f.name, value, f.metadata)


def _check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    """ConfigError for a value that the `rules` of `key` do not allow."""
    choices, low, high = rules.get("choices"), rules.get("low"), rules.get("high")
    if choices and value not in choices and not (rules["open"] and is_code(value)):
        raise ConfigError(f"{name}={value!r} is not one of {', '.join(choices)}"
                          f"{colon_form(value) if rules['open'] else ''}{nearest(str(value), choices)}")
    numbers = value.values if isinstance(value, Schedule) else value if isinstance(value, tuple) else (value,)
    text = shown(value) if isinstance(value, int) else f"{in_text(value):.80}"
    for number in numbers:
        if not isinstance(number, int | float):
            continue
        if isinstance(number, float) and not isfinite(number):
            raise ConfigError(f"{name}={text} is not finite; give a number")
        if isinstance(number, int):  # torch and numpy count in 64 bits
            high = _LARGEST if high is None else high
            low = -_LARGEST if low is None else low
        if low is not None and number < low:
            raise ConfigError(f"{name}={text} is below {low:g}, the smallest allowed value")
        if high is not None and number > high:
            raise ConfigError(f"{name}={text} is above {high:,.15g}, the largest allowed value")


def nearest(name: str, candidates: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """'; did you mean X?' for a candidate that differs from `name` by a typing error, or an empty string."""
    # A much longer name that does not begin with this one means something else: frames is not max_frames.
    lower = {candidate.lower(): candidate for candidate in candidates
             if abs(len(candidate) - len(name)) <= 3 or candidate.startswith(name)}
    close = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.75)
    return f"; did you mean {spell(lower[close[0]])}?" if close else ""


def suggestion(name: str, candidates: Iterable[str], *, flags: bool = False) -> str:
    """As `nearest`; for a key of another library, Vantage's: "; Stable-Baselines3's n_steps is rollout_length"."""
    def spell(key: str) -> str:
        return "--" + key.replace("_", "-") if flags else key

    known = {*candidates}

    def counterpart(word: str) -> str:
        library, text = KEYS.get(word, ("", ""))
        own = re.findall("{([a-z_]+)}", text)
        usable = text and (not own or not known.isdisjoint(own))
        return f"; {library} {word} {text.format_map({key: spell(key) for key in own})}" if usable else ""

    word = name.removeprefix("no_")
    # Not from a longer word, which is often a plural and means something else: checkpoints is not checkpoint.
    close = difflib.get_close_matches(word, [key for key in KEYS if len(key) >= len(word)], n=1, cutoff=0.92)
    return (counterpart(name) or counterpart(word) or nearest(word, known, spell)
            or "".join(map(counterpart, close)))


def read_json_object(text: str, *, source: str) -> dict[str, Any]:
    """The JSON object in `text`; ConfigError names `source`."""
    try:
        values = parse(text)
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{source} holds {type(values).__name__}, not a JSON object")
    return values


def in_words(name: str, value: Any, rules: Mapping[str, Any]) -> Any:
    """`value` of the key `name`, where it is a class or function that the key takes by a name.

    ConfigError for any other class or function, except in a key that takes import paths.
    """
    if name == "env_kwargs" and isinstance(value, Mapping):
        return _json_of(value)
    plain = (str, Integral, PathLike, Mapping, list, tuple, type(None))
    if isinstance(value, plain) or hasattr(value, "__float__") or rules.get("open") or name == "env":
        return value
    title = getattr(value, "__name__", type(value).__name__)
    if name == "optimizer":
        if isinstance(value, type) and value.__module__.startswith("torch.optim"):
            return {"Adam": "adam", "RMSprop": "rmsprop"}.get(title, title)
        raise ConfigError(f"optimizer is a {title}; give a name such as adam, or a class of torch.optim such as "
                          "torch.optim.AdamW, without arguments")
    if name == "activation":
        choices = rules["choices"]
        own = repr(value).startswith(("ReLU(", "Tanh(", "SiLU(", "ELU(alpha=1.0"))  # an object, by its class's name
        is_torchs = str(getattr(value, "__module__", None) or "torch").startswith("torch")
        if title.lower() in choices and is_torchs and (own or hasattr(value, "__name__")):
            return title.lower()
        slope = "; leaky_relu has slope 0.25 below 0" if title in ("LeakyReLU", "leaky_relu") else ""
        raise ConfigError(f"activation is {title}; give {', '.join(choices)}{slope}; for another, give a network of "
                          "your own as network")
    raise ConfigError(f"{name} is the {type(value).__name__} {title}, and a config holds text and numbers; give "
                      "a value as `vantage train ALGO --help-all` explains it")


def _json_of(values: Mapping[Any, Any]) -> str:
    """env_kwargs as JSON; ConfigError names the argument that JSON cannot hold."""
    def plain(value: Any) -> Any:
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy or torch
            return value.item()
        raise TypeError

    for key, value in values.items():
        try:
            json.dumps({key: value}, default=plain)
        except (TypeError, ValueError):
            array = "; give a list, as its tolist() returns" if hasattr(value, "tolist") else ""
            raise ConfigError(f"env_kwargs[{key!r}] has a {type(value).__name__}, which the JSON of a config cannot "
                              f"hold{array or '; give numbers, texts, lists and mappings'}, and convert it in the "
                              "environment") from None
    return json.dumps(values, default=plain)


def named_choices(name: str, text: str, choices: tuple[str, ...], example: str) -> dict[str, str]:
    """The choice of each part in a list such as camera=image,map=codes, or in a JSON object; "" stands for all others.

    ConfigError for a choice that is not one of `choices`, and for a part that is named twice.
    """
    if text.lstrip().startswith("{"):
        named = {part: str(choice) for part, choice in read_json_object(text, source=f"{name}={text!r:.80}").items()}
    else:
        pairs = [word.strip().rpartition("=") for word in text.split(",")]
        named = {part.strip(): choice.strip() for part, _, choice in pairs}
        if len(named) < len(pairs):
            raise ConfigError(f"{name}={text!r:.80} names a part twice; write for example {example}")
    for choice in named.values():
        if choice not in choices:
            raise ConfigError(f"{name}={text!r:.80}: {choice!r:.40} is not one of {', '.join(choices)}"
                              f"{nearest(choice, choices)}; write for example {choices[1]}, or by part {example}")
    return named


def convert(name: str, value: Any, hint: Any, *, source: str = "") -> Any:
    """`value`, typed or in text, converted to the type `hint`; ConfigError names the key and the expected type."""
    try:
        return typed(value, hint)
    except (ValueError, ConfigError) as error:
        raise ConfigError(f"{source}: {name}={error}" if source else f"{name}={error}") from None


def typed(value: Any, hint: Any) -> Any:
    """`value`, typed or in text, converted to the type `hint`; ValueError names the expected type.

    A list of numbers may be one number, or text with commas. For a text field a mapping becomes JSON and a sequence a
    comma-separated list, as env_kwargs and action_subset are written, and a class, function or other object its name
    (`vantage.keys.objects.named`). ConfigError for a wrong coefficient.
    """
    kinds = kinds_of(hint)
    word = value.lower() if isinstance(value, str) else value
    try:
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
        if int in kinds and (isinstance(value, int) or re.fullmatch("[0-9]+", str(value))):
            return int(value)  # a float would lose the last digits above 2^53
        number = parse_number(value) if isinstance(value, str) else float(value)
        if float in kinds:
            return number
        if number == int(number):
            return int(number)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    expected = next(_EXPECTED.get(kind, str(kind)) for kind in kinds if kind is not NoneType)
    or_none = " or none" if NoneType in kinds else ""
    raise ValueError(f"{shown(value)} is not {expected}{or_none}")


def kinds_of(hint: Any) -> tuple[Any, ...]:
    """The types that a type hint joins."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def plain(value: Any) -> Any:
    """`value` of a key as JSON holds it: a schedule as text, a tuple as a list."""
    if isinstance(value, Schedule):
        return value.text
    return list(value) if isinstance(value, tuple) else value


def in_text(value: Any) -> str:
    """`value` of a key as flags take it, such as 64,64, linear:1e-3:0, true and none."""
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    return str(value).lower() if isinstance(value, bool | None) else str(value)


def _list_or_number(value: Any, element: Any, kinds: tuple[Any, ...]) -> Any:
    """A tuple of elements of a type; one element alone where `kinds` have that type too."""
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    numbers = tuple(typed(part, element) for part in (value if isinstance(value, list | tuple) else [value]))
    return numbers[0] if len(numbers) == 1 and element in kinds else numbers


def _as_text(value: Any) -> str:
    if isinstance(value, ObjectName):
        return value
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, str | Integral | PathLike):
        return str(value)
    if value is None:
        raise TypeError
    return repr(float(value)) if hasattr(value, "__float__") else named(value)
