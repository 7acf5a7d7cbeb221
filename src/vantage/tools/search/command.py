"""`vantage.search`, and the JSON files of its directory. Optuna is imported when it is called."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from typing import Any, get_args

from vantage._host.extras import require
from vantage.config.algorithms import name_and_values
from vantage.config.config import Config, Key
from vantage.config.configure import Env, joined
from vantage.config.flat import of_run
from vantage.errors import ConfigError
from vantage.keys.fields import convert
from vantage.keys.json_text import parse
from vantage.keys.objects import importable, is_code, target_of
from vantage.keys.typed_values import plain
from vantage.runs.files import read_text, write_atomically
from vantage.runs.lock import locked
from vantage.runs.meta import read_object
from vantage.runs.names import directory_name
from vantage.runs.trust import SIGNATURE, is_own
from vantage.tools.search.options import MOST, Options, Pruner, SearchResult

__all__ = ["Options", "SearchResult", "find_directory", "read_best", "search"]


def search(algorithm: Any, *, env: Env,
           grid: Mapping[str, Any] | str | Path | None = None,
           space: Mapping[str, Any] | str | Path | None = None, trials: int | None = None,
           seeds: int = 1, jobs: int = 1, pruner: Pruner | None = None,
           reduction: int | None = None, storage: str | None = None, run: str | Path | None = None,
           stop: Callable[[], bool] = lambda: False, **overrides: Any) -> SearchResult:
    """Search for good values of config keys with many short trainings.

        result = vantage.search(
            "a2c", env="CartPole-v1", steps=50_000, trials=20, jobs=2,
            space={"lr": {"low": 1e-4, "high": 1e-2, "log": True}, "memory": ["none", "lstm"]})
        config = result.config.change(seed=1)

    `algorithm`, `env` and `overrides` are those of `vantage.configure`, for what all trials have in
    common. `grid` maps keys to lists of values, and all combinations are trained. `space` maps keys
    to a list of choices or to a range of `low` and `high`, optionally with `log` or `step`, from
    which Optuna draws `trials` points (30). Both may also be a JSON file. The trials are processes
    that import the classes and functions of `algorithm`, `env`, `network` and `memory`. Each trial
    is trained with `seeds` seeds. Up to `jobs` trials train at a time, in processes of their own,
    so a script needs `if __name__ == "__main__":`.

    `pruner` asha, for a space, ends poor trials early: of `reduction` (3) trials one continues.
    `storage` is an Optuna database that machines share. `run` is the directory, by default
    runs/search/ENV/ALGO-N; an interrupted search continues when it is called again with the same
    arguments. `stop` is called about once a second; once it returns True, all trials are saved and
    the search ends. Progress goes to the logger `vantage` at the level INFO.

    ConfigError if no trial could start with the arguments; VantageError if no trial has a value in
    the end.
    """
    require("search", "optuna", "sqlalchemy", "matplotlib")
    algorithm, own = name_and_values(algorithm)
    overrides = joined(overrides, own)
    algo = _imported(convert("algorithm", algorithm, str))
    options = Options(grid=_text(grid, algo), space=_text(space, algo), trials=trials, seeds=seeds,
                      jobs=jobs, pruner=pruner, reduction=reduction, storage=storage)
    _check_options(options)
    from vantage.tools.search.plan import make_plan
    from vantage.tools.search.scheduler import train_all
    from vantage.tools.search.study import open_storage

    plan = make_plan(algo, _imported(convert("env", env, str)), overrides, options)
    for value in plan.shared.values():
        _imported(value)
    if storage is not None:  # before the directory exists
        open_storage(storage, Path())
    directory = find_directory(plan.definition(), None if run is None else Path(run))
    with locked(directory):
        return train_all(plan, options, directory, stop)


def _check_options(options: Options) -> None:
    """ConfigError unless there is a grid or a space, and for numbers out of range."""
    if (options.grid is None) == (options.space is None):
        raise ConfigError("what is to be searched? Give either --grid FILE.json or --space "
                          "FILE.json")
    for name, low in (("trials", 1), ("seeds", 1), ("jobs", 1), ("reduction", 2)):
        number = getattr(options, name)
        if number is None:
            continue
        if not isinstance(number, Integral):
            raise ConfigError(f"--{name} {number!r:.80} is not a whole number")
        if not low <= int(number) <= MOST:
            raise ConfigError(f"--{name} {number} is not from {low} to {MOST:,}")
    if options.pruner not in (None, *get_args(Pruner)):
        raise ConfigError(f"--pruner {options.pruner!r:.80} is not asha or none")
    if options.grid is not None and options.trials:
        raise ConfigError("--trials has no effect on a grid, which runs all points once; leave it "
                          "out")


def _imported(value: Any) -> Any:
    """`value`; ConfigError for the name of an object without an import path.

    Other processes cannot load it, and the name does not tell two such objects apart.
    """
    target = target_of(value)
    if target is not None:
        importable(target)
    return value


def _text(domains: Mapping[str, Any] | str | Path | None, algo: str) -> str | None:
    """A grid or a space as the command takes it: JSON, or the path of a file."""
    if domains is None:
        return None
    if not isinstance(domains, Mapping):
        return str(domains)
    keys = Config.every_key()
    if is_code(algo):
        keys |= Config.of(algo).flat_keys()
    return json.dumps({name: _in_json(name, part, keys) for name, part in domains.items()})


def _in_json(name: str, value: Any, keys: Mapping[str, Key]) -> Any:
    """Values of the key `name`, or several keys with their values, as JSON holds them."""
    if hasattr(type(value), "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: _in_json(key if key in keys else name, part, keys)
                for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(name, part, keys) for part in value]
    if isinstance(value, str | int | float | None):
        return value
    if name not in keys:  # which is refused later
        return repr(value)
    return plain(_imported(keys[name].convert(name, value)))


def find_directory(definition: Mapping[str, Any], path: Path | None) -> Path:
    """`path`, or the directory of the search with this definition, or a new one."""
    try:
        path = path or _default_directory(definition)
        path.mkdir(parents=True, exist_ok=True)
        if not any(path.iterdir()):
            write_atomically(path / "search.json", json.dumps(definition, indent=2), os.getpid())
    except OSError as error:
        raise ConfigError(f"cannot use {path} for the search: {error.strerror}; choose another "
                          "--run") from None
    former = _read_definition(path)
    if not former:
        raise ConfigError(f"{path} holds no search: search.json is missing or damaged; choose "
                          "another --run")
    different = [key for key, value in definition.items() if former.get(key) != value]
    if different:
        raise ConfigError(f"{path} holds another search: {', '.join(different)} differ (see "
                          f"{path}/search.json); repeat its command, or choose another --run")
    return path


def _default_directory(definition: Mapping[str, Any]) -> Path:
    """runs/search/ENV/ALGO-N of the same search, or the first that does not exist."""
    parent = Path("runs/search", directory_name(definition["env"]))
    name = directory_name(definition["algo"].rpartition(":")[2])
    for number in itertools.count(1):
        path = parent / f"{name}-{number}"
        if not path.exists() or _read_definition(path) == definition:
            break
    return path


def _read_definition(directory: Path) -> dict[str, Any]:
    with suppress(ConfigError):
        return read_object(directory / "search.json")
    return {}


def read_best(directory: Path) -> tuple[dict[str, Any], str, bool]:
    """The best trial of a search: flat config keys, a sentence that names it, and whether the
    user's own search wrote it."""
    path = directory / "best.json"
    try:
        best = parse(read_text(path))
        config = best["config"]
        keys = of_run({**config, "algo": str(config["algo"]), "env": str(config["env"])})
        trial = f"trial {best['trial']} of {directory}: {best['objective']} {best['value']:.6g}"
        return keys, trial, is_own(json.dumps(config), best.get(SIGNATURE))
    except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is missing or damaged ({error}); give the directory of a search "
                          "with a complete trial, or repeat the search's command") from None
