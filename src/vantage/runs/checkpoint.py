"""Checkpoints of a run: written atomically, verified on reading, with an older one as fall-back.

    <run>/checkpoints/step-000001000000/   the newest checkpoints
    <run>/best/                            the policy with the best score: weights, no optimiser
    <run>/replay/                          ACER's replay, of the checkpoint with the same step

`checkpoint_files` writes and reads them. One process at a time writes into a run, see `lock`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vantage._host.system import shortage
from vantage.errors import CheckpointError, ConfigError
from vantage.keys.schedules import parse_number
from vantage.runs.checkpoint_files import Groups, is_valid, locate, read, remove, write
from vantage.runs.metrics import read_metrics
from vantage.runs.validation import check_finite, check_state

log = logging.getLogger(__name__)

_STEP_NAME = re.compile(r"(?:step-(\d{12,18})|\.step-(\d{12,18})\.old)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint.

    Tensors are on the CPU, each with its own memory; `state` is everything else, as JSON.
    """

    step: int
    tensors: Groups
    state: Mapping[str, Any]
    path: Path


def path_of(run: Path, step: int) -> Path:
    """The directory of the checkpoint of `step`."""
    return run / "checkpoints" / f"step-{step:012d}"


def save(run: Path, step: int, *, tensors: Groups, state: Mapping[str, Any], keep: int,
         again: bool = False) -> Path:
    """Save under <run>/checkpoints and keep only the newest `keep` valid checkpoints.

    Returns the new path. A valid checkpoint of the same step is replaced only if `again`. After a
    CheckpointError the newest is intact.
    """
    path = path_of(run, step)
    if again or not is_valid(path):
        save_as(run, str(path.relative_to(run)), step, tensors=tensors, state=state)
    # Damaged checkpoints do not count, and stay for inspection.
    others = [other for other in _valid(run) if other != path]
    for other in others[keep - 1:]:
        with contextlib.suppress(OSError):  # one checkpoint too many does no harm
            remove(other)
    return path


def save_as(run: Path, name: str, step: int, *, tensors: Groups, state: Mapping[str, Any],
            may_remove: bool = True) -> Path:
    """Replace <run>/`name`; after a CheckpointError the former one is intact.

    While the disk is full, the run's oldest checkpoints are removed if they may be, but never its
    newest valid one.
    """
    path = run / name
    removed: list[str] = []
    try:
        while True:
            try:
                write(path, step, tensors, state)
                return path
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                spare = _valid(run)[1:] if may_remove and is_full else []
                if not spare:
                    code = errno.errorcode.get(error.errno or 0)
                    raise CheckpointError(
                        f"cannot save {path}: {error.strerror} ({code}); free space on that disk "
                        "or make it writable; the newest checkpoint is untouched") from error
                remove(spare[-1])
                removed.append(spare[-1].name)
    except (MemoryError, RuntimeError) as error:  # torch raises a RuntimeError without memory
        reason = shortage(error)
        if reason is None:
            raise
        raise CheckpointError(
            f"cannot save {path}: {reason}; the newest checkpoint is untouched") from error
    finally:
        if removed:
            log.warning(f"the disk is full: removed {', '.join(removed)} of {run} to save step "
                        f"{step:,}")


def load(path: Path) -> Checkpoint:
    """The verified checkpoint in the directory `path`; CheckpointError names the damaged file."""
    step, state, lazy_groups = read(path)
    groups = dict(lazy_groups)
    try:
        if "model" not in groups:
            raise ValueError("there is no model.safetensors")
        check_state(state)
        check_finite(groups)
    except ValueError as error:
        raise CheckpointError(
            f"{path} has correct hashes but holds no usable policy: {error}") from None
    return Checkpoint(step, groups, state, path)


def load_latest(run: Path) -> Checkpoint:
    """The newest valid checkpoint; logs why newer ones are not valid.

    CheckpointError if there is none.
    """
    checkpoint, errors = _first_valid(run, lambda: _newest_first(run / "checkpoints").values())
    if checkpoint is not None:
        for error in errors:
            log.warning(f"{error}; {checkpoint.path.name} is used instead")
        return checkpoint
    remedy = "restore one from a copy, or start again with `vantage train`"
    if _is_new(run):
        again = f"`vantage resume {shlex.quote(str(run))}`"
        remedy = f"wait for its first save, or begin it anew with {again}"
    raise CheckpointError("\n  ".join([f"{run} has no valid checkpoint; {remedy}",
                                       *map(str, errors)]))


