"""Signals, and child processes that end with their parent, whatever happens to it. No torch here."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from time import sleep
from types import ModuleType
from typing import Any
from weakref import WeakSet

import psutil

_LINUX = sys.platform.startswith("linux")
_PR_SET_PDEATHSIG = 1  # Linux's prctl.h
LEAVE_SECONDS = 1.0
"""Seconds that a process of a run may take to end after its work."""
_main_hidden = threading.Lock()
_STOP_SIGNALS: set[int] = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


@contextlib.contextmanager
def deaf_to_signals() -> Iterator[None]:
    """Start processes within that ignore the signals by which a terminal or a scheduler stops a whole group.

    Children inherit the block until they call `hear_nothing`. This process handles what has arrived at the end.
    """
    # The tracker removes the semaphores of a process that ended early, which is no leak to warn of. It takes the
    # warning filters of this process when it starts, which also unblocks SIGINT and SIGTERM.
    sys.warnoptions.append("ignore:resource_tracker")
    resource_tracker.ensure_running()
    sys.warnoptions.pop()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    pending: list[int] = []  # another thread, such as torch's, may receive a signal that is blocked here
    runs_handlers = threading.current_thread() is threading.main_thread()
    handlers = {number: handler for number in _STOP_SIGNALS
                if runs_handlers and callable(handler := signal.getsignal(number))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: pending.append(number))
        yield
    finally:
        try:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for number in pending:
                signal.raise_signal(number)  # stays pending until the mask is restored
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def importing_main(imports: bool) -> Iterator[None]:
    """Start processes that import the program's main module only if `imports` and it is a file, not standard input.

    With multiprocessing's default every script that trains with workers would need `if __name__ == "__main__"`.
    """
    main = sys.modules["__main__"]
    if imports and os.path.exists(getattr(main, "__file__", None) or "."):
        yield
        return
    with _main_hidden:
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def hear_nothing() -> None:
    """Ignore the stop signals in this process, started within `deaf_to_signals`, but not in its own children.

    Children would inherit a block or SIG_IGN, and SIGTERM could then not end them; they do not inherit a handler.
    """
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    unblock = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _STOP_SIGNALS)
    unblock()
    # A fork does inherit handlers. Block meanwhile, or a signal that arrives before the reset is lost.
    os.register_at_fork(before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, _STOP_SIGNALS),
                        after_in_parent=unblock, after_in_child=_restore_default_signals)


def _restore_default_signals() -> None:
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)


def ended_by(exitcode: int) -> str:
    """How a process with this exit code of multiprocessing ended: "killed by SIGSEGV", or "with exit status 7"."""
    if exitcode >= 0:
        return f"with exit status {exitcode}"
    return f"killed by {next((each.name for each in signal.Signals if each == -exitcode), f'signal {-exitcode}')}"


def tie_forks() -> None:
    """Let what this process's main thread forks from now on end with it, kill -9 included; Linux only.

    Not what it starts by `subprocess`, whose children only `kill_descendants` ends.
    """
    from_main_thread: list[bool] = []

    def before() -> None:
        from_main_thread[:] = [threading.current_thread() is threading.main_thread()]

    def after_in_child() -> None:
        if from_main_thread[0]:  # the signal comes when the thread ends
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    if _LINUX:
        os.register_at_fork(before=before, after_in_child=after_in_child)


def kill_descendants(pid: int | None = None) -> None:
    """Kill every running process that `pid` (None: this process) has started, and their children.

    Not multiprocessing's tracker of shared memory: it ends by itself, and would be started again with a warning.
    """
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.pid != tracker:
                    child.kill()


def end_within(seconds: float, status: int) -> None:
    """End this process with `status` after `seconds`, unless it ends before; for processes that are Vantage's own.

    The interpreter would wait for threads and exit functions of environments, also for those that never end.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    threading.Thread(target=_end_after, args=(seconds, status), daemon=True, name="end of the process").start()


def _end_after(seconds: float, status: int) -> None:
    sleep(seconds)
    kill_descendants()
    os._exit(status)


def status_of(ended: SystemExit) -> int:
    """The exit status of a process that ends with this exception."""
    return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


_ENDING: WeakSet[BaseProcess] = WeakSet()
os.register_at_fork(after_in_child=_ENDING.clear)


@atexit.register
def _end() -> None:
    """Kill tied processes at interpreter exit, where multiprocessing would wait for them."""
    for process in list(_ENDING):
        with contextlib.suppress(ValueError, AttributeError):  # closed already, or never started
            process.kill()


def die_with(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """End this process when `parent`, which started it, ends in any way, kill -9 included.

    By prctl's signal `by` on Linux, where the parent is the thread that started it. Elsewhere a thread waits for a
    parent of multiprocessing: a worker busy in its environment would otherwise live on until it next reads its pipe.
    """
    if not sys.platform.startswith("linux"):
        threading.Thread(target=_end_after_parent, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:  # it has already ended
        os._exit(1)


def _end_after_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


class _Tie:
    """Unpickles to a call of `die_with`, so that it runs before the target is imported, which takes seconds."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return die_with, (self.parent,)


def tied_process(context: SpawnContext, name: str, target: Callable[..., None], *args: Any) -> SpawnProcess:
    """A process that runs `target(*args)`, ignores stop signals and ends with this one. Start it in `deaf_to_signals`.

    It is no daemon in multiprocessing's sense, because an environment may start processes of its own.
    """
    process = context.Process(target=_run_tied, args=(_Tie(os.getpid()), os.getpid(), target, *args), name=name)
    _ENDING.add(process)
    return process


def _run_tied(_: None, parent: int, target: Callable[..., None], *args: Any) -> None:
    die_with(parent)  # without prctl the unpickled call came before the parent was known
    hear_nothing()
    tie_forks()
    status = 1
    try:
        target(*args)
        status = 0
    except SystemExit as ended:
        status = status_of(ended)
        raise
    finally:
        kill_descendants()
        end_within(LEAVE_SECONDS, status)


def end_with_this(processes: Iterable[BaseProcess]) -> None:
    """Kill these processes at interpreter exit, where multiprocessing would wait for them."""
    _ENDING.update(processes)
