"""What tests ask of the system about processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path


def assert_group_ends(group: int, seconds: float) -> None:
    """Nothing of a process group runs any more within `seconds`."""
    _assert_end(lambda: [pid for pid, of in running() if of == group], seconds)


def assert_ends(process: int, seconds: float) -> None:
    """A process runs no more within `seconds`; else it is killed."""
    try:
        _assert_end(lambda: [pid for pid, _ in running() if pid == process], seconds)
    except AssertionError:
        os.kill(process, signal.SIGKILL)
        raise


def children() -> list[int]:
    """Running processes that this one started, without the resource tracker."""
    pids = [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in pids if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _assert_end(find: Callable[[], list[int]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left := find():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def running() -> Iterator[tuple[int, int]]:
    """Processes and their groups, those aside that have ended and that nobody has taken note of yet."""
    assert Path("/proc/self/stat").exists(), "without it nothing would be found"
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            _, _, rest = stat.read_text().rpartition(")")
            state, _, group, *_ = rest.split()
            if state != "Z":
                yield int(stat.parent.name), int(group)
