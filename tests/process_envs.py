"""Environments that count the processes which step them or their episodes, fail in one of these, or end them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tiny import Bandit, DelayedReward, Leveled


def acting(folder: Path) -> list[int]:
    """The number of environments `Counted` that each process has stepped."""
    steps = [path for path in folder.glob("*.steps") if path.stat().st_size > 2]
    return sorted(Counter(path.name.partition("-")[0] for path in steps).values())


class Counted(Bandit):
    """Adds a byte to a file of its own in `folder` at every step but the first reset; `faults` strike once each.

    The first environment of any process to reach its 60th step raises if they name "raise"; at its 151st it hangs. The
    first to reach its 30th is slow from there on.
    """

    def __init__(self, folder: str, faults: str = "") -> None:
        super().__init__()
        self.folder, self.faults, self.age, self.delay = folder, faults, -1, 0.0
        self.file = open(f"{folder}/{os.getpid()}-{id(self)}.steps", "ab", buffering=0)  # noqa: SIM115  to the end

    def close(self) -> None:
        self.file.close()

    def begin(self) -> None:
        self.count()

    def play(self, action: Any) -> tuple[Any, bool]:
        self.count()
        time.sleep(self.delay)
        for name, age in (("slow", 30), ("raise", 60), ("hang", 150)):
            if name in self.faults and self.age >= age:
                with contextlib.suppress(FileExistsError):
                    open(f"{self.folder}/{name}", "x").close()
                    if name == "raise":
                        raise RuntimeError("the simulator broke")
                    self.delay = 0.25 if name == "slow" else 3600
        return super().play(action)

    def count(self) -> None:
        self.age += 1
        if self.age:
            self.file.write(b".")


class Signalling(DelayedReward):
    """At its 300th step takes one file of the working directory, if there is one, and sends the signal that it names.

    "worker" and "search" kill this process or its parent, "stop" interrupts both, as a terminal does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def play(self, action: Any) -> tuple[Any, bool]:
        self.count += 1
        signals = {"worker": (signal.SIGKILL, (os.getpid(),)), "search": (signal.SIGKILL, (os.getppid(),)),
                   "stop": (signal.SIGINT, (os.getpid(), os.getppid()))}
        for name, (number, processes) in signals.items() if self.count == 300 else ():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)  # so that each is sent once
                for process in processes:
                    os.kill(process, number)
                if number == signal.SIGKILL:
                    signal.pause()  # the death of the parent ends this process
                break
        return super().play(action)


class Begun(Leveled):
    """Adds the seed and level of every reset to a file in `folder`; raises once, after `limit` episodes of its own."""

    def __init__(self, folder: str, limit: int = 10**6) -> None:
        super().__init__()
        self.folder, self.limit, self.begun = Path(folder), limit, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.begun += 1
        if self.begun > self.limit and not (self.folder / "raised").exists():
            (self.folder / "raised").touch()
            raise RuntimeError("the simulator broke")
        result = super().reset(seed=seed, options=options)
        with (self.folder / "episodes").open("a") as file:
            file.write(f"{seed} {self.level}\n")
        return result
