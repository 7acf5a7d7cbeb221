"""Long steps: nothing interrupts one before its time is over, and one that hangs is named in any thread."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tiny import Bandit, Tiny

import vantage
from vantage.errors import EnvError
from vantage.runs.checkpoint import load_latest

pytestmark = pytest.mark.timeout(120, method="thread")

SHORT: dict[str, Any] = {"num_envs": 2, "rollout_length": 4, "steps": 64, "hidden": "4", "threads": 1,
                         "tensorboard": False, "eval_every": 32, "eval_episodes": 2, "save_every": 8}


class WithoutTimers(Bandit):
    """Native code that a signal interrupts fails: no timer that would send one may run during a step."""

    def play(self, action: Any) -> tuple[Any, bool]:
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "a timer interrupts this step"
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
        return super().play(action)


class WithAlarm(Bandit):
    """Uses SIGALRM for itself at every step, as libraries of time limits do."""

    def play(self, action: Any) -> tuple[Any, bool]:
        alarms: list[int] = []
        signal.signal(signal.SIGALRM, lambda number, frame: alarms.append(number))
        signal.raise_signal(signal.SIGALRM)
        assert alarms == [signal.SIGALRM]
        return super().play(action)


class Endless(Tiny):
    """Computes for ever in Python from its 21st step on."""

    limit = 10

    def __init__(self) -> None:
        super().__init__()
        self.age = 0

    def play(self, action: Any) -> tuple[Any, bool]:
        self.age += 1
        while self.age > 20:
            sum(range(100))
        return 0.0, False


@pytest.fixture
def alarm() -> Any:
    """SIGALRM as a program finds it."""
    former = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, former)


@pytest.mark.parametrize("timeout", [0, 120])
@pytest.mark.usefixtures("alarm")
def test_no_timer_interrupts_a_step(timeout: int, tmp_path: Path) -> None:
    config = vantage.configure("a2c", env=f"{__name__}:WithoutTimers", env_timeout=timeout, **SHORT)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done"


@pytest.mark.usefixtures("alarm")
def test_an_environment_may_use_the_alarm_itself(tmp_path: Path) -> None:
    config = vantage.configure("a2c", env=f"{__name__}:WithAlarm", **SHORT)
    *_, last = vantage.Trainer(config, run=tmp_path / "run")
    assert last.status == "done"


def test_a_step_that_hangs_is_named_in_another_thread_too_and_the_run_is_saved(tmp_path: Path) -> None:
    config = vantage.configure("a2c", env=f"{__name__}:Endless", env_timeout=1, **SHORT).change(eval_every=0)

    def train() -> None:
        list(vantage.Trainer(config, run=tmp_path / "run"))

    message = (rf"environment 0 of {__name__}:Endless \(.*TimeoutError: no answer for 1 s, at "
               r".*test_time_limits_of_calls\.py:\d+; it hangs, or give a longer")
    with pytest.raises(EnvError, match=message), ThreadPoolExecutor(1) as pool:
        pool.submit(train).result()
    assert load_latest(tmp_path / "run").step == 40
