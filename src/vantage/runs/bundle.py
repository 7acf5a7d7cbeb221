"""A checkpoint's directory on disk: written whole or not at all, verified when it is read. Which a run has, and which
is meant, is `checkpoint`'s.

    <path>/   <name>.safetensors for each group of tensors, state.json for the rest,
              manifest.json with the size and sha256 of each file

Nothing here reads or writes a pickle. One process at a time writes into a run.
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
    """The step that the directory is named after; None for one that is not, such as best."""
    match = _STEP_NAME.fullmatch(path.name)
    return int(match[1]) if match else None


# Writing. A directory is filled under a name with a leading dot, synced, read back, and only then renamed; whatever a
# kill leaves behind has a leading dot and is removed by the next save.


def put(path: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
    """Write a checkpoint at `path`, in place of what is there. OSError or CheckpointError leave that as it was."""
    _put_in_place(_write(path, step, tensors, state), path)


def _new_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _old_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def sweep(folder: Path, name: str = "*") -> None:
    """Remove from `folder` what kills have left of the directory `name`, or of all."""
    for pattern in (f".{name}.new", f".{name}.old"):
        for path in folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _write(path: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """The checkpoint complete and verified under its temporary name. What is in memory is one group at a time."""
    # What the caller got wrong is raised before anything is written.
    for name in tensors:
        if not _FILE_NAME.fullmatch(f"{name}{_SUFFIX}"):
            raise ValueError(f"{name!r} cannot name a file of tensors: use letters, digits and _")
    text = json.dumps({"step": step, "state": state})
    new = _new_name(path)
    new.mkdir()
    try:
        files = {}
        for name, group in tensors.items():
            files[f"{name}{_SUFFIX}"] = write_file(new / f"{name}{_SUFFIX}", safetensors.save(_savable(group)))
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
    """Contiguous tensors on the CPU that share no memory, as safetensors wants them; clones only where they must be."""
    seen: set[int] = set()
    result = {}
    for name, tensor in group.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        if storage in seen:
            tensor = tensor.clone()
        seen.add(storage)
        result[name] = tensor
    return result


def write_file(path: Path, data: bytes) -> dict[str, int | str]:
    """Write a new file and sync it; its entry in the manifest."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def sync_directory(path: Path) -> None:
    """Let the names in the directory `path` survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_in_place(new: Path, path: Path) -> None:
    """Rename `new` to `path`. What was there steps aside first and is removed last.

    A kill between the two renames leaves no `path`, but the new one and the old one complete beside it, where
    `find` looks.
    """
    old = _old_name(path)
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


def find(path: Path) -> Path | None:
    """Where a checkpoint of which there is one is: under its own name, or where a kill between two renames left it."""
    if path.exists():
        return path
    if _new_name(path).exists() and is_valid(_new_name(path)):
        return _new_name(path)
    return _old_name(path) if _old_name(path).exists() else None


def remove(path: Path) -> None:
    """Remove the directory `path`. Renamed first: a kill in the middle leaves no half checkpoint under a valid name."""
    os.rename(path, _old_name(path))
    shutil.rmtree(_old_name(path))


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """An OSError while `path` is being saved, as a CheckpointError with its remedy."""
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


# Reading. A manifest may come from a stranger: it names plain files of its own directory, or it is refused.


def read(path: Path) -> tuple[int, dict[str, dict[str, Tensor]], dict[str, Any]]:
    """The step, the groups of tensors and the state at `path`, verified; CheckpointError names the file that is bad."""
    try:
        step, files = _read_manifest(path)
        tensors = {name.removesuffix(_SUFFIX): _parse_tensors(path / name, _read_verified(path / name, size, digest))
                   for name, (size, digest) in files.items() if name.endswith(_SUFFIX)}
        saved = _parse_json(path / "state.json", _read_verified(path / "state.json", *files["state.json"]))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if saved.get("step") != step or not isinstance(saved.get("state"), dict):
        raise CheckpointError(f"{path}: state.json is of step {saved.get('step')}, manifest.json of step {step}")
    return step, tensors, saved["state"]


def read_groups(path: Path) -> tuple[int, Iterator[tuple[str, dict[str, Tensor]]]]:
    """The step at `path`, and its groups of tensors one at a time; CheckpointError if one is bad."""
    step, files = _read_manifest(path)
    return step, ((name.removesuffix(_SUFFIX), _parse_tensors(path / name, _read_verified(path / name, *expected)))
                  for name, expected in files.items() if name.endswith(_SUFFIX))


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


def _check_digest(path: Path, found: str, digest: str) -> None:
    if found != digest:
        raise CheckpointError(f"{path.parent}: {path.name} has sha256 {found}, manifest says {digest}")


def _read_verified(path: Path, size: int, digest: str) -> bytes:
    _check_size(path, size)
    data = path.read_bytes()
    _check_digest(path, hashlib.sha256(data).hexdigest(), digest)
    return data


def _verify(path: Path) -> None:
    """Raise CheckpointError unless each file is as the manifest says. Reads in pieces: a replay may be large."""
    for name, (size, digest) in _read_manifest(path)[1].items():
        _check_size(path / name, size)
        with (path / name).open("rb") as file:
            _check_digest(path / name, hashlib.file_digest(file, "sha256").hexdigest(), digest)


def is_valid(path: Path) -> bool:
    """Each file at `path` is as its manifest says."""
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
    # Cloned into torch's own aligned memory: the views lie wherever Python had put the bytes.
    return {name: torch.clone(views.pop(name)) for name in sorted(views)}
