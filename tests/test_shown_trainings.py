"""What a person sees of a training in Python: its progress, and the reprs of objects."""

from __future__ import annotations

import logging
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
from tiny import Bandit
from trainers import SMALL, start

import vantage


def test_progress_is_one_line_in_a_notebook_and_log_messages_elsewhere(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {**SMALL, "steps": 48, "log_every_seconds": 0}
    caplog.set_level(logging.INFO, "vantage")
    vantage.train("a2c", env=Bandit, run="logged", **keys)
    assert [message[:9] for message in caplog.messages if " steps " in message] == ["16 steps ", "48 steps "]
    caplog.clear()
    vantage.train("a2c", env=Bandit, run="silent", progress=False, **keys)
    assert not [message for message in caplog.messages if " steps " in message]
    with monkeypatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        vantage.train("a2c", env=Bandit, run="terminal", **keys)
    assert "48 / 48 steps" in capsys.readouterr().out
    shown: list[tuple[str, str]] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        shown.append(("new", data["text/plain"]))
        return SimpleNamespace(update=lambda data, *, raw: shown.append(("update", data["text/plain"])))

    ipython = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1), display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    vantage.train("a2c", env=Bandit, run="notebook", **keys)
    assert [(how, line[:3]) for how, line in shown] == [("new", "16 "), ("update", "32 "), ("update", "48 ")]
    assert capsys.readouterr().out == ""


def long_name(end: str) -> str:
    return f"Task{'VeryLong' * 30}{end}"


@pytest.mark.parametrize(("env", "name"), [
    ("tiny:Bandit", "tiny:Bandit"), (lambda: Bandit(), "<lambda of Bandit>"), (partial(Bandit), "<Bandit>"),
    (type(long_name("Env"), (Bandit,), {}), "<TaskVeryLong...LongVeryLongVeryLongEnv>"),
    (long_name("-v0"), "TaskVeryLongV...yLongVeryLongVeryLong-v0")],
    ids=["path", "lambda", "partial", "long class", "long id"])
def test_reprs_are_one_short_line(env: Any, name: str) -> None:
    if env == long_name("-v0"):
        gym.register(env, Bandit)
    trainer = start("ppo", env, "long/" * 30 + "run", steps=32)
    report = trainer.update()
    result = trainer.evaluate(episodes=2)
    list(trainer)
    agent = trainer.agent
    assert str(trainer.config) == f"<Config ppo on {name}: 32 steps, seed 0>"
    assert f"ppo on {name}: done" in str(trainer) and str(trainer).endswith("long/long/run>")
    assert f"ppo on {name}: step 32" in str(agent) and f" on {name}: return" in str(result)
    for each in (trainer, report, result, agent, trainer.config):
        assert len(repr(each)) < 160 and "\n" not in repr(each)
        assert repr(each).startswith(f"<{type(each).__name__} ")
