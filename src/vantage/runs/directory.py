"""A run's directory: its name, config.json, meta.json and summary.json. No checkpoints or metrics; no torch here."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import json
import logging
import math
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vantage._host.extras import version_of
from vantage.config.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.keys.fields import read_json_object
from vantage.keys.objects import folder_name
from vantage.runs.files import read_text, working_directory, write_atomically
from vantage.runs.handed_over import check_objects, check_values, replacing, sources
from vantage.runs.trust import SIGNATURE, check_code, connections, foreign_code, is_own, signature

log = logging.getLogger(__name__)

_RESOLVED = "resolved"
"""Key of meta.json: the values of the config keys that config.json leaves to the machine."""
_LIBRARIES = {"vantage": "vantage-rl", "torch": "torch", "numpy": "numpy", "gymnasium": "gymnasium", "ale_py": "ale-py"}


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """runs/<env>/<algo>-<n>/ and its config."""

    path: Path
    config: Config
    """In force, with what was left to the machine as it was there."""
    asked: Config
    """The content of config.json, in which that is still left to the machine."""
    start: Path = field(default_factory=working_directory, compare=False)
    """The working directory that a relative `path` is in."""

    @classmethod
    def create(cls, config: Config, *, asked: Config | None = None, path: Path | None = None,
               root: Path = Path("runs"), argv: Sequence[str] | None = None) -> RunDirectory:
        """Make a run directory: `path`, or the next free number under `root` for its environment and algorithm.

        What `asked` leaves to the machine, by default nothing, stays so in config.json; meta.json has the values of
        `config`. `argv` is the command for meta.json, by default sys.argv. A ConfigError leaves nothing behind.
        """
        made = None
        try:
            str(path or root).encode()  # TensorBoard and safetensors cannot write other names
            asked = config if asked is None else config.override(asked.automatic())
            text = asked.to_json()
            meta = _describe(config, sys.argv if argv is None else argv) | {
                _RESOLVED: _resolved(config, asked), SIGNATURE: signature(text)}
            if texts := sources(config):
                meta["sources"] = texts
            made = path = make_directory(path, folder_of(config, root))
            write_atomically(path / "meta.json", json.dumps(meta, indent=2))
            # The config comes last: a directory is a run once it holds one.
            write_atomically(path / "config.json", text)
        except BaseException as error:
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
            if not isinstance(error, OSError | ValueError):
                raise
            why = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
            raise ConfigError(f"cannot create a run directory at {str(path or root)!r}: {why}; choose another place "
                              "with --run") from None
        return cls(path, config, asked)

    @classmethod
    def open(cls, path: Path, *, trust: bool = False, runs_code: bool = False, trains: bool = False,
             objects: Mapping[str, Any] | None = None, call: str = "") -> RunDirectory:
        """The run that was created at `path`; ConfigError names the nearest run if there is none.

        Reading the config imports the module of an `algo` that is an import path; with `runs_code`, the caller also
        imports those of network and environment, and with `trains` connects to what the config names. ConfigError for
        foreign code and such connections without `trust` in a run of someone else. `objects` is the code that was
        `handed_over`; ConfigError where the function `call` of Vantage needs more.
        """
        objects = objects or {}
        source = path / "config.json"
        if not os.path.lexists(source):
            what = "not a run directory: it has no config.json" if path.exists() else "no such run directory"
            raise ConfigError(f"{path}: {what}{_suggest(path)}")
        with _reading(source):
            text = read_text(source)
            values = read_json_object(text, source=str(source))
            paths = foreign_code(values, runs_code=runs_code, given=objects)
        meta, damage = _read_meta(path / "meta.json")
        own = is_own(text, signed := meta.get(SIGNATURE))
        check_code(paths, source=str(source), trusted=trust or own, connects=connections(values) if trains else ())
        if runs_code and isinstance(signed, str) and not own:
            log.warning(f"{source} is not as Vantage wrote it on this machine: edited, damaged or from elsewhere")
        with _reading(source, other_version(meta.get("versions"))):
            asked = Config.from_json(text, source=str(source), objects=replacing(objects))
        check_values(asked, objects, path)
        if call:
            check_objects(asked, path, call)
        if damage and runs_code:
            log.warning(f"{damage}; who wrote the run, with which versions and on what device, is unknown")
        return cls(path, _in_force(asked, meta.get(_RESOLVED), source=path / "meta.json"), asked)

    def from_start(self) -> RunDirectory:
        """This directory, by its absolute path if an environment has changed the working directory."""
        moved = working_directory() != self.start
        return replace(self, path=self.start / self.path) if moved else self

    @property
    def is_gone(self) -> bool:
        """Somebody has deleted or renamed it, or its disk is gone."""
        return not self.path.is_dir()

    def remove(self) -> None:
        """Remove a run that could not start, and the folders above it that are then empty.

        config.json goes last: where something cannot be removed, the rest is still a run that can be resumed.
        """
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self.path), key="config.json".__eq__):
                entry = self.path / name
                if entry.is_dir():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            self.path.rmdir()
        for folder in self.path.parents[:2]:
            if folder.name in (directory_name(folder_name(self.config.env.id)), "runs"):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def change_config(self, config: Config, *, device: str | None = None) -> RunDirectory:
        """Replace config.json and its signature, for the keys that a resume may change; returns the changed run.

        `device` is the one that the resume names, which may be auto.
        """
        asked = self.asked if device is None else self.asked.change(device=device)
        asked = config.override(asked.automatic())
        text = asked.to_json()
        self._write("config.json", text)
        with contextlib.suppress(ConfigError):  # a damaged meta.json has no signature to renew
            meta = self.read_meta() | {_RESOLVED: _resolved(config, asked), SIGNATURE: signature(text)}
            self._write("meta.json", json.dumps(meta, indent=2))
        return RunDirectory(self.path, config, asked)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json atomically; numbers that are not finite become null."""
        self._write("summary.json", json.dumps({key: None if isinstance(value, float) and not math.isfinite(value)
                                                else value for key, value in summary.items()}, indent=2))

    def _write(self, name: str, text: str) -> None:
        try:
            write_atomically(self.path / name, text)
        except OSError as error:
            raise VantageError(f"cannot write {self.path / name}: {error.strerror}; free space or make the directory "
                               "writable") from None

    def read_summary(self) -> dict[str, Any]:
        """The content of summary.json, empty if it does not exist. ConfigError if it is damaged."""
        path = self.path / "summary.json"
        return read_object(path) if os.path.lexists(path) else {}

    def summary_line(self) -> str:
        """The numbers of summary.json that are there, and the status, in one line; empty where there are none."""
        summary = self.read_summary()
        words = [f"{value:,.0f} {name}" for name in ("steps", "seconds", "episodes")
                 if isinstance(value := summary.get(name), int | float) and 0 <= value < 1e18]
        status = summary.get("status")
        return ", ".join(words + [str(status)] * (status in ("running", "done", "interrupted", "failed")))

    def read_meta(self) -> dict[str, Any]:
        """The content of meta.json: the command and the machine. ConfigError if it is damaged."""
        return read_object(self.path / "meta.json")


