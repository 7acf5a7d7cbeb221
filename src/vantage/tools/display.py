"""Progress of a training run: a live panel on a terminal, otherwise a line every 10 seconds.

Log messages appear above the panel.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

from rich.cells import cell_len, set_cell_size
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from vantage._host.terminal import printable, write_line
from vantage.config.config import Config
from vantage.tools.progress_line import ProgressLines, clock, number, progress

if TYPE_CHECKING:
    from vantage.types import Report

_NUMBER_WIDTH = 12
"""Characters of a number, fixed so that columns keep their place."""


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
    """Send standard output to the null device, including what is still buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Display:
    """A context manager that shows reports, and above them notes."""

    def __init__(self, config: Config, *, console: Console | None = None) -> None:
        self.config = config
        self.stop_message = ""
        """Line of the panel after a stop signal."""
        self.report: Report | None = None
        self.lines = ProgressLines(config)
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
        """Show the newest report."""
        self.report = report
        if self.live is not None:
            self.lines.add(report)
            with contextlib.suppress(OSError):
                self.live.refresh()
            return
        line = self.lines.line_if_due(report)
        if line is not None:
            say(line)

    def _panel(self) -> Panel:
        self._count_wrapped_rows()
        run = self.config.run
        title = f"vantage {self.config.algo} · {self.config.env.id} · seed {run.seed}"
        title = escape(printable(title))
        report = self.report
        if report is None:
            return Panel(self.stop_message or "starting", title=title)
        done, left = progress(self.config, report)
        bar = Table.grid(expand=True, padding=(0, 1))
        bar.add_column(ratio=1)
        bar.add_row(ProgressBar(completed=done * 100), f"{done:.1%}")
        steps = f"{report.step:,} / {run.steps:,} steps"
        parts: list[RenderableType] = [
            bar,
            f"{steps}  {clock(report.seconds)}, about {left} left",
            metrics_table({**self.lines.evaluation, **report.metrics}),
        ]
        if self.stop_message and report.status == "running":
            parts.append(f"[bold yellow]{self.stop_message}")
        return Panel(Group(*parts), title=title, subtitle=escape(printable(report.run)))

    def _count_wrapped_rows(self) -> None:
        """Let Live erase all rows of the former panel after the terminal became narrower.

        The terminal has wrapped its lines; Live would erase one row a line (rich 15.0, 2026-11).
        """
        if self.live is None:
            return
        former = self.live._live_render
        width = self.console.width
        if former._shape is not None and former._shape[0] > width:
            rows_per_line = -(-former._shape[0] // width)
            former._shape = width, former._shape[1] * rows_per_line


def metrics_table(metrics: Mapping[str, float]) -> Table:
    """The metrics in as many columns as fit, grouped by their names' part before the slash."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for name in sorted(metrics):
        group, _, rest = name.partition("/")
        cells = groups.setdefault(printable(group), [])
        cells.append((printable(rest or name), number(metrics[name])))
    table = Table.grid()
    for group, cells in groups.items():
        table.add_row(f"[bold]{escape(group)}")
        name_width = max(cell_len(name) for name, _ in cells)
        words = [escape(f"{set_cell_size(name, name_width)}  {value:<{_NUMBER_WIDTH}}")
                 for name, value in cells]
        table.add_row(Columns(words, (0, 2)))
    return table
