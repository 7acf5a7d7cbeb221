"""The lock that lets one process at a time write into a run.

The kernel releases it when the process ends, also by a kill.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from vantage.errors import ConfigError
from vantage.runs.files import open_file

_NAME = ".lock"
_HELD: set[int] = set()
"""Descriptors of the locks of this process."""


class HeldError(ConfigError):
    """Another process writes into the directory."""


def _forget_locks() -> None:
    """Close the locks in a forked child, which would hold them beyond the end of its parent."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


os.register_at_fork(after_in_child=_forget_locks)


@contextlib.contextmanager
def locked(run: Path, *, patience: float = 0.3) -> Iterator[None]:
    """Lock `run` for writing; HeldError if another process still holds it after `patience` seconds.

    The default is longer than `is_locked` of another process holds the lock. ConfigError if the
    lock cannot be made, or a folder of the run is a link, through which another run could change.
    """
    for folder in (run / "checkpoints", run / "tensorboard"):
        if folder.is_symlink():
            raise ConfigError(f"{folder} is a symbolic link, which Vantage does not follow; put "
                              "the folder itself in its place")
    path = run / _NAME
    try:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ConfigError(f"cannot write into the run directory {run}: {path.name}: "
                          f"{error.strerror}; make it writable or copy the run elsewhere") from None
    _HELD.add(descriptor)
    owner = os.getpid()
    try:
        deadline = time.monotonic() + patience
        while not _lock(descriptor):
            if time.monotonic() >= deadline:
                holder = os.read(descriptor, 20).decode(errors="replace")
                if holder == str(owner):
                    raise HeldError(f"{run} is being trained by a trainer of this process; close "
                                    "that one first, or start another run")
                other = f"process (process {holder})" if holder.isdecimal() else "process"
                raise HeldError(f"{run} is being trained by another {other}; stop that one first, "
                                "or start another run")
            time.sleep(0.1)
        with contextlib.suppress(OSError):  # on a full disk, the lock holds without the number
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        if os.getpid() == owner:
            _HELD.remove(descriptor)
            os.close(descriptor)


def is_locked(run: Path) -> bool:
    """Whether a process writes into `run`; False if it cannot be locked or does not exist."""
    try:
        descriptor = open_file(run / _NAME, os.O_RDWR)
    except (OSError, ConfigError):
        return False
    try:
        return not _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock the open file; False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True