def load_named(run: Path, name: str | int = "auto", *, key: str = "checkpoint") -> Checkpoint:
    """The checkpoint `name`: latest, best, a step such as 1000000 or 1M, or auto.

    auto is the best if there is a valid one, otherwise the latest. ConfigError, which calls the
    option `key`, if there is none; CheckpointError if it is damaged.
    """
    best = run / "best"
    if name in ("auto", "best") and locate(best) is not None:
        checkpoint, errors = _first_valid(run, lambda: [locate(best) or best])
        if checkpoint is None and name == "best":
            raise errors[0]
        if checkpoint is None:
            checkpoint = load_latest(run)
            log.warning(f"{errors[0]}; {checkpoint.path.name} is used instead")
        return checkpoint
    if name in ("auto", "latest"):
        return load_latest(run)
    try:
        step = int(parse_number(str(name).removeprefix("step-")))
        checkpoint, errors = _first_valid(run, lambda: [_newest_first(run / "checkpoints")[step]])
    except (KeyError, ValueError, OverflowError):
        names = [*map(str, _newest_first(run / "checkpoints"))]
        if locate(best) is not None:
            names.insert(0, "best")
        raise ConfigError(f"{key}={name!r}: {run} has no {name} checkpoint; it has "
                          f"{', '.join(names) or 'none'}") from None
    if checkpoint is None:
        raise errors[0]
    return checkpoint


def _first_valid(run: Path, places: Callable[[], Iterable[Path]]
                 ) -> tuple[Checkpoint | None, list[CheckpointError]]:
    """The first valid checkpoint of `places()`, or None, and the errors of those before it.

    After an error while training saved into the run, all are looked up and read once more.
    """
    before = _stamps(run)
    checkpoint, errors = _read_first(places())
    if (checkpoint is None or errors) and _stamps(run) != before:
        checkpoint, errors = _read_first(places())
    return checkpoint, errors


def _read_first(paths: Iterable[Path]) -> tuple[Checkpoint | None, list[CheckpointError]]:
    errors: list[CheckpointError] = []
    for path in paths:
        try:
            return load(path), errors
        except CheckpointError as error:
            errors.append(error)
    return None, errors


def _stamps(run: Path) -> dict[Path, tuple[int, int]]:
    """Inode and time of the manifest of each checkpoint: a save changes them."""
    best = locate(run / "best")
    paths = [*_newest_first(run / "checkpoints").values(), *([] if best is None else [best])]
    stamps = {}
    for path in paths:
        with contextlib.suppress(OSError):  # it is being replaced or removed
            status = (path / "manifest.json").lstat()
            stamps[path] = (status.st_ino, status.st_mtime_ns)
    return stamps


def load_to_resume(run: Path) -> Checkpoint | None:
    """`load_latest`, or None, with a warning, if the run has neither saved nor learned anything."""
    if _is_new(run):
        log.warning(f"{run} ended before its first checkpoint: it begins at step 0")
        return None
    return load_latest(run)


def _is_new(run: Path) -> bool:
    """Whether the run has neither saved nor learned anything."""
    return newest_step(run) is None and locate(run / "best") is None and not read_metrics(run)


def newest_step(run: Path, *, valid: bool = False) -> int | None:
    """The step of the newest checkpoint, or None; with `valid`, of the newest valid one."""
    for step, path in _newest_first(run / "checkpoints").items():
        if not valid or is_valid(path):
            return step
    return None


def _newest_first(folder: Path) -> dict[int, Path]:
    """The checkpoints in `folder` by step, also those that a kill left under another name."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    matches = filter(None, map(_STEP_NAME.fullmatch, names))
    steps = {int(match[1] or match[2]) for match in matches}
    paths = {}
    for step in sorted(steps, reverse=True):
        if path := locate(folder / f"step-{step:012d}"):
            paths[step] = path
    return paths


def _valid(run: Path) -> list[Path]:
    """The valid checkpoints of a run, newest first."""
    return [path for path in _newest_first(run / "checkpoints").values() if is_valid(path)]
