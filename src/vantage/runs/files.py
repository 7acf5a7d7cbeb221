"""Small files of a run, never opened through a link, and output files of commands. No torch here.

All are replaced completely or not at all.
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
    """`place` is a URL of fsspec, neither a path nor a repository of the hub."""
    return "://" in str(place) and not str(place).startswith("hf://")


def open_file(path: Path, flags: int) -> int:
    """A file descriptor of `path`. ConfigError unless it is a regular file.

    In a run made by someone else a symbolic link could lead anywhere, and opening a pipe would
    block.

    A pipe would be waited for.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        what = "symbolic link, which Vantage does not follow" if error.errno == errno.ELOOP else "pipe or a socket"
        raise ConfigError(f"{path} is a {what}; put the file itself in its place") from None
    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigError(f"{path} is a pipe; put the file itself in its place")
    return descriptor


LARGEST_TEXT_FILE = 1 << 24
"""Bytes that the small files of a run, and those of config keys, may have."""


def read_text(path: Path) -> str:
    """The text of a small UTF-8 file. ConfigError for large files and for links, see `open_file`."""
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        # As an editor may have written it.
        return read_small(file, str(path)).decode().replace("\r\n", "\n")


def read_small(file: BinaryIO, source: str, most: int = LARGEST_TEXT_FILE) -> bytes:
    """The content of `file`; ConfigError if it is larger than `most` bytes."""
    content = file.read(most + 1)
    if len(content) > most:
        raise ConfigError(f"{source} is larger than {most >> 20:,} MiB, and no such file that "
                          "Vantage writes is")
    return content


def sync(path: Path) -> None:
    """Bring a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def replacing(path: Path, mark: object = "new") -> Iterator[Path]:
    """A temporary path that replaces `path` when the block ends.

    After an error or a crash the former file is intact.

    Processes that may replace the same file at once need a `mark` each, for the temporary name.
    """
    temporary = path.with_name(f".{path.stem}.{mark}{path.suffix}")
    # A link of that name, in a run of someone else, would be followed.
    temporary.unlink(missing_ok=True)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):  # on a read-only file system there is nothing to remove
            temporary.unlink()


@contextlib.contextmanager
def whole_file(output: str | Path, *suffixes: str) -> Iterator[Path]:
    """A temporary path that replaces `output` when the block ends, and is removed when it raises.

    ConfigError if the name ends in none of the `suffixes`, or the file cannot be written.
    """
    output = Path(output)
    if suffixes and output.suffix.lower() not in suffixes:
        raise ConfigError(f"{output}: the name must end in {' or '.join(suffixes)}")
    if output.is_dir():
        raise ConfigError(f"{output} is a directory; choose another output")
    try:
        place = Path(os.path.abspath(output))  # an environment may change the working directory
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place, os.getpid()) as temporary:
            temporary.touch()
            yield temporary
    except (OSError, UnicodeEncodeError) as error:
        if shortage(error) is not None:  # of the machine, in whatever the block does
            raise
        raise ConfigError(f"cannot write {str(output)!r}: {getattr(error, 'strerror', None) or error}; choose another "
                          "output") from None


def working_directory() -> Path:
    """The working directory; empty if it has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path()


def write_atomically(path: Path, text: str, mark: object = "new") -> None:
    """Replace the content of `path` by `text`, as in `replacing`."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with replacing(path, mark) as temporary, open(open_file(temporary, flags), "w",
                                                  encoding="utf-8") as file:
        file.write(text)
