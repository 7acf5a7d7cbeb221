"""Checkpoints on disk: written whole or not at all, verified before they are used. What is in them is the caller's.

    <run>/checkpoints/step-000001000000/   <name>.safetensors for each group of tensors, state.json for the rest,
                                           manifest.json with the size and sha256 of each file
    <run>/best/                            the same
    <run>/replay/                          the same, of ACER's replay; it goes with the checkpoint of its step

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from vantage.errors import CheckpointError, ConfigError
from vantage.schedule import parse_number

VERSION = 1
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+(\.safetensors|\.json)")
_STEP_NAME = re.compile(r"step-(\d{12,})")
_SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was saved: groups of tensors on the CPU, each owning its memory, and the rest as JSON."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    path: Path
    skipped: tuple[str, ...] = ()
    """What was wrong with each newer checkpoint that could not be used."""


def save(run: Path, step: int, *, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any],
         keep: int) -> Path:
    """Save under <run>/checkpoints and prune all but the newest `keep` valid ones; the path it was saved at.

    Older ones are pruned only after the new one has been read back. A valid checkpoint of the same step is left as it
    is, a bad one replaced. Raises CheckpointError if it cannot be written; the former ones are then intact.
    """
    path = run / "checkpoints" / f"step-{step:012d}"
    with _explaining(path):
        if not path.parent.exists():
            path.parent.mkdir()
            _sync_directory(run)
        _sweep(path.parent)
        if not (path.exists() and _is_valid(path)):
            new = _write(path, step, tensors, state)
            _put_in_place(new, path)
        _prune(path.parent, keep, just_saved=path)
    return path


def save_best(run: Path, step: int, *, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Replace <run>/best by this one. Raises CheckpointError if it cannot be written; the former one is then intact."""
    return _save_single(run / "best", step, tensors, state)


