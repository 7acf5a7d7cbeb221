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
from vantage.keys.objects import folder_name, is_code
from vantage.runs.files import read_text, working_directory, write_atomically
from vantage.runs.handed_over import (
    changed_code,
    check_objects,
    code_digests,
    digests,
    replacing,
    sources,
)
from vantage.runs.meta import describe_run, other_version, read_meta_file, read_object, reading
from vantage.runs.names import directory_name, folder_of, make_directory, suggest_run
from vantage.runs.trust import SIGNATURE, check_code, connections, foreign_code, is_own, signature

log = logging.getLogger(__name__)

_RESOLVED = "resolved"
"""Key of meta.json: the values that were used for the keys that config.json leaves open."""
_CODE = "code"
"""Key of meta.json: digests of the user's code that acting needs."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """runs/<env>/<algo>-<n>/ and its config."""

    given: Path
    """Its path, which may be relative to `start`."""
    config: Config
    """The config in use, with the values that the machine decided."""
    asked: Config
    """The content of config.json, in which those are still left to the machine."""
    start: Path = field(default_factory=working_directory, compare=False)
    """The working directory when it was created or opened."""

    @property
    def path(self) -> Path:
        """`given`, or absolute if the working directory has changed since."""
        return self.given if working_directory() == self.start else self.start / self.given

    @classmethod
    def create(cls, config: Config, *, asked: Config | None = None, path: Path | None = None,
               root: Path = Path("runs"), argv: Sequence[str] | None = None) -> RunDirectory:
        """Create a run directory at `path`, or at the next free number under `root`.

        Keys that `asked` leaves to the machine, by default none, stay so in config.json; meta.json
        holds their values in `config`. `argv` is the command for meta.json, by default sys.argv.
        After a ConfigError nothing is left on the disk.
        """
        made = None
        try:
            str(path or root).encode()  # TensorBoard and safetensors cannot write other names
            asked = config if asked is None else config.override(asked.automatic())
            text = asked.to_json()
            meta = describe_run(config, sys.argv if argv is None else argv)
            meta[_RESOLVED] = _resolved(config, asked)
            meta[SIGNATURE] = signature(text)
            code = {"sources": sources(config), "digests": digests(config),
                    _CODE: code_digests(config)}
            meta |= {key: texts for key, texts in code.items() if texts}
            made = path = make_directory(path, folder_of(config, root), config)
            write_atomically(path / "meta.json", json.dumps(meta, indent=2))
            # The config comes last: a directory is a run once it holds one.
            write_atomically(path / "config.json", text)
        except BaseException as error:
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
            if not isinstance(error, OSError | ValueError):
                raise
            reason = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
            raise ConfigError(f"cannot create a run directory at {str(path or root)!r}: {reason}; "
                              "choose another place with --run") from None
        return cls(path, config, asked)

    @classmethod
    def open(cls, path: Path, *, trust: bool = False, runs_code: bool = False, trains: bool = False,
             objects: Mapping[str, Any] | None = None, call: str = "") -> RunDirectory:
        """The run at `path`; ConfigError suggests another if there is none.

        Reading a config imports the module of an algorithm with an import path. With `runs_code`
        the caller will also import those of network and environment, and with `trains` connect to
        other machines that the config names. In a run of someone else, foreign code and connections
        are a ConfigError without `trust`. `objects` are those `handed_over`; ConfigError if the
        function `call` of Vantage needs more.
        """
        objects = objects or {}
        source = path / "config.json"
        if not os.path.lexists(source):
            reason = "no such run directory"
            if os.path.exists(path):  # False for a name that is too long
                reason = "not a run directory: it has no config.json"
            raise ConfigError(f"{path}: {reason}{suggest_run(path)}")
        with reading(source):
            text = read_text(source)
            values = read_json_object(text, source=str(source))
            paths = foreign_code(values, runs_code=runs_code, given=objects)
        meta, damage = read_meta_file(path / "meta.json")
        signed = meta.get(SIGNATURE)
        own = is_own(text, signed)
        check_code(paths, source=str(source), trusted=trust or own,
                   connects=connections(values) if trains else ())
        if runs_code and isinstance(signed, str) and not own:
            log.warning(f"{source} is not as Vantage wrote it on this machine: edited, damaged or "
                        "from elsewhere")
        remedy = other_version(meta.get("versions"))
        if "algo" in objects:
            remedy = "hand over the algorithm that the run was trained with, or leave algorithm= out"
        elif is_code(str(values.get("algo"))) and not remedy:
            remedy = ("restore what the class of its algorithm had when it was trained, or begin a "
                      f"new run with init_from={str(path)!r}")
        with reading(source, remedy):
            asked = Config.from_json(text, source=str(source), objects=replacing(objects),
                                     trains=trains)
        check_objects(asked, objects, path, call)
        if damage and runs_code:
            log.warning(f"{damage}; who wrote the run, with which versions and on what device, is "
                        "unknown")
        config = _with_resolved(asked, meta.get(_RESOLVED), source=path / "meta.json")
        if runs_code and (names := changed_code(config, meta.get(_CODE))):
            log.warning(f"the code of {' and '.join(names)} has changed since {path} was saved, so "
                        "that its policy may act otherwise than it was trained to")
        return cls(path, config, asked)

    @property
    def is_gone(self) -> bool:
        """Whether the directory was deleted or renamed, or its disk is gone."""
        return not self.path.is_dir()

    def remove(self) -> None:
        """Remove a run that could not start, and the folders above it if they are empty then.

        config.json is removed last, so that a run that cannot be removed can be resumed.
        """
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self.path), key=lambda name: name == "config.json"):
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
        """Replace config.json and its signature, for keys that a resume may change.

        Returns the changed run. `device` is the one that the resume names, which may be auto.
        """
        asked = self.asked if device is None else self.asked.change(device=device)
        asked = config.override(asked.automatic())
        text = asked.to_json()
        self._write("config.json", text)
        with contextlib.suppress(ConfigError):  # a damaged meta.json has no signature to renew
            meta = self.read_meta() | {_RESOLVED: _resolved(config, asked),
                                       SIGNATURE: signature(text), _CODE: code_digests(config)}
            self._write("meta.json", json.dumps(meta, indent=2))
        return replace(self, config=config, asked=asked)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Replace summary.json atomically; numbers that are not finite become null."""
        values = dict(summary)
        for key, value in summary.items():
            if isinstance(value, float) and not math.isfinite(value):
                values[key] = None
        self._write("summary.json", json.dumps(values, indent=2))

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
        words = []
        for name in ("steps", "seconds", "episodes"):
            value = summary.get(name)
            if isinstance(value, int | float) and 0 <= value < 1e18:
                words.append(f"{value:,.0f} {name}")
        if summary.get("status") in ("running", "done", "interrupted", "failed"):
            words.append(summary["status"])
        return ", ".join(words)

    def read_meta(self) -> dict[str, Any]:
        """The content of meta.json: the command and the machine. ConfigError if it is damaged."""
        return read_object(self.path / "meta.json")


def _resolved(config: Config, asked: Config) -> dict[str, Any]:
    """The values in `config` of the keys that `asked` leaves to the machine."""
    flat = config.flat()
    return {name: flat[name] for name in asked.automatic()}


def _with_resolved(asked: Config, resolved: object, *, source: Path) -> Config:
    """`asked` with the values in `resolved` for its automatic keys; warns if they are unusable."""
    if resolved is None:  # earlier versions wrote these values to config.json
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
