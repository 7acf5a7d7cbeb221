"""Time limits of calls of environments, by SIGALRM. No torch here."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import math
import os
import signal
import sys
import threading
from functools import partial
from time import monotonic, sleep
from types import FrameType
from typing import ClassVar

SLOW = "it hangs, or give a longer --env-timeout"
"""The end of messages about an environment that does not answer."""


class Interrupted(KeyboardInterrupt):
    """A stop is overdue; its argument is where the environments were."""


class TimeLimit:
    """A context for calls of environments: TimeoutError in one that takes longer than `seconds`; 0: no limit.

    It raises in the main thread alone, by SIGALRM, unless the program has a handler of its own for it. Native code is
    interrupted when it returns to Python; where it does not, a thread shows its stack, and with `ends_process` ends the
    process. Counts ticks of a timer: a process that Ctrl-Z stops for an hour does not hang.
    """

    ends_process: ClassVar[bool] = False
    _current: ClassVar[TimeLimit | None] = None
    _stop_at: ClassVar[float] = math.inf
    _entries: ClassVar[int] = 0
    _watched: ClassVar[bool] = False

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.tick = min(1.0, seconds / 4) if seconds else 1.0
        """Seconds between two looks whether an environment has answered."""
        self.ticks = seconds / self.tick if seconds else math.inf

    def __enter__(self) -> None:
        self.check("between two steps")
        if threading.current_thread() is not threading.main_thread():
            return
        if (handler := signal.getsignal(signal.SIGALRM)) is signal.SIG_DFL:
            signal.signal(signal.SIGALRM, TimeLimit._handle)
        elif handler != TimeLimit._handle:
            return
        self._left, TimeLimit._current = self.ticks, self
        TimeLimit._entries += 1
        if self.seconds and not TimeLimit._watched:
            TimeLimit._watched = True
            threading.Thread(target=_watch, daemon=True, name="time limit").start()
        signal.setitimer(signal.ITIMER_REAL, self.tick, self.tick)

    def __exit__(self, *error: object) -> None:
        if TimeLimit._current is self:
            TimeLimit._current = None
            signal.setitimer(signal.ITIMER_REAL, 0)

    @staticmethod
    def stop_after(seconds: float) -> None:
        """Raise Interrupted, once, in environments that still run after `seconds`."""
        TimeLimit._stop_at = monotonic() + seconds

    @staticmethod
    def check(place: str) -> None:
        """Raise Interrupted if the time of `stop_after` is over."""
        if monotonic() >= TimeLimit._stop_at:
            TimeLimit._stop_at = math.inf
            raise Interrupted(place)

    @staticmethod
    def _handle(number: int, frame: FrameType | None) -> None:
        if (limit := TimeLimit._current) is None or frame is None:
            return
        place = f"at {frame.f_code.co_filename}:{frame.f_lineno}"
        limit._left -= 1
        if limit._left <= 0 or monotonic() >= TimeLimit._stop_at:
            limit.__exit__()
            TimeLimit.check(place)
            raise TimeoutError(f"no answer for {limit.seconds:g} s, {place}; {SLOW}")


def _watch() -> None:
    """Show where native code hangs that outlasts a limit by two ticks: Python's signal handlers wait for it to return.

    What holds Python's lock stops this thread too.
    """
    entry, ticks = 0, 0.0
    while True:
        limit = TimeLimit._current
        sleep(tick := limit.tick if limit is not None else 1.0)
        if limit is None or not limit.seconds or TimeLimit._current is not limit or TimeLimit._entries != entry:
            entry, ticks = TimeLimit._entries, 0.0
            continue
        ticks += tick
        if limit.seconds + 2 * limit.tick <= ticks < limit.seconds + 3 * limit.tick:
            with contextlib.suppress(io.UnsupportedOperation):  # a notebook's
                faulthandler.dump_traceback(sys.stderr)
            print(f"vantage: no answer for {limit.seconds:g} s in native code, at the stack above; {SLOW}",
                  file=sys.stderr, flush=True)
            if TimeLimit.ends_process:  # the newest checkpoint is whole
                os._exit(1)


os.register_at_fork(after_in_child=partial(setattr, TimeLimit, "_watched", False))
