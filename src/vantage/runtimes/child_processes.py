"""Processes that train: how they start, report errors, are watched and end.

Children ignore the signals that a terminal or a scheduler sends to the whole group: only the main
process acts on them. The kernel kills a child whose main process has died.
"""

from __future__ import annotations

import logging
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from vantage._host.processes import ended_by, kill_descendants, tied_process
from vantage._host.system import compute_for_long, keep_freed_memory, shortage, use_threads
from vantage.config.config import Config
from vantage.errors import ConfigError, EnvError, NonFiniteError, VantageError

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""If a wait takes this much longer than requested, this process was stopped meanwhile."""


@dataclass(slots=True)
class Process:
    """A child process and the main process's end of its pipe."""

    process: SpawnProcess
    connection: Connection

    def messages(self) -> Iterator[Any]:
        """The messages that have arrived; the last is a VantageError if the process has ended."""
        # Read before the last messages, so that none is missed. The end of the pipe does not tell:
        # processes that its environment has forked may hold it open.
        alive = self.process.is_alive()
        try:
            while self.connection.poll():
                message = self.connection.recv()
                yield message
                if isinstance(message, VantageError):
                    return
        except (EOFError, OSError):
            self.process.join(1.0)
            alive = self.process.is_alive()
        if not alive:
            yield VantageError("it ended without a message, "
                               f"{_describe(self.process.exitcode or 0)}")

    def end(self) -> None:
        """Kill it and its descendants if it still runs, and release its resources."""
        if self.process.is_alive():
            kill_descendants(self.process.pid)
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def wait_for(processes: Iterable[Process], seconds: float | None = None) -> None:
    """Wait until one of the `processes` has sent a message or ended, at most `seconds`."""
    wait([source for each in processes for source in (each.connection, each.process.sentinel)],
         seconds)


def _describe(exitcode: int) -> str:
    if exitcode == -signal.SIGKILL:
        return (f"{ended_by(exitcode)} (out of memory? or the thread that started the run has "
                "ended, and its processes with it)")
    if exitcode < 0:
        return f"{ended_by(exitcode)}, by native code of its environment or a library"
    causes = {0: ", as where a simulator calls exit()",
              1: "; a script that trains with worker processes must do so under "
                 "if __name__ == '__main__'"}
    return f"{ended_by(exitcode)}{causes.get(exitcode, '')}"


def start(context: SpawnContext, name: str, target: Callable[..., None], *args: Any) -> Process:
    """A process that runs `target(connection, *args)`.

    Call this and store the result within `stop_signals_blocked`.
    """
    here, there = context.Pipe()
    process = tied_process(context, name, _run, target, there, *args)
    process.start()
    there.close()
    return Process(process, here)


def _run(target: Callable[..., None], connection: Connection, *args: Any) -> None:
    try:
        target(connection, *args)
    except (BrokenPipeError, ConnectionResetError, EOFError):
        os._exit(1)  # the main process has died or closed the pipe
    except BaseException as error:
        connection.send(portable_error(error))
        connection.close()
        kill_descendants()
        os._exit(1)  # an environment's clean-up may hang
    connection.close()


def portable_error(error: BaseException) -> VantageError:
    """`error`, with its traceback or that of its cause in the message."""
    if not isinstance(error, VantageError):
        return VantageError(shortage(error) or _traceback(error))
    kind = next(kind for kind in (EnvError, NonFiniteError, ConfigError, VantageError)
                if isinstance(error, kind))
    cause = "" if error.__cause__ is None else _traceback(error.__cause__)
    return kind(f"{error.message}\n{cause}".rstrip())


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def prepare_process(config: Config) -> None:
    """Set how a child process that trains uses threads, memory and cores."""
    use_threads(config.runtime.threads)
    keep_freed_memory()
    compute_for_long()


class Restarts:
    """Counts the workers that were replaced; at most `max_restarts` are."""

    def __init__(self, max_restarts: int) -> None:
        self._max_restarts = max_restarts
        self.count = 0

    def add(self, name: str, error: VantageError) -> None:
        """Log that `name` failed and is replaced; raise its `error` if no replacement is left."""
        if self.count >= self._max_restarts:
            raise type(error)(f"{name} failed, and {self.count} were replaced already "
                              f"(max_restarts): {error}")
        self.count += 1
        log.warning(f"{name} failed and is replaced ({self.count} of {self._max_restarts}): "
                    f"{error}")


class ReceiveClock:
    """Measures how long a worker has been silent while this process was receiving.

    If the caller pauses or this process is stopped, workers may wait for room in their pipes.
    """

    def __init__(self, now: float) -> None:
        self._received_at = now
        self._receiving_since = now

    def received(self, now: float, seconds: float) -> None:
        """Note that messages were received at `now`, after waiting for at most `seconds`."""
        if now - self._received_at > seconds + PAUSE_SECONDS:
            self._receiving_since = now
        self._received_at = now

    def silence(self, heard_at: float) -> float:
        """Seconds without a message from a worker that was last heard at `heard_at`."""
        return self._received_at - max(heard_at, self._receiving_since)
