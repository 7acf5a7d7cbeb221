"""Displays of a training run: reports, notes and log messages, terminals of any width."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

import vantage
from vantage.tools.display import DisplayHandler, LineDisplay, LiveDisplay, clock, number, sparkline

CONFIG = vantage.configure("a2c", env="CartPole-v1", steps=10_000)
METRICS = {"rollout/ep_rew_mean": -20.5, "rollout/ep_len_mean": 900.0, "rollout/episodes": 12, "time/fps": 2000.0,
           "time/frames": 40_000, "train/entropy": 1.79, "time/save_age": 61.0, "time/memory_mib": 412.3}


def report(step: int, **extra: float) -> vantage.Report:
    return vantage.Report(step, step / 1000, METRICS | extra, run="runs/[x]/a2c-1")


def live_display(width: int = 120) -> tuple[LiveDisplay, io.StringIO]:
    """A display, and what it writes on a terminal of `width` columns."""
    display, file = LiveDisplay(CONFIG, "flat at first"), io.StringIO()
    display.console = display.live.console = Console(file=file, width=width, force_terminal=True)
    return display, file


@pytest.mark.parametrize("width", [40, 200])
def test_the_panel_shows_the_score_the_speed_and_the_last_save(width: int) -> None:
    display, file = live_display(width)
    with display:
        display.note("a [bracket] is no markup")
        display.show(vantage.Report(100, 0.1, {}))
        for step in (1_000, 2_000):
            display.show(report(step))
    text = file.getvalue()
    assert "[bracket]" in text
    if width > 80:
        assert all(word in text for word in ("-20.5", "2,000", "1:01 ago", "412 MiB", "20.0%", "flat at first"))


def test_lines_come_every_ten_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    display = LineDisplay(CONFIG, "")
    with display:
        for step in (1_000, 2_000, 3_000):
            display.show(report(step))
        display.show(vantage.Report(10_000, 10.0, METRICS, "done"))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "1,000 steps  10%" in lines[0] and "return -20.5" in lines[1]


def test_times_and_numbers_are_short() -> None:
    assert [clock(s) for s in (0, 61, 3_723, float("inf"))] == ["0:00", "1:01", "1:02:03", "?"]
    assert [number(v) for v in (None, 0.00071234, 12_345.6)] == ["\u2013", "0.0007123", "12,346"]


def test_a_sparkline_rises_with_its_curve() -> None:
    assert sparkline([float(i) for i in range(8)], 8) == "▁▂▃▄▅▆▇█"
    assert len(sparkline([0.0] * 1_000, 64)) <= 64


def test_a_signal_is_answered_in_the_panel_or_at_once_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    live, file = live_display()
    with live:
        live.show(report(1_000))
        live.stopping("stopping after this update")
        live.live.refresh()
        live.show(vantage.Report(2_000, 2.0, METRICS, "interrupted"))
    text = file.getvalue()
    assert "stopping after this update" in text and "stopping" not in text[text.rindex("2,000 / 10,000"):]
    LineDisplay(CONFIG, "").stopping("stopping after this update")
    assert capfd.readouterr().err == "stopping after this update\n"


def test_log_messages_appear_above_the_panel() -> None:
    live, file = live_display()
    log, handler = logging.getLogger("vantage.x"), DisplayHandler(live)
    log.addHandler(handler)
    try:
        with live:
            log.warning("worker %d [failed]", 3)
            live.show(report(1_000))
    finally:
        log.removeHandler(handler)
    text = file.getvalue()
    assert "worker 3 [failed]" in text and text.index("worker 3") < text.index("1,000 / 10,000")
