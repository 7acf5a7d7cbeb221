"""The display of a training run: reports, notes and log messages, on a terminal and in a file."""

from __future__ import annotations

import io
import logging
import math
from pathlib import Path

import pytest
from rich.console import Console

import vantage
from vantage._host.terminal import MessageHandler
from vantage._host.time_limit import TimeLimit
from vantage.cli.stop_signals import Stop
from vantage.tools import display as module
from vantage.tools.display import Display
from vantage.tools.progress_line import progress_line

CONFIG = vantage.configure("a2c", env="CartPole-v1", steps=10_000)
METRICS = {"rollout/ep_rew_mean": -20.5, "time/fps": 2000.0, "train/entropy": 1.79, "time/save_age": 61.0}


def report(step: int, **extra: float) -> vantage.Report:
    return vantage.Report(step, step / 1000, METRICS | extra, run="runs/[x]/a2c-1")


def live_display(width: int = 120) -> tuple[Display, io.StringIO]:
    """A display, and what it writes on a terminal of `width` columns."""
    file = io.StringIO()
    return Display(CONFIG, console=Console(file=file, width=width, force_terminal=True)), file


def test_an_own_metric_of_evaluations_needs_no_evaluation() -> None:
    assert "evaluation" not in progress_line(CONFIG, report(100), {"eval/margin": 1.0})


@pytest.mark.parametrize("width", [40, 200])
def test_the_panel_shows_progress_and_metrics_below_notes_and_log_messages(width: int) -> None:
    display, file = live_display(width)
    with display:
        display.note("a [bracket] is no markup")
        MessageHandler(display.note).handle(logging.makeLogRecord({"msg": "worker %d [failed]", "args": (3,)}))
        display.show(vantage.Report(100, 0.1, {}))
        display.show(report(2_000))
    text = file.getvalue()
    assert "[bracket]" in text and text.index("worker 3 [failed]") < text.rindex("CartPole-v1")
    if width > 80:
        assert all(word in text for word in ("-20.5", "1.79", "save_age", "20.0%", "2,000 / 10,000", "0:00:04 left",
                                             "runs/[x]/a2c-1"))


def test_the_line_of_progress_has_the_success_rate_when_there_is_one() -> None:
    assert "success" not in progress_line(CONFIG, report(10), {"eval/mean_reward": 3.0})
    line = progress_line(CONFIG, report(10, **{"rollout/success_rate": 0.25}),
                         {"eval/mean_reward": 3.0, "eval/success_rate": 0.75})
    assert "return -20.5  success rate 25%  entropy" in line and line.endswith("evaluation 3, success rate 75%")


def test_sixty_columns_hold_every_name_and_the_progress_in_one_line() -> None:
    display, file = live_display(60)
    names = ("train/explained_variance", "train/learning_rate", "rollout/ep_len_mean", "rollout/ep_rew_max",
             "eval/mean_reward_deterministic", "eval/mean_reward_sampled")
    with display:
        display.show(report(2_000, **dict.fromkeys(names, -0.009024)))
    lines = file.getvalue().splitlines()
    assert all(any(name.partition("/")[2] in line for line in lines) for name in names)
    assert any("2,000 / 10,000 steps" in line and "0:00:04 left" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_column_moves_as_numbers_change(width: int) -> None:
    def first_row(number: float) -> str:
        file = io.StringIO()
        names = ("train/entropy", "train/grad_norm", "train/policy_loss")
        Console(file=file, width=width).print(module.metrics_table(dict.fromkeys(names, number)))
        return file.getvalue().splitlines()[1]

    assert first_row(0.0).index("grad_norm") == first_row(-0.0001234).index("grad_norm")


def test_a_terminal_that_becomes_narrower_keeps_no_rows_of_the_former_panel() -> None:
    display, file = live_display(120)
    with display:
        display.show(report(2_000))
        lines = file.getvalue()[file.getvalue().rindex("╭"):].count("\n") + 1
        display.console.width = 50
        written = len(file.getvalue())
        display.show(report(2_000))
        assert file.getvalue()[written:].count("\x1b[1A") == 3 * lines - 1, "each line has been wrapped into three"


def test_lines_come_every_ten_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(CONFIG) as display:
        display.note("disk full")
        for step in (1_000, 2_000, 3_000):
            display.show(report(step, **{"eval/mean_reward": 7.5} if step == 2_000 else {}))
        for _ in range(2):
            display.show(vantage.Report(10_000, 10.0, METRICS, "done"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "- disk full" and len(lines) == 3
    assert "1,000 steps  10%" in lines[1] and "return -20.5" in lines[1] and "10,000 steps 100%" in lines[2]
    assert "evaluation" not in lines[1] and lines[2].endswith("evaluation 7.5"), "of the newest"


def test_time_left_is_by_steps_or_by_minutes() -> None:
    config, late = CONFIG.change(max_minutes=1.0), report(2_000, **{"time/minutes_share": 0.95})
    assert module.progress(CONFIG, report(2_000)) == (0.2, "0:00:04")
    assert module.progress(config, late) == (0.95, "0:00:03")
    assert "2,000 steps  95% of the time" in progress_line(config, late, {})
    assert module.progress(CONFIG, vantage.Report(0, 0.0, {})) == (0.0, "–")
    numbers = (None, 0.00071234, 9_999.7, 12_345.6)
    assert [module.number(value) for value in numbers] == ["\u2013", "0.0007123", "10,000", "12,346"]


def test_a_signal_is_shown_in_the_panel_or_at_once_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    display, file = live_display()
    with display:
        display.show(report(1_000))
        stop = Stop()
        stop.display = display
        stop.requested()
        stop._handle(15, None)
        display.show(report(1_500))
        display.show(vantage.Report(2_000, 2.0, METRICS, "interrupted"))
    text = file.getvalue()
    assert "stopping after this update" in text and "stopping" not in text[text.rindex("2,000 / 10,000"):]
    stop = Stop()
    stop.requested()
    stop._handle(15, None)
    assert capfd.readouterr().err == "stopping after this update; once more to exit at once\n"
    TimeLimit.stop_after(math.inf)


def test_a_terminal_that_is_gone_or_a_full_disk_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    display, file = live_display()
    with display:
        display.show(report(1_000))
        file.write = lambda text: (_ for _ in ()).throw(OSError("gone"))  # type: ignore[method-assign]
        display.show(report(2_000))
        display.note("still here")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        module.say("lost")
        module.say("lost too")
