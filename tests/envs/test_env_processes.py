"""Environments in processes of their own: their steps, and the words for an error or a death."""

from __future__ import annotations

import multiprocessing
import re

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv
from test_envs import fault_after_two_steps, make

from vantage.envs import workers
from vantage.errors import EnvError


def test_an_error_in_a_worker_process_has_the_same_message_and_a_traceback():
    message = fault_after_two_steps("raise", "async")
    assert message.startswith(fault_after_two_steps("raise", "sync"))
    assert "Traceback" in message and "faulty_envs.py" in message


@pytest.mark.parametrize(("fault", "how"), [
    ("die", "with exit status 7; a"), ("segfault", "killed by SIGSEGV; a"),
    ("oom", r"killed by SIGKILL \(out of memory\?\); a")])
def test_the_end_of_a_process_is_named_with_its_cause(fault, how):
    assert re.search(f"ended without an error: .*environment [01] {how}", fault_after_two_steps(fault, "async"))


def test_a_process_killed_between_two_steps_is_named_without_the_error_of_its_pipe():
    envs = make("faulty_envs:Counter", vector="async")
    try:
        envs.reset()
        process = multiprocessing.active_children()[0]
        process.kill()
        process.join()
        with pytest.raises(EnvError, match="killed by SIGKILL") as caught:
            envs.step(np.ones(2, int))
        assert caught.value.__cause__ is None  # the command would show its traceback
    finally:
        envs.close()


def test_a_process_killed_while_it_starts_is_named(monkeypatch: pytest.MonkeyPatch):
    class Killed(AsyncVectorEnv):
        def _check_spaces(self) -> None:
            self.processes[0].kill()
            super()._check_spaces()

    monkeypatch.setattr(workers, "AsyncVectorEnv", Killed)
    with pytest.raises(EnvError, match="a process of faulty_envs:Counter ended while it started"):
        make("faulty_envs:Counter", vector="async")


@pytest.mark.usefixtures("fresh_interpreters")
def test_processes_give_the_same_steps_ignore_ctrl_c_and_import_no_torch():
    envs = make("faulty_envs:TorchFree", vector="async", options={"fault": "interrupt", "at": 1, "length": 2})
    try:
        obs = envs.reset().obs
        assert obs[:, :2].tolist() == [[0, 0], [0, 0]]
        assert obs[0, 2] != obs[1, 2]
        steps = [envs.step(np.ones(2, int)) for _ in range(3)]
        assert [s.rewards.tolist() for s in steps] == [[1, 1], [2, 2], [0, 0]]
        assert [s.is_first.tolist() for s in steps] == [[False, False], [False, False], [True, True]]
    finally:
        envs.close()
        envs.close()
