"""Signals that end a training: saved after its update, or at once."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from types import FrameType
from typing import TYPE_CHECKING, Self

from vantage.cli.postponed import Postponed, end_process
from vantage.time_limit import TimeLimit

if TYPE_CHECKING:
    from vantage.tools.display import Display


class Stopped(KeyboardInterrupt):
    """A signal, its argument, came before training began, when there was nothing to save."""


PATIENCE_SECONDS = 4.0
"""Seconds in which a rollout may end after a signal, and up to a tick of `TimeLimit` more; then it is interrupted."""


class Stop:
    """A context in which SIGINT, SIGTERM and SIGHUP ask the run to stop after its update; a second one exits at once.

    Its end restores the signal handlers from before it.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.display: Display | None = None
        self._training = False
        self._postponed = Postponed()

    def __enter__(self) -> Self:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            numbers.append(signal.SIGHUP)
        TimeLimit.ends_process = True
        self._former = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *error: object) -> None:
        self._postponed.forget()
        TimeLimit.ends_process = False
        for number, handler in self._former.items():
            signal.signal(number, handler)
        TimeLimit.stop_after(math.inf)

    def requested(self) -> bool:
        """Whether a signal has arrived. The first call marks the beginning of training."""
        self._training = True
        if self.signal:
            TimeLimit.stop_after(math.inf)  # no rollout is under way
        return self.signal != 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._training and self._postponed.waits(number, frame):
            return
        if self.signal:  # the second one
            end_process(number)
        self.signal = number
        if not self._training:
            raise Stopped(number)
        TimeLimit.stop_after(PATIENCE_SECONDS)
        text = "stopping after this update; once more to exit at once"
        if self.display is not None and self.display.live is not None:
            self.display.stop_message = text
        else:
            with contextlib.suppress(OSError):
                os.write(2, f"{text}\n".encode())  # without stderr's buffer, which the interrupted code may be using
