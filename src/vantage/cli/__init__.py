"""The command `vantage`: arguments in, exit status out. Help and bad input are answered before torch is imported."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """`vantage.cli.entry.main`; no traceback for Ctrl-C while that is imported, which takes most of a second.

    Without `argv` the process is the command's own, and whatever its environments have started ends with it. A signal
    before there is anything to save then ends it without the clean-up of libraries: one whose import was interrupted
    may crash.
    """
    try:
        from vantage.cli import entry
        from vantage.system import kill_descendants, tie_forks

        if argv is not None:
            return entry.main(argv)
        tie_forks()
        try:
            return entry.main()
        finally:
            kill_descendants()
    except KeyboardInterrupt as stopped:
        status = 128 + int(stopped.args[0] if stopped.args else signal.SIGINT)
        if argv is None:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                with suppress(OSError):
                    stream.flush()
            os._exit(status)
        return status
