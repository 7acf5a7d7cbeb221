"""How Vantage calls tyro: its settings, notations of values, and errors in one line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import wraps
from types import NoneType
from typing import TYPE_CHECKING, Any, NoReturn, get_origin, get_type_hints

import tyro
from tyro import _errors  # marked experimental: pyproject.toml pins the minor version
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.schedules import Schedule
from vantage.keys.typed_values import in_text, kinds_of, typed

if TYPE_CHECKING:
    from tyro._arguments import ArgumentDefinition

CONFIG = (OmitArgPrefixes, FlagCreatePairsOff)
REGISTRY = ConstructorRegistry()


def first_line(item: object) -> str:
    """The first line of a docstring."""
    return (item.__doc__ or "").partition("\n")[0]


def arguments_of(command: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the parameters of `command` that returns its arguments: a tuple, a dict."""
    return wraps(command)(lambda *words, **options: (words, options))


def option_names(command: Callable[..., Any]) -> list[str]:
    """The options of a command, including the fields of dataclasses among its parameters."""
    names = []
    for name, hint in get_type_hints(command).items():
        if name in ("settings", "return"):
            continue
        if is_dataclass(hint):
            names += [f.name for f in fields(hint)]
        else:
            names.append(name)
    return names


def parse(kind: Any, argv: Sequence[str], prog: str, description: str) -> tuple[Any, list[str]]:
    """The value that tyro parses from `argv`, and the words that it does not recognise."""
    if shutil.get_terminal_size().columns < 20:  # tyro 1.0 never returns below 8
        os.environ["COLUMNS"] = "20"
    with errors_in_one_line():
        return tyro.cli(kind, args=argv, prog=prog, description=description,
                        return_unknown_args=True, config=CONFIG, registry=REGISTRY)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Raise ConfigError where tyro would print a box and exit."""
    with _errors.on_parse_error(_refuse):
        yield


def _refuse(event: _errors.ParseErrorEvent) -> NoReturn:
    """The ConfigError for arguments that tyro cannot use."""
    raise ConfigError(f"{_problem(event)}; see {event.prog} --help")


def _problem(event: _errors.ParseErrorEvent) -> str:
    if isinstance(event, _errors.MissingArgs):
        return ", ".join(f"{_name(missing.arg)} is missing{_choices(missing.arg)}"
                         for missing in event.missing_arguments)
    if isinstance(event, _errors.BadValue):
        return f"{_name(event.argument)} needs a value{_choices(event.argument)}"
    if isinstance(event, _errors.InvalidChoice):
        return (f"{_name(event.argument)} takes no {event.value!r}; give one of these"
                f"{_choices(event.argument)}")
    if isinstance(event, _errors.InstantiationFailure) and event.argument is not None:
        return f"{_name(event.argument)}: {event.message}"
    return "these arguments cannot be used together"


def _name(argument: ArgumentDefinition) -> str:
    """The name of an argument in help: RUN, --episodes."""
    if argument.is_positional():
        return str(argument.lowered.metavar)
    return argument.lowered.name_or_flags[-1]


def _choices(argument: ArgumentDefinition) -> str:
    """A colon and the values that an argument takes, or an empty string."""
    choices = argument.lowered.choices
    key = Config.every_key().get(argument.field.intern_name)
    if choices is None and key is not None:
        choices = key.rules["choices"]
    if not choices:
        return ""
    return ": " + ", ".join(choice for choice in choices if choice != "None")


# A union shows the metavar of the first of its types in this order.
_METAVARS = {bool: "true|false", Schedule: "SCHEDULE", tuple: "INT,...", int: "INT",
             float: "FLOAT", str: "STR"}


@REGISTRY.primitive_rule
def _values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers as people write them, lists of them with commas, schedules, none, true and false."""
    kinds = {get_origin(kind) or kind for kind in kinds_of(info.type)} - {NoneType}
    if not kinds or not kinds <= _METAVARS.keys():
        return None

    def from_words(words: list[str]) -> Any:
        return typed(words[0], info.type)

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=next(metavar for kind, metavar in _METAVARS.items() if kind in kinds),
        is_instance=lambda _: True,
        instance_from_str=from_words,
        str_from_instance=lambda value: [in_text(value)],
    )
