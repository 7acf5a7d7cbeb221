"""One process at a time writes into a run. The lock is the kernel's, so that a kill releases it; no torch here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from vantage.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows has none, and there nothing keeps a second process out
    fcntl = None  # type: ignore[assignment]

FILE_NAME = ".lock"


class HeldError(ConfigError):
    """Another process writes into the directory."""


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep other processes from writing into `run`; HeldError if one does, ConfigError if nobody can."""
    if fcntl is None:
        yield
        return
    try:
        descriptor = os.open(run / FILE_NAME, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ConfigError(f"cannot write into the run directory {run}: {error.strerror}; make it writable or copy the "
                          "run elsewhere") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldError(f"{run} is being trained by another process{_holder(descriptor)}; stop that one first, "
                            "or start another run") from None
        except OSError:  # a file system that has no locks
            pass
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    number = os.pread(descriptor, 20, 0).decode(errors="replace")
    return f" (process {number})" if number.isdigit() else ""
