"""Where `vantage.train` shows its progress: a terminal, a notebook, or the log."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vantage._host.terminal import MessageHandler, messages_to, printable
from vantage.config.config import Config
from vantage.tools.progress_line import ProgressLines
from vantage.types import Report

log = logging.getLogger(__name__)


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
        yield LogLines(config).show


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
        """Replace the line."""
        line = {"text/plain": printable(self._lines.line(report)).strip()}
        if self._handle is None:
            display: Any = sys.modules["IPython"].display.display
            self._handle = display(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)


class LogLines:
    """A log message every 10 seconds, and one at the end."""

    def __init__(self, config: Config) -> None:
        self._lines = ProgressLines(config)

    def show(self, report: Report) -> None:
        """Log a line, if one is due."""
        line = self._lines.line_if_due(report)
        if line is not None:
            log.info(printable(line).strip())
