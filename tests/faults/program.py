"""`vantage` with one fault in it: at a chosen access to files below a folder the process ends, stops or fails.

    python program.py '{"root": "/x/run", "how": "SIGKILL", "at": 17}' train a2c ...

Counts what Python reports to its audit hooks: opened, renamed, made and removed files and folders. `how` is a signal,
sent to this process, or an error of the system, raised `times` times. Child processes have no fault.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

ACCESSES = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")


class Injected:
    """An audit hook. Its count of accesses is written to the file `counted`, if one is given, at each of them."""

    def __init__(self, root: str, how: str = "", at: int = -1, times: int = 1, counted: str = "") -> None:
        self.root, self.how, self.at, self.times, self.counted = root, how, at, times, counted
        self.count, self.busy = 0, False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy or event not in ACCESSES or not isinstance(arguments[0], str | os.PathLike):
            return
        if not os.fspath(arguments[0]).startswith(self.root):
            return
        if self.how in ("ENOSPC", "EROFS") and not _writes(event, arguments):
            return
        number, self.count = self.count, self.count + 1
        if self.counted:
            self.busy = True
            Path(self.counted).write_text(str(self.count))
            self.busy = False
        if self.at <= number < self.at + self.times:
            self._strike(str(arguments[0]))

    def _strike(self, path: str) -> None:
        if self.how.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, self.how))
        elif self.how:
            code = getattr(errno, self.how)
            raise OSError(code, os.strerror(code), path)


def _writes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event != "open":
        return True
    _, mode, flags = arguments
    return bool(set(mode or "") & set("wax+")) or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


if __name__ == "__main__":
    sys.addaudithook(Injected(**json.loads(sys.argv.pop(1))))
    sys.argv[0] = "vantage"
    from vantage.cli import main

    sys.exit(main())
