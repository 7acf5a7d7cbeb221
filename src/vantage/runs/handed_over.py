"""Objects of a run that config.json cannot name, such as a lambda, passed again as arguments."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from vantage.config.algorithms import name_and_values
from vantage.config.code_digest import code_digest, has_changed
from vantage.config.config import Config
from vantage.config.flat import flatten
from vantage.errors import ConfigError, runs_command
from vantage.keys.fields import convert, read_json_object
from vantage.keys.import_paths import load_class
from vantage.keys.object_digest import digest
from vantage.keys.objects import ObjectName, is_code, is_object, source_text
from vantage.keys.typed_values import in_short
from vantage.runs.files import read_text

ARGUMENTS: Mapping[str, str] = {
    "algo": "algorithm",
    "env": "env",
    "network": "network",
    "memory": "memory",
}
"""Arguments that hand over an object, by the config key that names it."""
_ACTING = ("algo", "network", "memory")
"""Keys whose objects acting needs: it needs no environment."""


def handed_over(**objects: Any) -> dict[str, Any]:
    """Values of config keys, from the arguments of ARGUMENTS that are not None."""
    given = {key: objects[name] for key, name in ARGUMENTS.items() if objects.get(name) is not None}
    kind, values = name_and_values(given.pop("algo", None))
    if kind is not None:
        given["algo"] = kind
    names = {key: convert(ARGUMENTS[key], each, str) for key, each in given.items()}
    return names | values


def replacing(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the `objects` that replace names in a config: no hyperparameters."""
    return {key: each for key, each in objects.items() if key in ARGUMENTS}


def check_objects(config: Config, objects: Mapping[str, Any], source: object, call: str) -> None:
    """ConfigError if `objects` do not fit `config`, which was read from `source` with them.

    An algorithm handed over must have the values of the run, and no object may be missing that the
    function `call`, if it is given, needs.
    """
    flat = config.flat()
    for key, value in objects.items():
        if key not in ARGUMENTS and config.override({key: value}) != config:
            raise ConfigError(
                f"the algorithm has {key}={in_short(value):.60}, and {source} was trained with "
                f"{key}={in_short(flat[key]):.60}; give the same, or the algorithm's class")
    if not call:
        return
    keys = _ACTING if call in ("load", "export") else ARGUMENTS
    missing = {ARGUMENTS[key]: flat[key] for key in keys
               if is_object(flat[key]) and not isinstance(flat[key], ObjectName)}
    if missing:
        names = " and ".join(f"{name}={each:.80}" for name, each in missing.items())
        again = ", ".join(f"{name}=..." for name in missing)
        words = f'vantage.{call}("{source}", {again})'
        if call == "push":
            words = f'from vantage.tools.push import push; push("{source}", "OWNER/NAME", {again})'
        raise ConfigError(f"{source} was trained on {names}, which a file cannot name; hand it "
                          f"over again, which only Python can do: {words}")


def continuation(call: str, run: object, config: Config, needed: Collection[str] | None = None, /,
                 **arguments: object) -> str:
    """The call of Vantage's function `call` that continues a run, with the arguments `needed`.

    By default these are the objects of `config`. A class or function has its name in the caller's
    program; other objects are "...".
    """
    words = [repr(str(run))]
    objects = objects_of(config)
    for name in objects if needed is None else needed:
        own = getattr(objects[name].target, "__name__", "") if name in objects else ""
        words.append(f"{name}={own if own.isidentifier() else '...'}")
    words += [f"{name}={value}" for name, value in arguments.items()]
    return f"vantage.{call}({', '.join(words)})"


def resuming(run: Path, config: Config) -> str:
    """The command or the call that continues a run, in the words of who reads it.

    It names a larger total for a run that has made all of its steps.
    """
    saved: Mapping[str, Any] = {}
    with suppress(ConfigError, OSError, ValueError):
        saved = flatten(read_json_object(read_text(run / "config.json"), source=str(run)),
                        source=str(run))
    longer = _longer_total(run, saved)
    if runs_command():
        more = "" if longer is None else f" --steps {longer} --extend-schedule"
        return f"`vantage resume {shlex.quote(str(run))}{more}`"
    needed = [name for key, name in ARGUMENTS.items() if is_object(str(saved.get(key)))]
    if longer is None:
        return continuation("resume", run, config, needed)
    return continuation("resume", run, config, needed, steps=longer, extend_schedule=True)


