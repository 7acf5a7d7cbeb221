"""Progress of a training run: a live panel on a terminal, otherwise a line every 10 s; log messages appear above it."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, Group, RenderableType
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


class Display(Protocol):
    """Shows messages and reports while something runs; a context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None: ...
    def note(self, text: str) -> None:
        """Print `text` once."""
    def show(self, report: Report) -> None:
        """Show the newest report."""
    def stopping(self, text: str) -> None:
        """Show that a signal has arrived. Called by its handler, at any point of the program."""


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
        m = report.metrics
        say(f"{report.step:>12,} steps {share_done(self.config, report):4.0%}  {clock(report.seconds)} "
            f"(left {clock(seconds_left(self.config, report))})  {m.get('time/fps', 0):,.0f} steps/s  "
            f"return {number(m.get('rollout/ep_rew_mean'))}  entropy {number(m.get('train/entropy'))}  "
            f"value loss {number(m.get('train/value_loss'))}")


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
        mean = report.metrics.get("rollout/ep_rew_mean")
        if mean is not None:
            self.curve.append(mean)
        self.report = report
        with contextlib.suppress(OSError):
            self.live.refresh()

    def _panel(self) -> Panel:
        report, title = self.report, f"vantage {self.config.algo} · {self.config.env.id} · seed {self.config.run.seed}"
        if report is None:
            return Panel(Text(self.stop_message or self.expectation or "starting"), title=title, border_style="cyan")
        done, m = share_done(self.config, report), report.metrics
        head = Table.grid(padding=(0, 2))
        head.add_row(ProgressBar(total=1.0, completed=done, width=40), f"{done:.1%}",
                     f"{report.step:,} / {self.config.run.steps:,} steps",
                     f"{clock(report.seconds)}, about {clock(seconds_left(self.config, report))} left")
        body = Table.grid(padding=(0, 3))
        for left, right in zip(_score_rows(m), _learning_rows(m), strict=True):
            body.add_row(*left, *right)
        parts: list[RenderableType] = [head, Text(), body]
        if len(self.curve) > 1:
            parts += [Text(), Text(f"{sparkline(self.curve, 64)}  {min(self.curve):.1f} to {max(self.curve):.1f}",
                                   style="green")]
        if self.stop_message and report.status == "running":
            parts.append(Text(self.stop_message, style="bold yellow"))
        elif self.expectation:
            parts.append(Text(self.expectation, style="dim"))
        return Panel(Group(*parts), title=title, subtitle=escape(report.run), border_style="cyan")


def _score_rows(m: Mapping[str, float]) -> list[tuple[str, str]]:
    return [("return, last 100 games", number(m.get("rollout/ep_rew_mean"))),
            ("game length", number(m.get("rollout/ep_len_mean"))),
            *((name, f"{m.get(key, 0):,.0f}") for name, key in (
                ("games", "rollout/episodes"), ("steps/s", "time/fps"), ("frames", "time/frames"))),
            ("env / act / learn", " / ".join(f"{m.get(f'time/{p}_share', 0):.0%}" for p in ("env", "act", "learn"))),
            ("memory", f"{m['time/memory_mib']:,.0f} MiB" if "time/memory_mib" in m else "–")]


def _learning_rows(m: Mapping[str, float]) -> list[tuple[str, str]]:
    metrics = {"entropy": "entropy", "value loss": "value_loss", "policy loss": "policy_loss",
               "gradient norm": "grad_norm", "explained variance": "explained_variance",
               "learning rate": "learning_rate"}
    return [*((name, number(m.get(f"train/{key}"))) for name, key in metrics.items()),
            ("last save", f"{clock(m['time/save_age'])} ago" if "time/save_age" in m else "none yet")]


def share_done(config: Config, report: Report) -> float:
    """The completed share of the run, by steps or by minutes, whichever is larger."""
    by_minutes = report.metrics.get("time/minutes_share", 0.0)
    return min(1.0, max(report.step / config.run.steps, by_minutes))


def seconds_left(config: Config, report: Report) -> float:
    """Estimate from the speed since the last report and from the remaining minutes."""
    left_by_steps = (config.run.steps - report.step) / max(1e-9, report.metrics.get("time/fps", 0.0))
    share = report.metrics.get("time/minutes_share", 0.0)
    left_by_minutes = config.run.max_minutes * 60 * (1 - share) if config.run.max_minutes else float("inf")
    return max(0.0, min(left_by_steps, left_by_minutes))


def sparkline(values: list[float], width: int) -> str:
    """The curve of `values` in `width` characters at most."""
    step = max(1, -(-len(values) // width))
    points = [sum(values[i:i + step]) / len(values[i:i + step]) for i in range(0, len(values), step)]
    low, high = min(points), max(points)
    return "".join(_BARS[round((p - low) / (high - low) * (len(_BARS) - 1)) if high > low else 0] for p in points)


def clock(seconds: float) -> str:
    """1:02:03 or 2:03."""
    if seconds == float("inf") or seconds > 1e7:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(value: float | None) -> str:
    """Four digits, or a dash without a value."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:,.4g}"
