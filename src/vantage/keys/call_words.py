"""Errors for arguments that a function does not take, with the names of those that it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from vantage.keys.suggestions import nearest

P = ParamSpec("P")
T = TypeVar("T")


def answering(**elsewhere: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator whose TypeErrors say how the function takes a wrong argument.

    `elsewhere` has the function's arguments by their names in other libraries.
    """
    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def called(*args: P.args, **keys: P.kwargs) -> T:
            if words := _fault(function, args, keys, elsewhere):
                raise TypeError(words)
            return function(*args, **keys)

        return called

    return decorated


def _fault(function: Callable[..., Any], args: tuple[Any, ...], keys: Mapping[str, Any],
           elsewhere: Mapping[str, str]) -> str:
    """What is wrong with the arguments, and what to write; '' if nothing is."""
    parameters = signature(function).parameters
    title = f"vantage.{function.__name__}"
    for name in keys:
        if name not in parameters:
            near = f"; give {elsewhere[name]}" if name in elsewhere else nearest(name, parameters)
            return f"{title} has no argument {name!r}{near or f'; help({title}) shows them'}"
    first = [name for name, each in parameters.items() if each.kind is not Parameter.KEYWORD_ONLY]
    if len(args) > len(first):
        others = ", ".join(f"{name}=..." for name in parameters if name not in first)
        return (f"{title} takes {', '.join(first)} by position and {len(args)} values were given; "
                f"name the others: {others}")
    return ""
