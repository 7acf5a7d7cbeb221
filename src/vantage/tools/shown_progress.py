"""Where `vantage.train` shows its progress: a terminal, a notebook, or the log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from vantage._host.terminal import MessageHandler, messages_to, printable
from vantage.config.config import Config
from vantage.tools.progress_line import LINE_EVERY_SECONDS, progress_line
from vantage.types import Report

log = logging.getLogger(__name__)


@contextmanager
def shown_progress(config: Config, shown: bool) -> Iterator[Callable[[Report], object]]:
    """A function that shows the reports of a training of `config`; without `shown` it does nothing."""
    if not shown:
        yield lambda report: None
    elif in_notebook():
        yield NotebookLine(config).show
    elif sys.stdout is not None and sys.stdout.isatty():
        from vantage.tools.display import Display  # imports rich

        with Display(config) as display, messages_to(MessageHandler(display.note), logging.INFO):
            yield display.show
    else:
        yield LogLines(config).show


def in_notebook() -> bool:
    """This process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


class _Lines:
    """The lines of a training's reports."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._evaluation: dict[str, float] = {}

    def _line(self, report: Report) -> str:
        """One line, with the newest evaluation."""
        scores = {name: score for name, score in report.metrics.items() if name.startswith("eval/")}
        self._evaluation |= scores
        return printable(progress_line(self._config, report, self._evaluation)).strip()


class NotebookLine(_Lines):
    """A line below the cell that each report replaces; plain text, which needs no widgets."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._handle: Any = None

    def show(self, report: Report) -> None:
        """Replace the line."""
        line = {"text/plain": self._line(report)}
        if self._handle is None:
            display: Any = sys.modules["IPython"].display.display
            self._handle = display(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)


class LogLines(_Lines):
    """A log message every 10 s, and one at the end."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._shown_at = -LINE_EVERY_SECONDS

    def show(self, report: Report) -> None:
        """Log a line, if it is time for one."""
        line = self._line(report)
        if report.status != "running" or monotonic() - self._shown_at >= LINE_EVERY_SECONDS:
            self._shown_at = monotonic()
            log.info(line)
