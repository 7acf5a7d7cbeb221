"""Child processes: how they start, report failures and end, and the main function of a Hogwild worker.

Children ignore the signals that a terminal or a scheduler sends to the whole group: only the main process acts on them.
The kernel kills a child whose main process has died.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from time import monotonic
from typing import Any

import torch

from vantage.config import Config
from vantage.errors import ConfigError, EnvError, NonFiniteError, VantageError
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import SharedWeights
from vantage.system import compute_for_long, end_with_program, keep_freed_memory, kill_descendants, tied_process

REPORT_EVERY_SECONDS = 0.1
"""Seconds between two messages of a worker: often enough for the display, rare enough to cost nothing."""

_ERRORS: Mapping[str, type[VantageError]] = {"env": EnvError, "hang": EnvError, "numbers": NonFiniteError,
                                             "config": ConfigError, "other": VantageError}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a child process ended; the message includes the traceback."""

    kind: str
    """A key of `_ERRORS`."""
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that an exception stands for."""
        if not isinstance(error, VantageError):
            return cls("other", "".join(traceback.format_exception(error)).rstrip())
        kind = next(kind for kind, of_kind in _ERRORS.items() if isinstance(error, of_kind))
        cause = "".join(traceback.format_exception(error.__cause__)) if error.__cause__ is not None else ""
        return cls(kind, f"{error}\n{cause}".rstrip())

    @classmethod
    def of_end(cls, process: SpawnProcess) -> Failure:
        """The failure of a process that ended without a message."""
        process.join(1.0)
        code = process.exitcode or 0
        how = f"with exit status {code}"
        if code < 0:
            name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
            how = (f"killed by {name} (out of memory? or the thread that started the run has ended, and its processes "
                   "with it)")
        elif code == 0:
            how += ", as where a simulator calls exit()"
        elif code == 1:
            how += "; a script that trains with worker processes must do so under if __name__ == '__main__'"
        return cls("other", f"it ended without a message, {how}")

    def error(self) -> VantageError:
        """The exception that the main process raises."""
        return _ERRORS[self.kind](self.message)


@dataclass(slots=True)
class Process:
    """A child process and the main process's end of its pipe."""

    process: SpawnProcess
    connection: Connection

    def messages(self) -> Iterator[Any]:
        """The messages that have arrived; then a Failure if the process has ended without sending one."""
        # Before its last messages are read. What its environment has forked may hold its pipe open after its end.
        alive = self.process.is_alive()
        try:
            while self.connection.poll():
                message = self.connection.recv()
                yield message
                if isinstance(message, Failure):
                    return
        except (EOFError, OSError):
            self.process.join(1.0)
            alive = self.process.is_alive()
        if not alive:
            yield Failure.of_end(self.process)

    def end(self) -> None:
        """Kill it and its descendants if it still runs, and release its resources."""
        if self.process.is_alive():
            kill_descendants(str(self.process.pid))
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def start(context: SpawnContext, name: str, target: Callable[..., None], *args: Any) -> Process:
    """A process that runs `target(connection, *args)`; start it and store the result within `deaf_to_signals`."""
    here, there = context.Pipe()
    process = tied_process(context, name, _run, target, there, *args)
    process.start()
    end_with_program(process)
    there.close()
    return Process(process, here)


def _run(target: Callable[..., None], connection: Connection, *args: Any) -> None:
    try:
        target(connection, *args)
    except (BrokenPipeError, ConnectionResetError, EOFError):  # the main process has died or closed the pipe
        os._exit(1)
    except BaseException as error:
        connection.send(Failure.of(error))
        connection.close()
        kill_descendants()
        os._exit(1)  # an environment's clean-up may hang
    connection.close()


def work(connection: Connection, config: Config, worker: int, index: int, shared: SharedWeights,
         replay_bytes: int) -> None:
    """Main function of a Hogwild worker: pull, collect, learn, until the workers together reach `shared.limit`.

    Counts its steps in shared memory, and sends an `Advance` from time to time.
    """
    torch.set_num_threads(config.runtime.threads)
    keep_freed_memory()
    compute_for_long()
    steps, own, limit = shared.workers["steps"], shared.workers[worker], shared.limit
    own["heartbeat"] = monotonic()
    actor_learner = ActorLearner(config, worker=worker, index=index, shared=shared, replay_bytes=replay_bytes)
    weights = actor_learner.hogwild
    assert weights is not None
    weights.pull()
    actor_learner.begin()
    unreported, reported_at = Advance(), 0.0
    while steps.sum() < limit[0]:
        weights.pull()
        advance = actor_learner.advance(lambda: int(steps.sum()))
        own["steps"] += advance.steps
        own["updates"] += advance.updates
        unreported += advance
        now = own["heartbeat"] = monotonic()
        if now - reported_at >= REPORT_EVERY_SECONDS:
            connection.send(unreported)
            unreported, reported_at = Advance(), now
    connection.send(unreported)
    actor_learner.close()
