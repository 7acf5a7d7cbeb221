"""The lock that lets one process at a time write into a run. The kernel holds it, so a kill releases it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from vantage.errors import ConfigError

FILE_NAME = ".lock"
_UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP)
"""Errors of file systems without locks, where nothing keeps a second process out."""


class HeldError(ConfigError):
    """Another process writes into the directory."""


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep other processes from writing into `run`; HeldError if one does, ConfigError if the lock cannot be made."""
    path = run / FILE_NAME
    # A generator may be closed by another thread than the one that started it.
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise HeldError(f"{run} is being trained by another process{_holder(path)}; stop that one first, or start "
                        "another run") from None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise ConfigError(f"cannot write into the run directory {run}: {FILE_NAME}: {error.strerror}; make it "
                              "writable or copy the run elsewhere") from None
    try:
        if not isinstance(lock, SoftFileLock):  # filelock's fallback without flock(); its file has content of its own
            with contextlib.suppress(OSError):  # a full disk: the lock is held all the same
                _write_holder(path)
        yield
    finally:
        lock.release()


def _write_holder(path: Path) -> None:
    flags = os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))


def _holder(path: Path) -> str:
    try:
        number = path.read_text(encoding="utf-8", errors="replace")[:20]
    except OSError:
        return ""
    return f" (process {number})" if number.isdigit() else ""
