"""The types of the fields of config dataclasses."""

from __future__ import annotations

from functools import cache
from inspect import get_annotations
from typing import Any, get_type_hints


@cache  # evaluating every annotation takes most of the time that a command needs to read flags
def type_hints(kind: type) -> dict[str, Any]:
    """The types of the fields of a class, by name.

    A class of a script or notebook arrives in worker processes without the names that only its
    annotations use. A type that cannot be evaluated there is Any: its value is converted already.
    """
    try:
        return get_type_hints(kind)
    except NameError:
        hints = {}
        for base in reversed(kind.__mro__):
            for name, annotation in get_annotations(base).items():
                hints[name] = _type_hint(annotation, base.__module__)
        return hints


def _type_hint(annotation: Any, module: str) -> Any:
    holder = type("_", (), {"__annotations__": {"_": annotation}, "__module__": module})
    try:
        return get_type_hints(holder)["_"]
    except NameError:
        return Any
