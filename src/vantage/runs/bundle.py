"""The directory of one checkpoint: written completely or not at all, verified on reading. `checkpoint` chooses one.

    <path>/   <name>.safetensors for each group of tensors, state.json for everything else,
              manifest.json with the size and sha256 of each file

No pickle is read or written. One process at a time writes into a run, see `lock`.
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

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from vantage.errors import CheckpointError

VERSION = 1
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+(\.safetensors|\.json)")
_STEP_NAME = re.compile(r"step-(\d{12,})")
_SUFFIX = ".safetensors"


def step_of(path: Path) -> int | None:
    """The step in the directory's name; None for other names, such as best."""
    match = _STEP_NAME.fullmatch(path.name)
    return int(match[1]) if match else None


# Writing. A directory is filled under a name with a leading dot, synced, read back and then renamed. After a kill, only
# names with a leading dot are left over, and the next save removes them.


def put(path: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Write a checkpoint to `path`, replacing any other. OSError and CheckpointError leave the former one intact."""
    new, old = _write(path, step, tensors, state), _old_name(path)
    # A kill between the two renames leaves both checkpoints complete beside `path`, where `find` looks.
    try:
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
        sync_directory(path.parent)
    except OSError:
        if old.exists() and not path.exists():
            os.rename(old, path)
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _new_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _old_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def sweep(folder: Path, name: str = "*") -> None:
    """Remove the leftovers of killed saves from `folder`, of all checkpoints or of the one called `name`."""
    for pattern in (f".{name}.new", f".{name}.old"):
        for path in folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _write(path: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Write the complete, verified checkpoint under its temporary name; holds one group in memory at a time."""
    # Raise the caller's errors before anything is written.
    for name in tensors:
        if not _FILE_NAME.fullmatch(f"{name}{_SUFFIX}"):
            raise ValueError(f"{name!r} cannot name a file of tensors: use letters, digits and _")
    text = json.dumps({"step": step, "state": state})
    new = _new_name(path)
    new.mkdir()
    try:
        files = {f"{name}{_SUFFIX}": write_file(new / f"{name}{_SUFFIX}", safetensors.save(_savable(group)))
                 for name, group in tensors.items()}
        files["state.json"] = write_file(new / "state.json", text.encode())
        manifest = {"version": VERSION, "step": step, "files": files}
        write_file(new / "manifest.json", json.dumps(manifest, indent=2).encode())
        sync_directory(new)
        _verify(new)
    except (OSError, CheckpointError):
        shutil.rmtree(new, ignore_errors=True)
        raise
    return new


def _savable(group: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous CPU tensors that share no memory, as safetensors requires."""
    seen: set[int] = set()
    savable = {}
    for name, tensor in group.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        savable[name] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return savable


def write_file(path: Path, data: bytes) -> dict[str, int | str]:
    """Write and sync a new file; returns its entry in the manifest."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def sync_directory(path: Path) -> None:
    """Sync a directory, so that the names in it survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find(path: Path) -> Path | None:
    """Where the checkpoint of `path` is: there, or where a kill between two renames left it; None if there is none."""
    if path.exists():
        return path
    new, old = _new_name(path), _old_name(path)
    if new.exists() and is_valid(new):
        return new
    return old if old.exists() else None


def remove(path: Path) -> None:
    """Remove a checkpoint. Renamed first, so that a kill leaves no partial checkpoint under a valid name."""
    os.rename(path, _old_name(path))
    shutil.rmtree(_old_name(path))


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn an OSError while `path` is saved into a CheckpointError with a remedy."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "no errno")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free space on that disk or lower keep_checkpoints"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "make the run directory writable"
        else:
            remedy = "check the disk"
        raise CheckpointError(f"cannot save {path}: {error.strerror} ({code}); {remedy}; "
                              "earlier checkpoints are untouched") from error


# Reading. A manifest may come from someone else: it may only name plain files in its own directory.


def read(path: Path) -> tuple[int, dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The verified step, groups of tensors and state of the checkpoint; CheckpointError names the damaged file."""
    try:
        step, files = _read_manifest(path)
        tensors = dict(_groups(path, files))
        saved = _parse_json(path / "state.json", _read_verified(path / "state.json", *files["state.json"]))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if saved.get("step") != step or not isinstance(saved.get("state"), dict):
        raise CheckpointError(f"{path}: state.json is of step {saved.get('step')}, manifest.json of step {step}")
    return step, tensors, saved["state"]


def read_groups(path: Path) -> tuple[int, Iterator[tuple[str, dict[str, Tensor]]]]:
    """The step of the checkpoint, and an iterator over its groups of tensors, which may raise CheckpointError."""
    step, files = _read_manifest(path)
    return step, _groups(path, files)


def _groups(path: Path, files: Mapping[str, tuple[int, str]]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    for name, expected in files.items():
        if name.endswith(_SUFFIX):
            yield name.removesuffix(_SUFFIX), _parse_tensors(path / name, _read_verified(path / name, *expected))


def _read_manifest(path: Path) -> tuple[int, dict[str, tuple[int, str]]]:
    """The step, and the size and sha256 of each file."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such checkpoint")
    source = path / "manifest.json"
    if not source.is_file():
        raise CheckpointError(f"{path}: manifest.json is missing")
    manifest = _parse_json(source, source.read_bytes())
    if manifest.get("version") != VERSION:
        raise CheckpointError(f"{path}: manifest.json has version {manifest.get('version')}, this Vantage reads "
                              f"{VERSION}; use the Vantage that wrote it")
    step, entries = manifest.get("step"), manifest.get("files")
    if type(step) is not int or not isinstance(entries, dict) or "state.json" not in entries:
        raise CheckpointError(f"{path}: manifest.json lacks a step, files, or state.json among them")
    if step_of(path) not in (None, step):
        raise CheckpointError(f"{path}: manifest.json is of step {step}")
    files = {}
    for name, entry in entries.items():
        if not _FILE_NAME.fullmatch(name) or (path / name).is_symlink():
            raise CheckpointError(f"{path}: manifest.json names {name!r}, which is not a plain file of the checkpoint")
        size, digest = (entry.get("size"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        if type(size) is not int or not isinstance(digest, str):
            raise CheckpointError(f"{path}: manifest.json has no size and sha256 of {name}")
        files[name] = (size, digest)
    return step, files


def _check_size(path: Path, size: int) -> None:
    if not path.is_file():
        raise CheckpointError(f"{path.parent}: {path.name} is missing")
    if path.stat().st_size != size:
        raise CheckpointError(f"{path.parent}: {path.name} has {path.stat().st_size} bytes, manifest says {size}")


def _check_digest(path: Path, actual: str, expected: str) -> None:
    if actual != expected:
        raise CheckpointError(f"{path.parent}: {path.name} has sha256 {actual}, manifest says {expected}")


def _read_verified(path: Path, size: int, digest: str) -> bytes:
    _check_size(path, size)
    data = path.read_bytes()
    _check_digest(path, hashlib.sha256(data).hexdigest(), digest)
    return data


def _verify(path: Path) -> None:
    """CheckpointError unless every file matches the manifest. Reads in pieces, because a replay may be large."""
    for name, (size, digest) in _read_manifest(path)[1].items():
        _check_size(path / name, size)
        with (path / name).open("rb") as file:
            _check_digest(path / name, hashlib.file_digest(file, "sha256").hexdigest(), digest)


def is_valid(path: Path) -> bool:
    """Whether every file of the checkpoint matches its manifest."""
    try:
        _verify(path)
    except (CheckpointError, OSError):
        return False
    return True


def _parse_json(path: Path, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.parent}: {path.name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path.parent}: {path.name} holds {type(value).__name__}, not an object")
    return value


def _parse_tensors(path: Path, data: bytes) -> dict[str, Tensor]:
    try:
        views = safetensors.load(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise CheckpointError(f"{path.parent}: {path.name} is not a safetensors file: {error}") from None
    # Clone into torch's aligned memory: the views point into Python's bytes, aligned or not.
    return {name: torch.clone(views.pop(name)) for name in sorted(views)}
