"""What tests ask of the system about processes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path


def assert_group_ends(group: int, seconds: float) -> None:
    """Nothing of a process group runs any more within `seconds`."""
    assert Path("/proc/self/stat").exists(), "without it nothing would be found"
    deadline = time.monotonic() + seconds
    while left := list(running(group)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def running(group: int) -> Iterator[str]:
    """Processes of a group, those aside that have ended and that nobody has taken note of yet."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            name, _, rest = stat.read_text().rpartition(")")
            state, _, of, *_ = rest.split()
            if int(of) == group and state != "Z":
                yield name
