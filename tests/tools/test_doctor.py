"""The report of `vantage doctor`: real checks in subprocesses, and machines that lack something."""

from __future__ import annotations

import json
import os
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from vantage.cli import main
from vantage.tools import doctor
from vantage.tools.doctor import Examination, Finding, attempt, check_library, check_machine, describe_cuda


def test_a_machine_that_trains_is_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    Path("types.py").write_text("raise SystemExit('imported a file of the working directory')")
    assert main(["doctor", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    findings = {finding["name"]: finding for finding in output["findings"]}
    assert output["works"] and {"python", "vantage", "cores", "memory", "cuda", *doctor.LIBRARIES} < set(findings)
    assert findings["torch"]["text"] == torch.__version__ and "Pong" in findings["atari"]["text"]
    assert "1,024 steps of A2C" in findings["training"]["text"]
    assert os.listdir() == ["types.py"]


def test_a_broken_torch_is_status_1_with_its_error_and_the_remedy(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", {name: doctor.LIBRARIES[name] for name in ("torch", "numpy")})
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at, = (i for i, line in enumerate(lines) if line.startswith("problem  torch"))
    assert "libtorch.so: cannot open" in lines[at] and "-> pip install --force-reinstall torch" in lines[at + 1]
    assert lines[-1] == "training does not work: fix torch, training"


@pytest.mark.parametrize(("code", "works", "text"), [
    ("print('one'); print('two')", True, "two"),
    ("raise ValueError('of the simulator')", False, "ValueError: of the simulator"),
    ("import os; os.abort()", False, "SIGABRT"),
    ("raise SystemExit(3)", False, "status 3 without output"),
])
def test_an_attempt_reports_how_the_process_ended(code: str, works: bool, text: str) -> None:
    result, last = attempt(code)
    assert result == works and text in last


def test_a_process_that_hangs_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TIMEOUT", 0.2)
    assert attempt("while True: pass") == (False, "no answer within 0.2 seconds")


def test_a_missing_optional_library_is_a_note_with_the_command_that_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "attempt", lambda code: (False, "ModuleNotFoundError: No module named 'mujoco'"))
    finding = check_library("mujoco")
    assert finding == Finding("mujoco", "note", "No module named 'mujoco'", "pip install 'vantage-rl[mujoco]'")
    assert Examination((finding,)).works and check_library("torch").status == "problem"


@pytest.mark.parametrize(("driver", "cuda", "hidden", "text"), [
    (False, None, None, "none: no NVIDIA driver"),
    (True, None, None, "is built without CUDA"),
    (True, "12.8", "", "CUDA_VISIBLE_DEVICES='' hides"),
    (True, "12.8", None, "none: the driver is too old"),
])
def test_the_reason_for_no_gpu_is_named(driver: bool, cuda: str | None, hidden: str | None, text: str,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> bool:
        import warnings
        warnings.warn("the driver is too old. Please update it", stacklevel=1)
        return False

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi" if driver else None)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    assert text in describe_cuda()


def test_each_gpu_is_named_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device = namedtuple("device", "name total_memory")("NVIDIA H100", 80 << 30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: device)
    assert describe_cuda() == "NVIDIA H100 (80.0 GiB), NVIDIA H100 (80.0 GiB)"


def test_little_shared_memory_is_noted_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "attempt", lambda code: (True, "none"))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: namedtuple("usage", "total")(64 << 20))
    findings = {finding.name: finding for finding in check_machine()}
    assert findings["shared memory"].status == "note" and "--shm-size" in findings["shared memory"].remedy


def test_an_unknown_flag_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--jsn"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
