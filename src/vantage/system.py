"""How this process uses the machine: its cores, its memory, its end. No torch here."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from weakref import WeakSet

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
_PR_SET_PDEATHSIG = 1  # Linux's prctl.h


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_limit() -> float | None:
    """Cores whose time its control group is given, as a container's; None without a limit."""
    try:
        quota, period = CPU_LIMIT.read_text().split()
        return float(quota) / float(period)
    except (OSError, ValueError):  # no control groups, or "max"
        return None


def available_cores() -> int:
    """Cores that this process may use at once: more would wait for each other."""
    limit = core_limit()
    return usable_cores() if limit is None else max(1, min(usable_cores(), int(limit)))


def cores_for(threads: int) -> int:
    """`threads`, or all available cores for 0."""
    return threads or available_cores()


def free_memory() -> int:
    """Bytes of memory that are free for this process: the machine's, and within the limit of its control group."""
    free = _read_number("/proc/meminfo", r"MemAvailable:\s+(\d+) kB")
    if free is None:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2  # no Linux: half of what is built in
    free *= 1024
    limit = _read_number("/sys/fs/cgroup/memory.max", r"(\d+)")
    used = _read_number("/sys/fs/cgroup/memory.current", r"(\d+)")
    cached = _read_number("/sys/fs/cgroup/memory.stat", r"inactive_file (\d+)") or 0  # given up when it is wanted
    return free if limit is None or used is None else max(0, min(free, limit - used + cached))


def used_memory() -> int | None:
    """Resident bytes of this process, its children and theirs, with what they share counted once; None but on Linux."""
    if not Path("/proc/thread-self/children").exists():
        return None
    used = _resident_pages("self")[0]
    for pid in _descendants("self"):
        with contextlib.suppress(OSError):  # it has just ended
            resident, shared = _resident_pages(pid)
            used += resident - shared
    return used * os.sysconf("SC_PAGE_SIZE")


def _descendants(pid: str) -> Iterator[str]:
    """The children of a process and theirs; those of what ends meanwhile may be missing."""
    children: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                children += (task / "children").read_text().split()
    for child in children:
        yield child
        yield from _descendants(child)


def _resident_pages(pid: str) -> tuple[int, int]:
    """Pages of a process in memory, and how many of them are files or shared."""
    _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    return int(resident), int(shared)


def free_gpu_memory() -> dict[str, int]:
    """Free bytes of each NVIDIA GPU of the machine by its UUID, as nvidia-smi has it; nothing where that is not."""
    command = ["nvidia-smi", "--query-gpu=uuid,memory.free", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {uuid: int(mib) * 2**20 for uuid, mib in re.findall(r"^(\S+), (\d+)$", told, re.MULTILINE)}


def _read_number(path: str, pattern: str) -> int | None:
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


def keep_freed_memory() -> None:
    """Let malloc keep what is freed instead of returning it to the system, where it is glibc's malloc.

    Each update allocates and frees tens of megabytes, which glibc maps anew each time; the page faults cost a sixth of
    the learning time (a3c at 16 x 20 on 2 cores: 8,400 samples/s instead of 6,900).
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def compute_for_long() -> None:
    """Let Linux schedule this thread, and what it starts from now on, as what computes for long (SCHED_BATCH).

    Threads that wake then wait for their turn. Else an emulator's thread, woken by the first action of a step, takes
    the core of the thread that would wake the others with theirs (A2C on Pong, 2 cores: 1,671 to 1,781 steps/s instead
    of 1,455 to 1,488; A3C 2,334 instead of 2,291).
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # not everybody may, as in some containers
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextlib.contextmanager
def deaf_to_signals() -> Iterator[None]:
    """Processes started within are deaf to the signals by which a terminal or a scheduler stops a group.

    Only this process acts on them, and only afterwards: they are blocked here meanwhile, which its children inherit
    until `hear_nothing`. What another thread, such as torch's, takes nevertheless is raised again at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its own start unblocks SIGINT and SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _stop_signals())
    taken: list[int] = []
    handlers = {number: handler for number in _stop_signals() if callable(handler := signal.getsignal(number))
                and threading.current_thread() is threading.main_thread()}  # where Python runs them
    for number in handlers:
        signal.signal(number, lambda number, frame: taken.append(number))
    try:
        yield
    finally:
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for number in taken:
                signal.raise_signal(number)  # waits in this thread, which blocks it
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear_nothing() -> None:
    """This process, started within `deaf_to_signals`, does nothing at the signals that it was deaf to.

    What it starts itself would inherit a block, and could then not be ended by SIGTERM; a handler it does not.
    """
    if hasattr(signal, "pthread_sigmask"):
        for number in _stop_signals():
            signal.signal(number, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _stop_signals())
        # A fork does inherit handlers. Signals wait meanwhile: one that came before they are reset would be lost.
        os.register_at_fork(before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, _stop_signals()),
                            after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _stop_signals()),
                            after_in_child=_hear_again)


def _hear_again() -> None:
    for number in _stop_signals():
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _stop_signals())


def _stop_signals() -> set[int]:
    return {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def kill_descendants(pid: str = "self") -> None:
    """Kill all that a process has started and that still runs; Linux only."""
    for child in list(_descendants(pid)):
        with contextlib.suppress(OSError):  # it has just ended
            os.kill(int(child), signal.SIGKILL)


_ENDING: WeakSet[BaseProcess] = WeakSet()


def end_with_program(process: BaseProcess) -> None:
    """Kill `process` when this program ends, whatever then becomes of who started it.

    multiprocessing waits at the end for processes that are not daemons, and has SIGTERM for those that are.
    """
    _ENDING.add(process)


@atexit.register
def _end() -> None:
    for process in list(_ENDING):
        with contextlib.suppress(ValueError):  # it is closed
            process.kill()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ENDING.clear)


def die_with(parent: int) -> None:
    """Let this process end when `parent`, which started it through multiprocessing, ends in any way, kill -9 included.

    Linux does it. To Linux the parent is the thread that started it: a thread that ends takes its processes along.
    Elsewhere a thread waits for it. Without either a worker that is busy in its environment would live on until it
    next looks at its pipe.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform.startswith("linux") else None
    if prctl is None:
        threading.Thread(target=_end_after_parent, daemon=True).start()
        return
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        os._exit(1)


class _Tie:
    """Calls `die_with` when multiprocessing hands it to the process that it starts. It is never in a file.

    No run depends on it: `_run_tied` calls `die_with` in any case, only later.
    """

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return die_with, (self.parent,)


def tied_process(context: SpawnContext, name: str, target: Callable[..., None], *args: Any) -> SpawnProcess:
    """A process that runs `target(*args)`, hears nothing, and ends with this one, by `die_with`.

    Start it within `deaf_to_signals`. On Linux it is tied before it imports what `target` and `args` need, which takes
    seconds where that is torch, but after the program's main module, which multiprocessing imports first. No daemon in
    multiprocessing's sense, which might have no processes of its own: an environment may want some.
    """
    parent = os.getpid()
    return context.Process(target=_run_tied, args=(_Tie(parent), parent, target, *args), name=name, daemon=False)


def _run_tied(_: None, parent: int, target: Callable[..., None], *args: Any) -> None:
    die_with(parent)  # where there is no prctl, the first time was too early to know the parent
    hear_nothing()
    target(*args)


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
