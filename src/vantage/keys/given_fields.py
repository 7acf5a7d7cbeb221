"""Which fields of a dataclass instance a user gave; the others have defaults of the environment."""

from __future__ import annotations

import functools
from dataclasses import MISSING, fields
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)
_NAMES = "_names_of_given_fields"


def remembering_arguments(kind: Kind) -> Kind:
    """Decorate a dataclass: `given_fields` counts its arguments, whatever their values are."""
    init = kind.__init__  # type: ignore[misc]
    names = [f.name for f in fields(kind) if f.init]

    @functools.wraps(init)
    def remembering(self: Any, *args: Any, **values: Any) -> None:
        init(self, *args, **values)
        # dataclasses.replace passes all fields by name, whether or not they were given before.
        if args or len(values) < len(names):
            object.__setattr__(self, _NAMES, {*names[:len(args)], *values})

    kind.__init__ = remembering  # type: ignore[misc]
    return kind


def given_fields(instance: Any) -> dict[str, Any]:
    """The fields that were arguments of a dataclass instance, or differ from their defaults.

    Arguments are known if the class has `remembering_arguments`, not if a subclass is a dataclass
    of its own or if all fields were passed by name, as by dataclasses.replace.
    """
    given = {name: getattr(instance, name) for name in given_names(instance)}
    return changed_fields(instance) | given


def given_names(instance: Any) -> set[str]:
    """The names of the fields that were certainly arguments of a dataclass instance."""
    return set(getattr(instance, _NAMES, ()))


def changed_fields(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass instance that differ from their defaults."""
    values = {}
    for f in fields(instance):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        value = getattr(instance, f.name)
        if value != default:
            values[f.name] = value
    return values
