"""A run's directory: its name, config.json, meta.json and summary.json.

No checkpoints or metrics; no torch here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vantage.config.config import Config
from vantage.errors import ConfigError, VantageError
from vantage.keys.fields import read_json_object
from vantage.keys.objects import folder_name
from vantage.runs.files import read_text, working_directory, write_atomically
from vantage.runs.handed_over import check_objects, check_values, replacing, sources
from vantage.runs.meta import describe_run, other_version, read_meta_file, read_object, reading
from vantage.runs.names import directory_name, folder_of, make_directory, suggest_run
from vantage.runs.trust import SIGNATURE, check_code, connections, foreign_code, is_own, signature

log = logging.getLogger(__name__)

_RESOLVED = "resolved"
"""Key of meta.json: the values of the config keys that config.json leaves to the machine."""


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
        """Create a run directory at `path`, or at the next free number under `root`.

        What `asked` leaves to the machine, by default nothing, stays so in config.json; meta.json has the values of
        `config`. `argv` is the command for meta.json, by default sys.argv. A ConfigError leaves nothing behind.
        """
        made = None
        try:
            str(path or root).encode()  # TensorBoard and safetensors cannot write other names
            asked = config if asked is None else config.override(asked.automatic())
            text = asked.to_json()
            meta = describe_run(config, sys.argv if argv is None else argv) | {
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
            raise ConfigError(f"cannot create a run directory at {str(path or root)!r}: {why}; "
                              "choose another place with --run") from None
        return cls(path, config, asked)

    @classmethod
    def open(cls, path: Path, *, trust: bool = False, runs_code: bool = False, trains: bool = False,
             objects: Mapping[str, Any] | None = None, call: str = "") -> RunDirectory:
        """The run that was created at `path`; ConfigError names the nearest run if there is none.

        Reading the config imports the module of an `algo` that is an import path; with `runs_code`,
        the caller also imports those of network and environment, and with `trains` connects to what
        the config names. ConfigError for foreign code and such connections without `trust` in a run
        of someone else. `objects` is the code that was `handed_over`; ConfigError where the
        function `call` of Vantage needs more.
        """
        objects = objects or {}
        source = path / "config.json"
        if not os.path.lexists(source):
            what = "not a run directory: it has no config.json" if path.exists() else "no such run directory"
            raise ConfigError(f"{path}: {what}{suggest_run(path)}")
        with reading(source):
            text = read_text(source)
            values = read_json_object(text, source=str(source))
            paths = foreign_code(values, runs_code=runs_code, given=objects)
        meta, damage = read_meta_file(path / "meta.json")
        own = is_own(text, signed := meta.get(SIGNATURE))
        check_code(paths, source=str(source), trusted=trust or own,
                   connects=connections(values) if trains else ())
        if runs_code and isinstance(signed, str) and not own:
            log.warning(f"{source} is not as Vantage wrote it on this machine: edited, damaged or "
                        "from elsewhere")
        remedy = other_version(meta.get("versions"))
        if "algo" in objects:
            remedy = "hand over the algorithm that the run was trained with, or leave algorithm= out"
        with reading(source, remedy):
            asked = Config.from_json(text, source=str(source), objects=replacing(objects))
        check_values(asked, objects, path)
        if call:
            check_objects(asked, path, call)
        if damage and runs_code:
            log.warning(f"{damage}; who wrote the run, with which versions and on what device, is "
                        "unknown")
        return cls(path, _in_force(asked, meta.get(_RESOLVED), source=path / "meta.json"), asked)

    def from_start(self) -> RunDirectory:
        """This directory with an absolute path, if an environment has changed the working directory."""
        moved = working_directory() != self.start
        return replace(self, path=self.start / self.path) if moved else self

    @property
    def is_gone(self) -> bool:
        """Somebody has deleted or renamed it, or its disk is gone."""
        return not self.path.is_dir()

    def remove(self) -> None:
        """Remove a run that could not start, and the folders above it that are then empty.

        config.json goes last: where something cannot be removed, the rest is still a run that can
        be resumed.
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
        """Replace config.json and its signature; returns the changed run.

        Only for keys that a resume may change.

        `device` is the one that the resume names, which may be auto.
        """
        asked = self.asked if device is None else self.asked.change(device=device)
        asked = config.override(asked.automatic())
        text = asked.to_json()
        self._write("config.json", text)
        with contextlib.suppress(ConfigError):  # a damaged meta.json has no signature to renew
            meta = self.read_meta() | {_RESOLVED: _resolved(config, asked),
                                       SIGNATURE: signature(text)}
            self._write("meta.json", json.dumps(meta, indent=2))
        return RunDirectory(self.path, config, asked)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json atomically; numbers that are not finite become null."""
        self._write("summary.json",
                    json.dumps({key: None if isinstance(value, float) and not math.isfinite(value)
                                else value for key, value in summary.items()}, indent=2))

    def _write(self, name: str, text: str) -> None:
        try:
            write_atomically(self.path / name, text)
        except OSError as error:
            raise VantageError(f"cannot write {self.path / name}: {error.strerror}; free space or "
                               "make the directory writable") from None

    def read_summary(self) -> dict[str, Any]:
        """The content of summary.json, empty if it does not exist. ConfigError if it is damaged."""
        path = self.path / "summary.json"
        return read_object(path) if os.path.lexists(path) else {}

    def summary_line(self) -> str:
        """The valid numbers and the status of summary.json in one line; empty if there are none."""
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
    """`asked` with its "auto" keys set to the values in `resolved`; warns if these are unusable."""
    if resolved is None:  # of a version whose config.json held these values
        return asked
    automatic = asked.automatic()
    try:
        if not isinstance(resolved, Mapping):
            raise ConfigError(f"{_RESOLVED} is {type(resolved).__name__}")
        return asked.override({name: value for name, value in resolved.items()
                               if name in automatic})
    except ConfigError as error:
        log.warning(f"{source}: {error}; the machine's own values are used instead, and a resume "
                    "is not exact")
        return asked
