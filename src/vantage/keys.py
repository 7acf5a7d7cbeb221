"""Config keys: how a field of a config dataclass is declared, converted from text, and checked."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields
from math import isfinite
from numbers import Integral
from os import PathLike
from types import NoneType
from typing import Any, TypeVar, get_args

from vantage.errors import ConfigError
from vantage.importing import colon_form, import_path
from vantage.json_text import parse, shown
from vantage.other_libraries import KEYS
from vantage.schedules import Schedule, parse_number

T = TypeVar("T")

_LARGEST = 10**18
_EXPECTED = {bool: "true or false", int: "a whole number such as 10, 1e6 or 10M", float: "a number", str: "text"}


def key(default: Any, help: str, *, choices: tuple[str, ...] = (), schedule: bool = False, low: float | None = None,
        high: float | None = None, open: bool = False) -> Any:
    """A field of a config dataclass: its default, its line in --help, and the values it takes (bounds inclusive).

    With `open` the key also takes an import path module:Class. A `schedule` is text in the notation of
    `vantage.schedules`; its bounds hold for every value that it passes through.
    """
    return field(default=default, metadata={
        "help": help, "choices": choices, "schedule": schedule, "low": low, "high": high, "open": open})


def documented(kind: type[T]) -> type[T]:
    """Add the help of each field to the docstring of a config dataclass."""
    lines = [f"    {f.name}: {f.metadata['help']}" for f in fields(kind)]  # type: ignore[arg-type]
    kind.__doc__ = "\n".join([f"{kind.__doc__}\n", *lines])
    return kind


def check_fields(instance: Any) -> None:
    """Raise ConfigError for the first field of a config dataclass whose value `key` does not allow."""
    for f in fields(instance):
        value, rules = getattr(instance, f.name), f.metadata
        choices, low, high = rules.get("choices"), rules.get("low"), rules.get("high")
        if choices and value not in choices and not (rules["open"] and ":" in value):
            raise ConfigError(f"{f.name}={value!r} is not one of {', '.join(choices)}"
                              f"{colon_form(value) if rules['open'] else ''}{nearest(str(value), choices)}")
        try:
            numbers = Schedule.parse(value).values if rules.get("schedule") else (value,)
        except ConfigError as error:
            raise ConfigError(f"{f.name}={error}") from None
        text = value if isinstance(value, str) else shown(value)
        for number in numbers:
            if not isinstance(number, int | float):
                continue
            if isinstance(number, float) and not isfinite(number):
                raise ConfigError(f"{f.name}={value} is not finite; give a number")
            if isinstance(number, int):  # torch and numpy count in 64 bits
                high = _LARGEST if high is None else high
                low = -_LARGEST if low is None else low
            if low is not None and number < low:
                raise ConfigError(f"{f.name}={text} is below {low:g}, the smallest allowed value")
            if high is not None and number > high:
                raise ConfigError(f"{f.name}={text} is above {high:,.15g}, the largest allowed value")


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


def whole_numbers(name: str, text: str, largest: int, example: str) -> tuple[int, ...]:
    """The numbers of a comma-separated list such as 64,64; ConfigError unless each is from 1 to `largest`."""
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        numbers = (0,)
    if not text.isascii() or any(not 1 <= number <= largest for number in numbers):
        raise ConfigError(f"{name}={text!r} is not a list of whole numbers from 1 to {largest:,}; write for example "
                          f"{example}")
    return numbers


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
    if rules.get("schedule"):
        raise ConfigError(f"{name} is the {type(value).__name__} {title}, and a config holds text; give a "
                          "number or a schedule such as linear:0.01:0 or piecewise:0=0.01,50%=0.001")
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
        raise ConfigError(f"{source}{': ' * bool(source)}{name}={error}") from None


def typed(value: Any, hint: Any) -> Any:
    """`value`, typed or in text, converted to the type `hint`; ValueError names the expected type.

    For a text field a mapping becomes JSON and a sequence a comma-separated list, as env_kwargs and hidden are written,
    and a class or function its import path; ConfigError where it has none.
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
        if int in kinds and (isinstance(value, int) or re.fullmatch("[0-9]+", str(value))):
            return int(value)  # a float would lose the last digits above 2^53
        number = parse_number(value) if isinstance(value, str) else float(value)
        if float in kinds:
            return number
        if number == int(number):
            return int(number)
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    expected = next(_EXPECTED[kind] for kind in kinds if kind is not NoneType)
    raise ValueError(f"{shown(value)} is not {expected}{' or none' * (NoneType in kinds)}")


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, str | Integral | PathLike):
        return str(value)
    if value is None:
        raise TypeError
    return repr(float(value)) if hasattr(value, "__float__") else import_path(value)
