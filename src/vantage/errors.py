"""The exceptions of Vantage, their exit statuses, and how their messages name keys.

Messages are written with the command's flags. Python shows its keywords instead:
`give --num-envs 8` is num_envs=8.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class VantageError(Exception):
    """Every error that Vantage raises on purpose. `status` is the command's exit status."""

    status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(bounded(message))

    @property
    def message(self) -> str:
        """The message as written, with command-line flags."""
        return str(self.args[0])

    def __str__(self) -> str:
        return for_reader(self.message)

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the user's line that led here, the error and its cause."""
        lines = _where(self, before_vantage=True)
        lines.append(f"{type(self).__name__}: {self}")
        if self.__cause__ is not None and not isinstance(self.__cause__, VantageError):
            lines += ["caused by:", *_where(self.__cause__, before_vantage=False)]
            lines += traceback.format_exception_only(self.__cause__)
        return [line.rstrip("\n") for line in lines]


class ConfigError(VantageError):
    """A key, value or name that cannot be used; the message names the remedy."""

    status = 2


class EnvError(VantageError):
    """An environment raised, or returned something outside its own spaces."""


class CheckpointError(VantageError):
    """A checkpoint that cannot be read, or that cannot be written."""


class NonFiniteError(VantageError):
    """A non-finite loss, gradient or running statistic, caught before it reaches the policy."""


def _where(error: BaseException, *, before_vantage: bool) -> list[str]:
    """A line of an error's traceback: the last one, or the last one before it enters Vantage."""
    frames = [*traceback.extract_tb(error.__traceback__)]
    if before_vantage:
        package = f"{Path(__file__).parent}{os.sep}"
        inside = [i for i, frame in enumerate(frames) if frame.filename.startswith(package)]
        frames = frames[:inside[0]] if inside else frames
    return [f"line {frame.lineno} of {frame.filename}: {frame.line}" for frame in frames[-1:]]


LONGEST_LINE = 2_000
"""Characters of a line of a message. A value from a file may be as long as the file."""


def bounded(text: str) -> str:
    """`text`, with lines longer than `LONGEST_LINE` shortened in the middle."""
    half = LONGEST_LINE // 2
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:half]} [...] {line[-half:]}"
                     for line in text.split("\n"))


class _Command:
    """Whether this process runs the command `vantage`, whose users give flags."""

    runs = False


@contextmanager
def flags_in_errors() -> Iterator[None]:
    """Show the messages of errors with flags, as the command does."""
    former = _Command.runs
    _Command.runs = True
    try:
        yield
    finally:
        _Command.runs = former


_OF_OTHERS = ("shm-size", "force-reinstall", "head", "help", "help-all")
_SWITCHES = ("trust", "extend-schedule", "private")
_PROSE = ("or|and|of|to|for|is|if|at|on|in|as|that|which|with|has|have|does|above|out|exclude|"
          "explains|file|N|DIR|RUN|FILE.json")
"""Words that follow a flag and are not its value."""
_NUMBER = re.compile("-?[0-9.]+(e-?[0-9]+)?")
_FLAG = re.compile(rf"(?<![\w'\"/-])--([a-z][a-z-]*[a-z])"
                   rf"(?: (?!(?:{_PROSE})\b)(-?\w(?:[\w:.,=%/-]*\w)?))?")


def runs_command() -> bool:
    """Whether this process runs the command `vantage`."""
    return _Command.runs


def for_reader(text: str) -> str:
    """`text`, which names flags, as the command's user or a Python program reads it."""
    return text if _Command.runs else with_keywords(text)


def with_keywords(text: str) -> str:
    """`text` with keywords of Python in place of flags, except in commands, within backticks."""
    parts = text.split("`")
    return "`".join(_FLAG.sub(_keyword, part) if number % 2 == 0 else part
                    for number, part in enumerate(parts))


def _keyword(match: re.Match[str]) -> str:
    flag = match[1]
    value = match[2]
    if flag in _OF_OTHERS:
        return match[0]
    after = "" if value is None else f" {value}"
    if flag in _SWITCHES:
        return f"{flag.replace('-', '_')}=True{after}"
    if flag.startswith("no-"):
        return f"{flag[3:].replace('-', '_')}=False{after}"
    name = flag.replace("-", "_")
    if value is None:
        return name
    words = {"true": "True", "false": "False", "none": "None"}
    literal = value if _NUMBER.fullmatch(value) else repr(value)
    return f"{name}={words.get(value, literal)}"
