"""meta.json of a run, with command, machine and versions, and errors of reading JSON files."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vantage._host.extras import version_of
from vantage.config.config import Config
from vantage.errors import ConfigError
from vantage.keys.fields import read_json_object
from vantage.runs.files import read_text

_LIBRARIES = {
    "vantage": "vantage-rl",
    "torch": "torch",
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "ale_py": "ale-py",
}


def describe_run(config: Config, argv: Sequence[str]) -> dict[str, Any]:
    """What is needed to repeat the run. Not the environment variables, which may hold secrets."""
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True,
                             timeout=5, check=True)
        commit = git.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = None
    libraries = {name: version_of(package) for name, package in _LIBRARIES.items()}
    return {
        "versions": {"python": platform.python_version(), **libraries},
        "git_commit": commit,
        "argv": list(argv),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "device": config.runtime.device,
    }


@contextlib.contextmanager
def reading(path: Path, note: str = "") -> Iterator[None]:
    """Turn errors of reading `path` into a ConfigError with a remedy, or with `note` instead."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; "
                          "restore it from a copy") from None
    except ConfigError as error:
        if error.__cause__ is not None:  # a module that cannot be imported: it has a remedy
            raise
        remedy = note or f"{path} must be as Vantage wrote it: restore it or correct it"
        raise ConfigError(f"{error}; {remedy}") from None


def other_version(versions: object) -> str:
    """A note if another version of Vantage wrote a config, or ''; `versions` is of meta.json."""
    writer = versions.get("vantage") if isinstance(versions, Mapping) else None
    this = version_of(_LIBRARIES["vantage"])
    if not isinstance(writer, str) or writer == this:
        return ""
    return f"it was written by Vantage {writer:.40}, and this is {this}: install that version"


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ConfigError if it is missing or damaged."""
    with reading(path):
        return read_json_object(read_text(path), source=str(path))


def meta_of(run: Path) -> dict[str, Any]:
    """The meta.json in `run`; empty without one, or with a damaged one."""
    return read_meta_file(run / "meta.json")[0]


def read_meta_file(path: Path) -> tuple[dict[str, Any], str]:
    """The content of a meta.json, empty if it is missing or damaged, and the reason."""
    if not os.path.lexists(path):
        return {}, f"{path} is missing"
    try:
        meta = read_object(path)
    except ConfigError as error:
        return {}, str(error)
    if not {"versions", "argv"} <= meta.keys():
        return meta, f"{path} is damaged: it lacks what Vantage writes there"
    return meta, ""
