"""The algorithms and runtimes by name, and what a name, a class or an instance stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass, make_dataclass
from keyword import iskeyword
from typing import Any

from vantage.algorithms.a2c import A2C
from vantage.algorithms.acer import ACER
from vantage.algorithms.interface import Needs
from vantage.algorithms.ppo import PPO
from vantage.config.runtimes import Hogwild, Ray, Sync
from vantage.keys.import_paths import load_class

RUNTIMES: Mapping[str, type[Sync] | type[Hogwild] | type[Ray]] = {"sync": Sync, "hogwild": Hogwild, "ray": Ray}

ALGORITHMS: Mapping[str, tuple[type[Any], type[Sync] | type[Hogwild]]] = {
    "a2c": (A2C, Sync), "ppo": (PPO, Sync), "a3c": (A2C, Hogwild), "a3g": (A2C, Hogwild), "acer": (ACER, Sync)}
"""The hyperparameters and the usual runtime of each algorithm. The only place that maps names to classes."""


def name_and_values(algorithm: Any) -> tuple[Any, dict[str, Any]]:
    """The name or class of an algorithm, and of an instance the fields that differ from their defaults."""
    kind = algorithm
    values: dict[str, Any] = {}
    if is_dataclass(algorithm) and not isinstance(algorithm, type):
        kind = type(algorithm)
        values = changed_fields(algorithm)
    names = {own: name for name, (own, _) in reversed([*ALGORITHMS.items()])}
    return names.get(kind, kind), values


def changed_fields(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass instance that differ from their defaults."""
    values = {}
    for f in fields(instance):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        value = getattr(instance, f.name)
        if value != default:
            values[f.name] = value
    return values


def base_of(algo: str) -> str:
    """The algorithm of Vantage that `algo` is or inherits from, by its name; empty for one of the user's own.

    ConfigError for an import path that leads nowhere.
    """
    if algo in ALGORITHMS:
        return algo
    kinds = getattr(load_class(algo, what="algorithm"), "__mro__", ())
    names = {kind: name for name, (kind, _) in reversed([*ALGORITHMS.items()])}
    return next((names[kind] for kind in kinds if kind in names), "")


def defaults_of_body(kind: type[Any]) -> dict[str, Any]:
    """Defaults of fields that the body of a subclass of A2C, PPO or ACER sets, also without an annotation.

    A dataclass takes only annotated ones for new defaults.
    """
    plain = {each for each, _ in ALGORITHMS.values()}
    bodies = [vars(each) for each in kind.__mro__[:-1] if each not in plain] if plain & {*kind.__mro__} else []
    return {f.name: body[f.name] for body in reversed(bodies) for f in fields(kind)
            if f.name in body and not hasattr(body[f.name], "__get__")}


def runtimes_of(algo: str) -> list[str]:
    """The runtimes that an algorithm may have."""
    own = ALGORITHMS[algo][1] if algo in ("a2c", "ppo", "a3c", "a3g") else None
    return [name for name, kind in RUNTIMES.items()
            if own in (None, kind) or (kind is Ray and algo != "a3g")]


def without_loss(algo: str, values: object) -> Any:
    """The hyperparameters of an algorithm whose class is not at hand. It cannot train."""
    typed_fields = []
    for name, value in values.items() if isinstance(values, Mapping) else ():
        is_name = name.isidentifier() and not iskeyword(name) and not name.startswith("_")
        if is_name and isinstance(value, str | int | float | bool | None):
            typed_fields.append((name, type(value), field(default=value)))
    return make_dataclass(algo, typed_fields, frozen=True, namespace={"needs": Needs()})()