def _longer_total(run: Path, saved: Mapping[str, Any]) -> int | None:
    """Twice the steps of a run with the keys `saved`; None unless it has made them all."""
    from vantage.runs.checkpoint import newest_step  # imports torch

    steps = saved.get("steps")
    done = newest_step(run)
    if not isinstance(steps, int) or done is None or done < steps:
        return None
    return 2 * done


def objects_of(config: Config) -> dict[str, ObjectName]:
    """The objects in `config` that a file cannot name, by the arguments that hand them over."""
    flat = config.flat()
    return {name: flat[key] for key, name in ARGUMENTS.items() if isinstance(flat[key], ObjectName)}


def sources(config: Config) -> dict[str, str]:
    """The source texts of the objects in `config`, by the arguments that hand them over."""
    texts = {name: source_text(each.target) for name, each in objects_of(config).items()}
    return {name: text for name, text in texts.items() if text is not None}


def digests(config: Config) -> dict[str, str]:
    """The digests of the objects in `config`, by the arguments that hand them over.

    Without those of objects whose values cannot be known.
    """
    digest_by_argument = {}
    for name, each in objects_of(config).items():
        with suppress(Exception):  # of a user's class, whose attributes may raise anything
            digest_by_argument[name] = digest(each.target)
    return digest_by_argument


def code_digests(config: Config) -> dict[str, str]:
    """The digests of the code that acting with `config` needs, by the arguments of ARGUMENTS."""
    digest_by_argument = {}
    for name, target in _acting_code(config).items():
        if (code := code_digest(target)) is not None:
            digest_by_argument[name] = code
    return digest_by_argument


def changed_code(config: Config, saved: object) -> list[str]:
    """The arguments of ARGUMENTS whose code differs from that of the `code_digests` `saved`."""
    if not isinstance(saved, Mapping):
        return []
    return [name for name, target in _acting_code(config).items()
            if has_changed(saved.get(name), target)]


def _acting_code(config: Config) -> dict[str, Any]:
    """The user's algorithm, network and memory, except those that cannot be imported."""
    flat = config.flat()
    targets = {}
    for key in _ACTING:
        name = flat[key]
        if isinstance(name, ObjectName):
            targets[ARGUMENTS[key]] = name.target
        elif is_code(name) and not is_object(name):
            with suppress(Exception):  # whoever needs it says why it cannot be imported
                targets[ARGUMENTS[key]] = load_class(name, what=key)
    return targets


def code_of(config: Config, meta: Mapping[str, Any], run: Path) -> str:
    """Distinguishes the code of runs whose objects have no import path; '' if all have one.

    Digests in its meta.json, or the source texts of a run from before them, or else the run itself.
    """
    flat = config.flat()
    names = [name for key, name in ARGUMENTS.items() if is_object(str(flat[key]))]
    if not names:
        return ""
    for kind in ("digests", "sources"):
        saved = meta.get(kind)
        if isinstance(saved, Mapping) and saved.keys() >= {*names}:
            return json.dumps([saved[name] for name in names], sort_keys=True)
    return str(run)


def run_of(run: Any) -> Any:
    """`run`, or the run of an agent or a trainer; ConfigError for an agent without one."""
    if isinstance(run, str | PathLike) or not hasattr(run, "run"):
        return run
    if run.run is None:
        raise ConfigError(f"{run} has no run; give a run directory")
    return run.run


def with_code_of(run: Any, objects: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ARGUMENTS in `objects`; those that are None as an agent `run` has them."""
    given = dict(objects)
    config = None if isinstance(run, str | PathLike) else getattr(run, "config", None)
    if config is not None:
        for name, each in objects_of(config).items():
            if name in given and given[name] is None:
                given[name] = each.target
    return given
