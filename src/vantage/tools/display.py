"""Progress of a training run: a live panel on a terminal, otherwise a line every 10 s; log messages appear above it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Self

from rich.cells import cell_len, set_cell_size
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from vantage.config import Config
from vantage.terminal import printable, write_line

if TYPE_CHECKING:
    from vantage.types import Report

LINE_EVERY_SECONDS = 10.0
_SHOWN = {"steps/s": "time/fps", "return": "rollout/ep_rew_mean", "entropy": "train/entropy",
          "value loss": "train/value_loss"}
_NUMBER = 12
"""Width of a number, fixed so that columns keep their place, in characters."""


def say(text: str) -> None:
    """Print a line. A run continues without output where it cannot be written (a full disk, a closed terminal)."""
    try:
        write_line(text)
    except BrokenPipeError:
        raise
    except OSError:
        discard_output()


def discard_output() -> None:
    """Send standard output to the null device from now on, including what is still buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Display:
    """A context manager that shows reports, and above them notes."""

    def __init__(self, config: Config, *, console: Console | None = None) -> None:
        self.config = config
        self.stop_message = ""
        """What the panel says once a signal has arrived."""
        self.report: Report | None = None
        self.evaluation: dict[str, float] = {}
        """Metrics of the newest evaluation."""
        self.shown_at, self.shown_step = -LINE_EVERY_SECONDS, -1
        self.console = console or Console(force_terminal=sys.stdout.isatty())
        self.live: Live | None = None
        if self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=2, get_renderable=self._panel)

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            with contextlib.suppress(OSError):  # the terminal is gone
                self.live.stop()

    def note(self, text: str) -> None:
        """Print `text` once."""
        if self.live is None:
            say(f"- {text}")
            return
        with contextlib.suppress(OSError):
            self.console.print(f"[dim]-[/] {escape(printable(text))}", highlight=False)

    def show(self, report: Report) -> None:
        """Show the newest report; as a line only if 10 s have passed or if it is the last."""
        self.report = report
        self.evaluation |= {name: value for name, value in report.metrics.items() if name.startswith("eval/")}
        if self.live is not None:
            with contextlib.suppress(OSError):
                self.live.refresh()
        elif report.step != self.shown_step and (
                report.status != "running" or monotonic() - self.shown_at >= LINE_EVERY_SECONDS):
            self.shown_at, self.shown_step = monotonic(), report.step
            say(progress_line(self.config, report, self.evaluation))

    def _panel(self) -> Panel:
        self._count_wrapped_rows()
        report, title = self.report, escape(printable(
            f"vantage {self.config.algo} · {self.config.env.id} · seed {self.config.run.seed}"))
        if report is None:
            return Panel(self.stop_message or "starting", title=title)
        done, left = progress(self.config, report)
        bar = Table.grid(expand=True, padding=(0, 1))
        bar.add_column(ratio=1)
        bar.add_row(ProgressBar(completed=done * 100), f"{done:.1%}")
        steps = f"{report.step:,} / {self.config.run.steps:,} steps"
        words = [f"[bold yellow]{self.stop_message}"] if report.status == "running" and self.stop_message else []
        return Panel(Group(bar, f"{steps}  {clock(report.seconds)}, about {left} left",
                           table({**self.evaluation, **report.metrics}), *words),
                     title=title, subtitle=escape(printable(report.run)))

    def _count_wrapped_rows(self) -> None:
        """Let Live erase all rows of a panel whose lines a terminal has wrapped, as it became narrower.

        It would erase as many rows as the panel had lines (rich 15.0, 2026-11).
        """
        width, former = self.console.width, self.live and self.live._live_render
        if former and former._shape is not None and former._shape[0] > width:
            former._shape = width, former._shape[1] * -(-former._shape[0] // width)


def table(metrics: Mapping[str, float]) -> Table:
    """The metrics by the part of their names before the slash, as many side by side as there is room for."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in sorted(metrics):
        group, _, rest = name.partition("/")
        groups.setdefault(printable(group), []).append((printable(rest or name), number(metrics[name])))
    whole = Table.grid()
    for group, cells in groups.items():
        widest = max(cell_len(name) for name, _ in cells)
        whole.add_row(f"[bold]{escape(group)}")
        words = (f"{set_cell_size(name, widest)}  {value:<{_NUMBER}}" for name, value in cells)
        whole.add_row(Columns(map(escape, words), (0, 2)))
    return whole


def progress_line(config: Config, report: Report, evaluation: Mapping[str, float]) -> str:
    """Steps, share, time, the most important metrics, and the score of the newest `evaluation` if there is one."""
    done, left = progress(config, report)
    of_time = " of the time" * (done > report.step / config.run.steps)
    values = "  ".join(f"{name} {number(report.metrics.get(key))}" for name, key in _SHOWN.items())
    evaluated = f"  evaluation {number(evaluation['eval/mean_reward'])}" if evaluation else ""
    return f"{report.step:>12,} steps {done:4.0%}{of_time}  {clock(report.seconds)} (left {left})  {values}{evaluated}"


def progress(config: Config, report: Report) -> tuple[float, str]:
    """The completed share of the run, by steps or minutes, whichever is larger, and about how much time is left."""
    share, fps = report.metrics.get("time/minutes_share", 0.0), report.metrics.get("time/fps")
    done = min(1.0, max(report.step / config.run.steps, share))
    if not fps:  # no update yet
        return done, "–"
    left = (config.run.steps - report.step) / fps
    if config.run.max_minutes:
        left = min(left, config.run.max_minutes * 60 * (1 - share))
    return done, clock(max(0.0, left))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, such as 1:02:03."""
    return str(timedelta(seconds=int(seconds))) if seconds < 1e9 else "over 30 years"


def number(value: float | None) -> str:
    """Four digits, or a dash without a value."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e9 else f"{value:,.4g}"
