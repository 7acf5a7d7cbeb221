"""What tests ask of the system about processes, and how they wait for them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import zygote


def wait_for(condition: Callable[[], object], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait until the condition holds, for a minute at most and while the process runs."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def assert_group_ends(group: int, seconds: float) -> None:
    """Nothing of a process group runs any more within `seconds`."""
    _assert_end(lambda process: os.getpgid(process.pid) == group, seconds)


def assert_ends(pid: int, seconds: float) -> None:
    """A process runs no more within `seconds`; else it is killed."""
    try:
        _assert_end(lambda process: process.pid == pid, seconds)
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise


def _assert_end(matches: Callable[[psutil.Process], bool], seconds: float) -> None:
    def left() -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):  # it has just ended
                if matches(process) and process.status() != psutil.STATUS_ZOMBIE:
                    yield process

    deadline = time.monotonic() + seconds
    while running := list(left()):
        assert time.monotonic() < deadline, running
        time.sleep(0.05)


def children() -> list[psutil.Process]:
    """Running processes that this one started, without the resource tracker and the zygote."""
    running, zygotes = [], [own.process.pid for own in zygote.OWN if own.process]
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended, and perhaps is a zombie
            if child.pid not in zygotes and "resource_tracker" not in " ".join(child.cmdline()):
                running.append(child)
    return running


def launch(num_ranks: int, words: Sequence[object], folder: Path) -> list[str]:
    """What the ranks of `vantage WORDS` print, each with the environment that torchrun would give it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"TORCHELASTIC_RUN_ID": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
              "WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks), "OMP_NUM_THREADS": "1"}
    ranks = [zygote.Command(["-m", "vantage", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
             for rank in range(num_ranks)]
    outputs = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * num_ranks, outputs
    return outputs
