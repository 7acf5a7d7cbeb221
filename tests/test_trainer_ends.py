"""How a training that a program steps itself ends: done, closed, failed or interrupted, and how it goes on."""

from __future__ import annotations

import json
import logging
import signal
import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import Bandit
from trainers import SMALL, start, weights

import vantage
from vantage.errors import ConfigError, VantageError
from vantage.runs.checkpoint import load_latest
from vantage.tools import progress_line as follow


def test_a_trainer_says_what_it_is_when_it_ends() -> None:
    trainer = start(steps=16)
    assert repr(trainer) == "<Trainer a2c on tiny:Bandit: running, step 0 of 16, run>"
    trainer.update()
    assert trainer.status == "done"
    with pytest.raises(VantageError, match=r"is done, at step 16; go on .*, steps=32, extend_schedule=True\)"):
        trainer.update()
    assert list(trainer) == []
    trainer.close()
    with start(run="closed") as trainer:
        trainer.update()
    trainer.close()
    with pytest.raises(VantageError, match=r"was closed, at step 16; go on with .*'closed'\)"):
        trainer.update()
    assert (trainer.status, trainer.evaluate(episodes=1).step) == ("interrupted", 16)
    with pytest.raises(ZeroDivisionError), start(run="left") as trainer:
        trainer.update()
        raise ZeroDivisionError
    assert load_latest(Path("left")).step == 16


def test_an_error_in_training_ends_the_trainer_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = start()
    trainer.update()

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("vantage.learning.learner.Learner.update", fail)
    with pytest.raises(RuntimeError, match="broken"):
        trainer.update()
    assert trainer.status == "failed" and "failed, step 16" in repr(trainer)
    with pytest.raises(VantageError, match="has failed, at step 16"):
        trainer.update()


def test_leaving_the_loop_leaves_the_trainer_open_and_losing_it_saves_the_run() -> None:
    trainer = start(log_every_seconds=0)
    for report in trainer:
        assert report.step == 16
        break
    assert trainer.status == "running" and trainer.update().step == 32
    del trainer
    assert load_latest(Path("run")).step == 32
    assert json.loads(Path("run/summary.json").read_text())["status"] == "interrupted"


def test_train_and_resume_return_the_agent_of_the_best_policy() -> None:
    agent = vantage.train("a2c", env=Bandit, run="run", **{**SMALL, "steps": 64, "eval_every": 32})
    assert agent.checkpoint == "best" and agent.act(np.zeros(1, np.float32))[0] in (0, 1)
    config = vantage.configure("a2c", env=Bandit, **{**SMALL, "steps": 32})
    assert vantage.train(config, run="second").step == 32
    assert vantage.resume("second", steps=48, extend_schedule=True).step == 48
    with pytest.raises(ConfigError, match="lr beside a config"):
        vantage.train(config, lr=1)
    with pytest.raises(ConfigError, match="env is missing"):
        vantage.train("a2c")


def test_ctrl_c_in_train_saves_and_says_how_to_go_on(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(follow.ProgressLines, "log", interrupt)
    with caplog.at_level(logging.INFO, "vantage"), pytest.raises(KeyboardInterrupt) as error:
        vantage.train("a2c", env=Bandit, run="run", **{**SMALL, "log_every_seconds": 0})
    assert str(error.value) == "stopped at step 16, saved; go on with vantage.resume('run')"
    assert str(error.value) in caplog.messages
    lines = traceback.format_exception(error.value)
    assert lines[-1] == f"KeyboardInterrupt: {error.value}\n" and len(lines) <= 5, "no frames of the update"
    assert load_latest(Path("run")).step == 16
    with pytest.raises(KeyboardInterrupt, match=r"go on with vantage\.resume\('own', env=\.\.\.\)$"):
        vantage.train("a2c", env=lambda: Bandit(), run="own", **{**SMALL, "log_every_seconds": 0})


class Interrupting(Bandit):
    """Sends `signals` times SIGINT in its next step."""

    signals = 0

    def play(self, action: Any) -> Any:
        signals, Interrupting.signals = Interrupting.signals, 0
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        return super().play(action)


@pytest.fixture
def interruptible() -> Iterator[None]:
    former = signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
    yield
    assert signal.signal(signal.SIGINT, former) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_comes_after_the_update_and_leaves_the_trainer_open(caplog: pytest.LogCaptureFixture) -> None:
    with vantage.Trainer("a2c", env=Interrupting, run="run", **SMALL) as trainer:
        trainer.update()
        Interrupting.signals = 1
        with pytest.raises(KeyboardInterrupt):
            trainer.update()
        assert (trainer.status, trainer.step) == ("running", 32)
        assert trainer.update().step == 48
    with vantage.Trainer.resume("run") as trainer:
        assert trainer.update().step == 64
    assert not any("new episode" in message for message in caplog.messages)


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_stops_at_once_and_says_how_to_go_on(caplog: pytest.LogCaptureFixture) -> None:
    trainer = vantage.Trainer("a2c", env=lambda: Interrupting(), run="run", **SMALL)
    trainer.update()
    Interrupting.signals = 2
    with pytest.raises(KeyboardInterrupt):
        trainer.update()
    assert (trainer.status, load_latest(Path("run")).step) == ("interrupted", 16)
    assert caplog.messages[-1].endswith("go on with vantage.Trainer.resume('run', env=...)")


def test_the_call_that_continues_hands_over_what_a_file_cannot_name() -> None:
    class Own(Bandit):
        """Has no import path."""

    with vantage.Trainer("a2c", env=Own, run="run", **SMALL) as trainer:
        trainer.update()
    with pytest.raises(VantageError) as error:
        trainer.update()
    call = str(error.value).partition("go on with ")[2]
    assert call == "vantage.Trainer.resume('run', env=Own)"
    with eval(call, {"vantage": vantage, "Own": Own}) as resumed:
        assert resumed.update().step == 32


def test_two_trainings_in_one_program_end_one_after_the_other() -> None:
    with closing(start(run="one")) as one, closing(start(run="two")) as two:
        assert one.update().step == two.update().step == 16
    assert torch.equal(weights("one"), weights("two"))
