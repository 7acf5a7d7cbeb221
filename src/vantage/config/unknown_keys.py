"""Why a config has no key of a name: the errors for unknown keys."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vantage.config.algorithms import ALGORITHMS, RUNTIMES, runtimes_of
from vantage.config.flat import GROUPS
from vantage.errors import ConfigError, runs_command
from vantage.keys.suggestions import MOST_UNKNOWN, listed, suggestion

if TYPE_CHECKING:
    from vantage.config.config import Config

log = logging.getLogger(__name__)


def check_known(config: Config, names: Iterable[str]) -> None:
    """ConfigError that says why each of `names` that the config lacks is unknown."""
    keys = config.flat_keys()
    unknown = [name for name in names if name not in keys]
    if unknown:
        reasons = [_why_unknown(config, name) for name in unknown[:MOST_UNKNOWN]]
        raise ConfigError(listed(reasons, len(unknown)))


def without_former(config: Config, values: Mapping[str, Any], saved: object) -> dict[str, Any]:
    """`values` without those of `saved` that a user's class no longer has or takes, as it acts.

    `saved` are the hyperparameters of the algorithm in a file. A warning names those left out.
    """
    keys = config.flat_keys()
    former = []
    for name in saved if config.algo not in ALGORITHMS and isinstance(saved, Mapping) else ():
        try:
            keys[name].convert(name, values[name])
        except (KeyError, ConfigError):
            former.append(name)
    if former:
        log.warning(f"algorithm={config.algo} has changed since the run: it no longer takes "
                    + ", ".join(f"{name}={values.get(name)!r:.40}" for name in former))
    return {name: value for name, value in values.items() if name not in former}


def _why_unknown(config: Config, name: str) -> str:
    """The error for a key that is unknown, or only for other algorithms or runtimes."""
    algorithms = [algo for algo in ALGORITHMS if name in config.of(algo).flat_keys()]
    runtimes = [each for each in runtimes_of(config.algo)
                if name in replace(config, runtime=RUNTIMES[each]()).flat_keys()]
    users = []
    if algorithms:
        users.append(", ".join(algorithms))
    if runtimes:
        users.append(f"--runtime {' or '.join(runtimes)}")
    if users:
        return (f"{name} has no effect with {config.algo} under runtime={config.runtime_name}; "
                f"it is for {', and for '.join(users)}")
    kind = type(config.algorithm)
    if name in getattr(kind, "__dataclass_fields__", ()):
        return f"{name} is not given: {kind.__name__} computes it"
    if any(name in getattr(each, "__annotations__", ()) for each in kind.__mro__):
        return (f"{name} is an attribute of {kind.__name__} and not a field; put "
                "@dataclass(frozen=True) on the class")
    near = suggestion(name, [*config.every_key(), *config.flat_keys(), *GROUPS])
    if name == "algorithm":
        near = "; did you mean algo?"
    if name in ("run", "root"):
        near = (f"; give --{name} on the command line" if runs_command() else
                "; it is an argument of vantage.train and vantage.Trainer, and not of a config")
    if name == "progress":
        near = "; it is an argument of vantage.train; a Trainer shows nothing: leave it out"
    return f"unknown key {name!r}{near or where_keys_are(config)}"


def where_keys_are(config: Config) -> str:
    """'; ... shows the keys', in the words of who reads it."""
    if runs_command():
        return "; `vantage train ALGO --help` shows the keys"
    algo = repr(config.algo) if config.algo in ALGORITHMS else "..."
    return f"; print(vantage.configure({algo}, env=...).to_json()) shows the keys"


def why_no_attribute(config: Config, name: str) -> str:
    """Why a config has no attribute `name`, with the attribute that holds the key of that name."""
    if key := config.flat_keys().get(name):
        return f"a config has no {name!r}; write config.{key.group}.{key.attribute}"
    near = suggestion(name, [*config.flat_keys(), *GROUPS])
    return f"a config has no {name!r}{near or '; config.flat() has its keys'}"
