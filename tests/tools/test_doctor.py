"""What the doctor says: real trials in processes of their own, and machines as they may be met."""

from __future__ import annotations

import json
import os
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from vantage import system
from vantage.cli import main
from vantage.tools import doctor, inspect_machine, installed
from vantage.tools.doctor import Examination, attempt, try_family
from vantage.tools.inspect_machine import Finding


def only_classic(monkeypatch: pytest.MonkeyPatch, env: str = "CartPole-v1") -> None:
    monkeypatch.setattr(doctor, "FAMILIES", {"classic": env})


def test_a_machine_on_which_all_is_well_is_status_0(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    only_classic(monkeypatch)
    Path("types.py").write_text("raise SystemExit('a file of the working directory was imported')")
    assert main(["doctor", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    findings = {finding["name"]: finding for finding in said["findings"]}
    assert said["works"] and {"python", "vantage", "torch", "cores", "memory", "processor", "display"} <= set(findings)
    assert findings["torch"]["text"] == torch.__version__
    assert "stepped" in findings["classic"]["text"] and "steps of A2C" in findings["training"]["text"]
    assert os.listdir() == ["types.py"]


def test_a_broken_torch_and_environment_are_named_with_status_1(
        monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    only_classic(monkeypatch, "nowhere:Env")
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: cannot open')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    line, = (line for line in out.splitlines() if line.startswith("problem  torch import"))
    assert "libtorch.so: cannot open" in line and "module 'nowhere' cannot be imported" in out
    assert "-> pip install --force-reinstall torch" in out
    assert out.splitlines()[-1] == "to be put right: torch import, classic, training"


@pytest.mark.parametrize(("code", "works", "says"), [
    ("print('one'); print('two')", True, "two"),
    ("raise ValueError('of the simulator')", False, "ValueError: of the simulator"),
    ("import os; os.abort()", False, "SIGABRT"),
    ("raise SystemExit(3)", False, "status 3 without a word"),
    ("import sys; sys.exit('said' * sys.stdin.read().count('x') or 'read to the end')", False, "read to the end"),
])
def test_an_attempt_tells_how_it_ended(code: str, works: bool, says: str) -> None:
    ended, said = attempt(code)
    assert ended == works and says in said


def test_a_trial_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "TRIAL_SECONDS", 0.2)
    assert attempt("while True: pass") == (False, "no answer within 0.2 seconds")


def test_only_what_is_optional_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "attempt", lambda code: (False, "it is not there"))
    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    assert try_family("mujoco") == Finding("mujoco", "note", "optional, not installed",
                                           "pip install 'vantage-rl[mujoco]'")
    assert (try_family("atari").status, try_family("classic").status) == ("problem", "problem")
    monkeypatch.setattr(doctor, "version_of", lambda name: "4.0")
    broken = try_family("mujoco")
    assert broken.status == "problem" and "it is not there" in broken.text


def test_notes_are_no_obstacle() -> None:
    findings = (Finding("a", "ok", "x"), Finding("display", "note", "none", "log in"))
    assert Examination(findings).works and "-> log in" in Examination(findings).table()
    assert not Examination((*findings, Finding("b", "problem", "y"))).works


def install(folder: Path, name: str, version: str, *requires: str, extras: tuple[str, ...] = ()) -> None:
    """The metadata of a distribution, as pip leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}",
             *(f"Provides-Extra: {extra}" for extra in extras), *(f"Requires-Dist: {one}" for one in requires)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_versions_are_held_against_what_vantage_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "made-up", "1.0", "old-one>=2", "absent-one>1", "elsewhere>9; python_version < '3'",
            "window[wide]; extra == 'show'", "numpy; extra == 'numbers'", extras=("show", "numbers"))
    install(tmp_path, "old-one", "1.9")
    install(tmp_path, "window", "1.0", "glass-one; extra == 'wide'", extras=("wide",))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(installed, "DISTRIBUTION", "made-up")
    monkeypatch.setattr(installed, "SHOWN", ())
    assert [*installed.versions()][2:] == [
        Finding("absent-one", "problem", "not installed", "pip install 'absent-one>1'"),
        Finding("old-one", "problem", "1.9, and Vantage needs >=2", "pip install 'old-one>=2'")]
    assert [*installed.extras()] == [
        Finding("[show]", "note", "optional, lacks glass-one", "pip install 'made-up[show]'"),
        Finding("[numbers]", "ok", "installed")]


def test_a_container_that_is_given_less_time_than_it_sees_cores_is_noted(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "usable_cores", lambda: 64)
    monkeypatch.setattr(inspect_machine, "usable_cores", lambda: 64)
    monkeypatch.setattr(system, "CGROUP", tmp_path)
    assert inspect_machine.cores().status == "ok"
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert inspect_machine.cores().status == "ok"
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    found = inspect_machine.cores()
    assert found.status == "note" and "time of 2.5, for which training takes 2" in found.text
    assert system.cores_for(0) == 2 and system.cores_for(7) == 7


@pytest.mark.parametrize(("info", "says", "hints"), [
    ("model name\t: Xeon X\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_tile\n",
     "Xeon X: avx2, avx512f, amx_tile, avx512_bf16", True),
    ("model name\t: Old One\nflags\t\t: fpu sse2\n", "Old One: none of AVX2", False),
    ("Features\t: fp asimd bf16 sve\n", "asimd, sve, bf16", True),
    (None, "does not list", False),
])
def test_the_instructions_that_matter_are_named(info: str | None, says: str, hints: bool, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_machine, "CPU_INFO", tmp_path / "cpuinfo")
    if info is not None:
        (tmp_path / "cpuinfo").write_text(info)
    found = inspect_machine.instructions(torch_works=True)
    assert says in found.text and "torch computes with" in found.text and ("bfloat16" in found.remedy) == hints


def fake_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


H100 = "echo '550.54, NVIDIA H100, 81559 MiB'"


@pytest.mark.parametrize(("script", "cuda", "hidden", "says", "remedy"), [
    (None, None, None, "none: no NVIDIA driver", ""),
    ("echo 'could not communicate with the driver'; exit 9", "12.8", None, "none: could not communicate", ""),
    (H100, None, None, "NVIDIA H100, 81559 MiB, driver 550.54, but torch", "pytorch.org"),
    (H100, "12.8", "", "hidden by CUDA_VISIBLE_DEVICES=''", "unset"),
    (H100, "12.8", None, "the driver is too old", "driver to one for CUDA 12.8"),
])
def test_without_a_usable_gpu_the_reason_is_given(
        script: str | None, cuda: str | None, hidden: str | None, says: str, remedy: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> bool:
        import warnings
        warnings.warn("CUDA initialization: the driver is too old. Please update it", stacklevel=1)
        return False

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    if script is not None:
        fake_nvidia_smi(tmp_path, monkeypatch, script)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    found, = inspect_machine.gpus()
    assert found.status == "note" and says in found.text and remedy in found.remedy


def test_each_gpu_is_named_with_its_memory_and_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, monkeypatch, H100)
    device = namedtuple("device", "name total_memory")("NVIDIA H100", 80 << 30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: device)
    assert [*inspect_machine.gpus()] == [
        Finding(name, "ok", "NVIDIA H100, 80.0 GiB, driver 550.54") for name in ("gpu 0", "gpu 1")]


@pytest.mark.parametrize(("size", "status"), [(64 << 20, "note"), (1 << 30, "ok")])
def test_little_shared_memory_is_noted(size: int, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total")(size)
    monkeypatch.setattr(inspect_machine, "disk_usage", lambda path: usage)
    found = inspect_machine.shared_memory()
    assert found.status == status and ("--shm-size" in found.remedy) == (status == "note")


def test_missing_shared_memory_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_machine, "SHARED", tmp_path / "nowhere")
    assert inspect_machine.shared_memory().status == "problem"


@pytest.mark.parametrize("variable", ["DISPLAY", "WAYLAND_DISPLAY"])
def test_a_display_is_seen(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert inspect_machine.display().status == "note"
    monkeypatch.setenv(variable, ":7")
    assert inspect_machine.display() == Finding("display", "ok", f"{variable}=:7")


def test_little_memory_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspect_machine.memory().text.endswith("GiB")
    monkeypatch.setattr(inspect_machine, "free_memory", lambda: 300 << 20)
    assert inspect_machine.memory().status == "note" and "300 MiB free" in inspect_machine.memory().text


def test_bad_usage_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    arguments: list[list[Any]] = [["doctor", "--jsn"], ["doctor", "runs"]]
    for given in arguments:
        assert main(given) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
