"""Signals, and child processes that end with their parent, whatever happens to it.

No torch here.
"""

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
def stop_signals_blocked() -> Iterator[None]:
    """Block the signals that stop a process group, in order to start children.

    Children inherit the block and are safe until they call `ignore_stop_signals`. This process
    handles signals that arrive meanwhile at the end of the block.
    """
    # multiprocessing's resource tracker warns when it removes the semaphores of a process that
    # ended early, which is no leak. It takes over the warning filters that this process has when
    # the tracker starts. Starting it also unblocks SIGINT and SIGTERM, so that it comes before the
    # block.
    sys.warnoptions.append("ignore:resource_tracker")
    resource_tracker.ensure_running()
    sys.warnoptions.pop()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    # Another thread, such as torch's, may receive a signal that is blocked here.
    pending: list[int] = []
    runs_handlers = threading.current_thread() is threading.main_thread()
    handlers: dict[int, Any] = {}
    if runs_handlers:
        former = {number: signal.getsignal(number) for number in _STOP_SIGNALS}
        handlers = {number: handler for number, handler in former.items() if callable(handler)}
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
    """Let processes started within import the main module only if `imports`, and if it is a file.

    By default multiprocessing always imports it, so that every script that trains with workers
    would need `if __name__ == "__main__"`.
    """
    main = sys.modules["__main__"]
    if imports and os.path.exists(getattr(main, "__file__", None) or "."):
        yield
        return
    with _main_hidden:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def ignore_stop_signals() -> None:
    """Ignore the stop signals in this process, but not in its children.

    Call it in a process started within `stop_signals_blocked`. It sets an empty handler: children
    would inherit SIG_IGN or a blocked signal, and SIGTERM could then not end them.
    """
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda number, frame: None)
    unblock = partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, _STOP_SIGNALS)
    unblock()
    # Forks do inherit handlers, until they are reset in the child. Signals are blocked around a
    # fork, so that one that arrives before the reset is not lost.
    os.register_at_fork(before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, _STOP_SIGNALS),
                        after_in_parent=unblock, after_in_child=_restore_default_signals)


def _restore_default_signals() -> None:
    for number in _STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)


def ended_by(exitcode: int) -> str:
    """What multiprocessing's `exitcode` means: "killed by SIGSEGV", or "with exit status 7"."""
    if exitcode >= 0:
        return f"with exit status {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"killed by {name}"


def kill_forks_with_this_process() -> None:
    """End child processes forked after this call when this process ends, even by SIGKILL.

    Linux only, and only for forks by the main thread. Children of `subprocess` are only ended by
    `kill_descendants`.
    """
    from_main_thread: list[bool] = []

    def before() -> None:
        from_main_thread[:] = [threading.current_thread() is threading.main_thread()]

    def after_in_child() -> None:
        if from_main_thread[0]:  # the kernel sends the signal when the thread that forked ends
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    if _LINUX:
        os.register_at_fork(before=before, after_in_child=after_in_child)


def kill_descendants(pid: int | None = None) -> None:
    """Kill all descendants of the process `pid` (None: of this process).

    Spares multiprocessing's resource tracker, which ends by itself and would be restarted with a
    warning.
    """
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if child.pid != tracker:
                    child.kill()


def end_within(seconds: float, status: int) -> None:
    """End this process, one that Vantage started, with `status` after at most `seconds`.

    Without it, the interpreter would wait for threads and exit functions of environments that hang.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    threading.Thread(target=_end_after, args=(seconds, status), daemon=True,
                     name="end of the process").start()


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


def die_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """End this process when `parent`, which started it, ends, even by SIGKILL.

    On Linux, prctl sends the signal `by` when the parent's thread that started this process ends.
    Elsewhere a thread waits for multiprocessing's parent process: a worker that is busy in its
    environment would otherwise live until it next reads its pipe.
    """
    if not _LINUX:
        threading.Thread(target=_end_after_parent, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:  # it has already ended
        os._exit(1)


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _Tie:
    """Calls `die_with_parent` when unpickled: before the import of the target, which takes long."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return die_with_parent, (self.parent,)


def tied_process(context: SpawnContext, name: str, target: Callable[..., None],
                 *args: Any) -> SpawnProcess:
    """A process that runs `target(*args)`, ignores stop signals and ends with this process.

    Start it within `stop_signals_blocked`. It is not a daemon of multiprocessing, which could not
    start processes: an environment may need to.
    """
    process = context.Process(target=_run_tied,
                              args=(_Tie(os.getpid()), os.getpid(), target, *args), name=name)
    _ENDING.add(process)
    return process


def _run_tied(_: None, parent: int, target: Callable[..., None], *args: Any) -> None:
    # Again: without prctl, multiprocessing did not know the parent yet when `_Tie` was unpickled.
    die_with_parent(parent)
    ignore_stop_signals()
    kill_forks_with_this_process()
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


def kill_at_exit(processes: Iterable[BaseProcess]) -> None:
    """Kill these processes at interpreter exit, where multiprocessing would wait for them."""
    _ENDING.update(processes)
