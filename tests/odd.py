"""Tiny environments that misbehave in one way each, end their process, or start others."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tiny import Bandit, Tiny


class Misbehaving(Tiny):
    """Behaves for 40 steps, then does what `how` says, `only_child` in other processes; some misbehave at once."""

    limit = 25

    def __init__(self, how: str = "raise", only_child: bool = False) -> None:
        super().__init__()
        self.how, self.age, self.faulty = how, 0, not only_child or multiprocessing.parent_process()
        if how == "refuse a child" and multiprocessing.parent_process():
            raise RuntimeError("no licence for two")
        if how == "slow start":
            Path("starting").touch()
            time.sleep(3600)

    def reset(self, **kwargs: Any) -> Any:
        time.sleep(3600 * (self.how == "hang at reset"))
        return super().reset(**kwargs)

    def close(self) -> None:
        if self.how == "close":
            raise RuntimeError("nothing left to close")
        time.sleep(3600 * (self.how == "hang at close"))

    def obs(self) -> Any:
        return {"nan": np.full(1, np.nan, np.float32), "shape": np.zeros(2, np.float32)}.get(
            self.how if self.age > 40 else "", super().obs())

    def play(self, action: Any) -> tuple[Any, bool]:
        self.age += 1
        match self.how if self.age > 40 else "":
            case "raise":
                raise RuntimeError("the simulator broke")
            case "raise in a child" if multiprocessing.parent_process():
                raise RuntimeError("the simulator broke")
            case "reward":
                return float("inf"), False
            case "exit":
                sys.exit(0)
            case "hang" | "stop and hang" if self.faulty:
                if self.how == "stop and hang":
                    os.kill(getattr(multiprocessing.parent_process(), "pid", os.getpid()), signal.SIGTERM)
                time.sleep(3600)
            case "hang in native code":
                lock = ctypes.create_string_buffer(64)  # zeros are an unlocked mutex
                for _ in range(2):
                    ctypes.CDLL(None).pthread_mutex_lock(lock)
            case "segfault" if self.faulty:
                os.kill(os.getpid(), signal.SIGSEGV)
        return 0, False


def make_vector(num_envs: int, how: str) -> SyncVectorEnv:
    """A vector of `Misbehaving`."""
    return SyncVectorEnv([lambda: Misbehaving(how)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class Leaving(Bandit):
    """Leaves a process that it forks."""

    def __init__(self) -> None:
        super().__init__()
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)


class Served(Bandit):
    """Has two processes beside it, and ends both by SIGTERM, which it waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        self.process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
        self.process.start()

    def close(self) -> None:
        for served in (self.program, self.process):
            served.terminate()
        self.program.wait()
        self.process.join()


class KilledInUpdate(Bandit):
    """Kills the first process of all that comes to its tenth step of the optimiser; creates the file `marker` then.

    It leaves a process that was forked from it, which holds its pipes open for ten seconds.
    """

    armed = False

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker

    def play(self, action: Any) -> tuple[Any, bool]:
        if not KilledInUpdate.armed:
            from vantage.learning.optimizers import FlatOptimizer

            KilledInUpdate.armed = True
            updates, move = itertools.count(1), FlatOptimizer.step

            def step(optimizer: FlatOptimizer, *args: Any) -> None:
                if next(updates) == 10:
                    self.die()
                move(optimizer, *args)

            FlatOptimizer.step = step  # type: ignore[method-assign]
        return super().play(action)

    def die(self) -> None:
        with contextlib.suppress(FileExistsError):
            open(self.marker, "x").close()
            if os.fork() == 0:
                time.sleep(10)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