def _resolved(config: Config, asked: Config) -> dict[str, Any]:
    """The values in `config` of what `asked` leaves to the machine."""
    flat = config.flat()
    return {name: flat[name] for name in asked.automatic()}


def _in_force(asked: Config, resolved: object, *, source: Path) -> Config:
    """`asked` with what it left to the machine as it was there; a warning where `source` holds nothing usable."""
    if resolved is None:  # of a version whose config.json held these values
        return asked
    automatic = asked.automatic()
    try:
        if not isinstance(resolved, Mapping):
            raise ConfigError(f"{_RESOLVED} is {type(resolved).__name__}")
        return asked.override({name: value for name, value in resolved.items() if name in automatic})
    except ConfigError as error:
        log.warning(f"{source}: {error}; the machine's own values are used instead, and a resume is not exact")
        return asked


@contextlib.contextmanager
def _reading(path: Path, note: str = "") -> Iterator[None]:
    """Turn errors of reading `path` into a ConfigError with a remedy, or with a `note` of the cause."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}; restore it from a copy"
                          ) from None
    except ConfigError as error:
        if error.__cause__ is not None:  # of a module that cannot be imported, which names its own remedy
            raise
        raise ConfigError(f"{error}; {note or f'{path} must be as Vantage wrote it: restore it or correct it'}"
                          ) from None


def other_version(versions: object) -> str:
    """Which other version of Vantage wrote a config, by the `versions` in meta.json, and what to do; empty if none."""
    wrote, this = versions.get("vantage") if isinstance(versions, Mapping) else None, version_of(_LIBRARIES["vantage"])
    return (f"it was written by Vantage {wrote:.40}, and this is {this}: install that version"
            if isinstance(wrote, str) and wrote != this else "")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; ConfigError if it is missing or damaged."""
    with _reading(path):
        return read_json_object(read_text(path), source=str(path))


