"""The report of `vantage doctor`: real checks in subprocesses, and machines that lack something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from zygote import call

from vantage.cli import main
from vantage.tools import doctor


def run_in_a_fork(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """A check in a process that has imported torch, as an interpreter of its own only for NumPy and for training."""
    fresh = "numpy" in words[-1] or words[-1] == doctor.CHECKS["training"].code
    return subprocess.run(words, **options) if fresh else call(words[2:], timeout=options["timeout"])


def test_a_machine_that_trains_is_status_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "subprocess", SimpleNamespace(
        run=run_in_a_fork, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired))
    Path("types.py").write_text("raise SystemExit('imported a file of the working directory')")
    assert main(["doctor", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    texts = {finding["name"]: finding["text"] for finding in output["findings"]}
    assert output["works"] and {"python", "vantage", "cores", "memory", *doctor.CHECKS} <= set(texts)
    assert texts["hub"].startswith("huggingface_hub ") and "AssertionError" not in texts["cuda"]
    assert texts["torch"] == torch.__version__ and "Pong" in texts["atari"] and "1,024 steps" in texts["training"]
    assert os.listdir() == ["types.py"]


def test_a_broken_torch_is_status_1_and_other_libraries_are_optional(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {name: doctor.CHECKS[name] for name in ("torch", "mujoco", "cuda")})
    for name in ("torch", "mujoco"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('libtorch.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "problem  torch          ImportError: libtorch.so: cannot open" in out
    assert "-> pip install --force-reinstall torch" in out and "note     mujoco " in out and "note     cuda " in out
    assert out.endswith("\ntraining does not work: fix torch\n")


def test_a_finding_is_printed_before_the_next_check_begins(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []

    def attempt(code: str) -> tuple[bool, str]:
        shown.append(capsys.readouterr().out)
        return True, "1.0"

    monkeypatch.setattr(doctor, "attempt", attempt)
    assert main(["doctor"]) == 0
    assert "\nok       memory " in shown[0]
    for name, lines in zip(doctor.CHECKS, [*shown[1:], capsys.readouterr().out], strict=True):
        assert lines.startswith(f"ok       {name:<14} 1.0\n")


@pytest.mark.parametrize(("code", "seconds", "text"), [
    ("import os; os.abort()", 60, "SIGABRT"), ("raise SystemExit(3)", 60, "status 3 without output"),
    ("while True: pass", 0.2, "no answer within 0.2 seconds")])
def test_an_attempt_reports_how_the_process_ended(
        code: str, seconds: float, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TIMEOUT", seconds)
    works, last = doctor.attempt(code)
    assert not works and text in last


def test_little_shared_memory_is_noted_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: namedtuple("usage", "total")(64 << 20))
    findings = {finding.name: finding for finding in doctor.check_machine()}
    assert findings["shared memory"].status == "note" and "--shm-size" in findings["shared memory"].remedy
