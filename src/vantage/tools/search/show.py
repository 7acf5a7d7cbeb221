"""What a person sees while a search runs: a live table on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import monotonic
from typing import Protocol

from rich.console import Group
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vantage.tools.display import Lines, Listener, LivePanel, clock, number, say
from vantage.tools.search.plan import Plan
from vantage.tools.search.space import Value
from vantage.tools.search.study import Row

LINE_EVERY_SECONDS = 30.0
_MOST_ROWS = 16
_COLOURS = {"complete": "green", "pruned": "dim", "failed": "red", "running": "cyan", "waiting": "yellow"}


@dataclass(frozen=True, slots=True)
class View:
    """A search at one moment."""

    plan: Plan
    total: int
    rows: Sequence[Row]
    training: Mapping[int, float]
    """Agent steps, mean over the seeds, of the trials that this process runs."""

    def count(self, *states: str) -> int:
        """Trials in one of `states`."""
        return sum(row.state in states for row in self.rows)

    @property
    def best(self) -> Row | None:
        """The complete trial with the highest value; of equals the one that was worth most when it was compared."""
        return next((row for row in ranked(self.rows) if row.state == "complete" and row.value is not None), None)

    def sentence(self) -> str:
        """Counts and the best, in a line."""
        ended = self.count("complete", "pruned", "failed")
        text = (f"{ended} of {self.total} trials ended: {self.count('complete')} complete, {self.count('pruned')} "
                f"pruned, {self.count('failed')} failed")
        others = self.count("running") - len(self.training)
        text += f"; {len(self.training)} running" if self.training else ""
        text += f"; {others} running elsewhere" if others > 0 else ""
        return text + (f"; best {number(self.best.value)} (trial {self.best.number})" if self.best else "")

    def row(self, row: Row) -> tuple[str, ...]:
        """The cells of a trial: number, state, steps, value, keys."""
        steps = self.training.get(row.number, row.reached)
        return (str(row.number), row.state, f"{steps:,.0f}", number(row.value), words(row.values))


class SearchDisplay(Listener, Protocol):
    """Shows views and events too."""

    def show(self, view: View) -> None:
        """Take in the newest view."""
    def event(self, text: str) -> None:
        """A trial has ended."""


def make_display() -> SearchDisplay:
    """The live table if standard output is a terminal, else lines."""
    return LiveTable() if sys.stdout.isatty() else EventLines()


def words(values: Mapping[str, Value]) -> str:
    """Keys and values in a line, numbers to four digits."""
    return "  ".join(f"{name}={short(value)}" for name, value in values.items())


def short(value: Value) -> str:
    """A value for a person; numbers within the text of a schedule are cut too."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str) and ":" in value:
        return ":".join(_cut(part) for part in value.split(":"))
    return str(value)


def _cut(part: str) -> str:
    try:
        return f"{float(part):.4g}"
    except ValueError:
        return part


class EventLines(Lines):
    """A line for each event, and one every 30 s."""

    def __init__(self) -> None:
        self.shown = -LINE_EVERY_SECONDS

    def show(self, view: View) -> None:
        """Print the counts if 30 s have passed."""
        if monotonic() - self.shown >= LINE_EVERY_SECONDS:
            self.shown = monotonic()
            say(view.sentence())

    def event(self, text: str) -> None:
        """Print it."""
        say(text)


class LiveTable(LivePanel):
    """The table of a search."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.started = monotonic()
        super().__init__()

    def show(self, view: View) -> None:
        """Redraw the table."""
        self.view = view
        self.refresh()

    def event(self, text: str) -> None:
        """The table will show it."""

    def _panel(self) -> Panel:
        view = self.view
        if view is None:
            return Panel(Text(self.last_word or "starting"), title="vantage search", border_style="cyan")
        head = Table.grid(padding=(0, 2))
        ended = view.count("complete", "pruned", "failed")
        head.add_row(ProgressBar(total=max(1, view.total), completed=ended, width=30), escape(view.sentence()),
                     clock(monotonic() - self.started))
        table = Table(box=None, padding=(0, 2), header_style="dim")
        for name in ("trial", "", "steps", "value", "keys"):
            # A column that may wrap gives way to the others; its texts are cut instead.
            table.add_column(name, justify="right" if name in ("trial", "steps", "value") else "left",
                             no_wrap=name != "keys")
        for row in shown_rows(view):
            best = view.best is not None and row.number == view.best.number
            *cells, keys = view.row(row)
            table.add_row(*map(escape, cells), Text(keys, no_wrap=True, overflow="ellipsis"),
                          style="bold green" if best else _COLOURS[row.state])
        plan, last_word = view.plan, Text(self.last_word, style="bold yellow")
        return Panel(Group(head, Text(), table, last_word), title=f"vantage search {plan.algo} · {plan.base.env}",
                     subtitle=escape(plan.objective), border_style="cyan")


def shown_rows(view: View) -> list[Row]:
    """Those under way, then the best of those that have ended, as many as fit."""
    under_way = [row for row in view.rows if row.state in ("running", "waiting")]
    ended = ranked([row for row in view.rows if row not in under_way])
    return (under_way + ended)[:_MOST_ROWS]


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Complete ones by their value, then those that got further, then failed ones.

    Of equal values those come first that were there sooner: the higher mean of what they were compared by.
    """
    order = {"complete": 0, "pruned": 1, "running": 2, "waiting": 3, "failed": 4}
    return sorted(rows, key=lambda row: (order[row.state], -row.reached if row.state == "pruned" else 0,
                                         -row.value if row.value is not None else float("inf"),
                                         -fmean(row.compared.values()) if row.compared else 0, row.number))
