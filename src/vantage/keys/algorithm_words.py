"""Answers to names of other libraries where a user calls an algorithm or reads its attributes."""

from __future__ import annotations

import functools
import inspect
import re
from typing import Any, TypeVar

from vantage.errors import ConfigError
from vantage.keys.given_fields import remembering_arguments
from vantage.keys.other_libraries import KEYS, METHODS
from vantage.keys.suggestions import MOST_UNKNOWN, listed, nearest, suggestion

Kind = TypeVar("Kind", bound=type)


def explaining_arguments(kind: Kind) -> Kind:
    """Decorate the dataclass of an algorithm: ConfigError for arguments that it does not have.

    `given_fields` remembers the arguments.
    """
    init = remembering_arguments(kind).__init__  # type: ignore[misc]
    names = [*inspect.signature(init).parameters][1:]

    @functools.wraps(init)
    def explained(self: Any, *args: Any, **values: Any) -> None:
        _check_arguments(type(self), names, args, values)
        init(self, *args, **values)

    kind.__init__ = explained  # type: ignore[misc]
    for name in METHODS["an algorithm"]:
        setattr(kind, name, _Elsewhere(name))
    return kind


class _Elsewhere:
    """A method of other libraries that the class of an algorithm does not have either."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(f"{owner.__name__} has no {self.name!r}; "
                             f"{METHODS['an algorithm'][self.name]}")


def _check_arguments(kind: type, names: list[str], args: tuple[Any, ...],
                     values: dict[str, Any]) -> None:
    own = kind.__name__
    shown = f"vantage.{own}" if kind.__module__.startswith("vantage.") else own
    if args and isinstance(args[0], str) and re.fullmatch(r"\w+Policy", args[0]):
        raise ConfigError(f"{own}({args[0]!r}, ...) is how Stable-Baselines3 is called; {own} "
                          f"holds hyperparameters here: write vantage.train({shown}, env=..., "
                          "steps=...)")
    unknown = [name for name in values if name not in names]
    if not unknown:
        return
    keys = [key for _, text in KEYS.values() for key in re.findall("{([a-z_]+)}", text)]
    reasons = []
    for name in unknown[:MOST_UNKNOWN]:
        near = suggestion(name, keys) if name in KEYS else nearest(name, names)
        reasons.append(f"{own} has no {name!r}{near}")
    raise ConfigError(f"{listed(reasons, len(unknown))}; {own} holds only {', '.join(names)}: give "
                      f"other keys to vantage.train({shown}(...), env=..., steps=...)")
