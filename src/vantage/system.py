"""Machine facts and process care: cores, memory, signals, and children that end with their parent. No torch here."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import multiprocessing
import os
import re
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from weakref import WeakSet

import psutil

_LINUX = sys.platform.startswith("linux")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
_PR_SET_PDEATHSIG = 1  # Linux's prctl.h
_LEAST_ADDRESS_SPACE = 640 << 20  # bytes; the libraries of torch 2.13 load from 600 MiB on
_STOP_SIGNALS: set[int] = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
CGROUP = Path("/sys/fs/cgroup")
"""Limits of a container, which psutil does not read: of version 2, or below cpu/ and memory/ of version 1."""


def available_cores() -> int:
    """Cores that this process may use at once, by its affinity and the CPU quota of its control group; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_number(("cpu.max", r"^(\d+) "), ("cpu/cpu.cfs_quota_us", r"^(\d+)"))
    period = _cgroup_number(("cpu.max", r" (\d+)"), ("cpu/cpu.cfs_period_us", r"^(\d+)"))
    return cores if quota is None or not period else max(1, min(cores, quota // period))


def cores_for(threads: int) -> int:
    """`threads`, or all available cores for 0."""
    return threads or available_cores()


def free_memory() -> int:
    """Bytes of memory available to this process, within the limit of its control group."""
    free = int(psutil.virtual_memory().available)
    limit = _cgroup_number(("memory.max", r"(\d+)"), ("memory/memory.limit_in_bytes", r"(\d+)"))
    used = _cgroup_number(("memory.current", r"(\d+)"), ("memory/memory.usage_in_bytes", r"(\d+)"))
    reclaimable = _cgroup_number(("memory.stat", r"^inactive_file (\d+)"),
                                 ("memory/memory.stat", r"^total_inactive_file (\d+)")) or 0
    return free if limit is None or used is None else max(0, min(free, limit - used + reclaimable))


def _cgroup_number(*places: tuple[str, str]) -> int | None:
    """The number in the first of these files that has one: of version 2, then of version 1."""
    for name, pattern in places:
        with contextlib.suppress(OSError):
            if match := re.search(pattern, (CGROUP / name).read_text(), re.MULTILINE):
                return int(match[1])
    return None


def shortage(error: BaseException) -> str | None:
    """The resource of the machine whose lack raised `error`, and the remedy; None for any other error.

    torch and the dynamic linker raise RuntimeError and ImportError with the system's text.
    """
    code, text = getattr(error, "errno", None), str(error)
    if code in (errno.EMFILE, errno.ENFILE) or os.strerror(errno.EMFILE) in text:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (f"too many open files: the limit is {limit} file descriptors for each process; raise it with `ulimit "
                "-n 4096`, or give fewer --num-envs or --num-workers")
    if isinstance(error, MemoryError) or code == errno.ENOMEM or re.search("(?i)(can.?t|cannot|to) allocate mem", text):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits = "" if limit == resource.RLIM_INFINITY else f" (`ulimit -v` allows {limit >> 20:,} MiB)"
        return (f"not enough memory{limits}; free memory or raise the limit, or give fewer --num-envs or "
                "--num-workers, a smaller network or a smaller --replay-size")
    if os.strerror(errno.EAGAIN) in text or "start new thread" in text:
        return "no more processes or threads can start; raise `ulimit -u`, or give fewer --num-workers or --threads"
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    if code == errno.ENOSPC and any(name.startswith("multiprocessing.") for name in frames):
        return ("no space left in /dev/shm, which processes share; remove files from it or enlarge it: mount -o "
                "remount,size=1g /dev/shm, or docker run --shm-size 1g")
    return None


def check_address_space() -> None:
    """MemoryError if `ulimit -v` allows less than PyTorch takes while it loads: it would abort without an exception."""
    if 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _LEAST_ADDRESS_SPACE:
        raise MemoryError


def used_memory() -> int | None:
    """Resident bytes of this process and its descendants, with shared pages counted once; None outside Linux."""
    if not _LINUX:
        return None
    used = psutil.Process().memory_info().rss
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                memory = process.memory_info()
                used += memory.rss - memory.shared
    return int(used)


def keep_freed_memory() -> None:
    """Make glibc's malloc reuse freed memory: mapping it anew at each update takes a sixth of the learning time.

    a3c at 16 x 20 on 2 cores: 8,400 samples/s instead of 6,900.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if _LINUX else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def compute_for_long() -> None:
    """Schedule this thread, and those it starts from now on, as batch work (SCHED_BATCH); Linux only.

    An emulator's thread, woken by the first action of a step, then does not preempt the thread that wakes the others:
    A2C on Pong, 2 cores: 1,671 to 1,781 steps/s instead of 1,455 to 1,488. A policy that the user has chosen stays.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # some containers forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextlib.contextmanager
def deaf_to_signals() -> Iterator[None]:
    """Start processes within that ignore the signals by which a terminal or a scheduler stops a whole group.

    Children inherit the block until they call `hear_nothing`. This process handles what has arrived at the end.
    """
    # The tracker removes the semaphores of a process that ended early, which is no leak to warn of. It takes the
    # warning filters of this process when it starts, which also unblocks SIGINT and SIGTERM.
    sys.warnoptions.append("ignore:resource_tracker")
    resource_tracker.ensure_running()
    sys.warnoptions.pop()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    pending: list[int] = []  # another thread, such as torch's, may receive a signal that is blocked here
    runs_handlers = threading.current_thread() is threading.main_thread()
    handlers = {number: handler for number in _STOP_SIGNALS
                if runs_handlers and callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: pending.append(number))
        yield
    finally:
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for number in pending:
                signal.raise_signal(number)  # stays pending until the mask is restored
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_nothing() -> None:
    """Ignore the stop signals in this process, started within `deaf_to_signals`, but not in its own children.

    Children would inherit a block or SIG_IGN, and SIGTERM could then not end them; they do not inherit a handler.
    """
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    unblock = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _STOP_SIGNALS)
    unblock()
    # A fork does inherit handlers. Block meanwhile, or a signal that arrives before the reset is lost.
    os.register_at_fork(before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, _STOP_SIGNALS),
                        after_in_parent=unblock, after_in_child=_restore_default_signals)


