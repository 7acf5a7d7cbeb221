"""Single environments in processes of their own, in a Gymnasium vector of `single.Episodes`."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import active_children, current_process
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

import gymnasium as gym
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
from vantage.envs.interface import Array, Info, Obs, Seeds
from vantage.errors import ConfigError, EnvError

CLOSE_SECONDS = 1.0  # that environments may take to close; then they are left behind
ERROR = "error"
"""Key of `info`, for a failure in a worker process."""
_GUARD = "a script that trains with vector='async' needs if __name__ == '__main__'"


def serve(*arguments: Any) -> None:
    """Gymnasium's worker process.

    It ends without a traceback if the main process died, and ends processes that its environment
    started.
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
    """An AsyncVectorEnv of `Episodes` whose errors name the environment and which closes after
    errors."""

    def __init__(self, factories: Sequence[Callable[[], gym.Env[Any, Any]]], seeds: Seeds,
                 limit: TimeLimit, *,
                 imports_main: bool) -> None:
        self._seeds, self._limit, self._interrupted = seeds, limit, True
        if current_process().daemon:
            raise ConfigError("vector=async: a daemonic process, such as one of "
                              "multiprocessing.Pool, cannot start others; give vector=sync")
        others = set(active_children())
        try:
            # A signal handler that raises does so at the end of this block.
            with stop_signals_blocked(), importing_main(imports_main):
                # No daemons in multiprocessing's sense, which could not start processes of their own.
                self._vector = AsyncVectorEnv(factories, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP,
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

    def reset(self, *, options: Info) -> tuple[Obs, Info]:
        self._call(self._vector.reset_async, options=options)
        return self._call(self._answers, self._vector.reset_wait)  # type: ignore[no-any-return]

    def step(self, actions: Array) -> Any:
        def step() -> Any:
            self._vector.step_async(actions)
            return self._answers(self._vector.step_wait)

        return self._call(step)

    def close(self) -> None:
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
        # Otherwise close() waits for the interrupted call, and for a process that hangs.
        self._vector._state = AsyncState.DEFAULT
        for process in self._vector.processes:
            if process.is_alive():
                kill_descendants(process.pid)
            process.kill()
        self._vector.close(terminate=True)

    def _answers(self, receive: Callable[[], Any]) -> Any:
        """The result of `receive` after every process has answered; EnvError if one takes too
        long."""
        self._limit.check("between two steps")
        waiting, poll, ticks = {}, select.poll(), 0
        for i, pipe in enumerate(self._vector.parent_pipes, self._seeds.first_env):
            waiting[pipe.fileno()] = i
            poll.register(pipe, select.POLLIN)
        while waiting:
            ready = poll.poll(1_000 * self._limit.tick)
            for number, _ in ready:
                poll.unregister(number)
                del waiting[number]
            if not ready:
                ticks += 1
                names = f"{', '.join(map(str, waiting.values()))} of {self._seeds.name}"
                self._limit.check(names)
                if ticks >= self._limit.ticks:
                    raise EnvError(f"environments {names}: no answer for {self._limit.seconds:g} "
                                   f"s; {SLOW}")
        return receive()

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of `function`; EnvError if an environment failed or its process died."""
        self._interrupted = True
        try:
            result = function(*args, **kwargs)
        except (EOFError, ConnectionError):
            ended = wait([process.sentinel for process in self._vector.processes], timeout=10.0)
            dead = {}
            for i, process in enumerate(self._vector.processes, self._seeds.first_env):
                if process.sentinel in ended:
                    process.join()  # a sentinel is ready before the exit code is
                    dead[i] = ended_by(process.exitcode or 0)
            memory = " (out of memory?)" * ("killed by SIGKILL" in dead.values())
            ends = ", ".join(f"environment {i} {how}" for i, how in dead.items())
            raise EnvError(f"processes of {self._seeds.name} ended without an error: "
                           f"{ends}{memory}; {_GUARD}"
                           ) from None
        self._interrupted = False
        if result is not None and ERROR in result[-1]:
            raise EnvError(next(message for message in result[-1][ERROR] if message is not None))
        return result
