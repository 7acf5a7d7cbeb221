"""The checkpoints of a run: saving, pruning, and loading by name. The format on disk is `bundle`'s.

    <run>/checkpoints/step-000001000000/   the newest checkpoints
    <run>/best/                            the checkpoint with the best score
    <run>/replay/                          ACER's replay, which belongs to the checkpoint of the same step
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from vantage.errors import CheckpointError, ConfigError
from vantage.runs import bundle
from vantage.schedules import parse_number

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint: groups of tensors on the CPU, each with its own memory, and everything else as JSON."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    state: Mapping[str, Any]
    path: Path


def save(run: Path, step: int, *, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any],
         keep: int, again: bool = False) -> Path:
    """Save under <run>/checkpoints, then prune all but the newest `keep` valid ones; returns the new path.

    Pruning waits until the new checkpoint has been read back. A valid checkpoint of the same step is only replaced if
    `again`. CheckpointError if it cannot be written; earlier checkpoints are then intact.
    """
    path = run / "checkpoints" / f"step-{step:012d}"
    with bundle.explaining(path):
        if not path.parent.exists():
            path.parent.mkdir()
            bundle.sync_directory(run)
        bundle.sweep(path.parent)
        if again or not (path.exists() and bundle.is_valid(path)):
            bundle.put(path, step, tensors, state)
        _prune(path.parent, keep, just_saved=path)
    return path


def save_best(run: Path, step: int, *, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    """Replace <run>/best. CheckpointError if it cannot be written; the former one is then intact."""
    return _save_single(run / "best", step, tensors, state)


def save_replay(run: Path, step: int, *, tensors: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Replace <run>/replay. CheckpointError if it cannot be written; the former one is then intact.

    For a moment the disk holds both.
    """
    return _save_single(run / "replay", step, tensors, {})


def load_replay(run: Path) -> tuple[int, Iterator[tuple[str, Mapping[str, Tensor]]]] | None:
    """The step of the saved replay, and its groups one at a time in the order of saving; None if there is none.

    CheckpointError if it is damaged, also from the iterator.
    """
    path = bundle.find(run / "replay")
    return None if path is None else bundle.read_groups(path)


def _save_single(path: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    run = path.parent
    with bundle.explaining(path):
        existing = bundle.find(path)
        if existing is not None and existing != path:  # a kill came between the two renames of `bundle.put`
            os.rename(existing, path)
            bundle.sync_directory(run)
        bundle.sweep(run, path.name)
        bundle.put(path, step, tensors, state)
    return path


def load(path: Path) -> Checkpoint:
    """The verified checkpoint in the directory `path`; CheckpointError names the damaged file."""
    return Checkpoint(*bundle.read(path), path)


def load_latest(run: Path) -> Checkpoint:
    """The newest valid checkpoint; logs what is wrong with newer ones. CheckpointError if there is none."""
    skipped: list[str] = []
    for path in _newest_first(run / "checkpoints"):
        try:
            checkpoint = load(path)
        except CheckpointError as error:
            skipped.append(str(error))
            continue
        for message in skipped:
            log.warning(message)
        return checkpoint
    if not skipped:
        raise CheckpointError(f"{run} has no checkpoint yet: nothing was saved; where it still trains, wait for its "
                              "first save, else start it again with `vantage train`")
    raise CheckpointError("\n  ".join([f"{run} has no valid checkpoint left; restore one from a copy:", *skipped]))


def newest_step(run: Path) -> int | None:
    """The step of the newest checkpoint, which is not read; None if there is none."""
    return next((bundle.step_of(path) for path in _newest_first(run / "checkpoints")), None)


def load_named(run: Path, name: str = "auto", *, key: str = "checkpoint") -> Checkpoint:
    """The checkpoint called `latest`, `best`, a step such as 1000000 or 1M, or `auto`: best, else latest.

    ConfigError, which calls the option `key`, if there is none; CheckpointError if it is damaged. If the best one is
    damaged, auto logs that and falls back to the latest.
    """
    if name == "latest":
        return load_latest(run)
    if name in ("auto", "best"):
        best = bundle.find(run / "best")
        try:
            if best is not None:
                return load(best)
        except CheckpointError as error:
            if name == "best":
                raise
            log.warning(str(error))
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
    """Turn errors of loading the tensors of `path` into a ConfigError of one line: they do not match `config`."""
    try:
        yield
    except (KeyError, RuntimeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        reason = " ".join(lines[:2]) + (f" And {len(lines) - 2} more" if len(lines) > 2 else "")
        raise ConfigError(f"{path} does not fit {config}, as if that had been edited since: {reason}; restore it"
                          ) from None


def _available(run: Path) -> str:
    names = ["best"] * (bundle.find(run / "best") is not None)
    names += [str(bundle.step_of(path)) for path in _newest_first(run / "checkpoints")]
    return f"; it has {', '.join(names)}" if names else "; it has none"


def _prune(folder: Path, keep: int, *, just_saved: Path) -> None:
    """Remove all but the newest `keep` valid checkpoints. Damaged ones do not count, and stay for inspection."""
    valid = 1
    for path in _newest_first(folder):
        if path == just_saved:
            continue
        if valid < keep:
            valid += bundle.is_valid(path)
        elif bundle.is_valid(path):
            with contextlib.suppress(OSError):  # one checkpoint too many does no harm
                bundle.remove(path)


def _newest_first(folder: Path) -> list[Path]:
    paths = folder.iterdir() if folder.is_dir() else ()
    steps = {path: step for path in paths if (step := bundle.step_of(path)) is not None}
    return sorted(steps, key=steps.__getitem__, reverse=True)
