"""Time limits of calls of environments, which a thread watches. No torch here."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import math
import os
import signal
import sys
import threading
from threading import get_ident
from time import monotonic, sleep
from types import FrameType
from typing import ClassVar

SLOW = "it hangs, or give a longer --env-timeout"
"""The end of messages about an environment that does not answer."""

TICK_SECONDS = 0.25
"""Interval in seconds at which the calls in progress are checked."""
GRACE_SECONDS = 2.0
"""Seconds after an interruption in which a call may end; then it hangs in native code."""
# Ignored by default, so that a handler and a late signal do no harm. Go's runtime interrupts its
# threads by it, too.
_SIGNAL = signal.SIGURG


class Interrupted(KeyboardInterrupt):
    """A stop is overdue; its argument is where the environments were."""


class TimeLimit:
    """Context that raises TimeoutError in calls of environments that exceed `seconds`; 0: never.

    A call is interrupted only after its time is over: by a signal in the main thread; between two
    Python instructions in other threads, or if the program handles SIGURG itself. If a call does
    not return from native code, its stack is printed, and with `ends_process` the process ends.
    Time is counted in ticks, not by the clock: a process that Ctrl-Z stops for an hour does not
    hang.
    """

    ends_process: ClassVar[bool] = False
    _calls: ClassVar[dict[int, _Call]] = {}
    """Calls in progress, by thread."""
    _stop_at: ClassVar[float] = math.inf
    _watched: ClassVar[bool] = False
    _prepared: ClassVar[bool] = False
    """Calls are watched, and the signal has its handler."""
    _lock: ClassVar[threading.Lock] = threading.Lock()
    """Held while an exception is sent to another thread, or taken back."""

    def __init__(self, seconds: float, name: str = "") -> None:
        self.seconds = seconds
        self.name = name
        self.tick = min(1.0, seconds / 4) if seconds else 1.0
        """Polling interval in seconds while waiting for an environment in another process."""
        self.ticks = seconds / self.tick if seconds else math.inf

    def __enter__(self) -> None:
        self.check("between two steps")
        if not TimeLimit._prepared:
            _prepare()
        TimeLimit._calls[get_ident()] = _Call(self)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        call = TimeLimit._calls.pop(get_ident(), None)
        if call is None or call.error is None:
            return
        _forget_exception(get_ident())  # it came too late
        if kind is None and issubclass(call.error, Interrupted):
            TimeLimit._stop_at = 0.0  # interrupts the next call

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


class _Call:
    """One call under a limit: the ticks that it has taken, and the error that interrupts it."""

    __slots__ = ("error", "limit", "raised", "ticks")

    def __init__(self, limit: TimeLimit) -> None:
        self.limit = limit
        self.ticks = -1  # the first check may come at once
        self.raised = False
        self.error: type[BaseException] | None = None


def _prepare() -> None:
    """Start the thread that watches, and once in the main thread install the signal's handler."""
    if not TimeLimit._watched:
        TimeLimit._watched = True
        threading.Thread(target=_watch, daemon=True, name="time limit").start()
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(_SIGNAL) is signal.SIG_DFL:
            signal.signal(_SIGNAL, _handle)
        TimeLimit._prepared = True


def _watch() -> None:
    while True:
        sleep(TICK_SECONDS)
        _look()


def _look() -> None:
    """Count one tick of every call in progress, and interrupt or show those that are late.

    Native code that holds Python's lock also blocks the thread that calls this.
    """
    for ident, call in list(TimeLimit._calls.items()):
        call.ticks += 1
        limit = call.limit
        seconds = call.ticks * TICK_SECONDS
        late = 0 < limit.seconds <= seconds
        if call.error is None and monotonic() >= TimeLimit._stop_at:
            TimeLimit._stop_at = math.inf
            _interrupt(ident, call, Interrupted, _place(ident))
        elif call.error is None and late:
            message = f"no answer for {limit.seconds:g} s, {_place(ident)}; {SLOW}"
            _interrupt(ident, call, TimeoutError, message)
        elif late and seconds - TICK_SECONDS < limit.seconds + GRACE_SECONDS <= seconds:
            _show(limit)


def _place(ident: int) -> str:
    frame = sys._current_frames().get(ident)
    if frame is None:
        return "in a thread that has ended"
    return f"at {frame.f_code.co_filename}:{frame.f_lineno}"


def _interrupt(ident: int, call: _Call, kind: type[BaseException], message: str) -> None:
    """Raise `kind(message)` in the thread of a call, unless the call ends first."""
    # A class, since the exception of another thread is raised without arguments.
    error = type(kind.__name__, (kind,), {"__init__": lambda self: kind.__init__(self, message),
                                          "__module__": kind.__module__})
    with TimeLimit._lock:
        call.error = error
        if TimeLimit._calls.get(ident) is not call:
            return
        if ident == threading.main_thread().ident and signal.getsignal(_SIGNAL) is _handle:
            signal.pthread_kill(ident, _SIGNAL)  # ends its system call, too
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident),
                                                       ctypes.py_object(error))


def _forget_exception(ident: int) -> None:
    with TimeLimit._lock:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), None)


def _handle(number: int, frame: FrameType | None) -> None:
    call = TimeLimit._calls.get(get_ident())
    if call is not None and call.error is not None and not call.raised:
        call.raised = True
        raise call.error


def _show(limit: TimeLimit) -> None:
    """Print the stacks of all threads; end the process if `ends_process`.

    The newest checkpoint is complete at that time.
    """
    with contextlib.suppress(io.UnsupportedOperation):  # a notebook's
        faulthandler.dump_traceback(sys.stderr)
    answer = f"no answer from {limit.name}" if limit.name else "no answer"
    print(f"vantage: {answer} for {limit.seconds:g} s in native code, at the stack above; {SLOW}",
          file=sys.stderr, flush=True)
    if TimeLimit.ends_process:
        os._exit(1)


def _forget_parent() -> None:
    """In a forked child, which has neither the thread nor the call."""
    TimeLimit._lock = threading.Lock()
    TimeLimit._watched = False
    TimeLimit._prepared = False
    TimeLimit._calls.clear()


os.register_at_fork(after_in_child=_forget_parent)
