"""Writing the output file of a command completely or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from vantage.errors import ConfigError


@contextlib.contextmanager
def whole_file(output: Path, *suffixes: str) -> Iterator[Path]:
    """A temporary path that replaces `output` when the block ends, and is removed when it raises.

    ConfigError if the name ends in none of the `suffixes`, or the file cannot be written.
    """
    if suffixes and output.suffix.lower() not in suffixes:
        raise ConfigError(f"{output}: the name must end in {' or '.join(suffixes)}")
    if output.is_dir():
        raise ConfigError(f"{output} is a directory; choose another output")
    temporary = output.with_name(f".{output.stem}-{os.getpid()}{output.suffix.lower()}")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, output)
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror or error}; choose another output") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
