"""The directory of one checkpoint: written under a temporary name, verified and renamed.

It holds <name>.safetensors for each group of tensors, state.json for everything else, and
manifest.json with the size and sha256 of each file. `checkpoint` chooses among the checkpoints of
a run.
"""

from __future__ import annotations

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
    """Write a checkpoint under a temporary name, verify it, then rename it to `path`.

    It replaces a former checkpoint at `path`.
    """
    content = json.dumps({"step": step, "state": state})
    new = _temporary(path, ".new")
    old = _temporary(path, ".old")
    try:
        if not path.parent.exists():
            path.parent.mkdir()
            sync(path.parent.parent)
        _recover(path.parent)
        new.mkdir()
        files = {}
        # One group at a time: all groups of a replay may not fit into memory twice.
        for name, group in tensors.items():
            copies = {key: tensor.detach().cpu().clone(memory_format=contiguous_format)
                      for key, tensor in group.items()}
            file = f"{name}.safetensors"
            files[file] = _write_file(new / file, safetensors.save(copies))
        files["state.json"] = _write_file(new / "state.json", content.encode())
        manifest = {"version": VERSION, "step": step, "files": files}
        _write_file(new / "manifest.json", json.dumps(manifest, indent=2).encode())
        sync(new)
        if not is_valid(new):
            raise OSError(errno.EIO, "the disk returns other bytes than were written")
        # `locate` finds the former checkpoint after a kill or an error between the two renames.
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


def _temporary(path: Path, suffix: str) -> Path:
    """A path beside `path`: .new of an incomplete checkpoint, .old of one being replaced."""
    return path.with_name(f".{path.name}{suffix}")


def locate(path: Path) -> Path | None:
    """`path`, or where a kill between two renames left its checkpoint; None without one."""
    for place in (path, _temporary(path, ".old")):
        if place.exists():
            return place
    return None


def _recover(folder: Path) -> None:
    """Restore checkpoints that a kill left renamed in `folder`, and remove incomplete ones."""
    for temporary in folder.glob(".*.*"):
        path = temporary.with_name(temporary.stem[1:])
        if temporary.suffix == ".old" and not path.exists():
            os.rename(temporary, path)
            sync(folder)
        elif temporary.suffix in (".old", ".new"):
            shutil.rmtree(temporary, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a checkpoint; a kill leaves no partial one under its name."""
    incomplete = _temporary(path, ".new")
    os.rename(path, incomplete)
    shutil.rmtree(incomplete)


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
    step: Any = manifest.get("step")
    files: Any = manifest.get("files")
    is_step = type(step) is int and 0 <= step < 10**18
    has_state = isinstance(files, dict) and "state.json" in files
    if manifest.get("version") != VERSION or not is_step or not has_state:
        raise CheckpointError(f"{path}: manifest.json is damaged or of another version: "
                              f"{manifest!s:.200}")
    if path.name.startswith("step-") and path.name != f"step-{step:012d}":
        raise CheckpointError(f"{path}: manifest.json is of step {step}; rename the folder to "
                              f"step-{step:012d}")
    for name in files:
        if not _FILE_NAME.fullmatch(name):
            raise CheckpointError(f"{path}: manifest.json names {name!r}, which is not a file of "
                                  "a checkpoint")
    return step, files


def _read_groups(path: Path, files: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    for name, entry in files.items():
        if not name.endswith(".safetensors"):
            continue
        try:
            views = safetensors.load(_read_verified(path / name, entry))
        except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
            raise CheckpointError(f"{path}: {name} is not a safetensors file: {error}") from None
        # Clone into torch's aligned memory: the views point into Python's bytes.
        tensors = {key: views.pop(key).clone() for key in sorted(views)}
        yield name.removesuffix(".safetensors"), tensors


def is_valid(path: Path) -> bool:
    """Whether every file matches the manifest."""
    try:
        _, files = _read_manifest(path)
        for name, entry in files.items():
            _read_verified(path / name, entry)
    except CheckpointError:
        return False
    return True


def _read_file(path: Path, size: object = None) -> bytes:
    """The content of a file, which must have `size` bytes if given; JSON files are bounded."""
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            actual = os.fstat(file.fileno()).st_size
            if size not in (None, actual):  # not read: it may be far larger
                raise CheckpointError(f"{path.parent}: {path.name} is damaged: it has {actual:,} "
                                      f"bytes, manifest.json says {size!s:.40}")
            if path.suffix == ".json":
                return read_small(file, path.name, _LARGEST_JSON)
            return file.read()
    except OSError as error:
        raise CheckpointError(
            f"{path.parent}: {path.name} cannot be read: {error.strerror}") from None
    except MemoryError:
        raise CheckpointError(f"{path.parent}: {path.name} is larger than the memory") from None
    except ConfigError as error:
        raise CheckpointError(str(error)) from None


def _read_verified(path: Path, entry: object) -> bytes:
    data = _read_file(path, entry.get("size") if isinstance(entry, Mapping) else None)
    actual = _entry(data)
    if actual != entry:
        raise CheckpointError(f"{path.parent}: {path.name} is damaged: it has {actual}, "
                              f"manifest.json says {entry!s:.200}")
    return data


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    try:
        return read_json_object(data.decode(), source=path.name)
    except (ConfigError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path.parent}: {path.name} is damaged: {error}") from None
