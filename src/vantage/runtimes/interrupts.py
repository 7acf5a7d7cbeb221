"""Ctrl-C during an update: it takes effect after the update, so that the training can go on."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Self


class DeferredInterrupt:
    """A context at whose end, and not before, a first SIGINT raises KeyboardInterrupt.

    A second one raises it at once. Without effect in other threads than the main one, and where the
    program handles SIGINT itself.
    """

    def __init__(self) -> None:
        self._arrived = False
        self._process = os.getpid()

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        # An error may come from the same Ctrl-C, as that of a simulator in another process.
        if self._arrived and (kind is None or issubclass(kind, Exception)):
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        is_fork = os.getpid() != self._process
        if self._arrived or is_fork:
            raise KeyboardInterrupt
        self._arrived = True
