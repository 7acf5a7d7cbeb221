"""`search` and its directory's JSON files. Optuna is imported only by the search itself."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vantage._host.extras import require
from vantage.config.flat import of_run
from vantage.errors import ConfigError
from vantage.keys.fields import convert
from vantage.keys.json_text import parse
from vantage.keys.objects import importable
from vantage.runs.files import read_text, write_atomically
from vantage.runs.lock import locked
from vantage.runs.meta import read_object
from vantage.runs.names import directory_name
from vantage.runs.trust import SIGNATURE, is_own
from vantage.tools.search.options import MOST, Options, Pruner, SearchResult

__all__ = ["Options", "SearchResult", "find_directory", "read_best", "search"]


def search(algorithm: str | type, *, env: str | Callable[..., Any],
           grid: Mapping[str, Any] | str | Path | None = None,
           space: Mapping[str, Any] | str | Path | None = None, trials: int | None = None,
           seeds: int = 1, jobs: int = 1, pruner: Pruner | None = None,
           reduction: int | None = None, storage: str | None = None, run: str | Path | None = None,
           stop: Callable[[], bool] = lambda: False, **overrides: Any) -> SearchResult:
    """Search for good values of config keys with many short trainings, or continue the same search.

        result = vantage.search("a2c", env="CartPole-v1", steps=50_000, trials=20, jobs=2,
                                space={"lr": {"low": 1e-4, "high": 1e-2, "log": True}, "memory": ["none", "lstm"]})
        config = result.config.change(seed=1)

    `algorithm`, `env` and `overrides` are those of `vantage.configure`, for what all trials have in common. `grid` maps
    keys to lists of values, all combinations of which are trained; `space` maps keys to a list of choices or to a range
    of `low` and `high`, perhaps with `log` or `step`, from which Optuna draws `trials` points (30). Both may also be a
    JSON file. A trial is trained with `seeds` seeds, up to `jobs` trials at a time in processes of their own, so that a
    script needs `if __name__ == "__main__":`.

    `pruner` asha, for a space, ends poor trials early: of `reduction` (3) trials one continues.
    `storage` is an Optuna database that machines share. `run` is the directory, by default
    runs/search/ENV/ALGO-N; an interrupted search goes on when it is called again with the same
    arguments. `stop` is called about once a second; where it returns True, all trials are saved and
    the search ends. Progress goes to the logger `vantage` at the level INFO.

    ConfigError if no trial could start with the arguments; VantageError if no trial has a value in
    the end.
    """
    require("search", "optuna", "sqlalchemy", "matplotlib")
    given = {name: value for name, value in (("grid", grid), ("space", space)) if value is not None}
    if len(given) != 1:
        raise ConfigError("what is to be searched? Give either --grid FILE.json or --space "
                          "FILE.json")
    for name, number, low in (("trials", trials, 1), ("seeds", seeds, 1), ("jobs", jobs, 1),
                              ("reduction", reduction, 2)):
        if number is not None and not low <= number <= MOST:
            raise ConfigError(f"--{name} {number} is not from {low} to {MOST:,}")
    if grid is not None and trials:
        raise ConfigError("--trials has no effect on a grid, which runs all points once; leave it "
                          "out")
    from vantage.tools.search.plan import make_plan
    from vantage.tools.search.scheduler import train_all
    from vantage.tools.search.study import open_storage

    text = {name: json.dumps(value, default=importable) if isinstance(value, Mapping)
            else str(value) for name, value in given.items()}
    options = Options(**text, trials=trials, seeds=seeds, jobs=jobs, pruner=pruner,
                      reduction=reduction, storage=storage)
    for value in (algorithm, env, *overrides.values()):
        if callable(value):
            importable(value)
    plan = make_plan(convert("algorithm", algorithm, str), convert("env", env, str), overrides,
                     options)
    if storage is not None:  # before the directory exists
        open_storage(storage, Path())
    directory = find_directory(plan.definition(), None if run is None else Path(run))
    with locked(directory):
        return train_all(plan, options, directory, stop)


def find_directory(definition: Mapping[str, Any], path: Path | None) -> Path:
    """`path`, or the directory of the search with this definition, or a new one."""
    try:
        if path is None:
            parent = Path("runs/search", directory_name(definition["env"]))
            numbered = (parent / f"{definition['algo']}-{number}" for number in itertools.count(1))
            path = next(path for path in numbered if not path.exists()
                        or _read_definition(path) == definition)
        path.mkdir(parents=True, exist_ok=True)
        if not any(path.iterdir()):
            write_atomically(path / "search.json", json.dumps(definition, indent=2), os.getpid())
    except OSError as error:
        raise ConfigError(f"cannot use {path} for the search: {error.strerror}; choose another "
                          "--run") from None
    if not (former := _read_definition(path)):
        raise ConfigError(f"{path} holds no search: search.json is missing or damaged; choose "
                          "another --run")
    if different := [key for key, value in definition.items() if former.get(key) != value]:
        raise ConfigError(f"{path} holds another search: {', '.join(different)} differ (see "
                          f"{path}/search.json); repeat its command, or choose another --run")
    return path


def _read_definition(directory: Path) -> dict[str, Any]:
    with suppress(ConfigError):
        return read_object(directory / "search.json")
    return {}


def read_best(directory: Path) -> tuple[dict[str, Any], str, bool]:
    """The flat config keys of the best trial of a search, a sentence that names it, and whether they are one's own."""
    path = directory / "best.json"
    try:
        best = parse(read_text(path))
        config = of_run({**best["config"], "algo": str(best["config"]["algo"]),
                         "env": str(best["config"]["env"])})
        trial = f"trial {best['trial']} of {directory}: {best['objective']} {best['value']:.6g}"
        return config, trial, is_own(json.dumps(best["config"]), best.get(SIGNATURE))
    except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is missing or damaged ({error}); give the directory of a search "
                          "with a complete trial, or repeat the search's command") from None
