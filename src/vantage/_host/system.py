"""Facts of the machine, and settings of this process: cores, memory, limits, scheduling.

Torch is imported where it is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import resource
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import psutil

_LINUX = sys.platform.startswith("linux")
_M_TRIM_THRESHOLD = -1  # glibc's malloc.h
_M_MMAP_THRESHOLD = -3
_TRIM_EVERY_SECONDS = 60
_LEAST_ADDRESS_SPACE = 640 << 20  # bytes; the libraries of torch 2.13 load from 600 MiB on
CGROUP = Path("/sys/fs/cgroup")
"""Limits of a container, which psutil does not read: of version 2, or below cpu/ and memory/ of
version 1."""


def available_cores() -> int:
    """Number of cores that this process may use, at least 1.

    Respects its affinity and the CPU quota of its control group.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _cgroup_number(("cpu.max", r"^(\d+) "), ("cpu/cpu.cfs_quota_us", r"^(\d+)"))
    period = _cgroup_number(("cpu.max", r" (\d+)"), ("cpu/cpu.cfs_period_us", r"^(\d+)"))
    return cores if quota is None or not period else max(1, min(cores, quota // period))


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
    """The exhausted resource that caused `error`, and the remedy; None for other errors.

    torch and the dynamic linker raise RuntimeError and ImportError with the system's text.
    """
    code = getattr(error, "errno", None)
    text = str(error)
    if code in (errno.EMFILE, errno.ENFILE) or os.strerror(errno.EMFILE) in text:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (f"too many open files: the limit is {limit} file descriptors for each process; "
                "raise it with `ulimit -n 4096`, or give fewer --num-envs or --num-workers")
    if (isinstance(error, MemoryError) or code == errno.ENOMEM
            or re.search("(?i)(can.?t|cannot|to) allocate mem", text)):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits = ""
        if limit != resource.RLIM_INFINITY:
            limits = f" (`ulimit -v` allows {limit >> 20:,} MiB)"
        return (f"not enough memory{limits}; free memory or raise the limit, or give fewer "
                "--num-envs or --num-workers, a smaller network or a smaller --replay-size")
    # The words of EAGAIN are also those of a timeout of ZeroMQ, and amid those of HDF5 on locks.
    cannot_start = (isinstance(error, OSError | RuntimeError)
                    and text.endswith(os.strerror(errno.EAGAIN)))
    if cannot_start or "start new thread" in text:
        return ("no more processes or threads can start; raise `ulimit -u`, or give fewer "
                "--num-workers or --threads")
    modules = [frame.f_globals.get("__name__", "")
               for frame, _ in traceback.walk_tb(error.__traceback__)]
    if code == errno.ENOSPC and any(name.startswith("multiprocessing.") for name in modules):
        return ("no space left in /dev/shm, which processes share; remove files from it or enlarge "
                "it: mount -o remount,size=1g /dev/shm, or docker run --shm-size 1g")
    return None


def check_address_space() -> None:
    """Raises MemoryError if `ulimit -v` is below what PyTorch needs to load.

    PyTorch itself would abort without an exception.
    """
    if 0 <= resource.getrlimit(resource.RLIMIT_AS)[0] < _LEAST_ADDRESS_SPACE:
        raise MemoryError


def used_memory() -> int | None:
    """Resident memory of this process and its descendants in bytes; None outside Linux.

    Shared pages are counted once.
    """
    if not _LINUX:
        return None
    used = psutil.Process().memory_info().rss
    with contextlib.suppress(psutil.Error):
        for process in _descendants(psutil.Process()):
            with contextlib.suppress(psutil.Error):
                memory = process.memory_info()
                used += memory.rss - memory.shared
    return int(used)


def _descendants(process: psutil.Process) -> Iterator[psutil.Process]:
    """The processes that `process` started, and those that they started. Linux.

    psutil reads every process of the machine, which takes several milliseconds; the kernel lists
    the children of each thread, unless it was built without CONFIG_PROC_CHILDREN.
    """
    if not Path("/proc/thread-self/children").exists():
        yield from process.children(recursive=True)
        return
    pids: list[str] = []
    with contextlib.suppress(OSError):  # the process or one of its threads has just ended
        for file in Path(f"/proc/{process.pid}/task").glob("*/children"):
            pids += file.read_text().split()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            child = psutil.Process(int(pid))
            yield child
            yield from _descendants(child)


def use_threads(count: int) -> None:
    """Compute with `count` threads from now on, in torch and in NumPy's products of matrices."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(count)
    threadpool_limits(count, user_api="blas")


def keep_freed_memory() -> None:
    """Make glibc reuse freed memory instead of returning it to the system.

    Mapping it again at each update takes a sixth of the learning time: a3c at 16 x 20 on 2 cores
    learns from 8,400 samples/s instead of 6,900.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if _LINUX else None
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


class FreedMemory:
    """Returns what `keep_freed_memory` has kept to the system, once a minute. With glibc only.

    Aligned blocks, which torch allocates, are seldom reused as a whole before glibc 2.38: the heap
    of a long A2C run with an LSTM grew from 0.5 to 4.0 GB in 13M steps.
    https://sourceware.org/bugzilla/show_bug.cgi?id=30723 (2026-11)
    """

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if _LINUX else None
        self._due_at = monotonic() + _TRIM_EVERY_SECONDS

    def return_if_due(self) -> None:
        if self._trim is not None and monotonic() >= self._due_at:
            self._trim(0)
            self._due_at = monotonic() + _TRIM_EVERY_SECONDS


def compute_for_long() -> None:
    """Schedule this thread and its later children as batch work (SCHED_BATCH). Linux only.

    An emulator's thread, woken by the first action of a step, then does not preempt the thread that
    wakes the others. A2C on Pong, 2 cores: 1,671 to 1,781 steps/s instead of 1,455 to 1,488. A
    scheduling policy that the user has chosen is kept.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with contextlib.suppress(OSError):  # some containers forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