def meta_of(run: Path) -> dict[str, Any]:
    """The meta.json in `run`; empty without one, or with a damaged one."""
    return _read_meta(run / "meta.json")[0]


def _read_meta(path: Path) -> tuple[dict[str, Any], str]:
    """The content of a meta.json, and what is wrong with it; empty where that is missing or damaged."""
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


def folder_of(config: Config, root: Path) -> Path:
    """`root`/ENV/ALGO, to which a run's number is added."""
    return root / directory_name(folder_name(config.env.id)) / directory_name(config.algo.rpartition(":")[2])


def directory_name(name: str) -> str:
    """The name of an environment or algorithm as one directory name, with - for / and :, and without brackets."""
    return re.sub(r"[/:\\\s<>]+", "-", name).strip("-.") or "env"


def make_directory(path: Path | None, numbered: Path) -> Path:
    """Make the directory `path`, or `numbered` with the next free number."""
    (path or numbered).parent.mkdir(parents=True, exist_ok=True)
    if path is not None:
        if path.exists():
            way = f"continue it with `vantage resume {path}`, or " if (path / "config.json").exists() else ""
            raise ConfigError(f"{path} exists; {way}choose another --run")
        path.mkdir()
        return path
    for number in itertools.count(1):
        path = numbered.with_name(f"{numbered.name}-{number}")
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            break
    assert path is not None
    return path


def _describe(config: Config, argv: Sequence[str]) -> dict[str, Any]:
    """What is needed to repeat the run. Never the process environment, which holds secrets."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        commit = None
    versions = {"python": platform.python_version(), **{name: version_of(dist) for name, dist in _LIBRARIES.items()}}
    return {"versions": versions, "git_commit": commit, "argv": list(argv),
            "created": datetime.now(UTC).isoformat(timespec="seconds"), "host": socket.gethostname(),
            "platform": platform.platform(), "cores": os.cpu_count(), "device": config.runtime.device}


def _suggest(path: Path) -> str:
    """A hint: the runs inside `path`, the run around it, or the run beside it with the most similar name."""
    inside = [meta.parent for meta in (*path.glob("*/meta.json"), *path.glob("*/*/meta.json"))]
    if inside:
        names = [str(run) for run in sorted(inside, key=os.path.getmtime, reverse=True)]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return f"; give one of the runs in it: {', '.join(names[:5])}{more}"
    siblings = {config.parent.name: config.parent for config in path.parent.glob("*/config.json")}
    near = [parent for parent in path.parents if (parent / "meta.json").is_file()]
    near += [siblings[name] for name in difflib.get_close_matches(path.name, siblings)]
    return f"; did you mean {near[0]}?" if near else "; start a run with `vantage train`"