def save_replay(run: Path, step: int, *, tensors: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Replace <run>/replay by this one. Raises CheckpointError if it cannot be written; the former one is then intact.

    Both are on the disk for a moment.
    """
    return _save_single(run / "replay", step, tensors, {})


def load_replay(run: Path) -> tuple[int, Iterator[tuple[str, Mapping[str, Tensor]]]] | None:
    """The step of the saved replay, and its groups one at a time as they were given; None if there is none.

    CheckpointError if it is bad, also from the iterator.
    """
    path = _find_single(run / "replay")
    if path is None:
        return None
    step, files = _read_manifest(path)
    return step, ((name.removesuffix(_SUFFIX), _parse_tensors(path / name, _read_verified(path / name, *expected)))
                  for name, expected in files.items() if name.endswith(_SUFFIX))


def _save_single(path: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    run = path.parent
    with _explaining(path):
        found = _find_single(path)
        if found is not None and found != path:  # a kill came between the two renames of `_put_in_place`
            os.rename(found, path)
            _sync_directory(run)
        _sweep(run, path.name)
        new = _write(path, step, tensors, state)
        _put_in_place(new, path)
    return path


def load(path: Path) -> Checkpoint:
    """The checkpoint in the directory `path`, verified; CheckpointError names the file that is bad."""
    try:
        step, files = _read_manifest(path)
        tensors = {name.removesuffix(_SUFFIX): _parse_tensors(path / name, _read_verified(path / name, size, digest))
                   for name, (size, digest) in files.items() if name.endswith(_SUFFIX)}
        saved = _parse_json(path / "state.json", _read_verified(path / "state.json", *files["state.json"]))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if saved.get("step") != step or not isinstance(saved.get("state"), dict):
        raise CheckpointError(f"{path}: state.json is of step {saved.get('step')}, manifest.json of step {step}")
    return Checkpoint(step, tensors, saved["state"], path)


def load_latest(run: Path) -> Checkpoint:
    """The newest checkpoint that is valid; `skipped` says why newer ones are not. CheckpointError if there is none."""
    skipped: list[str] = []
    for path in _newest_first(run / "checkpoints"):
        try:
            return replace(load(path), skipped=tuple(skipped))
        except CheckpointError as error:
            skipped.append(str(error))
    if not skipped:
        raise CheckpointError(f"{run} has no checkpoint yet: nothing was saved; where it still trains, wait for its "
                              "first save, else start it again with `vantage train`")
    raise CheckpointError("\n  ".join([f"{run} has no valid checkpoint left; restore one from a copy:", *skipped]))


def newest_step(run: Path) -> int | None:
    """The step of the newest checkpoint, unread; None if there is none."""
    return next((_step_of(path) for path in _newest_first(run / "checkpoints")), None)


def load_named(run: Path, name: str = "auto", *, key: str = "checkpoint") -> Checkpoint:
    """The checkpoint a person means by `latest`, `best`, a step such as 1000000 or 1M, or `auto`: best, else latest.

    ConfigError if there is none of that name, CheckpointError if it is bad; auto goes on to the latest, and says so.
    """
    if name == "latest":
        return load_latest(run)
    if name in ("auto", "best"):
        best = _find_single(run / "best")
        try:
            if best is not None:
                return load(best)
        except CheckpointError as error:
            if name == "best":
                raise
            latest = load_latest(run)
            return replace(latest, skipped=(str(error), *latest.skipped))
        if name == "auto":
            return load_latest(run)
        raise ConfigError(f"{run} has no best checkpoint{_available(run)}")
    try:
        step = int(parse_number(name.removeprefix("step-")))
    except (ValueError, OverflowError):
        raise ConfigError(f"{key}={name!r} is not auto, latest, best or a step{_available(run)}") from None
    path = run / "checkpoints" / f"step-{step:012d}"
    if not path.exists():
        raise ConfigError(f"{run} has no checkpoint of step {step}{_available(run)}")
    return load(path)


@contextlib.contextmanager
def fitting(path: Path, config: str = "config.json") -> Iterator[None]:
    """What refuses the tensors of `path` within, as a ConfigError of one line: they are not what `config` describes."""
    try:
        yield
    except (KeyError, RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        said = " ".join(lines[:2]) + (f" And {len(lines) - 2} more" if len(lines) > 2 else "")
        raise ConfigError(f"{path} does not fit {config}, as if that had been edited since: {said}; restore it"
                          ) from None


def _available(run: Path) -> str:
    names = ["best"] * (_find_single(run / "best") is not None)
    names += [str(_step_of(path)) for path in _newest_first(run / "checkpoints")]
    return f"; it has {', '.join(names)}" if names else "; it has none"


def _newest_first(folder: Path) -> list[Path]:
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in paths if _STEP_NAME.fullmatch(path.name)), key=_step_of, reverse=True)


def _step_of(path: Path) -> int:
    match = _STEP_NAME.fullmatch(path.name)
    return int(match[1]) if match else -1


# Writing. A directory is filled under a name with a leading dot, synced, read back, and only then renamed; whatever a
# kill leaves behind has a leading dot and is removed by the next save.


def _new_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _old_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _sweep(folder: Path, name: str = "*") -> None:
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
            files[f"{name}{_SUFFIX}"] = _write_file(new / f"{name}{_SUFFIX}", safetensors.save(_savable(group)))
        files["state.json"] = _write_file(new / "state.json", text.encode())
        manifest = {"version": VERSION, "step": step, "files": files}
        _write_file(new / "manifest.json", json.dumps(manifest, indent=2).encode())
        _sync_directory(new)
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


def _write_file(path: Path, data: bytes) -> dict[str, int | str]:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_in_place(new: Path, path: Path) -> None:
    """Rename `new` to `path`. What was there steps aside first and is removed last.

    A kill between the two renames leaves no `path`, but the new one and the old one complete beside it, where
    `_find_single` looks.
    """
    old = _old_name(path)
    try:
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
        _sync_directory(path.parent)
    except OSError:
        if old.exists() and not path.exists():
            os.rename(old, path)
        shutil.rmtree(new, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _find_single(path: Path) -> Path | None:
    """Where a checkpoint of which there is one is: under its own name, or where a kill between two renames left it."""
    if path.exists():
        return path
    if _new_name(path).exists() and _is_valid(_new_name(path)):
        return _new_name(path)
    return _old_name(path) if _old_name(path).exists() else None


def _prune(folder: Path, keep: int, *, just_saved: Path) -> None:
    """Remove all but the newest `keep` valid checkpoints. Bad ones do not count, and stay for whoever looks into it."""
    kept = 1
    for path in _newest_first(folder):
        if path == just_saved:
            continue
        if kept < keep:
            kept += _is_valid(path)
        elif _is_valid(path):
            with contextlib.suppress(OSError):  # what cannot be removed does no harm
                # Renamed first, so that a kill in the middle leaves no half checkpoint under a valid name.
                os.rename(path, _old_name(path))
                shutil.rmtree(_old_name(path))


@contextlib.contextmanager
def _explaining(path: Path) -> Iterator[None]:
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
    if _STEP_NAME.fullmatch(path.name) and _step_of(path) != step:
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


def _is_valid(path: Path) -> bool:
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
