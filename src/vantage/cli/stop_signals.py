"""Signals that end a training after its update, saved, or at once."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from time import sleep
from types import FrameType
from typing import TYPE_CHECKING, ClassVar, Self

from vantage._host.time_limit import TimeLimit
from vantage.cli.deferred_signals import DeferredSignal, end_process

if TYPE_CHECKING:
    from vantage.tools.display import Display


class Stopped(KeyboardInterrupt):
    """A signal, the argument, arrived before training began, when there was nothing to save."""


NATIVE_SECONDS = 1.0
"""Seconds after a second signal in which native code may return to Python."""
PATIENCE_SECONDS = 4.0
"""Seconds after a signal until a rollout is interrupted, and up to a tick of `TimeLimit` more."""


class Stop:
    """A context in which SIGINT, SIGTERM and SIGHUP ask the run to stop after its update.

    A second signal exits at once. The end of the context restores the former signal handlers. A
    child that an environment forks meanwhile ends at a signal: unwinding Vantage's stack there
    would remove or rewrite files of the run.
    """

    _active: ClassVar[Stop | None] = None

    def __init__(self) -> None:
        self.signal = 0
        self._handled = 0
        self.display: Display | None = None
        self._training = False
        self._deferred = DeferredSignal()

    def __enter__(self) -> Self:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            numbers.append(signal.SIGHUP)
        TimeLimit.ends_process = True
        self._former = {number: signal.signal(number, self._handle) for number in numbers}
        self._arrivals, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        self._former_wakeup = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        threading.Thread(target=self._count, args=(self._arrivals,), daemon=True,
                         name="second signal").start()
        Stop._active = self
        return self

    def __exit__(self, *error: object) -> None:
        Stop._active = None
        self._deferred.forget()
        TimeLimit.ends_process = False
        signal.set_wakeup_fd(self._former_wakeup)
        os.close(self._wakeup)  # ends the thread
        for number, handler in self._former.items():
            signal.signal(number, handler)
        TimeLimit.stop_after(math.inf)

    def requested(self) -> bool:
        """Whether a signal has arrived. The first call marks the beginning of training."""
        self._training = True
        if self.signal:
            TimeLimit.stop_after(math.inf)  # no rollout is under way
        return self.signal != 0

    def _count(self, arrivals: int) -> None:
        """End the process at a second signal.

        It does so even if native code, such as Ray's while connecting, keeps Python from running
        `_handle`.
        """
        signals = 0
        with os.fdopen(arrivals, "rb", buffering=0) as pipe:
            while number := pipe.read(1):
                if number[0] not in self._former:
                    continue
                signals += 1
                if signals - self._deferred.times_sent < 2:
                    continue
                sleep(NATIVE_SECONDS)
                if self._handled < signals:
                    end_process(number[0])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._handled += 1
        if not self._training and self._deferred.defers(number, frame):
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
            # Not through stderr's buffer, which the interrupted code may be using.
            with contextlib.suppress(OSError):
                os.write(2, f"{text}\n".encode())

    @classmethod
    def _leave_child(cls) -> None:
        """In a forked child: signals neither count for the parent nor raise here."""
        if cls._active is None:
            return
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
        for number in cls._active._former:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=Stop._leave_child)
