"""The workers of `hogwild`: how they start, what they do, what they say. The main process is in `hogwild`.

Workers are deaf to the signals by which a terminal or a scheduler stops a whole group: the main process alone acts on
them. The kernel kills a worker whose main process is gone.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from time import monotonic
from typing import Any, Literal

import torch

from vantage.config import Config
from vantage.errors import EnvError, NonFiniteError, VantageError
from vantage.runtimes.actor_learner import ActorLearner
from vantage.runtimes.progress import Advance
from vantage.runtimes.shared_memory import SharedWeights
from vantage.system import (
    compute_for_long,
    end_with_program,
    keep_freed_memory,
    kill_descendants,
    tied_process,
)

TELL_EVERY_SECONDS = 0.1
"""Between two messages of a worker, so that the main process needs little of the machine."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a worker."""

    kind: Literal["env", "hang", "numbers", "other"]
    message: str
    """For a person, the traceback within."""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The failure that `error` is."""
        if isinstance(error, NonFiniteError):
            return cls("numbers", str(error))
        if isinstance(error, VantageError):
            cause = error.__cause__
            where = "".join(traceback.format_exception(cause)) if cause is not None else ""
            return cls("env" if isinstance(error, EnvError) else "other", f"{error}\n{where}".rstrip())
        return cls("other", "".join(traceback.format_exception(error)).rstrip())

    @classmethod
    def of_end(cls, process: SpawnProcess) -> Failure:
        """That of a process that has just ended, or is about to, without having said why."""
        process.join(1.0)
        code = process.exitcode
        if code is not None and code < 0:
            name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
            how = (f"killed by {name} (out of memory? or the thread that started the run has "
                   "ended: its processes end with it)")
        elif code == 0:
            how = "with exit status 0, as where a simulator calls exit()"
        elif code != 1:
            how = f"with exit status {code}"
        else:
            how = (f"with exit status {code}; a script that trains with worker processes must do so under "
                   "if __name__ == '__main__'")
        return cls("other", f"it ended without a word, {how}")

    def error(self) -> VantageError:
        """What the main process raises."""
        kinds: Mapping[str, type[VantageError]] = {"env": EnvError, "hang": EnvError, "numbers": NonFiniteError,
                                                  "other": VantageError}
        return kinds[self.kind](self.message)


@dataclass(slots=True)
class Process:
    """A process of this run and this end of its pipe."""

    process: SpawnProcess
    connection: Connection

    def end(self) -> None:
        """Kill it if it still runs, with what it started, and let go of it."""
        if self.process.is_alive():
            kill_descendants(str(self.process.pid))
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()


def start(context: SpawnContext, name: str, target: Callable[..., None], *args: Any) -> Process:
    """A process that runs `target(connection, *args)`. Call it, and keep what it gives, within `deaf_to_signals`."""
    here, there = context.Pipe()
    process = tied_process(context, name, _run, target, there, *args)
    process.start()
    end_with_program(process)
    there.close()
    return Process(process, here)


def _run(target: Callable[..., None], connection: Connection, *args: Any) -> None:
    try:
        target(connection, *args)
    except (BrokenPipeError, ConnectionResetError, EOFError):  # the main process is gone or has let go
        os._exit(1)
    except BaseException as error:
        connection.send(Failure.of(error))
        connection.close()
        kill_descendants()
        os._exit(1)  # nothing that an environment's own clean-up may hang in
    connection.close()


def work(connection: Connection, config: Config, worker: int, index: int, shared: SharedWeights,
         replay_bytes: int) -> None:
    """An actor-learner on shared weights: pull, collect, learn, until the steps are done or `shared.stop`.

    Sends an `Advance` from time to time.
    """
    torch.set_num_threads(config.runtime.threads)
    keep_freed_memory()
    compute_for_long()
    shared.beat(worker, monotonic())
    actor_learner = ActorLearner(config, worker=worker, index=index, shared=shared, replay_bytes=replay_bytes)
    weights = actor_learner.hogwild
    assert weights is not None
    weights.pull()
    actor_learner.begin()
    shared.mark(worker, begun=True)
    untold, told = Advance(), 0.0
    while not shared.stop and shared.steps < config.run.steps:
        weights.pull()
        advance = actor_learner.advance(lambda: shared.steps)
        shared.count(worker, advance.steps, advance.updates)
        untold += advance
        now = monotonic()
        shared.beat(worker, now)
        if now - told >= TELL_EVERY_SECONDS:
            connection.send(untold)
            untold, told = Advance(), now
    connection.send(untold)
    actor_learner.close()