def _restore_default_signals() -> None:
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)


def ended_by(exitcode: int) -> str:
    """How a process with this exit code of multiprocessing ended: "killed by SIGSEGV", or "with exit status 7"."""
    if exitcode >= 0:
        return f"with exit status {exitcode}"
    return f"killed by {next((each.name for each in signal.Signals if each == -exitcode), f'signal {-exitcode}')}"


def tie_forks() -> None:
    """Let what this process's main thread forks from now on end with it, kill -9 included; Linux only.

    Not what it starts by `subprocess`, whose children only `kill_descendants` ends.
    """
    from_main_thread: list[bool] = []

    def before() -> None:
        from_main_thread[:] = [threading.current_thread() is threading.main_thread()]

    def after_in_child() -> None:
        if from_main_thread[0]:  # the signal comes when the thread ends
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    if _LINUX:
        os.register_at_fork(before=before, after_in_child=after_in_child)


def kill_descendants(pid: int | None = None) -> None:
    """Kill every running process that `pid` (None: this process) has started, and their children.

    Not multiprocessing's tracker of shared memory: it ends by itself, and would be started again with a warning.
    """
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.pid != tracker:
                    child.kill()


_ENDING: WeakSet[BaseProcess] = WeakSet()
os.register_at_fork(after_in_child=_ENDING.clear)


@atexit.register
def _end() -> None:
    """Kill tied processes at interpreter exit, where multiprocessing would wait for them."""
    for process in list(_ENDING):
        with contextlib.suppress(ValueError, AttributeError):  # closed already, or never started
            process.kill()


def die_with(parent: int) -> None:
    """End this process when `parent`, which started it by multiprocessing, ends in any way, kill -9 included.

    By prctl on Linux, where the parent is the thread that started it. Elsewhere a thread waits for the parent: a
    worker busy in its environment would otherwise live on until it next reads its pipe.
    """
    if not sys.platform.startswith("linux"):
        threading.Thread(target=_end_after_parent, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has already ended
        os._exit(1)


def _end_after_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


class _Tie:
    """Unpickles to a call of `die_with`, so that it runs before the target is imported, which takes seconds."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return die_with, (self.parent,)


def tied_process(context: SpawnContext, name: str, target: Callable[..., None], *args: Any) -> SpawnProcess:
    """A process that runs `target(*args)`, ignores stop signals and ends with this one. Start it in `deaf_to_signals`.

    It is no daemon in multiprocessing's sense, because an environment may start processes of its own.
    """
    process = context.Process(target=_run_tied, args=(_Tie(os.getpid()), os.getpid(), target, *args), name=name)
    _ENDING.add(process)
    return process


def _run_tied(_: None, parent: int, target: Callable[..., None], *args: Any) -> None:
    die_with(parent)  # without prctl the unpickled call came before the parent was known
    hear_nothing()
    tie_forks()
    target(*args)
