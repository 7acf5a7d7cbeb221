"""Progress of a training run as a line of text, and where `vantage.train` shows it.

The panel of a terminal is in `display`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from vantage._host.terminal import MessageHandler, messages_to, printable
from vantage.config.config import Config

if TYPE_CHECKING:
    from vantage.types import Report

log = logging.getLogger(__name__)

LINE_EVERY_SECONDS = 10.0
_SHOWN = {"steps/s": "time/fps", "return": "rollout/ep_rew_mean", "entropy": "train/entropy",
          "value loss": "train/value_loss"}


class ProgressLines:
    """The progress of one run: a line every 10 seconds, and one at its end."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.evaluation: dict[str, float] = {}
        """Metrics of the newest evaluation."""
        self._due_at = 0.0
        self._last_step = -1

    def add(self, report: Report) -> None:
        """Remember the evaluation of `report`, if it has one."""
        for name, value in report.metrics.items():
            if name.startswith("eval/"):
                self.evaluation[name] = value

    def line(self, report: Report) -> str:
        """`report` as a line, with the newest evaluation."""
        self.add(report)
        return progress_line(self.config, report, self.evaluation)

    def line_if_due(self, report: Report) -> str | None:
        """`line`, or None where the last one is less than 10 seconds old and the run continues."""
        line = self.line(report)
        is_due = report.status != "running" or monotonic() >= self._due_at
        if not is_due or report.step == self._last_step:
            return None
        self._due_at = monotonic() + LINE_EVERY_SECONDS
        self._last_step = report.step
        return line

    def log(self, report: Report) -> None:
        """Log a line, if one is due."""
        line = self.line_if_due(report)
        if line is not None:
            log.info(printable(line).strip())


@contextmanager
def shown_progress(config: Config, shown: bool) -> Iterator[Callable[[Report], object]]:
    """A function that shows the reports of a training; without `shown` it does nothing."""
    if not shown:
        yield lambda report: None
    elif in_notebook():
        yield NotebookLine(config).show
    elif sys.stdout is not None and sys.stdout.isatty():
        from vantage.tools.display import Display  # imports rich

        with Display(config) as display, messages_to(MessageHandler(display.note), logging.INFO):
            yield display.show
    else:
        yield ProgressLines(config).log


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class NotebookLine:
    """A line below the cell that each report replaces; plain text, which needs no widgets."""

    def __init__(self, config: Config) -> None:
        self._lines = ProgressLines(config)
        self._handle: Any = None

    def show(self, report: Report) -> None:
        line = {"text/plain": printable(self._lines.line(report)).strip()}
        if self._handle is None:
            display: Any = sys.modules["IPython"].display.display
            self._handle = display(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)


def progress_line(config: Config, report: Report, evaluation: Mapping[str, float]) -> str:
    """Steps, share, time, the main metrics, and the score of the newest `evaluation`, if any."""
    done, left = progress(config, report)
    share = f"{done:4.0%}"
    if done > report.step / config.run.steps:
        share += " of the time"
    values = [f"{name} {number(report.metrics.get(key))}" for name, key in _SHOWN.items()]
    if (rate := report.metrics.get("rollout/success_rate")) is not None:
        values.insert(2, f"success rate {rate:.0%}")
    if "eval/mean_reward" in evaluation:
        score = f"evaluation {number(evaluation['eval/mean_reward'])}"
        if "eval/success_rate" in evaluation:
            score += f", success rate {evaluation['eval/success_rate']:.0%}"
        values.append(score)
    time = f"{clock(report.seconds)} (left {left})"
    return "  ".join([f"{report.step:>12,} steps {share}", time, *values])


def progress(config: Config, report: Report) -> tuple[float, str]:
    """The completed share of the run, the larger of steps and minutes, and the time left."""
    minutes_share = report.metrics.get("time/minutes_share", 0.0)
    done = min(1.0, max(report.step / config.run.steps, minutes_share))
    fps = report.metrics.get("time/fps")
    if not fps:  # no update yet
        return done, "–"
    left = (config.run.steps - report.step) / fps
    if config.run.max_minutes:
        left = min(left, config.run.max_minutes * 60 * (1 - minutes_share))
    return done, clock(max(0.0, left))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, such as 1:02:03."""
    if seconds >= 1e9:
        return "over 30 years"
    return str(timedelta(seconds=int(seconds)))


def number(value: float | None) -> str:
    """Four digits, or a dash without a value."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 9999.5 <= abs(value) < 1e9 else f"{value:,.4g}"
