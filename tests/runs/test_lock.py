"""The lock of a run: one writer at a time, also after a kill."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vantage.errors import ConfigError
from vantage.runs import lock
from vantage.runs.lock import HeldError, is_locked, locked

HOLD = """
import pathlib, sys, vantage.runs.lock
with vantage.runs.lock.locked(pathlib.Path(".")):
    print(1, flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"1\n"
        for _ in range(2):  # an attempt does not erase the name
            with pytest.raises(HeldError, match=rf"another process \(process {other.pid}\)"), locked(tmp_path):
                pass
        other.kill()
    with locked(tmp_path), pytest.raises(HeldError, match="a trainer of this process; close"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_a_patient_writer_waits_for_one_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = locked(tmp_path)
    first.__enter__()
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: first.__exit__(None, None, None))
    with locked(tmp_path, patience=60), pytest.raises(HeldError), locked(tmp_path):
        pass


def test_asking_for_the_lock_changes_nothing(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert not list(tmp_path.iterdir())
    with locked(tmp_path):
        assert is_locked(tmp_path)
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
    assert not is_locked(tmp_path)


def test_a_forked_child_does_not_hold_the_lock_beyond_its_parent(tmp_path: Path) -> None:
    program = ("import os, pathlib, time\nfrom vantage.runs.lock import locked\n"
               "with locked(pathlib.Path('.')):\n"
               "    if child := os.fork():\n        print(child, flush=True)\n    time.sleep(60)\n")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        assert is_locked(tmp_path)
        holder.kill()
        holder.wait()
        try:
            with locked(tmp_path, patience=10):
                os.kill(child, 0)  # it still runs
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_lock_that_cannot_be_made_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(ConfigError, match=r"\.lock: Is a directory; make it writable"), locked(tmp_path):
        pass


def test_a_file_system_without_locks_does_not_keep_a_run_from_training(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", fail)
    for _ in range(2):
        with locked(tmp_path):
            pass
