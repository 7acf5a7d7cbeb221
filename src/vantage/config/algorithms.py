"""The algorithms and runtimes by name, and algorithms that users give as classes or instances."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import MISSING, field, is_dataclass, make_dataclass
from functools import partial
from keyword import iskeyword
from typing import Any

from vantage.algorithms.a2c import A2C
from vantage.algorithms.acer import ACER
from vantage.algorithms.interface import Needs
from vantage.algorithms.ppo import PPO
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.errors import ConfigError
from vantage.keys.fields import convert_object
from vantage.keys.given_fields import arguments_of, default_of, given_fields, is_same
from vantage.keys.import_paths import load_class
from vantage.keys.type_hints import type_hints
from vantage.keys.typed_values import plain, typed

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


def load_algorithm(algo: str, taken: Collection[str]) -> type[Any]:
    """The class of a user's own algorithm at the import path `algo`.

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
    _check_defaults(algo, kind)
    return kind


def _check_defaults(algo: str, kind: type[Any]) -> None:
    """ConfigError for a field that __post_init__ sets: it would not follow those it depends on."""
    body = defaults_of_body(kind)
    instance = kind(**body)
    hints = type_hints(instance.__class__)
    for f in arguments_of(kind):
        value = getattr(instance, f.name)
        default = body.get(f.name, default_of(f))
        with suppress(ConfigError, ValueError):
            value, default = (convert_object(f.name, each, hints[f.name], f.metadata)
                              for each in (value, default))
        if not is_same(value, default):
            raise ConfigError(
                f"algorithm={algo} sets its field {f.name} itself, to {value!r:.60} instead of "
                f"{default!r:.60}; make that a property or a field(init=False), so that it follows "
                "other fields when these change")


def check_kept(algo: str, algorithm: Any) -> None:
    """ConfigError for a field of a user's algorithm that config.json cannot hold as it is."""
    kind = algorithm.__class__
    if kind.__module__.startswith("vantage."):
        return
    hints = type_hints(kind)
    for f in arguments_of(kind):
        value = getattr(algorithm, f.name)
        try:
            kept = typed(json.loads(json.dumps(plain(value))), hints[f.name])
        except (TypeError, ValueError, ConfigError):
            kept = None
        if not is_same(kept, value):
            raise ConfigError(
                f"algorithm={algo} has the field {f.name}={value!r:.60}, which config.json cannot "
                "hold; give it numbers, texts, lists, and mappings of texts, or take it out of the "
                "fields: an attribute without annotation is none")


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
