"""meta.json of a run: command, machine and versions.

And errors of reading the JSON files of a run.
"""

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

_LIBRARIES = {"vantage": "vantage-rl", "torch": "torch", "numpy": "numpy", "gymnasium": "gymnasium",
              "ale_py": "ale-py"}


def describe_run(config: Config, argv: Sequence[str]) -> dict[str, Any]:
    """What is needed to repeat the run. Never the process environment, which holds secrets."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, timeout=5,
                                check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = None
    versions = {"python": platform.python_version(),
                **{name: version_of(dist) for name, dist in _LIBRARIES.items()}}
    return {"versions": versions, "git_commit": commit, "argv": list(argv),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": socket.gethostname(), "platform": platform.platform(), "cores": os.cpu_count(),
            "device": config.runtime.device}


@contextlib.contextmanager
def reading(path: Path, note: str = "") -> Iterator[None]:
    """Turn errors of reading `path` into a ConfigError with a remedy; `note` replaces the remedy."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; "
                          "restore it from a copy") from None
    except ConfigError as error:
        # Of a module that cannot be imported, which names its own remedy.
        if error.__cause__ is not None:
            raise
        raise ConfigError(f"{error}; {note or f'{path} must be as Vantage wrote it: restore it or correct it'}"
                          ) from None


def other_version(versions: object) -> str:
    """A note on the other version of Vantage that wrote a config, or an empty text.

    `versions` is that of meta.json.
    """
    wrote, this = versions.get("vantage") if isinstance(versions, Mapping) else None, version_of(_LIBRARIES["vantage"])
    return (f"it was written by Vantage {wrote:.40}, and this is {this}: install that version"
            if isinstance(wrote, str) and wrote != this else "")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ConfigError if it is missing or damaged."""
    with reading(path):
        return read_json_object(read_text(path), source=str(path))


def meta_of(run: Path) -> dict[str, Any]:
    """The meta.json in `run`; empty without one, or with a damaged one."""
    return read_meta_file(run / "meta.json")[0]


def read_meta_file(path: Path) -> tuple[dict[str, Any], str]:
    """The content of a meta.json, empty if it is missing or damaged, and what is wrong with it."""
    try:
        meta = read_json_object(read_text(path), source=str(path))
    except FileNotFoundError:
        return {}, f"{path} is missing"
    except (OSError, UnicodeDecodeError) as error:
        return {}, f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
    except ConfigError as error:
        return {}, str(error)
    if not {"versions", "argv"} <= meta.keys():
        return meta, f"{path} is damaged: it lacks what Vantage writes there"
    return meta, ""
