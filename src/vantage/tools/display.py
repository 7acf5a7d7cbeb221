"""What a person sees while a run trains: a live panel on a terminal, one line every 10 s elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from time import monotonic
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vantage.config import Config
from vantage.types import Report

LINE_EVERY_SECONDS = 10.0
_BARS = "▁▂▃▄▅▆▇█"


class Display(Protocol):
    """Shows reports and notes; a context manager."""

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None: ...
    def show(self, report: Report) -> None:
        """Take in the newest report."""
    def note(self, text: str) -> None:
        """Say `text` once."""


def make_display(config: Config, expectation: str) -> Display:
    """The live panel if standard output is a terminal, else lines."""
    return LiveDisplay(config, expectation) if sys.stdout.isatty() else LineDisplay(config, expectation)


class LineDisplay:
    """One line every 10 s, for logs."""

    def __init__(self, config: Config, expectation: str) -> None:
        self.config, self.expectation, self.shown = config, expectation, -LINE_EVERY_SECONDS

    def __enter__(self) -> Self:
        if self.expectation:
            self.note(self.expectation)
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        pass

    def show(self, report: Report) -> None:
        """Print the report if 10 s have passed, or if it is the last."""
        if report.status == "running" and monotonic() - self.shown < LINE_EVERY_SECONDS:
            return
        self.shown = monotonic()
        m = report.metrics
        print(f"{report.step:>12,} steps {share_done(self.config, report):4.0%}  {clock(report.seconds)} "
              f"(left {clock(seconds_left(self.config, report))})  {m.get('time/fps', 0):,.0f} steps/s  "
              f"return {number(m.get('rollout/ep_rew_mean'))}  entropy {number(m.get('train/entropy'))}  "
              f"value loss {number(m.get('train/value_loss'))}", flush=True)

    def note(self, text: str) -> None:
        """Print the note."""
        print(f"- {text}", flush=True)


class LiveDisplay:
    """A panel that is redrawn in place."""

    def __init__(self, config: Config, expectation: str) -> None:
        self.config, self.expectation = config, expectation
        self.console = Console()
        self.live = Live(console=self.console, refresh_per_second=2, transient=False)
        self.curve: list[float] = []

    def __enter__(self) -> Self:
        self.live.__enter__()
        self.live.update(Panel(Text(self.expectation or "starting"), title=self._title(), border_style="cyan"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.live.__exit__(kind, error, traceback)

    def note(self, text: str) -> None:
        """Print the note above the panel."""
        self.console.print(f"[dim]-[/] {escape(text)}", highlight=False)

    def show(self, report: Report) -> None:
        """Redraw the panel."""
        mean = report.metrics.get("rollout/ep_rew_mean")
        if mean is not None:
            self.curve.append(mean)
        self.live.update(self._panel(report))

    def _title(self) -> str:
        return f"vantage {self.config.algo} · {self.config.env} · seed {self.config.seed}"

    def _panel(self, report: Report) -> Panel:
        done = share_done(self.config, report)
        m = report.metrics
        head = Table.grid(padding=(0, 2))
        head.add_row(ProgressBar(total=1.0, completed=done, width=40), f"{done:.1%}",
                     f"{report.step:,} / {self.config.steps:,} steps",
                     f"{clock(report.seconds)}, about {clock(seconds_left(self.config, report))} left")
        body = Table.grid(padding=(0, 3))
        for left, right in zip(_score_rows(m), _learning_rows(m), strict=True):
            body.add_row(*left, *right)
        parts: list[object] = [head, Text(), body]
        if len(self.curve) > 1:
            parts += [Text(), Text(f"{sparkline(self.curve, 64)}  {min(self.curve):.1f} to {max(self.curve):.1f}",
                                   style="green")]
        if self.expectation:
            parts.append(Text(self.expectation, style="dim"))
        return Panel(Group(*parts), title=self._title(), subtitle=escape(report.run), border_style="cyan")  # type: ignore[arg-type]


def _score_rows(m: Mapping[str, float]) -> list[tuple[str, str]]:
    return [("return, last 100 games", number(m.get("rollout/ep_rew_mean"))),
            ("game length", number(m.get("rollout/ep_len_mean"))),
            ("games", f"{m.get('rollout/episodes', 0):,.0f}"),
            ("steps/s", f"{m.get('time/fps', 0):,.0f}"),
            ("frames", f"{m.get('time/frames', 0):,.0f}"),
            ("env / act / learn", " / ".join(f"{m.get(f'time/{p}_share', 0):.0%}" for p in ("env", "act", "learn")))]


def _learning_rows(m: Mapping[str, float]) -> list[tuple[str, str]]:
    return [("entropy", number(m.get("train/entropy"))), ("value loss", number(m.get("train/value_loss"))),
            ("policy loss", number(m.get("train/policy_loss"))), ("gradient norm", number(m.get("train/grad_norm"))),
            ("explained variance", number(m.get("train/explained_variance"))),
            ("last save", f"{clock(m['time/save_age'])} ago" if "time/save_age" in m else "none yet")]


def share_done(config: Config, report: Report) -> float:
    """How much of the run is done, by steps or by minutes, whichever is further."""
    by_minutes = report.metrics.get("time/minutes_share", 0.0)
    return min(1.0, max(report.step / config.steps, by_minutes))


def seconds_left(config: Config, report: Report) -> float:
    """Estimate from the speed since the last report, and from the minutes that are left."""
    left_by_steps = (config.steps - report.step) / max(1e-9, report.metrics.get("time/fps", 0.0))
    share = report.metrics.get("time/minutes_share", 0.0)
    left_by_minutes = config.max_minutes * 60 * (1 - share) if config.max_minutes else float("inf")
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
    """Four digits, or a dash for what is not known yet."""
    return "–" if value is None else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
