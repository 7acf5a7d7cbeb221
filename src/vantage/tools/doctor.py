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
from dataclasses import dataclass
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


def _library(module: str, remedy: str) -> tuple[str, str]:
    return f"import {module}; print({module}.__version__)", remedy


NEEDED = ("torch", "gymnasium", "numpy", "training")
CHECKS = {  # code that prints a line, and what to do where it fails
    **{name: _library(name, f"pip install --force-reinstall {name}") for name in ("torch", "gymnasium", "numpy")},
    "cuda": ("import torch\n"
             "if not torch.backends.cuda.is_built(): raise SystemExit('this torch is built without CUDA')\n"
             "try: torch.cuda.init()\n"
             "except RuntimeError as error: raise SystemExit(str(error).partition('. ')[0])\n"
             "print(', '.join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())))",
             "training runs on the CPU; for a GPU: https://pytorch.org/get-started/locally"),
    "atari": ("import ale_py, ale_py.roms as roms; ale_py.ALEInterface().loadROM(roms.get_rom_path('pong')); "
              "print(f'ale-py {ale_py.__version__}, the ROM of Pong loads')", install_command("atari")),
    "box2d": _library("Box2D", f"{install_command('box2d')}, which needs swig and a compiler where there is no wheel"),
    "mujoco": _library("mujoco", install_command("mujoco")),
    "optuna": _library("optuna", install_command("search")),
    "onnx": ("import onnx, onnxscript, onnxruntime; print(f'{onnx.__version__}, runtime {onnxruntime.__version__}')",
             install_command("export")),
    "ffmpeg": ("import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_version())",
               install_command("video")),
    "ray": _library("ray", install_command("ray")),
    "wandb": _library("wandb", install_command("wandb")),
    "mlflow": _library("mlflow", install_command("mlflow")),
    "hub": ("import huggingface_hub as hub; print(f'huggingface_hub {hub.__version__}')", install_command("hub")),
    "matplotlib": _library("matplotlib", install_command("plot")),
    "tensorboard": _library("tensorboard", install_command("tensorboard")),
    "training": ("""
import tempfile, numpy, vantage
config = vantage.configure("a2c", env="CartPole-v1", steps=1024, eval_every=0, tensorboard=False)
with tempfile.TemporaryDirectory() as folder:
    agent = vantage.train(config, run=folder + "/run", argv=(), progress=False)
    agent.act(numpy.zeros((1, 4), numpy.float32), agent.initial_state(1))
print(f"{config.run.steps:,} steps of A2C on CartPole-v1: trained, saved and loaded")
""", "fix the problems above; if there are none, report this line as a bug"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `remedy` is empty where there is nothing to do.

    A problem prevents training.
    """

    name: str
    status: Literal["ok", "note", "problem"]
    text: str
    remedy: str = ""

    def lines(self) -> str:
        """As text, with the remedy on a line of its own."""
        line = f"{self.status:<8} {self.name:<14} {self.text}"
        return f"{line}\n{'':<23} -> {self.remedy}" if self.remedy else line


def check_machine() -> Iterator[Finding]:
    """Versions, cores, memory and shared memory."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    yield Finding("vantage", "ok", version("vantage-rl"))
    yield Finding("cores", "ok", f"{available_cores()} available of {os.cpu_count()}")
    free, total = free_memory() / 2**30, psutil.virtual_memory().total / 2**30
    yield Finding("memory", "ok", f"{free:.1f} GiB free of {total:.1f} GiB")
    if SHARED_MEMORY.exists() and (size := shutil.disk_usage(SHARED_MEMORY).total) < MIN_SHARED_MEMORY:
        yield Finding("shared memory",
                      "note", f"{size >> 20} MiB, too little for a3c and vector=async",
                      "docker run --shm-size 1g, or mount -o remount,size=1g /dev/shm")


def examine() -> Iterator[Finding]:
    """Run all checks and yield each finding as its check ends. Takes ten seconds or more."""
    yield from check_machine()
    for name, (code, remedy) in CHECKS.items():
        works, text = attempt(code)
        yield Finding(name, "ok", text) if works else Finding(name, "problem" if name in NEEDED else "note", text,
                                                              remedy)


def attempt(code: str) -> tuple[bool, str]:
    """Whether Python code succeeds in a subprocess, and the last line that it prints."""
    try:
        # -P: a file in the working directory cannot shadow a module.
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, timeout=TIMEOUT,
                              check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {TIMEOUT} seconds"
    if done.returncode < 0:
        return False, f"the process {ended_by(done.returncode)}"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else f"exit status {done.returncode} without output"
