"""`vantage doctor`: versions, the machine, optional libraries and a trial training, on one screen.

Whatever imports a compiled library runs in a subprocess, so that a crash or a hang is reported like any other failure.
"""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import psutil

from vantage.system import available_cores, free_memory

SHARED_MEMORY = Path("/dev/shm")
MIN_SHARED_MEMORY = 256 << 20
"""Bytes below which a3c and vector=async may run out; Docker's default is 64 MB."""

LIBRARIES = {  # code that prints a version, and what to do where it fails
    "torch": ("import torch; print(torch.__version__)", "pip install --force-reinstall torch"),
    "gymnasium": ("import gymnasium; print(gymnasium.__version__)", "pip install --force-reinstall gymnasium"),
    "numpy": ("import numpy; print(numpy.__version__)", "pip install --force-reinstall numpy"),
    "atari": ("import ale_py, ale_py.roms as roms; ale_py.ALEInterface().loadROM(roms.get_rom_path('pong')); "
              "print(f'ale-py {ale_py.__version__}, the ROM of Pong loads')", "pip install --force-reinstall ale-py"),
    "box2d": ("import Box2D; print(Box2D.__version__)",
              "pip install 'gymnasium[box2d]', which needs swig and a compiler where there is no wheel"),
    "mujoco": ("import mujoco; print(mujoco.__version__)", "pip install 'vantage-rl[mujoco]'"),
    "optuna": ("import optuna; print(optuna.__version__)", "pip install 'vantage-rl[search]'"),
    "onnx": ("import onnx, onnxscript, onnxruntime; print(f'{onnx.__version__}, runtime {onnxruntime.__version__}')",
             "pip install 'vantage-rl[export]'"),
    "ffmpeg": ("import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_version())",
               "pip install --force-reinstall imageio-ffmpeg"),
}

TIMEOUT = 120
"""Seconds after which a subprocess counts as hung."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `remedy` is empty where there is nothing to do. A problem prevents training."""

    name: str
    status: Literal["ok", "note", "problem"]
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings in the order of the report."""

    findings: tuple[Finding, ...]

    @property
    def works(self) -> bool:
        """Whether training works."""
        return all(finding.status != "problem" for finding in self.findings)

    def as_dict(self) -> dict[str, object]:
        """As a JSON object."""
        return {"works": self.works, "findings": [asdict(finding) for finding in self.findings]}

    def table(self) -> str:
        """As text, with the remedy below each line that needs one."""
        width = max(len(finding.name) for finding in self.findings)
        lines = []
        for finding in self.findings:
            lines.append(f"{finding.status:<8} {finding.name:<{width}}  {finding.text}")
            if finding.remedy:
                lines.append(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
        problems = [finding.name for finding in self.findings if finding.status == "problem"]
        works = "training works on this machine"
        return "\n".join([*lines, "", f"training does not work: fix {', '.join(problems)}" if problems else works])


def examine() -> Examination:
    """Run all checks; about ten seconds."""
    libraries = [check_library(name) for name in LIBRARIES]
    return Examination((Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}"),
                        Finding("vantage", "ok", metadata.version("vantage-rl")), *libraries[:3], *check_machine(),
                        *libraries[3:], check_training()))


def check_library(name: str) -> Finding:
    """The version of a library; only a broken torch, gymnasium or numpy prevents training."""
    code, remedy = LIBRARIES[name]
    works, text = attempt(code)
    if works:
        return Finding(name, "ok", text)
    required = name in ("torch", "gymnasium", "numpy")
    return Finding(name, "problem" if required else "note", text.removeprefix("ModuleNotFoundError: "), remedy)


def check_machine() -> Iterator[Finding]:
    """Cores, memory, shared memory and CUDA."""
    yield Finding("cores", "ok", f"{available_cores()} available of {os.cpu_count()}")
    yield Finding("memory", "ok", f"{_gib(free_memory())} free of {_gib(psutil.virtual_memory().total)}")
    if SHARED_MEMORY.exists():
        total = shutil.disk_usage(SHARED_MEMORY).total
        if total < MIN_SHARED_MEMORY:
            yield Finding("shared memory", "note", f"{_gib(total)}, too little for a3c and vector=async",
                          "docker run --shm-size 1g, or mount -o remount,size=1g /dev/shm")
    works, text = attempt("from vantage.tools.doctor import describe_cuda; print(describe_cuda())")
    remedy = "install torch for CUDA: https://pytorch.org/get-started/locally" if "without CUDA" in text else ""
    yield Finding("cuda", "ok" if works and not text.startswith("none") else "note", text, remedy)


def describe_cuda() -> str:
    """The GPUs that torch can use, or why it can use none."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        devices = [torch.cuda.get_device_properties(index) for index in range(count)]
        return ", ".join(f"{device.name} ({_gib(device.total_memory)})" for device in devices)
    if shutil.which("nvidia-smi") is None:
        return "none: no NVIDIA driver; training runs on the CPU"
    if torch.version.cuda is None:
        return f"none: an NVIDIA driver is installed, but torch {torch.__version__} is built without CUDA"
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return f"none: CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r} hides the GPUs"
    return f"none: {caught[0].message if caught else 'torch reports no device'}".partition(". ")[0]


def check_training() -> Finding:
    """Train, save, load and act in a subprocess."""
    works, text = attempt("from vantage.tools.doctor import train_briefly; print(train_briefly())")
    remedy = "" if works else "fix the problems above; if there are none, report this line as a bug"
    return Finding("training", "ok" if works else "problem", text, remedy)


def train_briefly() -> str:
    """Train A2C on CartPole in a temporary directory and act with the saved policy."""
    import numpy as np

    from vantage.presets import configure
    from vantage.training import load, train

    config = configure("a2c", env="CartPole-v1", steps=1024, eval_every=0, tensorboard=False)
    with tempfile.TemporaryDirectory() as folder:
        *_, last = train(config, run=Path(folder) / "run", argv=())
        agent = load(last.run)
        agent.act(np.zeros((1, 4), np.float32), agent.initial_state(1))
    return f"{last.step:,} steps of A2C on CartPole-v1: trained, saved and loaded"


def attempt(code: str) -> tuple[bool, str]:
    """Whether Python code succeeds in a subprocess, and the last line that it prints."""
    try:
        # -P: a file in the working directory cannot shadow a module.
        done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {TIMEOUT} seconds"
    if done.returncode < 0:
        return False, f"the process was killed by {signal.Signals(-done.returncode).name}"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1] if lines else f"exit status {done.returncode} without output"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
