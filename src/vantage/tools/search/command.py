"""`vantage search`: its options and its directory's JSON files. Optuna is imported only by the search itself."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from vantage.errors import ConfigError
from vantage.keys import read_json_object
from vantage.runs.directory import directory_name
from vantage.runs.files import write_atomically
from vantage.runs.lock import locked

MOST = 10_000
"""Largest number of trials, points, seeds and jobs."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is searched, and how. The comments are the command's help."""

    grid: str | None = None  # JSON file of lists: all combinations are run
    space: str | None = None  # JSON file of ranges and choices to draw from
    trials: int | None = None  # number of trials of a space (30)
    seeds: int = 1  # seeds of each trial, from --seed on, for a mean
    jobs: int = 1  # runs at once, each in its own process
    pruner: Literal["asha", "none"] | None = None  # asha (for a space) ends poor trials early
    reduction: int | None = None  # asha continues one trial in so many (3)
    storage: str | None = None  # Optuna storage to share: URL or .db file
    run: str | None = None  # search directory (runs/search/ENV/ALGO-N)


class Stopping(Protocol):
    """Whether a signal has arrived, and which."""

    signal: int

    def requested(self) -> bool:
        """A signal has arrived."""


def check_libraries() -> None:
    """ConfigError where Optuna is missing."""
    if find_spec("optuna") is None:
        raise ConfigError("vantage search needs optuna, which is missing: pip install 'vantage-rl[search]'")


def search(algo: str, env: str, shared: Mapping[str, Any], options: Options, stop: Stopping) -> int:
    """Start or resume the search; returns the command's exit status."""
    if (options.grid is None) == (options.space is None):
        raise ConfigError("what is to be searched? Give either --grid FILE.json or --space FILE.json")
    for name, low in (("trials", 1), ("seeds", 1), ("jobs", 1), ("reduction", 2)):
        if (number := getattr(options, name)) is not None and not low <= number <= MOST:
            raise ConfigError(f"--{name} {number} is not from {low} to {MOST:,}")
    if options.grid is not None and options.trials:
        raise ConfigError("--trials has no effect on a grid, which runs all points once; leave it out")
    from vantage.tools.search.plan import make_plan
    from vantage.tools.search.scheduler import run
    from vantage.tools.search.study import open_storage

    plan = make_plan(algo, env, shared, options)
    if options.storage is not None:  # before the directory exists
        open_storage(options.storage, Path())
    directory = find_directory(plan.definition(), None if options.run is None else Path(options.run))
    with locked(directory):
        return run(plan, options, directory, stop)


def find_directory(definition: Mapping[str, Any], path: Path | None) -> Path:
    """`path`, or the directory of the search with this definition, or a new one."""
    try:
        if path is None:
            parent = Path("runs/search", directory_name(definition["env"]))
            path = next(path for number in itertools.count(1) if not (
                path := parent / f"{definition['algo']}-{number}").exists() or _read_definition(path) == definition)
        path.mkdir(parents=True, exist_ok=True)
        if not any(path.iterdir()):
            write_atomically(path / "search.json", json.dumps(definition, indent=2))
    except OSError as error:
        raise ConfigError(f"cannot use {path} for the search: {error.strerror}; choose another --run") from None
    former = _read_definition(path)
    if different := [key for key, value in definition.items() if former.get(key) != value]:
        raise ConfigError(f"{path} holds another search: {', '.join(different)} differ (see {path}/search.json); "
                          "repeat its command, or choose another --run")
    return path


def _read_definition(directory: Path) -> dict[str, Any]:
    try:
        return read_json_object((directory / "search.json").read_text(encoding="utf-8"), source="search.json")
    except (OSError, UnicodeDecodeError, ConfigError):
        raise ConfigError(f"{directory}/search.json is missing or damaged, so that it is unknown what was searched "
                          "there; put it back, or search anew with another --run") from None


def read_best(directory: Path) -> tuple[dict[str, Any], str]:
    """The flat config keys of the best trial of a search, and a sentence that names the trial."""
    path = directory / "best.json"
    try:
        best = json.loads(path.read_text(encoding="utf-8"))
        config = {**best["config"], "algo": str(best["config"]["algo"]), "env": str(best["config"]["env"])}
        return config, f"trial {best['trial']} of {directory}: {best['objective']} {best['value']:.6g}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is missing or damaged ({error}); give the directory of a search with a complete "
                          "trial, or repeat the search's command") from None
