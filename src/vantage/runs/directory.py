"""A run's directory: its name, config.json, meta.json and summary.json. No checkpoints or metrics; no torch here."""

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
from vantage.runs.trust import check_code, foreign_code, is_own, signature

SIGNATURE = "config_hmac"
"""Key of meta.json: the HMAC of config.json, see `trust`."""

_DISTRIBUTIONS = {"vantage": "vantage-rl", "torch": "torch", "numpy": "numpy", "gymnasium": "gymnasium",
                  "ale_py": "ale-py"}

_CORE = ("algo", "env", "steps", "seed", "num_envs", "network", "memory", "rollout_length", "lr", "gamma")
"""Keys that every flat config.json of the first edition has and that have no safe default."""
_RESTORE = "restore it from a copy, or replace its content by {} to go on without it"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """runs/<env>/<algo>-<n>/ and its config."""

    path: Path
    config: Config

    @classmethod
    def create(cls, config: Config, *, env_name: str, path: Path | None = None, root: Path = Path("runs"),
               argv: Sequence[str] | None = None) -> RunDirectory:
        """Make a run directory: `path`, or the next free number under `root` for this environment and algorithm.

        `argv` is the command for meta.json, by default sys.argv. ConfigError if `path` exists or cannot be made;
        nothing is then left over.
        """
        check_utf8(path or root, "choose another place with --run")
        try:
            if path is None:
                path = _make_next_number(root / directory_name(env_name), config.algo.rpartition(":")[2])
            else:
                _make(path)
        except OSError as error:
            raise ConfigError(f"cannot create a run directory at {path or root}: {error.strerror}; "
                              "choose another place with --run") from None
        try:
            text = config.to_json()
            meta = _describe(config, sys.argv if argv is None else argv) | {SIGNATURE: signature(text)}
            write_atomically(path / "meta.json", json.dumps(meta, indent=2))
            # The config comes last: a directory is a run once it holds one.
            write_atomically(path / "config.json", text)
        except BaseException as error:
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                raise ConfigError(f"cannot write into the run directory {path}: {error.strerror}; free space there "
                                  "or choose another place with --run") from None
            raise
        return cls(path, config)

    @classmethod
    def open(cls, path: Path, *, trust: bool = False, runs_code: bool = False) -> RunDirectory:
        """The run that was created at `path`; ConfigError names the nearest runs if there is none.

        Reading the config imports the module of an `algo` that is an import path; with `runs_code`, the caller goes on
        to build the network or the environment. ConfigError if that needs code from outside Vantage, unless `trust` or
        this user made the run.
        """
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
            modules = foreign_code(values, runs_code=runs_code)
        except ConfigError as error:
            raise _with_remedy(error, source) from None
        check_code(modules, source=str(source), trusted=trust or not modules or is_own(text, _saved_signature(path)))
        try:
            return cls(path, Config.from_json(text, source=str(source)))
        except ConfigError as error:
            raise _with_remedy(error, source) from None

    def remove(self) -> None:
        """Remove a run that could not start, and the folders above it that are then empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        for folder in self.path.parents[:2]:
            if folder.name in (directory_name(self.config.env.id), "runs"):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def change_config(self, config: Config) -> RunDirectory:
        """Replace config.json and its signature, for the keys that a resume may change; returns the changed run."""
        text = config.to_json()
        self._write("config.json", text)
        with contextlib.suppress(ConfigError):  # a damaged meta.json has no signature to renew
            self._write("meta.json", json.dumps(self.read_meta() | {SIGNATURE: signature(text)}, indent=2))
        return RunDirectory(self.path, config)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json atomically; values that are not finite become null."""
        self._write("summary.json", json.dumps(_finite(summary), indent=2, allow_nan=False))

    def _write(self, name: str, text: str) -> None:
        try:
            write_atomically(self.path / name, text)
        except OSError as error:
            raise VantageError(f"cannot write {self.path / name}: {error.strerror}; free space or make the directory "
                               "writable") from None

    def read_summary(self) -> dict[str, Any]:
        """The content of summary.json, empty if it does not exist. ConfigError if it is damaged."""
        path = self.path / "summary.json"
        summary = _read_object(path) if os.path.lexists(path) else {}
        for key in ("steps", "seconds", "episodes"):
            value = summary.get(key, 0)
            # JSON may hold numbers that are too large for a float; no run is that long.
            if type(value) not in (int, float) or not 0 <= value < 1e18:
                raise ConfigError(f"{path}: {key}={value!r} is not a number of 0 or more; {_RESTORE}")
        return summary

    def read_meta(self) -> dict[str, Any]:
        """The content of meta.json: the command and the machine. ConfigError if it is damaged."""
        return _read_object(self.path / "meta.json")


def _with_remedy(error: ConfigError, source: Path) -> ConfigError:
    return ConfigError(f"{error}; {source} must be as `vantage train` wrote it: restore it or correct it")


def _saved_signature(run: Path) -> object:
    try:
        return _read_object(run / "meta.json").get(SIGNATURE)
    except ConfigError:
        return None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return read_json_object(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; {_RESTORE}") from None
    except ConfigError as error:
        raise ConfigError(f"{error}; {_RESTORE}") from None


def directory_name(env_name: str) -> str:
    """The environment's id as one directory name, with - for / and :."""
    return re.sub(r"[/:\\\s]+", "-", env_name).strip("-.") or "env"


def check_utf8(path: Path, remedy: str) -> None:
    """ConfigError for a name that is not UTF-8, which TensorBoard and safetensors cannot write."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{str(path)!r} is not valid UTF-8; {remedy}") from None


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of `path` by `text`; an error or a crash leaves the former content."""
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


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError as error:
        if str(error.filename) != str(path):
            raise ConfigError(f"{error.filename} is a file, so there can be no run at {path}; choose another place "
                              "with --run") from None
        remedy = "continue it with" if (path / "config.json").exists() else "choose another --run; a run continues with"
        raise ConfigError(f"{path} exists; {remedy} `vantage resume {path}`") from None


def _make_next_number(parent: Path, algo: str) -> Path:
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
    """What is needed to repeat the run. Never the process environment, which holds secrets."""
    versions = {name: _version(distribution) for name, distribution in _DISTRIBUTIONS.items()}
    return {
        "versions": {"python": platform.python_version()} | versions,
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
