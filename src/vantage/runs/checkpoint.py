"""Checkpoints of a run: written completely or not at all, verified on reading, with the one before as fall-back.

    <run>/checkpoints/step-000001000000/   the newest checkpoints
    <run>/best/                            the checkpoint with the best score
    <run>/replay/                          ACER's replay, which belongs to the checkpoint of the same step

Each holds <name>.safetensors for each group of tensors, state.json for everything else, and manifest.json with the size
and sha256 of each file. No pickle is read or written. One process at a time writes into a run, see `lock`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, contiguous_format

from vantage.errors import CheckpointError, ConfigError
from vantage.keys import read_json_object
from vantage.schedules import parse_number

log = logging.getLogger(__name__)

VERSION = 1
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+(\.safetensors|\.json)")
_STEP_NAME = re.compile(r"\.?(step-(\d{12,}))(\.new|\.old)?")
Groups = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint: groups of tensors on the CPU, each with its own memory, and everything else as JSON."""

    step: int
    tensors: Groups
    state: Mapping[str, Any]
    path: Path


def save(run: Path, step: int, *, tensors: Groups, state: Mapping[str, Any], keep: int, again: bool = False) -> Path:
    """Save under <run>/checkpoints, then prune all but the newest `keep` valid ones; returns the new path.

    A valid checkpoint of the same step is only replaced if `again`. After a CheckpointError earlier ones are intact.
    """
    path = run / "checkpoints" / f"step-{step:012d}"
    if again or not _is_valid(path):
        _put(path, step, tensors, state)
    # Damaged checkpoints do not count among those to keep, and stay for inspection.
    others = [other for other in _newest_first(path.parent).values() if other != path and _is_valid(other)]
    for other in others[keep - 1:]:
        with contextlib.suppress(OSError):  # one checkpoint too many does no harm
            os.rename(other, _aside(other, ".old"))  # so that a kill leaves no partial one under a valid name
            shutil.rmtree(_aside(other, ".old"))
    return path


def save_best(run: Path, step: int, *, tensors: Groups, state: Mapping[str, Any]) -> Path:
    """Replace <run>/best, as in `save`."""
    return _put(run / "best", step, tensors, state)


def save_replay(run: Path, step: int, *, tensors: Groups) -> Path:
    """Replace <run>/replay, as in `save`."""
    return _put(run / "replay", step, tensors, {})


