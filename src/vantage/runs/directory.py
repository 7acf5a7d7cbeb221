"""A run's directory: its name, config.json, meta.json and summary.json. Not checkpoints, not metrics; no torch here."""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from vantage.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.keys import read_json_object

_DISTRIBUTIONS = {"vantage": "vantage-rl", "torch": "torch", "numpy": "numpy", "gymnasium": "gymnasium",
                  "ale_py": "ale-py"}

_CORE = ("algo", "env", "steps", "seed", "num_envs", "network", "memory", "rollout_length", "lr", "gamma")
"""Keys that the config.json of every version has, and that no default can stand for."""
_RESTORE = "restore it from a copy, or put {} in it to go on without what it said"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """runs/<env>/<algo>-<n>/ and the config it was made for."""

    path: Path
    config: Config

    @classmethod
    def create(cls, config: Config, *, env_name: str, path: Path | None = None, root: Path = Path("runs"),
               argv: Sequence[str] | None = None) -> RunDirectory:
        """A new run directory: `path`, or the next free number under `root` for this environment and algorithm.

        `argv` is what meta.json keeps of the command, by default sys.argv. ConfigError if `path` exists or the
        directory cannot be made; what had been made of it is then gone again.
        """
        check_utf8(path or root, "choose another place with --run")
        try:
            taken = _take_next_number(root / directory_name(env_name), config.algo.rpartition(":")[2]) if path is None else _take(path)
        except OSError as error:
            raise ConfigError(f"cannot create a run directory at {path or root}: {error.strerror}; "
                              "choose another place with --run") from None
        try:
            meta = _describe(config, sys.argv if argv is None else argv)
            write_atomically(taken / "meta.json", json.dumps(meta, indent=2))
            # The config comes last: a directory is a run once it holds one.
            write_atomically(taken / "config.json", config.to_json())
        except BaseException as error:
            shutil.rmtree(taken, ignore_errors=True)
            if isinstance(error, OSError):
                raise ConfigError(f"cannot write into the run directory {taken}: {error.strerror}; free space there "
                                  "or choose another place with --run") from None
            raise
        return cls(taken, config)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The run that was created at `path`; ConfigError names the nearest runs if there is none."""
        source = path / "config.json"
        if path.is_file():
            remedy = _around(path) or "; name the directory of a run"
            raise ConfigError(f"{path} is a file, not a run directory{remedy}")
        if not path.is_dir():
            raise ConfigError(f"{path}: no such run directory{_suggest(path)}")
        try:
            text = source.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(f"{path} is not a run directory: it has no config.json{_suggest(path)}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {source}: {getattr(error, 'strerror', None) or error}; "
                              "make it readable or restore it from a copy") from None
        try:
            values = read_json_object(text, source=str(source))
            lacks = [key for key in _CORE if key not in values]
            if lacks and not isinstance(values.get("env"), Mapping):
                raise ConfigError(f"{source} is damaged: it lacks {', '.join(lacks)}")
            return cls(path, Config.from_json(text, source=str(source)))
        except ConfigError as error:
            raise ConfigError(f"{error}; {source} must be as `vantage train` wrote it: restore it or correct "
                              "it") from None

    def remove(self) -> None:
        """Take a run away that never began, and the folder of its environment where no other run is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self.path.parents[:2]:
            if folder.name in (directory_name(self.config.env.id), "runs"):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def change_config(self, config: Config) -> RunDirectory:
        """The same run with another config, in config.json too; for what a resume may change."""
        try:
            write_atomically(self.path / "config.json", config.to_json())
        except OSError as error:
            raise VantageError(f"cannot write {self.path / 'config.json'}: {error.strerror}; free space or make the "
                               "directory writable") from None
        return RunDirectory(self.path, config)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """summary.json, replaced in one step; values that are not finite become null."""
        try:
            write_atomically(self.path / "summary.json", json.dumps(_finite(summary), indent=2, allow_nan=False))
        except OSError as error:
            raise VantageError(f"cannot write {self.path / 'summary.json'}: {error.strerror}; free space or make the "
                               "directory writable") from None

    def read_summary(self) -> dict[str, Any]:
        """What `write_summary` wrote last; empty before the first time. What it counts are numbers of 0 or more."""
        path = self.path / "summary.json"
        summary = _read_object(path) if os.path.lexists(path) else {}
        for key in ("steps", "seconds", "episodes"):
            value = summary.get(key, 0)
            # No run is so long, and JSON may hold what is not a number or too large for a float.
            if type(value) not in (int, float) or not 0 <= value < 1e18:
                raise ConfigError(f"{path}: {key}={value!r} is not a number of 0 or more; {_RESTORE}")
        return summary

    def read_meta(self) -> dict[str, Any]:
        """What `create` wrote of the command and the machine."""
        return _read_object(self.path / "meta.json")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; {_RESTORE}") from None
    except ConfigError as error:
        raise ConfigError(f"{error}; {_RESTORE}") from None


def directory_name(env_name: str) -> str:
    """The environment's id as one directory name: / and : as -."""
    return re.sub(r"[/:\\\s]+", "-", env_name).strip("-.") or "env"


def check_utf8(path: Path, remedy: str) -> None:
    """ConfigError for a name that the libraries which write TensorBoard's and safetensors files cannot take."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(path)!r} is no name in UTF-8; {remedy}") from None


def write_atomically(path: Path, text: str) -> None:
    """`path` holds its former content or all of `text`, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _take(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError as error:
        if str(error.filename) != str(path):
            raise ConfigError(f"{error.filename} is a file, so there can be no run at {path}; choose another place "
                              "with --run") from None
        remedy = "go on with it by" if (path / "config.json").exists() else "choose another --run; a run goes on by"
        raise ConfigError(f"{path} exists; {remedy} `vantage resume {path}`") from None
    return path


def _take_next_number(parent: Path, algo: str) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    pattern = re.compile(re.escape(algo) + r"-(\d+)")
    numbers = [int(match[1]) for entry in parent.iterdir() if (match := pattern.fullmatch(entry.name))]
    number = max(numbers, default=0) + 1
    while True:
        try:
            (parent / f"{algo}-{number}").mkdir()
            return parent / f"{algo}-{number}"
        except FileExistsError:  # another process was faster
            number += 1


def _describe(config: Config, argv: Sequence[str]) -> dict[str, Any]:
    """What a reader needs to repeat the run. Never the process environment, which holds secrets."""
    versions: dict[str, str | None] = {name: _version(of) for name, of in _DISTRIBUTIONS.items()}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "git_commit": _git_commit(),
        "argv": list(argv),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "device": config.runtime.device,
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _suggest(path: Path) -> str:
    """'; did you mean ...?' with the run that contains `path`, or the siblings with the most similar names."""
    if around := _around(path):
        return around
    siblings = {config.parent.name: config.parent for config in sorted(path.parent.glob("*/config.json"))}
    names = difflib.get_close_matches(path.name, siblings)
    if not names:
        return "; no run beside it has a similar name: start one with `vantage train`"
    return f"; did you mean {' or '.join(str(siblings[name]) for name in names)}?"


def _around(path: Path) -> str:
    """'; did you mean ...?' with the run that contains `path`; empty if there is none."""
    runs = [parent for parent in path.parents if all((parent / f).is_file() for f in ("config.json", "meta.json"))]
    return f"; did you mean {runs[0]}?" if runs else ""
