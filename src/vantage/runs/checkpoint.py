"""The checkpoints of a run: which there are, and which is meant. What is in them is the caller's, how they lie on the
disk is `bundle`'s.

    <run>/checkpoints/step-000001000000/   the newest ones
    <run>/best/                            the one with the best score
    <run>/replay/                          ACER's replay; it goes with the checkpoint of its step
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vantage.errors import CheckpointError, ConfigError
from vantage.runs import bundle
from vantage.schedules import parse_number


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
         keep: int, again: bool = False) -> Path:
    """Save under <run>/checkpoints and prune all but the newest `keep` valid ones; the path it was saved at.

    Older ones are pruned only after the new one has been read back. A valid checkpoint of the same step is left as it
    is unless `again` says that there is news of it, a bad one replaced. Raises CheckpointError if it cannot be written;
    the former ones are then intact.
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
    path = bundle.find(run / "replay")
    return None if path is None else bundle.read_groups(path)


def _save_single(path: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> Path:
    run = path.parent
    with bundle.explaining(path):
        found = bundle.find(path)
        if found is not None and found != path:  # a kill came between the two renames of `bundle.put`
            os.rename(found, path)
            bundle.sync_directory(run)
        bundle.sweep(run, path.name)
        bundle.put(path, step, tensors, state)
    return path


def load(path: Path) -> Checkpoint:
    """The checkpoint in the directory `path`, verified; CheckpointError names the file that is bad."""
    return Checkpoint(*bundle.read(path), path)


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
    return next((bundle.step_of(path) for path in _newest_first(run / "checkpoints")), None)


def load_named(run: Path, name: str = "auto", *, key: str = "checkpoint") -> Checkpoint:
    """The checkpoint a person means by `latest`, `best`, a step such as 1000000 or 1M, or `auto`: best, else latest.

    ConfigError if there is none of that name, CheckpointError if it is bad; auto goes on to the latest, and says so.
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
    names = ["best"] * (bundle.find(run / "best") is not None)
    names += [str(bundle.step_of(path)) for path in _newest_first(run / "checkpoints")]
    return f"; it has {', '.join(names)}" if names else "; it has none"


def _prune(folder: Path, keep: int, *, just_saved: Path) -> None:
    """Remove all but the newest `keep` valid checkpoints. Bad ones do not count, and stay for whoever looks into it."""
    kept = 1
    for path in _newest_first(folder):
        if path == just_saved:
            continue
        if kept < keep:
            kept += bundle.is_valid(path)
        elif bundle.is_valid(path):
            with contextlib.suppress(OSError):  # what cannot be removed does no harm
                bundle.remove(path)


def _newest_first(folder: Path) -> list[Path]:
    paths = folder.iterdir() if folder.is_dir() else ()
    steps = {path: step for path in paths if (step := bundle.step_of(path)) is not None}
    return sorted(steps, key=steps.__getitem__, reverse=True)