def _put(path: Path, step: int, tensors: Groups, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint aside, sync it, read it back, and rename it to `path`, replacing any other there."""
    content, new, old = json.dumps({"step": step, "state": state}), _aside(path, ".new"), _aside(path, ".old")
    try:
        if not path.parent.exists():
            path.parent.mkdir()
            _sync(path.parent.parent)
        _recover(path.parent)
        new.mkdir()
        # One group at a time: all groups of a replay may not fit into memory twice.
        files = {f"{name}.safetensors": _write_file(new / f"{name}.safetensors", safetensors.save({
            key: tensor.detach().cpu().clone(memory_format=contiguous_format) for key, tensor in group.items()}))
            for name, group in tensors.items()}
        files["state.json"] = _write_file(new / "state.json", content.encode())
        manifest = {"version": VERSION, "step": step, "files": files}
        _write_file(new / "manifest.json", json.dumps(manifest, indent=2).encode())
        _sync(new)
        if not _is_valid(new):
            raise CheckpointError(f"cannot save {path}: the disk returns other bytes than were written; replace it")
        # A kill or an error between the two renames leaves the former checkpoint complete where `_locate` looks.
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
        _sync(path.parent)
    except Exception as error:
        shutil.rmtree(new, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise CheckpointError(f"cannot save {path}: {error.strerror} ({errno.errorcode.get(error.errno or 0)}); free "
                              "space on that disk or make it writable; earlier checkpoints are untouched") from error
    shutil.rmtree(old, ignore_errors=True)
    return path


def _write_file(path: Path, data: bytes) -> dict[str, Any]:
    """Write and sync a file; returns its entry in the manifest."""
    path.write_bytes(data)
    _sync(path)
    return _entry(data)


def _entry(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _aside(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}{suffix}")


def _locate(path: Path) -> Path | None:
    """Where the checkpoint of `path` is: there, or where a kill between two renames left it."""
    aside = (_aside(path, ".new"), _aside(path, ".old"))
    return path if path.exists() else next((other for other in aside if _is_valid(other)), None)


def _recover(folder: Path) -> None:
    """Bring back the checkpoints that a kill left aside in `folder`, and remove what else it left."""
    for aside in folder.glob(".*.*"):
        if aside.suffix in (".new", ".old") and aside.is_dir():
            path = aside.with_name(aside.stem[1:])
            if (whole := _locate(path)) not in (None, path):
                os.rename(whole, path)
                _sync(folder)
            shutil.rmtree(aside, ignore_errors=True)


def load(path: Path) -> Checkpoint:
    """The verified checkpoint in the directory `path`; CheckpointError names the damaged file."""
    step, files = _read_manifest(path)
    saved = _parse(path / "state.json", _read_verified(path / "state.json", files["state.json"]))
    if saved.get("step") != step or not isinstance(saved.get("state"), dict):
        raise CheckpointError(f"{path}: state.json is of step {saved.get('step')}, manifest.json of step {step}")
    return Checkpoint(step, dict(_read_groups(path, files)), saved["state"], path)


def load_replay(run: Path) -> tuple[int, Iterator[tuple[str, Mapping[str, Tensor]]]] | None:
    """The step of the saved replay, and an iterator over its groups, which may raise CheckpointError; None without."""
    if (path := _locate(run / "replay")) is None:
        return None
    step, files = _read_manifest(path)
    return step, _read_groups(path, files)


def load_latest(run: Path) -> Checkpoint:
    """The newest valid checkpoint; logs what is wrong with newer ones. CheckpointError if there is none."""
    damaged: list[str] = []
    for path in _newest_first(run / "checkpoints").values():
        try:
            checkpoint = load(path)
        except CheckpointError as error:
            damaged.append(str(error))
        else:
            for message in damaged:
                log.warning(message)
            return checkpoint
    raise CheckpointError("\n  ".join([f"{run} has no valid checkpoint; wait for its first save while it trains, "
                                       "restore one from a copy, or start again with `vantage train`", *damaged]))


def load_named(run: Path, name: str = "auto", *, key: str = "checkpoint") -> Checkpoint:
    """The checkpoint called `latest`, `best`, a step such as 1000000 or 1M, or `auto`: a valid best, else the latest.

    ConfigError, which calls the option `key`, if there is none; CheckpointError if it is damaged.
    """
    best = _locate(run / "best")
    if name in ("auto", "best") and best is not None:
        try:
            return load(best)
        except CheckpointError as error:
            if name == "best":
                raise
            log.warning(str(error))
    if name in ("auto", "latest"):
        return load_latest(run)
    steps = _newest_first(run / "checkpoints")
    try:
        return load(steps[int(parse_number(name.removeprefix("step-")))])
    except (KeyError, ValueError, OverflowError):
        names = ", ".join(["best"] * (best is not None) + [str(step) for step in steps]) or "none"
        raise ConfigError(f"{key}={name!r}: {run} has no {name} checkpoint; it has {names}") from None


def newest_step(run: Path) -> int | None:
    """The step of the newest checkpoint, which is not read; None if there is none."""
    return next(iter(_newest_first(run / "checkpoints")), None)


@contextlib.contextmanager
def fitting(path: Path, config: str = "config.json") -> Iterator[None]:
    """Turn errors of loading the tensors of `path` into a ConfigError of one line: they do not match `config`."""
    try:
        yield
    except (KeyError, RuntimeError, ValueError) as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise ConfigError(f"{path} does not fit {config}, as if that had been edited since: {reason}; restore it"
                          ) from None


def _newest_first(folder: Path) -> dict[int, Path]:
    """The checkpoints in `folder` by step, also those that a kill left aside."""
    entries = folder.iterdir() if folder.is_dir() else ()
    names = {int(match[2]): match[1] for entry in entries if (match := _STEP_NAME.fullmatch(entry.name))}
    paths = {step: _locate(folder / names[step]) for step in sorted(names, reverse=True)}
    return {step: path for step, path in paths.items() if path is not None}


# A manifest may come from someone else: it may only name files in its own directory.


def _read_manifest(path: Path) -> tuple[int, dict[str, Any]]:
    """The step, and for each file its entry, which is not checked."""
    manifest = _parse(path / "manifest.json", _read_file(path / "manifest.json"))
    step, files = manifest.get("step"), manifest.get("files")
    if manifest.get("version") != VERSION or type(step) is not int or not isinstance(files, dict) \
            or "state.json" not in files:
        raise CheckpointError(f"{path}: manifest.json is damaged or of another version: {manifest!s:.200}")
    if wrong := [name for name in files if not _FILE_NAME.fullmatch(name)]:
        raise CheckpointError(f"{path}: manifest.json names {wrong[0]!r}, which is not a file of a checkpoint")
    return step, files


def _read_groups(path: Path, files: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    for name, entry in files.items():
        if name.endswith(".safetensors"):
            try:
                views = safetensors.load(_read_verified(path / name, entry))
            except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
                raise CheckpointError(f"{path}: {name} is not a safetensors file: {error}") from None
            # Clone into torch's aligned memory: the views point into Python's bytes, aligned or not.
            yield name.removesuffix(".safetensors"), {key: views.pop(key).clone() for key in sorted(views)}


def _is_valid(path: Path) -> bool:
    """Whether every file matches the manifest."""
    with contextlib.suppress(CheckpointError):
        for name, entry in _read_manifest(path)[1].items():
            _read_verified(path / name, entry)
        return True
    return False


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path.parent}: {path.name} cannot be read: {error.strerror}") from None


def _read_verified(path: Path, entry: object) -> bytes:
    data = _read_file(path)
    if (actual := _entry(data)) != entry:
        raise CheckpointError(f"{path.parent}: {path.name} is damaged: it has {actual}, manifest.json says {entry}")
    return data


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return read_json_object(data.decode(), source=path.name)
    except (ConfigError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path.parent}: {path.name} is damaged: {error}") from None
