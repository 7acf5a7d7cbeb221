"""Small files of a run, and output files of commands. No torch here.

A file is replaced completely or not at all. Files of a run are not opened through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vantage._host.system import shortage
from vantage.errors import ConfigError


def is_url(place: object) -> bool:
    """Whether `place` is a URL of fsspec, and not a path or a repository of the hub."""
    return "://" in str(place) and not str(place).startswith("hf://")


def open_file(path: Path, flags: int) -> int:
    """A file descriptor of `path`; ConfigError for a symbolic link or a pipe.

    In a run of someone else, a link could lead anywhere, and reading a pipe would block.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        what = "pipe or a socket"
        if error.errno == errno.ELOOP:
            what = "symbolic link, which Vantage does not follow"
        raise ConfigError(f"{path} is a {what}; put the file itself in its place") from None
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{path} is a pipe; put the file itself in its place")
    return descriptor


LARGEST_TEXT_FILE = 1 << 24
"""Bound of the small files of a run, and of files of config keys, in bytes."""


def read_text(path: Path) -> str:
    """The text of a small UTF-8 file; ConfigError for large files and for links."""
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        text = read_small(file, str(path)).decode()
    return text.replace("\r\n", "\n")  # an editor may have written it


def read_small(file: BinaryIO, source: str, most: int = LARGEST_TEXT_FILE) -> bytes:
    """The content of `file`; ConfigError if it is larger than `most` bytes."""
    content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{source} is larger than {most >> 20:,} MiB; Vantage writes no file of "
                          "that kind so large")
    return content


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing(path: Path, mark: object = "new") -> Iterator[Path]:
    """A temporary path that replaces `path` when the block ends.

    After an error or a crash the former file is intact. Processes that may replace the same file at
    once need different `mark`s, which are part of the temporary name.
    """
    temporary = path.with_name(f".{path.stem}.{mark}{path.suffix}")
    # In a run of someone else it could be a link, which would be followed.
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # on a read-only file system there is nothing to remove
            temporary.unlink()


def check_name(output: str | Path, *suffixes: str) -> None:
    """ConfigError if the name of `output` ends in none of the `suffixes`, if any are given."""
    if suffixes and Path(output).suffix.lower() not in suffixes:
        raise ConfigError(f"{output}: the name must end in {' or '.join(suffixes)}")


@contextlib.contextmanager
def whole_file(output: str | Path, *suffixes: str) -> Iterator[Path]:
    """A temporary path that replaces `output` when the block ends, and is removed when it raises.

    ConfigError if the name ends in none of the `suffixes`, or the file cannot be written.
    """
    output = Path(output)
    check_name(output, *suffixes)
    if output.is_dir():
        raise ConfigError(f"{output} is a directory; choose another output")
    try:
        path = Path(os.path.abspath(output))  # an environment may change the working directory
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, os.getpid()) as temporary:
            temporary.touch()
            yield temporary
    except (OSError, UnicodeEncodeError) as error:
        if shortage(error) is not None:  # the block may run out of memory or processes
            raise
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot write {str(output)!r}: {reason}; choose another output") from None


def working_directory() -> Path:
    """The working directory; empty if it has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path()


def write_atomically(path: Path, text: str, mark: object = "new") -> None:
    """Replace the content of `path` by `text`, as `replacing` does."""
    with replacing(path, mark) as temporary:
        descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
