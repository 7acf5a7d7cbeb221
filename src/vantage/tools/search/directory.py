"""A search's directory: its number, search.json and best.json. Optuna is not imported here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import directory_name, write_atomically


def find_directory(algo: str, env: str, definition: dict[str, Any], path: Path | None,
                   root: Path = Path("runs/search")) -> Path:
    """`path`, or the directory under `root` of the search with this definition, or a new one there."""
    if path is None:
        parent, number = root / directory_name(env), 1
        path = parent / f"{algo}-1"
        while path.exists() and _read_definition(path) != definition:
            number += 1
            path = parent / f"{algo}-{number}"
    elif path.is_file() or (path.is_dir() and any(path.iterdir())):
        former = _read_definition(path)
        different = [key for key, value in definition.items() if former.get(key) != value]
        if different:
            raise ConfigError(f"{path} holds another search: {', '.join(different)} differ (see {path}/search.json); "
                              "repeat its command, or choose another --run")
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not (path / "search.json").exists():
            write_atomically(path / "search.json", json.dumps(definition, indent=2))
    except OSError as error:
        raise ConfigError(f"cannot write into the search directory {path}: {error.strerror}; choose another place "
                          "with --run") from None
    return path


def _read_definition(directory: Path) -> dict[str, Any]:
    path = directory / "search.json"
    if directory.is_dir() and not any(directory.iterdir()):
        return {}
    try:
        definition = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(definition, dict) and definition:
            return definition
    except FileNotFoundError:
        if not any((directory / name).exists() for name in ("best.json", "study.db")):
            raise ConfigError(f"{directory} exists and is no search directory; choose another --run") from None
    except (OSError, ValueError):
        pass
    raise ConfigError(f"{path} is missing or damaged, so that it is unknown what was searched there; put it back, "
                      f"or search anew with another --run (`vantage train --from-search {directory}` still works if "
                      "best.json exists)")


def read_best(directory: Path) -> tuple[dict[str, Any], str]:
    """The flat config keys of the best trial of a search, and a sentence that names the trial."""
    path = directory / "best.json"
    try:
        best = json.loads(path.read_text(encoding="utf-8"))
        config = dict(best["config"])
        for key in ("algo", "env"):
            if not isinstance(config[key], str):
                raise TypeError(f"{key} is {config[key]!r}")
        return config, f"trial {best['trial']} of {directory}: {best['objective']} {best['value']:.6g}"
    except FileNotFoundError:
        raise ConfigError(f"{directory} has no best.json: " + (
            "no trial of it is complete yet; go on with the search by its command"
            if (directory / "search.json").exists()
            else "it is no search directory; give one that `vantage search` made")) from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise VantageError(f"{path} is damaged ({error}); the search's command writes it again") from None
