"""Environments that hang: named, interrupted by a stop, left behind at the end; what was learned is saved."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from environments import make
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from processes import children
from tiny import Bandit

import vantage
from vantage.cli import main
from vantage.cli import stop_signals as stop
from vantage.envs import failures, single, workers
from vantage.errors import EnvError
from vantage.runs.checkpoint import load_latest

pytestmark = pytest.mark.timeout(300, method="thread")  # pytest-timeout's other method has the signal for itself

PLACES: dict[str, dict[str, Any]] = {
    "in this process": {}, "in its own": {"vector": "async", "num_envs": 1},
    "in another rank": {"num_workers": 2}}


def options(how: str, place: str) -> dict[str, Any]:
    kwargs = json.dumps({"how": how, "only_child": place != "in this process"})
    return {"env": "odd:Misbehaving", "env_kwargs": kwargs, "num_envs": 4, "rollout_length": 5, "threads": 1,
            "tensorboard": False, "eval_every": 0, "save_every": 10**6, "steps": 400, "env_timeout": 1, **PLACES[place]}


@pytest.mark.parametrize(("place", "message"), [
    ("in this process", r"environment 0 of odd:Misbehaving \(seed \d+, episode 1, step 16\): TimeoutError: no "
                        r"answer for 1 s, at .*odd.py:\d+; .*env_timeout$"),
    ("in its own", r"environments 0 of odd:Misbehaving: no answer for 1 s; .*env_timeout$"),
    ("in another rank", r"environment 2 of odd:Misbehaving \(.*no answer for 1 s, at .*odd.py:\d+; .*env_timeout"),
], ids=list(PLACES))
def test_a_step_that_takes_too_long_ends_the_run_with_its_place_and_a_checkpoint(
        place: str, message: str, tmp_path: Path) -> None:
    config = vantage.configure("a2c", **options("hang", place))
    with pytest.raises(EnvError, match=message):
        list(vantage.Trainer(config, run=tmp_path / "run"))
    assert load_latest(tmp_path / "run").step == 8 * 5 * config.env.num_envs and not children()


@pytest.mark.parametrize("place", PLACES)
def test_one_signal_interrupts_a_hanging_rollout_and_saves_the_state_before_it(
        place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stop, "PATIENCE_SECONDS", 0.0)
    given = options("stop and hang", place)
    status = main(["train", "a2c", *(f"--{name}={value}" for name, value in given.items()),
                   "--run", str(tmp_path / "run")])
    out, err = capfd.readouterr()
    assert status == 128 + signal.SIGTERM and "interrupted environments" in out and "Traceback" not in err
    assert f"at step {8 * 5 * given['num_envs']}, saved" in out
    assert load_latest(tmp_path / "run").step == 8 * 5 * given["num_envs"] and not children()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "interrupted"


@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("vector", ["sync", "async"])
def test_environments_whose_close_hangs_are_left_behind(vector: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (single, failures, workers):
        monkeypatch.setattr(module, "CLOSE_SECONDS", 0.1)
    envs = make("odd:Misbehaving", 2, vector=vector, options={"how": "hang at close"})
    envs.reset()
    envs.close()
    for how in ("close", "hang at close"):  # one raises
        make("odd:make_vector", 2, options={"how": how}).close()
    assert not children()


@pytest.mark.timeout(60, method="thread")
def test_after_one_close_that_hangs_others_get_a_tenth_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = make("odd:Misbehaving", 3, vector="sync", options={"how": "hang at close"})
    limits = []

    def limit(seconds: float) -> failures.TimeLimit:
        limits.append(seconds)
        return failures.TimeLimit(seconds)

    monkeypatch.setattr(single, "CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(single, "TimeLimit", limit)
    envs.close()
    assert limits == [0.5, 0.05, 0.05]


@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("env", ["odd:Misbehaving", "odd:make_vector"])
def test_a_first_reset_that_hangs_is_noticed(env: str) -> None:
    with pytest.raises(EnvError, match=rf"{env} \(seed.*: TimeoutError: no answer for 0.5 s, at .*odd.py"):
        make(env, 1, env_timeout=0.5, options={"how": "hang at reset"})


def test_a_process_of_environments_ends_silently_after_the_main_process(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    monkeypatch.setattr(os, "_exit", statuses.append)
    monkeypatch.setattr(workers, "kill_descendants", lambda: None)  # of the tests' process
    ours, theirs = multiprocessing.Pipe()  # the worker closes theirs, as the death of its process does
    workers.serve(0, lambda: Bandit(), ours, theirs, None, SimpleNamespace(put=lambda _: None),
                 AutoresetMode.NEXT_STEP, None)
    assert statuses == [1]


def test_a_signal_while_processes_start_ends_them_without_a_word(
        monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    class Signalled(AsyncVectorEnv):
        def _check_spaces(self) -> None:  # waits until all processes have begun
            for process in self.processes:
                os.kill(process.pid, signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            super()._check_spaces()

    monkeypatch.setattr(workers, "AsyncVectorEnv", Signalled)
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt) as interrupt:  # its traceback keeps all objects alive
            make("tiny:Bandit", 2, vector="async")
    finally:
        signal.signal(signal.SIGINT, former)
    assert interrupt.tb is not None and not children() and capfd.readouterr() == ("", "")
