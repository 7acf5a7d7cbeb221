"""Single environments in processes of their own, in a Gymnasium vector of `Episodes`."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import active_children, current_process
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from vantage._host.processes import (
    ended_by,
    ignore_stop_signals,
    importing_main,
    kill_at_exit,
    kill_descendants,
    kill_forks_with_this_process,
    stop_signals_blocked,
)
from vantage._host.time_limit import SLOW, TimeLimit
from vantage.envs.episodes import ERROR, Episodes, reset_options
from vantage.envs.failures import CLOSE_SECONDS
from vantage.envs.interface import Array, Info, Obs, Outcome, Seeds
from vantage.errors import ConfigError, EnvError

_GUARD = "a script that trains with vector='async' needs if __name__ == '__main__'"


def serve(*arguments: Any) -> None:
    """The main function of a worker process: Gymnasium's own, and the end of the process.

    It ends without a traceback if the main process has died, and kills the processes that its
    environment has started.
    """
    ignore_stop_signals()
    kill_forks_with_this_process()
    try:
        _async_worker(*arguments)
    except (EOFError, ConnectionError):
        os._exit(1)
    finally:
        kill_descendants()


class Workers:
    """An AsyncVectorEnv of `Episodes` with named errors, after which it still closes."""

    def __init__(self, factories: Sequence[Callable[[], Episodes]], seeds: Seeds,
                 limit: TimeLimit, *, imports_main: bool) -> None:
        self._seeds = seeds
        self._limit = limit
        self._interrupted = True
        if current_process().daemon:
            raise ConfigError("vector=async: a daemonic process, such as one of "
                              "multiprocessing.Pool, cannot start others; give vector=sync")
        others = set(active_children())
        try:
            # A signal handler that raises does so at the end of this block.
            with stop_signals_blocked(), importing_main(imports_main):
                # Not daemons in multiprocessing's sense, which could not start processes.
                self._vector = AsyncVectorEnv(
                    factories, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP,
                    worker=serve, daemon=False)
        except (EOFError, ConnectionError):
            raise EnvError(f"a process of {seeds.name} ended while it started, without an error "
                           f"(out of memory?); {_GUARD}") from None
        except BaseException:
            if hasattr(self, "_vector"):
                self.close()
            raise
        finally:
            started = set(active_children()) - others
            kill_at_exit(process for process in started if process.name.startswith("Worker<"))
        self._interrupted = False

    def reset(self, episodes: Array, which: Array) -> tuple[Obs, Info]:
        """Begin `episodes` [B] where `which` [B] is True."""
        options = reset_options(episodes, which, self._seeds)
        self._call(partial(self._vector.reset_async, options=options))
        outcome: tuple[Obs, Info] = self._call(partial(self._answers, self._vector.reset_wait))
        return outcome

    def step(self, actions: Array) -> Outcome:
        outcome: Outcome = self._call(partial(self._step, actions))
        return outcome

    def _step(self, actions: Array) -> Any:
        self._vector.step_async(actions)
        return self._answers(self._vector.step_wait)

    def close(self) -> None:
        """Close the environments and end their processes; kill those that take too long."""
        if self._vector.closed:
            return
        if not self._interrupted:
            with suppress(OSError, EOFError):  # a process is dead
                for pipe in self._vector.parent_pipes:
                    pipe.send(("close", None))
                for pipe in self._vector.parent_pipes:
                    pipe.recv()  # the process closes its environment next
            deadline = monotonic() + CLOSE_SECONDS
            for process in self._vector.processes:
                process.join(max(0.0, deadline - monotonic()))
        # Otherwise AsyncVectorEnv.close would wait for the interrupted call.
        self._vector._state = AsyncState.DEFAULT
        for process in self._vector.processes:
            if process.is_alive():
                kill_descendants(process.pid)
            process.kill()
        self._vector.close(terminate=True)

    def _answers(self, receive: Callable[[], Any]) -> Any:
        """The result of `receive` once every process has answered; EnvError if one is too slow."""
        self._limit.check("between two steps")
        waiting = {}
        poll = select.poll()
        for env, pipe in enumerate(self._vector.parent_pipes, self._seeds.first_env):
            waiting[pipe.fileno()] = env
            poll.register(pipe, select.POLLIN)
        ticks = 0
        while waiting:
            ready = poll.poll(1_000 * self._limit.tick)
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                del waiting[descriptor]
            if not ready:
                ticks += 1
                names = f"{', '.join(map(str, waiting.values()))} of {self._seeds.name}"
                self._limit.check(names)
                if ticks >= self._limit.ticks:
                    raise EnvError(f"environments {names}: no answer for {self._limit.seconds:g} "
                                   f"s; {SLOW}")
        return receive()

    def _call(self, function: Callable[[], Any]) -> Any:
        """The result of `function`; EnvError if an environment failed or its process died."""
        self._interrupted = True
        try:
            result = function()
        except (EOFError, ConnectionError):
            raise EnvError(f"processes of {self._seeds.name} ended without an error: "
                           f"{self._ends()}; {_GUARD}") from None
        self._interrupted = False
        if result is not None and ERROR in result[-1]:
            raise EnvError(next(message for message in result[-1][ERROR] if message is not None))
        return result

    def _ends(self) -> str:
        """Which processes have ended, and how."""
        ended = wait([process.sentinel for process in self._vector.processes], timeout=10.0)
        dead = {}
        for env, process in enumerate(self._vector.processes, self._seeds.first_env):
            if process.sentinel in ended:
                process.join()  # a sentinel is ready before the exit code is
                dead[env] = ended_by(process.exitcode or 0)
        ends = ", ".join(f"environment {env} {how}" for env, how in dead.items())
        is_killed = "killed by SIGKILL" in dead.values()
        return f"{ends} (out of memory?)" if is_killed else ends
