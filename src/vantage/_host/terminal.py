"""Safe output to a terminal.

Names from files and from the command line may contain control characters.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TextIO

from vantage.errors import bounded


def printable(text: str) -> str:
    """`text` with unprintable characters escaped as in JSON, except for line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in "\n\t"
                   else json.dumps(character)[1:-1] for character in text)


_OUTPUT: ContextVar[TextIO | None] = ContextVar("output", default=None)


def write_line(text: object) -> None:
    print(printable(str(text)), flush=True, file=_OUTPUT.get())


@contextmanager
def command_output(ends_process: bool) -> Iterator[None]:
    """Reserve standard output for `write_line`.

    Everything that environments print, also from C, goes to standard error. If the command
    `ends_process`, this is not undone: environments may print at its end.
    """
    sys.stdout.flush()
    try:
        own = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    former = sys.stdout
    stream = former
    if _descriptor(stream) == 1:
        # closed below
        stream = open(os.dup(own), "w", encoding=stream.encoding, errors="replace")  # noqa: SIM115
    sys.stdout = sys.stderr
    token = _OUTPUT.set(stream)
    try:
        yield
    finally:
        _OUTPUT.reset(token)
        sys.stdout = former
        if stream is not former:
            with suppress(OSError):  # such as a closed pipe, which the last line has reported
                stream.close()
        if not ends_process:
            ctypes.CDLL(None).fflush(None)  # what C has printed and not yet written
            os.dup2(own, 1)
        os.close(own)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # a test's
        return None


def escape_message(record: logging.LogRecord) -> bool:
    """A filter for log handlers: passes every message, shortened and escaped."""
    record.msg = printable(bounded(record.getMessage()))
    record.args = ()
    return True


class MessageHandler(logging.Handler):
    """Passes each log message, without its logger and level, to a function."""

    def __init__(self, show: Callable[[str], object], level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(self.format(record))


@contextmanager
def messages_to(handler: logging.Handler, level: int) -> Iterator[None]:
    """Send Vantage's log messages to `handler` alone."""
    logger = logging.getLogger("vantage")
    handlers = logger.handlers
    former = logger.level
    propagate = logger.propagate
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False  # an environment may have set up the root logger
    handler.addFilter(escape_message)
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.propagate = propagate
        logger.setLevel(former)


@contextmanager
def quiet(name: str) -> Iterator[None]:
    """A context in which the logger `name` of a library logs only errors."""
    logger = logging.getLogger(name)
    former = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(former)
