"""The lock that lets one process at a time write into a run. The kernel holds it, so a kill releases it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, SoftFileLock, Timeout

from vantage.errors import ConfigError


class HeldError(ConfigError):
    """Another process writes into the directory."""


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep other processes from writing into `run`; HeldError if one does, ConfigError if the lock cannot be made."""
    path = run / ".lock"
    lock = FileLock(path, thread_local=False)  # another thread may close the generator that holds it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        try:
            holder = f" (process {int(path.read_bytes()[:20])})"
        except (OSError, ValueError):
            holder = ""
        raise HeldError(f"{run} is being trained by another process{holder}; stop that one first, or start another run"
                        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP):  # file systems without locks
            raise ConfigError(f"cannot write into the run directory {run}: {path.name}: {error.strerror}; make it "
                              "writable or copy the run elsewhere") from None
    try:
        if not isinstance(lock, SoftFileLock):  # filelock's fallback without flock(); its file has content of its own
            with contextlib.suppress(OSError):  # a full disk: the lock is held all the same
                path.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()
