"""The command `vantage`: arguments in, exit status out.

Help and errors of bad input appear before torch is imported.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from vantage.cli.deferred_signals import DeferredSignal

__all__ = ["main"]

EXIT_SECONDS = 3.0
"""Seconds that threads and exit functions may take after the command's last line."""
DISMISS_SECONDS = 60.0
"""The same for rank 0 of torchrun, which may wait for the others."""


def main(argv: Sequence[str] | None = None) -> int:
    """`vantage.cli.entry.main`; Ctrl-C shows no traceback, even during the import of `entry`.

    Without `argv` the process is the command's own. Everything that its environments started then
    ends with it, including threads that hang, and a signal that arrives before there is anything to
    save ends it without the clean-up of libraries.
    """
    if argv is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        from vantage._host import processes
        from vantage.cli import entry

        if argv is not None:
            return entry.main(argv)
        processes.kill_forks_with_this_process()
        status = 1
        try:
            status = entry.main()
            return status
        except SystemExit as ended:
            status = processes.status_of(ended)
            raise
        finally:
            processes.kill_descendants()
            is_rank = "TORCHELASTIC_RUN_ID" in os.environ
            processes.end_within(DISMISS_SECONDS if is_rank else EXIT_SECONDS, status)
    except KeyboardInterrupt as stopped:
        number = stopped.args[0] if stopped.args else signal.SIGINT
        status = 128 + int(number)
        if argv is not None:
            return status
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError):
                stream.flush()
        os._exit(status)


_deferred = DeferredSignal()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handler of SIGINT: KeyboardInterrupt, after the end of an import."""
    if not _deferred.defers(number, frame):
        raise KeyboardInterrupt
