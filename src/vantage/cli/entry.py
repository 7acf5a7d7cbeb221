"""Run a command, and turn errors into one line and an exit status."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import version
from io import TextIOWrapper
from typing import Any

from vantage._host.system import check_address_space, shortage
from vantage._host.terminal import command_output, messages_to, printable
from vantage.cli import tools, training
from vantage.cli.arguments import read
from vantage.cli.parsing import first_line
from vantage.cli.stop_signals import Stopped
from vantage.errors import ConfigError, EnvError, VantageError, flags_in_errors
from vantage.keys.other_libraries import COMMANDS as OTHERS
from vantage.keys.suggestions import nearest

COMMANDS: dict[str, Callable[..., Any]] = {
    command.__name__.rstrip("_"): command for command in (
        training.train, training.resume, training.search, tools.evaluate, tools.watch,
        tools.record, tools.plot, tools.report, tools.export, tools.push, tools.preview,
        tools.play, tools.bench, tools.doctor, tools.list_)}

_HELP = ("-h", "--help", "--help-all")
_WRITE_ERRORS = {errno.EPIPE, errno.ECONNRESET, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO,
                 errno.EBADF}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status.

    0 done, 1 failed, 2 bad usage, 130 and 143 stopped by a signal. KeyboardInterrupt for a signal
    that arrives before there is anything to save.
    """
    with flags_in_errors():
        return _main(sys.argv[1:] if argv is None else list(argv), ends_process=argv is None)


def _main(argv: list[str], *, ends_process: bool) -> int:
    _accept_any_output()
    try:
        name, *words = argv or [""]
        if name in _HELP:
            print(_overview())
            return 0
        if name == "--version":
            print(f"vantage {version('vantage-rl')}")
            return 0
        if name in ("--tyro-print-completion", "--tyro-write-completion"):
            from vantage.cli.completion import print_completion

            print_completion(COMMANDS, argv)
        _check_command(name)
        check_address_space()
        _check_working_directory()
        with command_output(ends_process) if _prints_data(name, words) else nullcontext():
            return _run(name, words)
    except VantageError as error:
        return _print_error(error)
    except Stopped:
        print("vantage: stopped before training began", file=sys.stderr)
        raise
    except (ImportError, MemoryError, OSError, RuntimeError) as error:
        failure = _print_machine_error(error)
        if failure is None:
            raise
        return failure


def _check_command(name: str) -> None:
    if name in COMMANDS:
        return
    near = nearest(name, COMMANDS)
    if name in OTHERS:
        near = f"; did you mean {OTHERS[name]}?"
    what = f"unknown COMMAND {name!r}" if name else "no COMMAND"
    raise ConfigError(f"{what}{near}; see vantage --help")


def _check_working_directory() -> None:
    try:
        os.getcwd()
    except FileNotFoundError:  # torch would find its own files missing
        raise ConfigError("the current folder has been removed; change to another one") from None


def _print_error(error: VantageError) -> int:
    """Print the message of an error; returns the exit status."""
    if isinstance(error, EnvError) and error.__cause__ is not None:
        lack = shortage(error.__cause__)
        if lack is not None:
            print(f"vantage: {lack}", file=sys.stderr)
            return 1
        traceback.print_exception(error.__cause__)  # where in the user's own code
    text = printable(str(error))
    if isinstance(error, ConfigError):
        # One line: a line feed in a name could pretend to be another message.
        text = text.replace("\n", "\\n")
    print(f"vantage: {text}", file=sys.stderr)
    return error.status


def _prints_data(name: str, words: Sequence[str]) -> bool:
    """Whether standard output is for programs, or for a result that environments would bury."""
    if any(word in _HELP for word in words):
        return False
    if name in ("train", "resume", "search"):
        flags = [word.partition("=")[0].replace("_", "-") for word in words]
        return "--dry-run" in flags
    return name not in ("watch", "play")


def _run(name: str, words: Sequence[str]) -> int:
    call = read(COMMANDS[name], words, f"vantage {name}")
    # Many environments draw with SDL, which would look for a sound card, and for a screen, which
    # only two commands use.
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if name not in ("watch", "play"):
        os.environ["SDL_VIDEODRIVER"] = "dummy"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("vantage: %(message)s"))
    with messages_to(handler, logging.WARNING):
        status = call() or 0
    sys.stdout.flush()
    return status


def _print_machine_error(error: Exception) -> int | None:
    """Print an error of the machine in one line.

    Returns the exit status, or None for an error of the program.
    """
    status = 1
    lack = shortage(error)
    if lack is not None:
        message = lack
    elif isinstance(error, ImportError) and not (error.name or "vantage").startswith("vantage"):
        message = f"cannot import {error.name}: {error}; `vantage doctor` says what to install"
        status = 2
    elif isinstance(error, OSError) and error.filename is not None:
        message = f"cannot use {error.filename}: {error.strerror}; choose another path"
    elif isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
        from vantage.tools.display import discard_output

        discard_output()
        if isinstance(error, BrokenPipeError):
            return status
        message = f"cannot write to standard output: {error.strerror}"
    else:
        return None
    print("vantage:", printable(message), file=sys.stderr)
    return status


def _overview() -> str:
    lines = [f"  {name:<10}{first_line(command)}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: vantage COMMAND ..., and vantage COMMAND --help", "", *lines])


def _accept_any_output() -> None:
    """Keep a command running when standard output is closed or cannot encode a character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            null = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  stays open to the end
            setattr(sys, name, null)
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
