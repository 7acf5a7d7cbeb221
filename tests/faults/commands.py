"""Real commands in sessions of their own: their exit status, all that they print, and what outlives them."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

HERE = Path(__file__).parent
GRACE_SECONDS = 5.0
"""For what a command started to end after it; tests hold two, on an idle machine."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended; its status is None if it had to be killed because it hung."""

    words: tuple[str, ...]
    status: int | None
    output: str
    left: tuple[str, ...]
    seconds: float


def injected(arguments: Sequence[str], **fault: Any) -> list[str]:
    """The command of `program`: `vantage` with a fault in it."""
    return [sys.executable, str(HERE / "program.py"), json.dumps(fault), *arguments]


def vantage(arguments: Sequence[str]) -> list[str]:
    """The command `vantage`."""
    return [sys.executable, "-m", "vantage", *arguments]


def run_command(words: Sequence[str], folder: Path, during: Callable[[subprocess.Popen[bytes]], None] | None = None,
                *, environment: Mapping[str, str] | None = None, limits: Callable[[], None] | None = None,
                seconds: float = 600) -> Ended:
    """Run a command, `during` beside it, and wait for its end and that of all processes that it has started.

    One that takes longer than `seconds` after `during` hangs.
    """
    token = secrets.token_hex(8)
    (folder / "state").mkdir(exist_ok=True)
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "state"),
                 "MPLBACKEND": "Agg", "VANTAGE_FAULT_TOKEN": token, **(environment or {})}
    started = time.monotonic()
    # Not to a file: it would have the limit of the size of files that a fault sets.
    with subprocess.Popen(words, cwd=folder / "state", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=variables,
                          stdin=subprocess.DEVNULL, start_new_session=True,
                          preexec_fn=lambda: _begin(limits)) as process, ThreadPoolExecutor(1) as thread:
        assert process.stdout is not None
        output = thread.submit(process.stdout.read)
        try:
            if during is not None:
                during(process)
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        left = _end_of(token, 0 if status is None else GRACE_SECONDS)
        process.wait()
        text = output.result().decode(errors="replace")
    return Ended(tuple(words), status, text, left if status is not None else (), time.monotonic() - started)


def _begin(limits: Callable[[], None] | None) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # ignored in what a shell or nohup has put into the background
        signal.signal(number, signal.SIG_DFL)
    if limits is not None:
        limits()


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that a command has started, without multiprocessing's resource tracker, oldest first."""
    with contextlib.suppress(psutil.Error):
        return [child for child in sorted(psutil.Process(process.pid).children(recursive=True), key=lambda p: p.pid)
                if "resource_tracker" not in " ".join(child.cmdline())]
    return []


def _end_of(token: str, grace: float) -> tuple[str, ...]:
    """Wait until no process has the token in its environment; kill those that are left and name them."""
    deadline = time.monotonic() + grace
    while left := [process for process in psutil.process_iter() if _has(process, token)]:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    names = []
    for process in left:
        with contextlib.suppress(psutil.Error):
            names.append(" ".join(process.cmdline())[:200] or process.name())
            process.send_signal(signal.SIGKILL)
    return tuple(names)


def _has(process: psutil.Process, token: str) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get("VANTAGE_FAULT_TOKEN") == token
    return False
