"""Child processes that train: how they start, report errors and end.

Children ignore the signals that a terminal or a scheduler sends to the whole group: only the main
process acts on them. The kernel kills a child whose main process has died.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from vantage._host.processes import ended_by, kill_descendants, tied_process
from vantage._host.system import compute_for_long, keep_freed_memory, shortage, use_threads
from vantage.config.config import Config
from vantage.errors import ConfigError, EnvError, NonFiniteError, VantageError


@dataclass(slots=True)
class Process:
    """A child process and the main process's end of its pipe."""

    process: SpawnProcess
    connection: Connection

    def messages(self) -> Iterator[Any]:
        """The messages that have arrived; the last one is a VantageError if the process has ended."""
        # Before its last messages are read. What its environment has forked may hold its pipe open
        # after its end.
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


def _describe(exitcode: int) -> str:
    if exitcode == -signal.SIGKILL:
        return (f"{ended_by(exitcode)} (out of memory? or the thread that started the run has "
                "ended, and its processes with it)")
    if exitcode < 0:
        return f"{ended_by(exitcode)}, by native code of its environment or a library"
    causes = {0: ", as where a simulator calls exit()", 1: "; a script that trains with worker "
              "processes must do so under if __name__ == '__main__'"}
    return f"with exit status {exitcode}{causes.get(exitcode, '')}"


def start(context: SpawnContext, name: str, target: Callable[..., None], *args: Any) -> Process:
    """A process that runs `target(connection, *args)`; start it and store the result within `stop_signals_blocked`."""
    here, there = context.Pipe()
    process = tied_process(context, name, _run, target, there, *args)
    process.start()
    there.close()
    return Process(process, here)


def _run(target: Callable[..., None], connection: Connection, *args: Any) -> None:
    try:
        target(connection, *args)
    except (BrokenPipeError, ConnectionResetError, EOFError):  # the main process has died or closed the pipe
        os._exit(1)
    except BaseException as error:
        connection.send(portable(error))
        connection.close()
        kill_descendants()
        os._exit(1)  # an environment's clean-up may hang
    connection.close()


def portable(error: BaseException) -> VantageError:
    """`error`, with its traceback or that of its cause in the message."""
    kind = next((kind for kind in (EnvError, NonFiniteError, ConfigError, VantageError)
                 if isinstance(error, kind)), None)
    if kind is None and (lack := shortage(error)) is not None:
        return VantageError(lack)
    if kind is None:
        return VantageError("".join(traceback.format_exception(error)).rstrip())
    cause = "" if error.__cause__ is None else "".join(traceback.format_exception(error.__cause__))
    text = error.message if isinstance(error, VantageError) else str(error)
    return kind(f"{text}\n{cause}".rstrip())


def prepare_process(config: Config) -> None:
    """Set how a child process that trains uses threads, memory and cores."""
    use_threads(config.runtime.threads)
    keep_freed_memory()
    compute_for_long()
