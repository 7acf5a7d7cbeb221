"""The directory of one checkpoint: written aside, verified and renamed.

`checkpoint` chooses among the checkpoints of a run.

It holds <name>.safetensors for each group of tensors, state.json for everything else, and manifest.json with the size
and sha256 of each file. No pickle is read or written.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, contiguous_format

from vantage.errors import CheckpointError, ConfigError
from vantage.keys.fields import read_json_object
from vantage.runs.files import open_file, read_small, sync

VERSION = 2
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+(\.safetensors|\.json)")
_LARGEST_JSON = 1 << 28
Groups = Mapping[str, Mapping[str, Tensor]]


def write(path: Path, step: int, tensors: Groups, state: Mapping[str, Any]) -> None:
    """Write a checkpoint aside, sync and verify it, then rename it to `path`.

    Replaces any other there.
    """
    content, new, old = json.dumps({"step": step, "state": state}), _aside(path, ".new"), _aside(path, ".old")
    try:
        if not path.parent.exists():
            path.parent.mkdir()
            sync(path.parent.parent)
        _recover(path.parent)
        new.mkdir()
        # One group at a time: all groups of a replay may not fit into memory twice.
        files = {f"{name}.safetensors": _write_file(new / f"{name}.safetensors", safetensors.save({
            key: tensor.detach().cpu().clone(memory_format=contiguous_format) for key, tensor in group.items()}))
            for name, group in tensors.items()}
        files["state.json"] = _write_file(new / "state.json", content.encode())
        manifest = {"version": VERSION, "step": step, "files": files}
        _write_file(new / "manifest.json", json.dumps(manifest, indent=2).encode())
        sync(new)
        if not is_valid(new):
            raise OSError(errno.EIO, "the disk returns other bytes than were written")
        # A kill or an error between the two renames leaves the former checkpoint where `locate`
        # looks.
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
        sync(path.parent)
    except Exception:
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write_file(path: Path, data: bytes) -> dict[str, Any]:
    """Write and sync a file; returns its entry in the manifest."""
    path.write_bytes(data)
    sync(path)
    return _entry(data)


def _entry(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _aside(path: Path, suffix: str) -> Path:
    """Temporary path beside `path`: .new for an incomplete checkpoint, .old for one being replaced."""
    return path.with_name(f".{path.name}{suffix}")


def locate(path: Path) -> Path | None:
    """Where the checkpoint of `path` is: there, or where a kill between two renames left it."""
    return next((place for place in (path, _aside(path, ".old")) if place.exists()), None)


def _recover(folder: Path) -> None:
    """Restore checkpoints that a kill left renamed in `folder`, and remove incomplete ones."""
    for aside in folder.glob(".*.*"):
        path = aside.with_name(aside.stem[1:])
        if aside.suffix == ".old" and not path.exists():
            os.rename(aside, path)
            sync(folder)
        elif aside.suffix in (".old", ".new"):
            shutil.rmtree(aside, ignore_errors=True)


def remove(path: Path) -> None:
    os.rename(path, _aside(path, ".new"))  # so that a kill leaves no partial one under a valid name
    shutil.rmtree(_aside(path, ".new"))


def read(path: Path) -> tuple[int, dict[str, Any], Iterator[tuple[str, dict[str, Tensor]]]]:
    """Step, state, and an iterator over the tensor groups; each file is verified.

    CheckpointError names the damaged file.
    """
    step, files = _read_manifest(path)
    saved = _parse(path / "state.json", _read_verified(path / "state.json", files["state.json"]))
    if saved.get("step") != step or not isinstance(saved.get("state"), dict):
        raise CheckpointError(f"{path}: state.json is of step {saved.get('step')!s:.80}, "
                              f"manifest.json of step {step}")
    return step, saved["state"], _read_groups(path, files)


def _read_manifest(path: Path) -> tuple[int, dict[str, Any]]:
    """The step, and the unchecked manifest entry of each file.

    CheckpointError for names outside the directory.
    """
    manifest = _parse(path / "manifest.json", _read_file(path / "manifest.json"))
    step, files = manifest.get("step"), manifest.get("files")
    if manifest.get("version") != VERSION or type(step) is not int or not 0 <= step < 10**18 \
            or not isinstance(files, dict) or "state.json" not in files:
        raise CheckpointError(f"{path}: manifest.json is damaged or of another version: "
                              f"{manifest!s:.200}")
    if path.name.startswith("step-") and path.name != f"step-{step:012d}":
        raise CheckpointError(f"{path}: manifest.json is of step {step}; rename the folder to "
                              f"step-{step:012d}")
    if wrong := [name for name in files if not _FILE_NAME.fullmatch(name)]:
        raise CheckpointError(f"{path}: manifest.json names {wrong[0]!r}, which is not a file of a "
                              "checkpoint")
    return step, files


def _read_groups(path: Path, files: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    for name, entry in files.items():
        if name.endswith(".safetensors"):
            try:
                views = safetensors.load(_read_verified(path / name, entry))
            except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
                raise CheckpointError(f"{path}: {name} is not a safetensors file: {error}") from None
            # Clone into torch's aligned memory: the views point into Python's bytes, aligned or
            # not.
            yield name.removesuffix(".safetensors"), {key: views.pop(key).clone() for key in sorted(views)}


def is_valid(path: Path) -> bool:
    """Whether every file matches the manifest."""
    with contextlib.suppress(CheckpointError):
        for name, entry in _read_manifest(path)[1].items():
            _read_verified(path / name, entry)
        return True
    return False


def _read_file(path: Path, size: object = None) -> bytes:
    """The content of a file, which has `size` bytes if that is given. JSON is bounded."""
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            actual = os.fstat(file.fileno()).st_size
            if size not in (None, actual):  # not read: it may be far larger
                raise CheckpointError(f"{path.parent}: {path.name} is damaged: it has {actual:,} "
                                      f"bytes, manifest.json says {size!s:.40}")
            return read_small(file, path.name,
                              _LARGEST_JSON) if path.suffix == ".json" else file.read()
    except OSError as error:
        raise CheckpointError(f"{path.parent}: {path.name} cannot be read: {error.strerror}") from None
    except MemoryError:
        raise CheckpointError(f"{path.parent}: {path.name} is larger than the memory") from None
    except ConfigError as error:
        raise CheckpointError(str(error)) from None


def _read_verified(path: Path, entry: object) -> bytes:
    data = _read_file(path, entry.get("size") if isinstance(entry, Mapping) else None)
    if (actual := _entry(data)) != entry:
        raise CheckpointError(f"{path.parent}: {path.name} is damaged: it has {actual}, "
                              f"manifest.json says {entry!s:.200}")
    return data


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return read_json_object(data.decode(), source=path.name)
    except (ConfigError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path.parent}: {path.name} is damaged: {error}") from None
