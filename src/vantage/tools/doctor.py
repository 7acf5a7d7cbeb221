"""`vantage doctor`: versions, the machine, optional libraries and a trial training, on one screen.

Whatever imports a compiled library runs in a subprocess, so that a crash or a hang is reported like
any other failure.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import psutil

from vantage._host.extras import install_command
from vantage._host.processes import ended_by
from vantage._host.system import available_cores, free_memory

SHARED_MEMORY = Path("/dev/shm")
MIN_SHARED_MEMORY = 256 << 20
"""Bytes below which a3c and vector=async may run out; Docker's default is 64 MB."""

TIMEOUT = 120
"""Seconds after which a subprocess counts as hung."""


@dataclass(frozen=True, slots=True)
class Check:
    """Python code that prints a line, and what to do where it fails."""

    code: str
    remedy: str
    needed: bool = False
    """Training needs it."""


def _version_of(module: str, remedy: str) -> Check:
    return Check(f"import {module}; print({module}.__version__)", remedy)


def _needed(package: str) -> Check:
    return replace(_version_of(package, f"pip install --force-reinstall {package}"), needed=True)


_CUDA = """
import torch
if not torch.backends.cuda.is_built():
    raise SystemExit("this torch is built without CUDA")
try:
    torch.cuda.init()
except RuntimeError as error:
    raise SystemExit(str(error).partition(". ")[0])
print(", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())))
"""
_ATARI = """
import ale_py
from ale_py import roms
ale_py.ALEInterface().loadROM(roms.get_rom_path("pong"))
print(f"ale-py {ale_py.__version__}, the ROM of Pong loads")
"""
_ONNX = """
import onnx, onnxscript, onnxruntime
print(f"{onnx.__version__}, runtime {onnxruntime.__version__}")
"""
_TRAINING = """
import tempfile, numpy, vantage
config = vantage.configure("a2c", env="CartPole-v1", steps=1024, eval_every=0, tensorboard=False)
with tempfile.TemporaryDirectory() as folder:
    agent = vantage.train(config, run=folder + "/run", argv=(), progress=False)
    agent.act(numpy.zeros((1, 4), numpy.float32), agent.initial_state(1))
print(f"{config.run.steps:,} steps of A2C on CartPole-v1: trained, saved and loaded")
"""
_FFMPEG = "import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_version())"
_HUB = "import huggingface_hub; print(f'huggingface_hub {huggingface_hub.__version__}')"

_BOX2D_REMEDY = f"{install_command('box2d')}, which needs swig and a compiler without a wheel"
_TRAINING_REMEDY = "fix the problems above; if there are none, report this line as a bug"

CHECKS = {
    "torch": _needed("torch"),
    "gymnasium": _needed("gymnasium"),
    "numpy": _needed("numpy"),
    "cuda": Check(_CUDA, "training runs on the CPU; "
                         "for a GPU: https://pytorch.org/get-started/locally"),
    "atari": Check(_ATARI, install_command("atari")),
    "box2d": _version_of("Box2D", _BOX2D_REMEDY),
    "mujoco": _version_of("mujoco", install_command("mujoco")),
    "optuna": _version_of("optuna", install_command("search")),
    "onnx": Check(_ONNX, install_command("export")),
    "ffmpeg": Check(_FFMPEG, install_command("video")),
    "ray": _version_of("ray", install_command("ray")),
    "wandb": _version_of("wandb", install_command("wandb")),
    "mlflow": _version_of("mlflow", install_command("mlflow")),
    "hub": Check(_HUB, install_command("hub")),
    "matplotlib": _version_of("matplotlib", install_command("plot")),
    "tensorboard": _version_of("tensorboard", install_command("tensorboard")),
    "training": Check(_TRAINING, _TRAINING_REMEDY, needed=True),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    status: Literal["ok", "note", "problem"]
    """A problem prevents training."""
    text: str
    remedy: str = ""
    """Empty where there is nothing to do."""

    def lines(self) -> str:
        """As text, with the remedy on a line of its own."""
        line = f"{self.status:<8} {self.name:<14} {self.text}"
        return f"{line}\n{'':<23} -> {self.remedy}" if self.remedy else line


def check_machine() -> Iterator[Finding]:
    """Versions, cores, memory and shared memory."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    yield Finding("vantage", "ok", version("vantage-rl"))
    yield Finding("cores", "ok", f"{available_cores()} available of {os.cpu_count()}")
    free = free_memory() / 2**30
    total = psutil.virtual_memory().total / 2**30
    yield Finding("memory", "ok", f"{free:.1f} GiB free of {total:.1f} GiB")
    if not SHARED_MEMORY.exists():
        return
    size = shutil.disk_usage(SHARED_MEMORY).total
    if size < MIN_SHARED_MEMORY:
        yield Finding("shared memory", "note",
                      f"{size >> 20} MiB, too little for a3c and vector=async",
                      "docker run --shm-size 1g, or mount -o remount,size=1g /dev/shm")


def examine() -> Iterator[Finding]:
    """Run all checks and yield each finding as its check ends. Takes ten seconds or more."""
    yield from check_machine()
    for name, check in CHECKS.items():
        works, text = attempt(check.code)
        if works:
            yield Finding(name, "ok", text)
        else:
            yield Finding(name, "problem" if check.needed else "note", text, check.remedy)


def attempt(code: str) -> tuple[bool, str]:
    """Whether Python code succeeds in a subprocess, and the last line that it prints."""
    try:
        # -P: a file in the working directory cannot shadow a module.
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=False,
                              text=True, errors="replace", stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {TIMEOUT} seconds"
    if done.returncode < 0:
        return False, f"the process {ended_by(done.returncode)}"
    works = done.returncode == 0
    lines = (done.stdout if works else done.stderr).strip().splitlines()
    if not lines:
        return works, f"exit status {done.returncode} without output"
    return works, lines[-1]
