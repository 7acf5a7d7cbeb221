"""The way in and out: runs a command and turns what it raises into words and an exit status."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper

from vantage.cli.parser import parse
from vantage.cli.stop import Stopped
from vantage.errors import EnvError, VantageError

_WRITE_ERRORS = {errno.EPIPE, errno.ECONNRESET, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0 done, 1 failed, 2 bad usage, 130 and 143 stopped by a signal."""
    argv = sys.argv[1:] if argv is None else list(argv)
    _accept_any_output()
    try:
        arguments = parse(argv)
        with _warnings_on_stderr(shown_otherwise=arguments.command in ("train", "resume", "search")):
            status = int(arguments.run_command(arguments))
        sys.stdout.flush()
        return status
    except VantageError as error:
        if isinstance(error, EnvError) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)  # where in the user's own code
        print(f"vantage: {error}", file=sys.stderr)
        return error.status
    except Stopped as error:
        print("vantage: stopped before training began", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        if (error.name or "vantage").startswith("vantage"):  # no library
            raise
        print(f"vantage: cannot import {error.name}: {error}; `vantage doctor` says what to install", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is not None:  # not standard output
            print(f"vantage: cannot use {error.filename}: {error.strerror}; name another path, or make that one usable",
                  file=sys.stderr)
            return 1
        if error.errno not in _WRITE_ERRORS:  # as no memory for another process
            raise
        from vantage.tools.display import discard_output

        discard_output()
        if not isinstance(error, BrokenPipeError):
            print(f"vantage: cannot write to standard output: {error.strerror}", file=sys.stderr)
        return 1


@contextmanager
def _warnings_on_stderr(*, shown_otherwise: bool) -> Iterator[None]:
    """Print warnings of the library as lines of the command, unless its display shows them."""
    if shown_otherwise:
        yield
        return
    logger, handler = logging.getLogger("vantage"), logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("vantage: %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _accept_any_output() -> None:
    """Standard output that is closed, or whose encoding lacks a character, ends no command."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  stays open to the end
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
