"""The lock that lets one process at a time write into a run. The kernel holds it, so a kill releases it."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from vantage.errors import ConfigError
from vantage.runs.files import open_file, remove_leftovers


class HeldError(ConfigError):
    """Another process writes into the directory."""


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Keep other processes from writing into `run`; HeldError if one does, ConfigError if the lock cannot be made.

    ConfigError too where a folder of the run is a link: the checkpoints of another run could be replaced through it.
    """
    for folder in (run / "checkpoints", run / "tensorboard"):
        if folder.is_symlink():
            raise ConfigError(f"{folder} is a symbolic link, which Vantage does not follow; put the folder itself in "
                              "its place")
    path = run / ".lock"
    try:
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ConfigError(f"cannot write into the run directory {run}: {path.name}: {error.strerror}; make it writable "
                          "or copy the run elsewhere") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 20).decode(errors="replace")
            raise HeldError(f"{run} is being trained by another process{f' (process {holder})' * holder.isdecimal()}; "
                            "stop that one first, or start another run") from None
        except OSError:
            pass  # a file system without locks
        with contextlib.suppress(OSError):  # a full disk: the lock is held all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        remove_leftovers(run)
        yield
    finally:
        os.close(descriptor)
