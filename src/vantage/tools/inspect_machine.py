"""Cores, memory, instructions, GPUs, shared memory, display: read from the system, nothing is changed or tried."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Literal

from vantage.system import available_cores, core_limit, free_memory, usable_cores

SHARED_MEMORY = 256 << 20
"""Below it a3c and vector=async may run out; Docker gives 64 MB."""

LITTLE_MEMORY = 2 << 30

CPU_INFO, SHARED = Path("/proc/cpuinfo"), Path("/dev/shm")

WIDE = ("avx2", "avx512f", "asimd", "sve")
BFLOAT16 = ("amx_bf16", "avx512_bf16", "bf16")
"""As Linux calls the instructions of x86 and Arm; any of the second makes precision=bfloat16 fast."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: fine, worth knowing, or an obstacle to training; `remedy` is what to do, if anything."""

    name: str
    status: Literal["ok", "note", "problem"]
    text: str
    remedy: str = ""


def inspect_machine(*, torch_works: bool) -> Iterator[Finding]:
    """All of it; what only torch knows is left out where that cannot be imported."""
    yield cores()
    if torch_works:
        yield threads()
    yield memory()
    yield instructions(torch_works=torch_works)
    if torch_works:
        yield from gpus()
    if sys.platform.startswith("linux"):
        yield shared_memory()
    yield display()


def cores() -> Finding:
    """Cores that processes here may use, and a container's limit on their time."""
    usable, limit = usable_cores(), core_limit()
    text = f"{usable} of {os.cpu_count() or usable} usable by this process"
    if limit is None or limit >= usable:
        return Finding("cores", "ok", text)
    return Finding("cores", "note", f"{text}, but its control group is given the time of {limit:g}, for which training "
                                    f"takes {available_cores()}")


def threads() -> Finding:
    """Threads of torch, which --threads sets for a run."""
    import torch

    count, variable = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    because = f", by OMP_NUM_THREADS={variable}" if variable else ""
    return Finding("threads", "ok", f"torch starts with {count}{because}; --threads sets them for a run")


def memory() -> Finding:
    """Memory that is free for this process."""
    free, total = free_memory(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = f"{_size(free)} free of {_size(total)}"
    if free >= LITTLE_MEMORY:
        return Finding("memory", "ok", text)
    return Finding("memory", "note", text, "for Atari end other programs, or use a smaller --num-envs; for acer a "
                                           "smaller --replay-size")


def instructions(*, torch_works: bool) -> Finding:
    """The processor, and which of its instructions matter for speed."""
    try:
        info = CPU_INFO.read_text()
    except OSError:
        info = ""
    model = re.search(r"^model name\s*:\s*(.*)", info, re.MULTILINE)
    listed = re.search(r"^(?:flags|Features)\s*:\s*(.*)", info, re.MULTILINE)
    flags = set(listed[1].split()) if listed else set()
    has = [name for name in (*WIDE, "amx_tile", *BFLOAT16) if name in flags]
    text = f"{model[1] if model else platform.processor() or platform.machine()}: "
    text += ", ".join(has) or ("none of AVX2, AVX-512, AMX" if flags else "the system does not list its instructions")
    if torch_works:
        import torch

        text += f"; torch computes with {torch.backends.cpu.get_cpu_capability()}"
    hint = "--precision bfloat16 is worth trying for images in large batches" if flags & set(BFLOAT16) else ""
    return Finding("processor", "ok", text, hint)


def gpus() -> Iterator[Finding]:
    """Each GPU that torch can use, or why it can use none."""
    import torch

    driver, listed = nvidia_smi()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for index in range(count):
        device = torch.cuda.get_device_properties(index)
        with_driver = f", driver {driver}" if driver else ""
        yield Finding(f"gpu {index}", "ok", f"{device.name}, {_size(device.total_memory)}{with_driver}")
    if count:
        return
    if not driver:
        yield Finding("gpu", "note", f"none: {listed}; training runs on the CPU")
    elif torch.version.cuda is None:
        yield Finding("gpu", "note", f"{listed}, driver {driver}, but torch {torch.__version__} is built without CUDA",
                      "install torch for CUDA as https://pytorch.org/get-started/locally says")
    elif os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        yield Finding("gpu", "note", f"{listed}, hidden by CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r}",
                      "unset CUDA_VISIBLE_DEVICES")
    else:
        why = str(said[0].message).split(". ")[0] if said else "torch does not say why it cannot use it"
        yield Finding("gpu", "note", f"{listed}, driver {driver}: {why}",
                      f"update the driver to one for CUDA {torch.version.cuda}")


def nvidia_smi() -> tuple[str, str]:
    """The driver's version and the GPUs that it lists; without a driver "" and why."""
    query = ["nvidia-smi", "--query-gpu=driver_version,name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        return "", "no NVIDIA driver (there is no nvidia-smi)"
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvidia-smi does not answer ({type(error).__name__})"
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return "", next(iter([*lines, *done.stderr.strip().splitlines()]), "nvidia-smi lists none")
    rows = [[part.strip() for part in line.split(",")] for line in lines]
    return rows[0][0], " and ".join(", ".join(row[1:]) for row in rows)


def shared_memory() -> Finding:
    """The file system through which processes share memory."""
    try:
        total = disk_usage(SHARED).total
    except OSError:
        return Finding("shared memory", "problem", f"there is no {SHARED}", "mount a tmpfs there; a3c and vector=async "
                                                                        "need it")
    if total >= SHARED_MEMORY:
        return Finding("shared memory", "ok", f"{_size(total)} in {SHARED}")
    return Finding("shared memory", "note", f"only {_size(total)} in {SHARED}: a3c and vector=async may run out of it",
                   "docker run --shm-size 1g, or mount -o remount,size=1g /dev/shm")


def display() -> Finding:
    """Whether a window could open."""
    if not sys.platform.startswith("linux"):
        return Finding("display", "ok", "the system's own")
    for variable in ("WAYLAND_DISPLAY", "DISPLAY"):
        if os.environ.get(variable):
            return Finding("display", "ok", f"{variable}={os.environ[variable]}")
    return Finding("display", "note", "none: neither DISPLAY nor WAYLAND_DISPLAY is set, so no window can open",
                   "training needs none; for windows log in at a desktop or with ssh -X")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
