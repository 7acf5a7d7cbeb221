"""Config keys from the files that a command line names: a search's best trial, and --config."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vantage.config.flat import flatten, of_run
from vantage.config.run import CHECKPOINTS_PER_RUN, EVALUATIONS_PER_RUN
from vantage.errors import ConfigError
from vantage.keys.fields import read_json_object
from vantage.runs.files import read_small
from vantage.runs.meta import meta_of
from vantage.runs.trust import SIGNATURE, check_code, connections, foreign_code, is_own


def read_search(directory: str, flags: Collection[str], algo: str,
                 env: str) -> tuple[dict[str, Any], str]:
    """The keys of the best trial of a search, and a note that names it."""
    from vantage.tools.search.command import read_best

    values, trial, own = read_best(Path(directory))
    words = {"algo": algo, "env": env}
    named = {*flags, *(name for name, word in words.items() if word == values[name])}
    _check_code(values, named, source=directory, trusted=own)
    for name, word in words.items():
        if word not in ("", values[name]):
            raise ConfigError(f"--from-search {directory} is of {name}={values[name]}, not {word}; "
                              "leave one out")
    steps = values.get("steps")
    if "steps" in flags and isinstance(steps, int):
        # Default intervals of the trial are shares of its steps, and become shares of the new ones.
        shares = {"save_every": CHECKPOINTS_PER_RUN, "eval_every": EVALUATIONS_PER_RUN}
        for name, parts in shares.items():
            if values.get(name) == max(1, steps // parts):
                del values[name]
    return values, f"config: {trial}"


def read_config(path: str, flags: Collection[str], algo: str, env: str) -> dict[str, Any]:
    """The flat keys of a JSON file."""
    try:
        with Path(path).open("rb") as file:
            text = read_small(file, f"--config {path}").decode("utf-8-sig")
        keys = of_run(flatten(read_json_object(text, source=path), source=path))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read --config {path!r}: {why}; give a JSON file") from None
    words = {"algo": algo, "env": env}
    named = {*flags, *(name for name, word in words.items() if word)}
    trusted = is_own(text, meta_of(Path(path).parent).get(SIGNATURE))
    _check_code(keys, named, source=path, trusted=trusted)
    return keys


def _check_code(values: Mapping[str, Any], named: Collection[str], *, source: str,
                trusted: bool) -> None:
    """ConfigError if someone else's file names code or a cluster.

    Keys that the command line has `named` too are allowed.
    """
    values = {name: value for name, value in values.items() if name not in named}
    connects = [text for text in connections(values) if text.startswith("ray_address")]
    check_code(foreign_code(values), source=source, trusted=trusted, connects=connects,
               remedy="name it on the command line too, as ALGO or by --env, --network or "
                      "--ray-address")
