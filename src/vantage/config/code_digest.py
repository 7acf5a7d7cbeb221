"""Digests of the user's code that a run uses: equal where functions and methods do the same.

Global variables and attributes of classes do not count, since a program may change them;
`object_digest` has those of unnamed objects. Default values and arguments count.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from vantage.config.sources import is_installed
from vantage.keys.object_digest import code_pieces, hashed
from vantage.keys.objects import names_in

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}b:"
"""Versions of Python compile the same code to other instructions.

Digests before "b" differed between a notebook and a script, so that they are not comparable.
"""


def code_digest(target: Any) -> str | None:
    """The digest of a class or function, or of the class of another object.

    It covers the user's base classes, and the user's functions and classes that the code refers to
    by name. Line numbers, comments and docstrings do not count. None if there is no such code.
    """
    pieces = [*_pieces(target, set())]
    if not pieces:
        return None
    return _VERSION + hashed(pieces)


def has_changed(saved: object, target: Any) -> bool:
    """Whether `target` has other code than that with the digest `saved`, if both are comparable."""
    if not isinstance(saved, str) or not saved.startswith(_VERSION):
        return False
    current = code_digest(target)
    return current is not None and current != saved


def _pieces(value: Any, seen: set[int]) -> Iterator[str]:
    """Texts that describe the user's code in `value`; `seen` has what is described already."""
    if isinstance(value, partial):
        yield from _numbers({**dict(enumerate(value.args)), **value.keywords})
        value = value.func
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, MethodType | staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, FunctionType):
        value = inspect.unwrap(value)
    elif not isinstance(value, type):
        if _is_users(type(value)):
            yield from _numbers(getattr(value, "__dict__", {}))
        value = type(value)
    if id(value) in seen or not _is_users(value):
        return
    seen.add(id(value))
    if isinstance(value, FunctionType):
        yield from _function(value, seen)
        return
    for base in value.__mro__[1:]:
        yield from _pieces(base, seen)
    for name, part in sorted(vars(value).items()):
        if isinstance(part, FunctionType | staticmethod | classmethod | property | type):
            yield name
            yield from _pieces(part, seen)


def _function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    code = function.__code__
    yield from code_pieces(code, function.__doc__)
    defaults = dict(enumerate(function.__defaults__ or ()))
    yield from _numbers({**defaults, **(function.__kwdefaults__ or {})})
    referred = [function.__globals__.get(name) for name in sorted(names_in(code))]
    for cell in function.__closure__ or ():
        try:
            referred.append(cell.cell_contents)
        except ValueError:  # not yet assigned
            continue
    for part in referred:
        if isinstance(part, FunctionType | type):
            yield from _pieces(part, seen)


def _numbers(values: Mapping[Any, Any]) -> Iterator[str]:
    """The numbers and texts among arguments, such as the window of a memory."""
    for name, value in values.items():
        if isinstance(value, int | float | str) and name != "training":
            yield f"{name} {value!r}"


def _is_users(value: Any) -> bool:
    """Whether a class or function is the user's, not of Python or an installed package."""
    module = str(getattr(value, "__module__", ""))
    if module in ("builtins", "") or module.partition(".")[0] == "vantage":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return not isinstance(file, str) or not is_installed(Path(file).resolve())
