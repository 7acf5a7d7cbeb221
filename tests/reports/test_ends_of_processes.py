"""Environments that leave threads, processes and exit functions behind, or start processes: all comes to its end."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from environments import make
from processes import assert_ends, children
from tiny import Bandit
from zygote import call

import vantage
from vantage.errors import ConfigError
from vantage.runs.checkpoint import load_latest

pytestmark = pytest.mark.integration

SHORT = ["--num-envs", "2", "--rollout-length", "4", "--steps", "64", "--hidden", "4", "--threads", "1",
         "--tensorboard", "false", "--eval-every", "64", "--eval-episodes", "2"]
CALMLY = pytest.mark.timeout(120, method="thread")
COMMAND = "import sys; from vantage import cli; cli.EXIT_SECONDS = 0.2; sys.exit(cli.main())"
"""`vantage`, which waits for less than three seconds at its end."""


def wait_for_ever() -> None:
    threading.Event().wait()


class Lingering(Bandit):
    """Leaves a thread that never ends: where `how` says so, an exit function that does not end either."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        if how == "at exit":
            atexit.register(wait_for_ever)
        if how.startswith("thread") and how != "thread at close":
            threading.Thread(target=wait_for_ever).start()
        if how == "program":  # holds the standard output
            subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])

    def play(self, action: Any) -> tuple[Any, bool]:
        if self.how == "thread and an error":
            raise RuntimeError("the simulator broke")
        return super().play(action)

    def close(self) -> None:
        if self.how == "thread at close":
            threading.Thread(target=wait_for_ever).start()


class Parent(Bandit):
    """Starts two processes where it runs in one of its own, and writes their ids; ends the first at its `close`."""

    def __init__(self, folder: str, closes: bool = True) -> None:
        super().__init__()
        self.process: Any = None
        if multiprocessing.parent_process() is not None:
            self.process = multiprocessing.get_context("fork").Process(target=signal.pause)
            self.process.start()
            program = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
            for pid in (self.process.pid, program.pid):
                Path(folder, str(pid)).touch()
        self.closes = closes

    def close(self) -> None:
        if self.process is not None and self.closes:
            self.process.terminate()
            self.process.join()


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """A program and its output. TimeoutExpired where it does not end, or something holds its output."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ["PYTHONPATH"]])
    return call(words, timeout=60, env=os.environ | {"PYTHONPATH": path})


@CALMLY
@pytest.mark.parametrize("how", ["thread", "thread at close", "at exit", "program"])
def test_the_command_ends_whatever_its_environment_leaves(how: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    done = python("-c", COMMAND, "train", "a2c", "--env", f"{__name__}:Lingering", "--env-kwargs",
                  f'{{"how": "{how}"}}', "--run", run, *SHORT)
    assert done.returncode == 0 and "Next: vantage evaluate" in done.stdout, done.stderr
    assert load_latest(Path(run)).step == 64
    if how == "thread at close":
        done = python("-c", COMMAND, "evaluate", run, "--episodes", "1")
        assert done.returncode == 0 and "1 " in done.stdout, done.stderr


@CALMLY
def test_a_failed_command_ends_with_its_status_whatever_its_environment_leaves(tmp_path: Path) -> None:
    done = python("-c", COMMAND, "train", "a2c", "--env", f"{__name__}:Lingering", "--env-kwargs",
                  '{"how": "thread and an error"}', "--run", str(tmp_path / "run"), *SHORT)
    assert done.returncode == 1 and "the simulator broke" in done.stderr, done


@CALMLY
@pytest.mark.parametrize("algo", ["a3c", "a2c"])
def test_processes_of_a_run_end_whatever_their_environments_leave(algo: str, tmp_path: Path) -> None:
    """Those of A3C and of ranks."""
    config = vantage.configure(algo, env=f"{__name__}:Lingering", env_kwargs={"how": "thread at close"}, num_envs=2,
                               num_workers=2, rollout_length=4, steps=64, hidden="4", threads=1, tensorboard=False,
                               eval_every=0)
    program = f"""
import vantage
from {__name__} import *
if __name__ == "__main__":
    config = vantage.Config.from_json({config.to_json()!r}, source="test")
    *_, last = vantage.Trainer(config, run={str(tmp_path / "run")!r})
    print(last.status, multiprocessing.active_children(), flush=True)
    os._exit(0)
"""
    (tmp_path / "program.py").write_text(program)
    done = python(str(tmp_path / "program.py"))
    assert done.returncode == 0 and done.stdout == "done []\n", done.stderr


@CALMLY
@pytest.mark.parametrize(("algo", "options", "closes"), [
    ("a2c", {"vector": "async", "num_envs": 2}, True), ("a2c", {"vector": "async", "num_envs": 2}, False),
    ("a3c", {"num_workers": 1}, False)], ids=["async", "async that leaves them", "a3c that leaves them"])
def test_environments_in_their_own_processes_may_start_processes_which_end_with_them(
        algo: str, options: dict[str, Any], closes: bool, tmp_path: Path) -> None:
    folder = tmp_path / "pids"
    folder.mkdir()
    values: dict[str, Any] = {"num_envs": 1, "rollout_length": 4, "steps": 64, "hidden": "4", "threads": 1,
                              "tensorboard": False, "eval_every": 0, **options}
    config = vantage.configure(algo, env=f"{__name__}:Parent", **values,
                               env_kwargs={"folder": str(folder), "closes": closes})
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done" and last.step == 64
    pids = [int(path.name) for path in folder.iterdir()]
    assert len(pids) >= 2 * config.num_processes * config.env.num_envs
    for pid in pids:
        assert_ends(pid, 5)
    assert not children()


def test_environments_of_a_daemonic_process_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"vector=async: a daemonic process, .*; give vector=sync"):
        make("tiny:Bandit", 2, vector="async")
