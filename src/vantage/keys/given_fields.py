"""Which fields of a dataclass instance a user gave; the others have defaults of the environment."""

from __future__ import annotations

import functools
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

Kind = TypeVar("Kind", bound=type)
_NAMES = "_names_of_given_fields"


def remembering_arguments(kind: Kind) -> Kind:
    """Decorate a dataclass: `given_fields` counts its arguments, whatever their values are."""
    init = kind.__init__  # type: ignore[misc]
    names = [f.name for f in arguments_of(kind)]

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
    return {f.name: getattr(instance, f.name) for f in arguments_of(type(instance))
            if not _is_equal(getattr(instance, f.name), default_of(f))}


def arguments_of(kind: type[Any]) -> list[Field[Any]]:
    """The fields of a dataclass that are arguments: a field(init=False) follows from others."""
    return [f for f in fields(kind) if f.init]


def default_of(field: Field[Any]) -> Any:
    """The default of a field, from its factory if it has one."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def is_same(value: Any, other: Any) -> bool:
    """Whether both are equal and of one type; nan is equal to itself."""
    return type(value) is type(other) and (_is_equal(value, other) or repr(value) == repr(other))


def _is_equal(value: Any, other: Any) -> bool:
    try:
        return bool(value == other)
    except Exception:  # arrays compare their elements
        return repr(value) == repr(other)
