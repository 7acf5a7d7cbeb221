"""Lines for a terminal. Names from files and from the command line may hold characters that would command it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from vantage.errors import bounded


def printable(text: str) -> str:
    """`text` with every character that is not printed escaped as in JSON, except for line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in "\n\t" else json.dumps(character)[1:-1]
                   for character in text)


def write_line(text: object) -> None:
    print(printable(str(text)), flush=True)


def escape_message(record: logging.LogRecord) -> bool:
    """A filter of log handlers that lets every message pass, but printable."""
    record.msg, record.args = printable(bounded(record.getMessage())), ()
    return True


class MessageHandler(logging.Handler):
    """Passes each log message, without its logger and level, to a function."""

    def __init__(self, show: Callable[[str], object], level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(self.format(record))
