"""Progress of a training run: a live panel on a terminal, otherwise a line every 10 s; log messages appear above it."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from datetime import timedelta
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vantage.config import Config

if TYPE_CHECKING:
    from vantage.types import Report

LINE_EVERY_SECONDS = 10.0
_BARS = "▁▂▃▄▅▆▇█"
_ROWS = (("return, last 100 games", "rollout/ep_rew_mean"), ("entropy", "train/entropy"),
         ("game length", "rollout/ep_len_mean"), ("value loss", "train/value_loss"),
         ("games", "rollout/episodes"), ("policy loss", "train/policy_loss"),
         ("steps/s", "time/fps"), ("gradient norm", "train/grad_norm"),
         ("frames", "time/frames"), ("explained variance", "train/explained_variance"),
         ("memory, MiB", "time/memory_mib"), ("learning rate", "train/learning_rate"))


class DisplayHandler(logging.Handler):
    """Prints log records above a live display, or as lines. The command adds it to the logger `vantage`."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message without its logger and level."""
        self._display.note(self.format(record))


def make_display(config: Config, expectation: str) -> Display:
    """The live panel if standard output is a terminal, else lines."""
    return LiveDisplay(config, expectation) if sys.stdout.isatty() else LineDisplay(config, expectation)


def say(text: str) -> None:
    """Print a line. A run continues without output where it cannot be written (a full disk, a closed terminal)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        discard_output()


def discard_output() -> None:
    """Send standard output to the null device from now on, including what is still buffered."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class LineDisplay:
    """A line every 10 s, for log files."""

    def __init__(self, config: Config, expectation: str) -> None:
        self.config, self.expectation = config, expectation
        self.shown, self.shown_step = -LINE_EVERY_SECONDS, -1

    def __enter__(self) -> Self:
        if self.expectation:
            self.note(self.expectation)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def note(self, text: str) -> None:
        """Print the note as a line."""
        say(f"- {text}")

    def stopping(self, text: str) -> None:
        """Write to stderr without its buffer, which the interrupted code may be using."""
        with contextlib.suppress(OSError):
            os.write(2, f"{text}\n".encode())

    def show(self, report: Report) -> None:
        """Print the report if 10 s have passed or if it is the last."""
        too_early = report.status == "running" and monotonic() - self.shown < LINE_EVERY_SECONDS
        if too_early or report.step == self.shown_step:
            return
        self.shown, self.shown_step = monotonic(), report.step
        values = "  ".join(f"{name} {number(report.metrics.get(key))}" for name, key in (
            ("return", "rollout/ep_rew_mean"), ("entropy", "train/entropy"), ("value loss", "train/value_loss")))
        done, left = progress(self.config, report)
        say(f"{report.step:>12,} steps {done:4.0%}  {clock(report.seconds)} (left {clock(left)})  "
            f"{report.metrics.get('time/fps', 0):,.0f} steps/s  {values}")


class LiveDisplay:
    """A panel that is redrawn in place. It stays silent once the terminal is gone."""

    def __init__(self, config: Config, expectation: str) -> None:
        self.config, self.expectation = config, expectation
        self.curve: list[float] = []
        self.report: Report | None = None
        self.stop_message = ""
        self.console = Console()
        self.live = Live(console=self.console, refresh_per_second=2, get_renderable=self._panel)

    def __enter__(self) -> Self:
        self.live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self.live.__exit__(kind, error, traceback)

    def note(self, text: str) -> None:
        """Print the note above the panel."""
        with contextlib.suppress(OSError):
            self.console.print(f"[dim]-[/] {escape(text)}", highlight=False)

    def stopping(self, text: str) -> None:
        """Show `text` when the panel is next redrawn."""
        self.stop_message = text

    def show(self, report: Report) -> None:
        """Redraw the panel."""
        self.curve += [report.metrics[key] for key in ("rollout/ep_rew_mean",) if key in report.metrics]
        self.report = report
        with contextlib.suppress(OSError):
            self.live.refresh()

    def _panel(self) -> Panel:
        report, title = self.report, f"vantage {self.config.algo} · {self.config.env.id} · seed {self.config.run.seed}"
        if report is None:
            return Panel(Text(self.stop_message or self.expectation or "starting"), title=title, border_style="cyan")
        m, (done, left) = report.metrics, progress(self.config, report)
        head, body = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 3))
        head.add_row(ProgressBar(total=1.0, completed=done, width=40), f"{done:.1%}",
                     f"{report.step:,} / {self.config.run.steps:,} steps",
                     f"{clock(report.seconds)}, about {clock(left)} left")
        cells = [(name, number(m.get(key))) for name, key in _ROWS]
        cells += [("env / act / learn", " / ".join(f"{m.get(f'time/{p}_share', 0):.0%}" for p in ("env", "act", "learn"))),
                  ("last save", f"{clock(m['time/save_age'])} ago" if "time/save_age" in m else "none yet")]
        for left_cell, right_cell in zip(cells[::2], cells[1::2], strict=True):
            body.add_row(*left_cell, *right_cell)
        parts = [head, Text(), body, Text()]
        if len(self.curve) > 1:
            parts.append(Text(f"{sparkline(self.curve, 64)}  {min(self.curve):.1f} to {max(self.curve):.1f}", "green"))
        if self.stop_message and report.status == "running":
            parts.append(Text(self.stop_message, "bold yellow"))
        else:
            parts.append(Text(self.expectation, "dim"))
        return Panel(Group(*parts), title=title, subtitle=escape(report.run), border_style="cyan")


Display = LineDisplay | LiveDisplay


def progress(config: Config, report: Report) -> tuple[float, float]:
    """The completed share of the run, by steps or minutes, whichever is larger, and about how many seconds are left."""
    share = report.metrics.get("time/minutes_share", 0.0)
    left = (config.run.steps - report.step) / max(1e-9, report.metrics.get("time/fps", 0.0))
    if config.run.max_minutes:
        left = min(left, config.run.max_minutes * 60 * (1 - share))
    return min(1.0, max(report.step / config.run.steps, share)), max(0.0, left)


def sparkline(values: list[float], width: int) -> str:
    """The curve of `values` in `width` characters at most."""
    step = max(1, -(-len(values) // width))
    points = [sum(values[i:i + step]) / len(values[i:i + step]) for i in range(0, len(values), step)]
    low, high = min(points), max(points)
    return "".join(_BARS[round((p - low) / (high - low) * (len(_BARS) - 1)) if high > low else 0] for p in points)


def clock(seconds: float) -> str:
    """1:02:03 or 0:02:03; ? where the number of seconds is not known."""
    return str(timedelta(seconds=int(seconds))) if seconds < 1e7 else "?"


def number(value: float | None) -> str:
    """Four digits, or a dash without a value."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:,.4g}"
