"""Progress of a training run: a live panel on a terminal, otherwise a line every 10 s; log messages appear above it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
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

from vantage._host.terminal import printable, write_line
from vantage.config.config import Config
from vantage.tools.progress_line import LINE_EVERY_SECONDS, clock, number, progress, progress_line

if TYPE_CHECKING:
    from vantage.types import Report

_NUMBER = 12
"""Width of a number, fixed so that columns keep their place, in characters."""


def say(text: str) -> None:
    """Print a line.

    A run continues without output where it cannot be written (a full disk, a closed terminal).
    """
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
        self.evaluation |= {name: value for name, value in report.metrics.items()
                            if name.startswith("eval/")}
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
        groups.setdefault(printable(group),
                          []).append((printable(rest or name), number(metrics[name])))
    whole = Table.grid()
    for group, cells in groups.items():
        widest = max(cell_len(name) for name, _ in cells)
        whole.add_row(f"[bold]{escape(group)}")
        words = (f"{set_cell_size(name, widest)}  {value:<{_NUMBER}}" for name, value in cells)
        whole.add_row(Columns(map(escape, words), (0, 2)))
    return whole
