"""The algorithms and runtimes by name, and algorithms that users give as classes or instances."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import MISSING, field, is_dataclass, make_dataclass, replace
from functools import partial
from keyword import iskeyword
from typing import Any

from vantage.algorithms.a2c import A2C
from vantage.algorithms.acer import ACER
from vantage.algorithms.interface import Needs
from vantage.algorithms.ppo import PPO
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.errors import ConfigError
from vantage.keys.given_fields import arguments_of, given_fields, is_same
from vantage.keys.import_paths import load_class
from vantage.keys.objects import ObjectName
from vantage.keys.type_hints import type_hints
from vantage.keys.typed_values import kinds_of, plain, typed

RUNTIMES: Mapping[str, type[Sync] | type[Hogwild] | type[Ray]] = {
    "sync": Sync, "hogwild": Hogwild, "ray": Ray}

ALGORITHMS: Mapping[str, tuple[type[Any], type[Sync] | type[Hogwild]]] = {
    "a2c": (A2C, Sync),
    "ppo": (PPO, Sync),
    "a3c": (A2C, Hogwild),
    "a3g": (A2C, Hogwild),
    "acer": (ACER, Sync),
}
"""The class and the usual runtime of each algorithm. The only place that maps names to classes."""

_NAMES: Mapping[type[Any], str] = {kind: kind.__name__.lower() for kind, _ in ALGORITHMS.values()}
"""The name of each class; a3c and a3g are a2c under Hogwild."""


def name_and_values(algorithm: Any) -> tuple[Any, dict[str, Any]]:
    """The name or class of an algorithm, and the fields that were given to an instance.

    ConfigError for a mapping of keys.
    """
    if isinstance(algorithm, Mapping):
        raise ConfigError(f"algorithm is a mapping of {', '.join(map(str, algorithm)):.80}; give "
                          "its name or class, and keys as keyword arguments, such as "
                          "vantage.train('ppo', lr=1e-3)")
    if is_dataclass(algorithm) and not isinstance(algorithm, type):
        kind = type(algorithm)
        return _NAMES.get(kind, kind), given_fields(algorithm)
    if isinstance(algorithm, type):
        return _NAMES.get(algorithm, algorithm), {}
    return own_spelling(algorithm), {}


def own_spelling(algorithm: Any) -> Any:
    """The name of an algorithm in lower case, as "ppo" for "PPO"; others as they are."""
    if isinstance(algorithm, str) and algorithm.lower() in ALGORITHMS:
        return algorithm.lower()
    return algorithm


def base_of(algo: str) -> str:
    """The name of the algorithm of Vantage that `algo` is or inherits from, or ''.

    ConfigError for an import path that cannot be loaded.
    """
    if algo in ALGORITHMS:
        return algo
    kinds = getattr(load_class(algo, what="algorithm"), "__mro__", ())
    return next((_NAMES[kind] for kind in kinds if kind in _NAMES), "")


def load_algorithm(algo: str, taken: Collection[str]) -> Any:
    """A user's own algorithm at the import path `algo`, with the defaults of its class.

    ConfigError if it is not an algorithm, or has a field without a default or with a name of
    `taken`, the keys outside the algorithm.
    """
    kind: type[Any] = load_class(algo, what="algorithm")
    required = ("loss", "needs", "gamma", "__dataclass_fields__")
    if missing := [name for name in required if not hasattr(kind, name)]:
        raise ConfigError(
            f"algorithm={algo} is not an algorithm: it lacks {', '.join(missing)}; write a frozen "
            "dataclass with gamma, needs and loss, as vantage.algorithms.interface describes")
    for f in arguments_of(kind):
        if f.name in taken:
            raise ConfigError(f"algorithm={algo} has a field {f.name}, which is the name of "
                              "another key; rename it")
        if f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"algorithm={algo} has a field {f.name} without a default; "
                              "give it one")
    return kind(**defaults_of_body(kind))


def check_kept(algo: str, algorithm: Any) -> None:
    """ConfigError for a field of a user's algorithm that a copy or config.json would change."""
    kind = algorithm.__class__
    if kind.__module__.startswith("vantage."):
        return
    again = replace(algorithm)
    hints = type_hints(kind)
    for f in arguments_of(kind):
        value, copied = getattr(algorithm, f.name), getattr(again, f.name)
        if not is_same(copied, value):
            raise ConfigError(
                f"algorithm={algo} makes {f.name}={value!r:.60} {copied!r:.60} when it is copied; "
                "make what __post_init__ computes a property or a field(init=False)")
        hint = hints[f.name]
        if not _is_kept(value, hint):
            raise ConfigError(
                f"algorithm={algo} has the field {f.name}={value!r:.60}, which config.json cannot "
                f"give back as {getattr(hint, '__name__', hint)!s:.60}; give it numbers, texts, "
                "lists, and mappings of texts, or take it out of the fields: an attribute without "
                "annotation is none")


def _is_kept(value: Any, hint: Any) -> bool:
    """Whether config.json holds `value` as it is."""
    if isinstance(value, ObjectName):  # handed over again
        return True
    try:
        saved = json.loads(json.dumps(plain(value)))
        if Any in kinds_of(hint):  # also a type that this process does not know
            return bool(saved == plain(value))
        return is_same(typed(saved, hint), value)
    except (TypeError, ValueError, ConfigError):
        return False


def defaults_of_body(kind: type[Any]) -> dict[str, Any]:
    """Defaults of fields that the bodies of subclasses of A2C, PPO or ACER set.

    A dataclass ignores values that are set without an annotation; here they count.
    """
    if not _NAMES.keys() & {*kind.__mro__}:
        return {}
    names = {f.name for f in arguments_of(kind)}
    defaults: dict[str, Any] = {}
    for each in reversed(kind.__mro__[:-1]):
        if each not in _NAMES:
            defaults |= {name: value for name, value in vars(each).items()
                         if name in names and not hasattr(value, "__get__")}
    return defaults


def runtimes_of(algo: str) -> list[str]:
    """The runtimes that an algorithm may have."""
    own = ALGORITHMS[algo][1] if algo in ("a2c", "ppo", "a3c", "a3g") else None
    return [name for name, kind in RUNTIMES.items()
            if own in (None, kind) or (kind is Ray and algo != "a3g")]


def without_loss(algo: str, values: object) -> Any:
    """The hyperparameters of an algorithm whose class is not available, so that it cannot train."""
    typed_fields: list[tuple[str, Any, Any]] = []
    for name, value in values.items() if isinstance(values, Mapping) else ():
        is_name = name.isidentifier() and not iskeyword(name) and not name.startswith("_")
        if not is_name:
            continue
        if isinstance(value, list | dict):  # a list may be a tuple of the class
            typed_fields.append((name, Any, field(default_factory=partial(deepcopy, value))))
        else:
            typed_fields.append((name, type(value), field(default=value)))
    return make_dataclass(algo, typed_fields, frozen=True, namespace={"needs": Needs()})()
