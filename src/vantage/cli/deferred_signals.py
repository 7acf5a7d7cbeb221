"""Delays signals that arrive during an import, and sends them again when it has ended."""

from __future__ import annotations

import os
import sys

# Not threading.Thread: it takes locks that the interrupted code may hold.
from _thread import start_new_thread
from time import monotonic, sleep
from types import FrameType

LONGEST_IMPORT_SECONDS = 4.0
"""Seconds for which a signal waits for the end of an import."""
_AGAIN_SECONDS = 0.05


class DeferredSignal:
    """Delays a signal that arrives during an import.

    Its handler must not raise there: torch's C++ code calls Python while it is imported, and an
    exception there aborts the process (torch 2.13, one of 104 interrupted starts).
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._sent_again = False
        self.times_sent = 0

    def defers(self, number: int, frame: FrameType | None) -> bool:
        """Whether the signal is delayed: a handler called at `frame` must then ignore it.

        During an import a second signal ends the process at once, as does the first after
        `LONGEST_IMPORT_SECONDS`.
        """
        sent_again = self._sent_again
        self._sent_again = False
        if not is_importing(frame):
            self.forget()
            return False
        too_late = monotonic() > self._since + LONGEST_IMPORT_SECONDS
        if self._since and (not sent_again or too_late):
            end_process(number)
        self._since = self._since or monotonic()
        start_new_thread(self._send_again, (number,))
        return True

    def forget(self) -> None:
        """Send no delayed signal again."""
        self._since = 0.0

    def _send_again(self, number: int) -> None:
        sleep(_AGAIN_SECONDS)
        if self._since:
            self._sent_again = True
            self.times_sent += 1
            os.kill(os.getpid(), number)


def is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported at `frame`."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def end_process(number: int) -> None:
    """End this process, and all that it has started, with the status of the signal `number`."""
    processes = sys.modules.get("vantage._host.processes")  # may not be imported yet
    kill_descendants = getattr(processes, "kill_descendants", None)
    if kill_descendants is not None:
        kill_descendants()
    if sys.stdout and sys.stdout.isatty():
        os.write(1, b"\x1b[?25h\n")  # the live panel hides the cursor
    os._exit(128 + number)
