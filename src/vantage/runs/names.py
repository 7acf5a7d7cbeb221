"""The names of run directories, runs/ENV/ALGO-N, and suggestions for a wrong path."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
from pathlib import Path

from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.objects import folder_name
from vantage.runs.handed_over import resuming


def folder_of(config: Config, root: Path) -> Path:
    """`root`/ENV/ALGO, to which a run's number is added."""
    algo = config.algo.rpartition(":")[2]
    return root / directory_name(folder_name(config.env.id)) / directory_name(algo)


def directory_name(name: str) -> str:
    """`name`, of an environment or algorithm, as the name of a directory."""
    return re.sub(r"[/:\\\s<>]+", "-", name).strip("-.") or "env"


def make_directory(path: Path | None, numbered: Path, config: Config) -> Path:
    """Make the directory `path`, or `numbered` with the next free number."""
    (path or numbered).parent.mkdir(parents=True, exist_ok=True)
    if path is not None:
        if path.exists():
            remedy = "choose another --run"
            if (path / "config.json").exists():
                remedy = f"continue it with {resuming(path, config)}, {remedy}, or leave --run out"
            raise ConfigError(f"{path} exists; {remedy}")
        path.mkdir()
        return path
    for number in itertools.count(1):
        path = numbered.with_name(f"{numbered.name}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            break
    assert path is not None
    return path


def suggest_run(path: Path) -> str:
    """A hint: the runs in `path`, the run around it, or the run beside it with a similar name."""
    inside = []
    if os.path.isdir(path):
        inside = [meta.parent for meta in (*path.glob("*/meta.json"), *path.glob("*/*/meta.json"))]
    if inside:
        inside.sort(key=os.path.getmtime, reverse=True)
        more = f" and {len(inside) - 5} more" if len(inside) > 5 else ""
        return f"; give one of the runs in it: {', '.join(map(str, inside[:5]))}{more}"
    siblings = {config.parent.name: config.parent for config in path.parent.glob("*/config.json")}
    near = [parent for parent in path.parents if (parent / "meta.json").is_file()]
    near += [siblings[name] for name in difflib.get_close_matches(path.name, siblings)]
    return f"; did you mean {near[0]}?" if near else "; start a run with `vantage train`"
