"""A second signal ends the command, also in native code; what Ray has started ends with it, kill -9 included."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from odd import Misbehaving
from processes import assert_ends, wait_for
from tiny import Tiny
from zygote import Command

from vantage.runtimes import ray_guard

pytestmark = pytest.mark.integration


class Deadlocked(Misbehaving):
    """Says when it hangs in native code, from its 41st step on."""

    def __init__(self, folder: str) -> None:
        super().__init__("hang in native code")
        self.folder = folder

    def play(self, action: Any) -> tuple[Any, bool]:
        if self.age == 40:
            Path(self.folder, "hangs").touch()
        return super().play(action)


class Forking(Tiny):
    """Forks a child that lives in the same process group, and is at the group's signals as long as it likes."""

    limit = 5

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        if os.fork() == 0:
            while True:
                signal.pause()

    def play(self, action: Any) -> tuple[Any, bool]:
        Path(self.folder, "plays").touch()
        return 0.0, False


class Idle(Tiny):
    """Needs no folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()


AGENTS = ("dashboard/agent.py", "runtime_env/agent/main.py")
"""Programs of Ray that its raylet starts."""


def start(env: str, folder: Path, *words: str, command: Any = Command) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])
    return command(
        ["-m", "vantage", "train", "a2c", "--env", f"{__name__}:{env}", "--env-kwargs",
         f'{{"folder": "{folder}"}}', "--env-timeout", "0", "--num-envs", "1", "--threads", "1", "--tensorboard",
         "false", "--eval-every", "0", "--hidden", "4", "--run", str(folder / "run"), *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env=os.environ | {"PYTHONPATH": path})


def fresh_interpreter(words: list[str], **options: Any) -> subprocess.Popen[str]:
    """Without a zygote beside the process, which would be another child of it."""
    return subprocess.Popen([sys.executable, *words], text=True, **options)


@pytest.mark.timeout(120, method="thread")
def test_a_second_signal_ends_the_command_in_native_code(tmp_path: Path) -> None:
    process = start("Deadlocked", tmp_path)
    wait_for((tmp_path / "hangs").exists, process)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 30
    while process.poll() is None:  # two signals at the same time would count as one
        assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    process.communicate()
    assert process.returncode == 130


@pytest.mark.timeout(120, method="thread")
def test_a_signal_to_the_whole_group_counts_once(tmp_path: Path) -> None:
    process = start("Forking", tmp_path, "--steps", "100M", command=fresh_interpreter)
    config = tmp_path / "run" / "config.json"
    wait_for(lambda: (tmp_path / "plays").exists() and config.exists(), process)
    for child in psutil.Process(process.pid).children():
        if child.cmdline() == psutil.Process(process.pid).cmdline():  # forked before training began
            child.send_signal(signal.SIGINT)
            assert_ends(child.pid, 20)
            assert config.exists()
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and "stopped by SIGINT at step" in out
    assert "Traceback" not in out and "before training began" not in out


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux")
@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("when", [[], ["while it starts"]], ids=["complete", "while it starts"])
def test_what_a_cluster_leaves_ends_with_the_process_that_started_it(when: list[str]) -> None:
    program = f"""
import subprocess, sys, time
sys.path.insert(0, {str(Path(ray_guard.__file__).parent)!r})
from ray_guard import Guard
PAUSE = [sys.executable, "-c", "import signal; signal.pause()"]
other = subprocess.Popen(PAUSE, start_new_session=True, stdout=subprocess.DEVNULL)
with Guard():
    watched = subprocess.Popen(PAUSE, start_new_session=True, stdout=subprocess.DEVNULL)
    if len(sys.argv) > 1:
        print(watched.pid, other.pid, flush=True)
        time.sleep(60)
print(watched.pid, other.pid, flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", program, *when], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    watched, other = map(int, process.stdout.readline().split())
    if when:
        time.sleep(1.0)  # a few looks
    process.kill()
    process.wait()
    process.stdout.close()
    assert_ends(watched, 20)
    os.kill(other, signal.SIGKILL)  # ProcessLookupError if it had been killed


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux")
@pytest.mark.timeout(240, method="thread")
@pytest.mark.xdist_group("ray")
def test_nothing_of_ray_outlives_a_command_that_is_killed_while_it_stops(tmp_path: Path) -> None:
    """Ray's raylet starts two agents, which watch it and not the command."""
    pytest.importorskip("ray")
    process = start("Idle", tmp_path, "--runtime", "ray", "--num-workers", "1", "--steps", "100M",
                    command=fresh_interpreter)
    try:
        wait_for(lambda: len(agents_of_ray(process.pid)) == 2, process)
        agents = agents_of_ray(process.pid)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
    finally:
        process.kill()
        process.communicate()
    for pid in agents:
        assert_ends(pid, 10)


def agents_of_ray(pid: int) -> list[int]:
    agents = []
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if any(word.endswith(AGENTS) for word in child.cmdline()):
                agents.append(child.pid)
    return agents
