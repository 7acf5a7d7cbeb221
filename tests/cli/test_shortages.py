"""What the machine lacks is named with its remedy in one line, not as a traceback."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from zygote import call

from vantage._host.system import shortage
from vantage.cli import entry
from vantage.errors import EnvError
from vantage.runtimes.child_processes import portable_error

FILES = OSError(errno.EMFILE, os.strerror(errno.EMFILE), "a.py")
TORCH = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")


def run(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> int:
    """The exit status of a command that raises `error`; without one it needs a semaphore."""
    def command() -> None:
        """Fail."""
        if error is not None:
            raise error
        multiprocessing.get_context("spawn").Lock()

    monkeypatch.setitem(entry.COMMANDS, "list", command)
    return entry.main(["list"])


@pytest.mark.parametrize(("error", "says"), [
    (FILES, "raise it with `ulimit -n 4096`"), (OSError(errno.ENFILE, "File table overflow"), "ulimit -n"),
    (ImportError("a.so: cannot open shared object file: Too many open files", name="a"), "ulimit -n"),
    (MemoryError(), "not enough memory"), (TORCH, "free memory or raise the limit"),
    (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "not enough memory"),
    (RuntimeError("can't start new thread"), "ulimit -u"),
    (OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "ulimit -u")])
def test_a_lack_of_the_machine_is_one_line_with_the_remedy(
        error: Exception, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, error) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("vantage: ") and says in line
    in_env = EnvError("environment 0: it raised")
    in_env.__cause__ = error
    assert run(monkeypatch, in_env) == 1 and capsys.readouterr().err.splitlines() == [line]
    assert portable_error(error).message == line.removeprefix("vantage: ")


@pytest.mark.parametrize("error", [
    OSError(errno.EAGAIN, "unable to lock file (error message = 'Resource temporarily unavailable')"),
    type("Again", (Exception,), {})(os.strerror(errno.EAGAIN))], ids=["HDF5", "ZeroMQ"])
def test_other_errors_with_the_words_of_a_lack_keep_their_traceback(error: Exception) -> None:
    assert shortage(error) is None


def test_a_removed_current_folder_is_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    Path.cwd().rmdir()
    assert entry.main(["evaluate", "run"]) == 2
    assert capsys.readouterr().err == "vantage: the current folder has been removed; change to another one\n"


def test_a_full_shared_memory_is_not_blamed_on_the_output(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("_multiprocessing.SemLock", fail)
    assert run(monkeypatch) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "no space left in /dev/shm" in line and "--shm-size 1g" in line


@pytest.mark.parametrize("error", [RuntimeError("another"), KeyError("x")])
def test_an_error_of_the_program_keeps_its_traceback(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(type(error)):
        run(monkeypatch, error)
    assert "Traceback" in str(portable_error(error)) or str(error) in str(portable_error(error))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's limits")
@pytest.mark.parametrize(("limit", "options"), [
    ("NOFILE, 16", "--vector async --num-envs 4"),
    ("AS, psutil.Process().memory_info().vms + 2**29", "--hidden 15000,15000")])
def test_a_limit_of_the_shell_is_named(limit: str, options: str) -> None:
    program = f"""
import psutil, resource, sys
import vantage.tools.display, vantage.runtimes.training
from vantage.cli import main
from vantage.envs import batched, single
if __name__ == "__main__":
    def limit(which, number):
        resource.setrlimit(which, (number, resource.getrlimit(which)[1]))
    limit(resource.RLIMIT_{limit})
    sys.exit(main("train a2c --env CartPole-v1 --steps 64 --threads 1 {options}".split()))
"""
    result = call(["-c", program])
    assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("vantage: ") and "ulimit" in result.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's limits")
def test_a_limit_below_what_pytorch_takes_is_named_before_it_loads(tmp_path: Path) -> None:
    limit = (530 << 20, resource.RLIM_INFINITY)  # the libraries abort
    command = [sys.executable, "-m", "vantage", "train", "a2c", "--env", "CartPole-v1", "--steps", "64"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    [line] = result.stderr.splitlines()
    assert result.returncode == 1 and line.startswith("vantage: ") and "`ulimit -v` allows 530 MiB" in line
