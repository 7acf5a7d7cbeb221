"""Lines for a terminal. Names from files and from the command line may hold characters that would command it."""

from __future__ import annotations

import logging


def printable(text: str) -> str:
    """`text` with every character that is not printed escaped as in JSON, except for line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in "\n\t" else _escaped(character)
                   for character in text)


def write_line(text: object) -> None:
    """Print a line to standard output."""
    print(printable(str(text)), flush=True)


def escape_message(record: logging.LogRecord) -> bool:
    """A filter of log handlers that lets every message pass, but printable."""
    record.msg, record.args = printable(record.getMessage()), ()
    return True


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
