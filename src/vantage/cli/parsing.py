"""How tyro reads a command's own options. Config keys are read in `vantage.cli.arguments`."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import fields, is_dataclass
from functools import wraps
from itertools import dropwhile, takewhile
from types import NoneType
from typing import Any, get_origin, get_type_hints

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from vantage.errors import ConfigError
from vantage.keys.fields import in_text, kinds_of, typed
from vantage.keys.schedules import Schedule

CONFIG = (OmitArgPrefixes, FlagCreatePairsOff)
REGISTRY = ConstructorRegistry()


def first_line(item: object) -> str:
    return (item.__doc__ or "").partition("\n")[0]


def arguments_of(command: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the parameters of `command` that returns its positional and keyword arguments."""
    return wraps(command)(lambda *words, **options: (words, options))


def option_names(command: Callable[..., Any]) -> list[str]:
    """The options of a command, also those that a dataclass among its parameters holds, without its settings."""
    hints = get_type_hints(command)
    return [option for name, hint in hints.items() if name not in ("settings", "return")
            for option in ([f.name for f in fields(hint)] if is_dataclass(hint) else [name])]


def parse(kind: Any, argv: Sequence[str], prog: str, description: str) -> tuple[Any, list[str]]:
    """What tyro makes of `argv` for a function or class, and the words that it does not know."""
    if shutil.get_terminal_size().columns < 20:  # tyro 1.0 never returns below 8
        os.environ["COLUMNS"] = "20"
    with errors_in_one_line(prog):
        return tyro.cli(kind, args=argv, prog=prog, description=description, return_unknown_args=True, config=CONFIG,
                        registry=REGISTRY)


@contextmanager
def errors_in_one_line(prog: str) -> Iterator[None]:
    """Turn an error that tyro prints in a box before it exits into a ConfigError."""
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):
            yield
    except SystemExit as exit:
        if not exit.code:
            raise
        raise ConfigError(f"{_message(errors.getvalue())}; see {prog} --help") from None


def _message(text: str) -> str:
    """The message in tyro's box, which has a title, the message, a rule and hints."""
    rows = [re.sub("[│╭╮╰╯─]|-{5,}", " ", row).strip() for row in text.splitlines()[1:]]
    message = " ".join(takewhile(bool, dropwhile(lambda row: not row, rows)))
    message = re.sub(r"Missing value for argument '(.*?)'.*", r"\1 needs a value", message)
    return message.removeprefix("Error parsing ").rstrip(".")


@REGISTRY.primitive_rule
def _values(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers as people write them, lists of them with commas, schedules, none, true and false."""
    kinds = [kind for kind in kinds_of(info.type) if kind is not NoneType]
    # Of a union, the first in this order says most.
    metavars = {bool: "true|false", Schedule: "SCHEDULE", tuple: "INT,...", int: "INT", float: "FLOAT", str: "STR"}
    origins = {get_origin(kind) or kind for kind in kinds}
    if not kinds or not origins <= metavars.keys():
        return None
    return PrimitiveConstructorSpec(
        nargs=1, metavar=next(word for kind, word in metavars.items() if kind in origins), is_instance=lambda _: True,
        instance_from_str=lambda words: typed(words[0], info.type), str_from_instance=lambda value: [in_text(value)])
