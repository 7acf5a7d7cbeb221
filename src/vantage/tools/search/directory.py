"""A search's directory: its name, search.json, which says what is searched, and best.json. No Optuna here."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vantage.errors import ConfigError, VantageError
from vantage.runs.directory import directory_name, write_atomically
from vantage.tools.search.plan import Plan

if TYPE_CHECKING:
    from vantage.tools.search.study import Row

FILE_NAME = "search.json"
BEST_NAME = "best.json"


def find_directory(plan: Plan, path: Path | None, storage: str | None, root: Path = Path("runs/search")) -> Path:
    """The directory of this search: `path`, or the one under `root` that was made for the same, or a new one there."""
    record = {"study": plan.name, "storage": None if storage is None else without_password(storage),
              **plan.definition()}
    if path is not None:
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            _check_same(path, record)
        found = path
    else:
        parent = root / directory_name(plan.base.env)
        numbered = sorted((int(match[1]), entry) for entry in (parent.iterdir() if parent.is_dir() else ())
                          if (match := re.fullmatch(re.escape(plan.algo) + r"-(\d+)", entry.name)))
        records = {entry: _read_record(entry) for _, entry in numbered}
        same = next((entry for entry, former in records.items() if former == record), None)
        if same is None and (unknown := [entry for entry, former in records.items() if former is None]):
            raise ConfigError(f"{_lost(unknown[0])}. Or begin anew with --run DIR")
        found = same or _take_next(parent, plan.algo, max((number for number, _ in numbered), default=0) + 1)
    try:
        found.mkdir(parents=True, exist_ok=True)
        if not (found / FILE_NAME).exists():
            write_atomically(found / FILE_NAME, json.dumps(record, indent=2))
    except OSError as error:
        raise ConfigError(f"cannot write into the search directory {found}: {error.strerror}; choose another place "
                          "with --run") from None
    return found


def _take_next(parent: Path, algo: str, number: int) -> Path:
    while True:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            (parent / f"{algo}-{number}").mkdir()
            return parent / f"{algo}-{number}"
        except FileExistsError as error:
            if str(error.filename) != str(parent / f"{algo}-{number}"):
                raise ConfigError(f"{error.filename} is a file; choose another place with --run") from None
            number += 1
        except OSError as error:
            raise ConfigError(f"cannot create a search directory in {parent}: {error.strerror}; choose another place "
                              "with --run") from None


def _read_record(directory: Path) -> dict[str, Any] | None:
    """What search.json says; empty where there is no search, None where there is one and that file is no record."""
    try:
        record = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None if _is_search(directory) else {}
    except NotADirectoryError:
        return {}
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record else None


def _is_search(directory: Path) -> bool:
    """A search has left something there, whether or not search.json is among it."""
    return any((directory / name).exists() for name in (FILE_NAME, BEST_NAME, "study.db")) or any(
        directory.glob("trial-*/seed-*"))


def _lost(directory: Path) -> str:
    """What is wrong with search.json, and what can be done."""
    path = directory / FILE_NAME
    wrong = "is damaged" if path.is_file() and os.access(path, os.R_OK) else \
        "cannot be read" if path.exists() else "is missing"
    best = f"; `vantage train --from-search {directory}` goes by {BEST_NAME} and works" \
        if (directory / BEST_NAME).exists() else ""
    return (f"{path} {wrong}, so that nothing says what was searched there; put it back. If it is lost, the same "
            f"command with another --run writes the same file anew: stop that, copy it to {path}, and go on{best}")


def _check_same(path: Path, record: dict[str, Any]) -> None:
    """ConfigError unless the directory at `path` is of the search that `record` describes."""
    former = _read_record(path)
    if former is None:
        raise ConfigError(_lost(path))
    if not former:
        raise ConfigError(f"{path} is there and is no search directory; choose another --run")
    different = [key for key, value in json.loads(json.dumps(record)).items()
                 if key != "study" and former.get(key) != value]
    if different:
        raise ConfigError(f"{path} holds another search: {', '.join(different)} differ (see {path / FILE_NAME}); "
                          "repeat its command, or choose another --run")


def write_best(plan: Plan, best: Row, directory: Path) -> None:
    """best.json, what `vantage train --from-search` reads, of the trial `best`."""
    config = json.loads(plan.config(best.values, plan.base.seed).to_json())
    write_atomically(directory / BEST_NAME, json.dumps(
        {"trial": best.number, "value": best.value, "objective": plan.objective, "keys": best.values, "runs": best.runs,
         "config": config}, indent=2))


def read_best(directory: Path) -> tuple[dict[str, Any], str]:
    """The config keys of the best trial of a search, and what to say of it."""
    path = directory / BEST_NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        config = dict(found["config"])
        for key in ("algo", "env"):
            if not isinstance(config[key], str):
                raise TypeError(f"{key} is {config[key]!r}")
        return config, f"trial {found['trial']} of {directory}: {found['objective']} {found['value']:.6g}"
    except FileNotFoundError:
        raise ConfigError(f"{directory} has no {BEST_NAME}: " + (
            "no trial of it is complete yet; go on with the search by its command" if _is_search(directory)
            else "it is no search directory; give one that `vantage search` made")) from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise VantageError(f"{path} is damaged ({error}); the search's command writes it again") from None


def without_password(storage: str) -> str:
    """A storage's URL as it may be shown and written down."""
    without = re.sub(r"(://[^/@:]*):.*@", r"\1:***@", storage)  # it may hold / and, written wrongly, @
    return re.sub(r"([?&]password=)[^&]*", r"\1***", without)
