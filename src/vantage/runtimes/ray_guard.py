"""Ends the processes of a local Ray cluster when the process that started it is gone.

Ray's agents notice the end of their node late, or never where it ended while it stopped. This file
imports nothing of Vantage.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys

import psutil

_POLL_SECONDS = 0.2


class Guard:
    """Kills processes that start within this context when this process ends or calls `close`."""

    def __init__(self) -> None:
        self._others = {child.pid for child in psutil.Process().children()}
        # It reads a pipe that closes with this process. In a session of its own, it does not get
        # the signals of the terminal.
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(os.getpid()), *map(str, self._others)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True)
        self._others.add(self._process.pid)

    def __enter__(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it is tracking

    def __exit__(self, *error: object) -> None:
        """Name all that have started, which ends the tracking."""
        assert self._process.stdin is not None
        started = _started(psutil.Process(), self._others)
        with contextlib.suppress(OSError):  # someone has killed it
            print(*(process.pid for process in started), file=self._process.stdin, flush=True)

    def close(self) -> None:
        """Kill what is left of these processes, and wait until that is done."""
        self._process.communicate()


def watch(parent: int, others: set[int]) -> None:
    """Track the processes that `parent` starts, except `others`; kill them when stdin closes.

    A line on stdin names them all and ends the tracking.
    """
    driver = psutil.Process(parent)
    tracked: set[psutil.Process] = set()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], _POLL_SECONDS)[0]:
        tracked |= _started(driver, {*others, os.getpid()})
    for pid in map(int, sys.stdin.readline().split()):
        with contextlib.suppress(psutil.NoSuchProcess):
            tracked.add(psutil.Process(pid))
    sys.stdin.read()
    for root in set(tracked):
        tracked |= _started(root, set())
    for process in tracked:
        with contextlib.suppress(psutil.Error):  # also if another process has its id by now
            process.kill()


def _started(process: psutil.Process, others: set[int]) -> set[psutil.Process]:
    """The children of `process` except `others`, and their descendants."""
    started: set[psutil.Process] = set()
    with contextlib.suppress(psutil.Error):
        for child in process.children():
            if child.pid not in others:
                started |= {child, *child.children(recursive=True)}
    return started


if __name__ == "__main__":
    with contextlib.suppress(psutil.NoSuchProcess):
        watch(int(sys.argv[1]), set(map(int, sys.argv[2:])))
