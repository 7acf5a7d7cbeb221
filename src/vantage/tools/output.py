"""Writing the output file of a command completely or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vantage.errors import ConfigError
from vantage.runs.files import replacing


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
        output.parent.mkdir(parents=True, exist_ok=True)
        with replacing(output) as temporary:
            temporary.touch()
            yield temporary
    except (OSError, UnicodeEncodeError) as error:
        raise ConfigError(f"cannot write {str(output)!r}: {getattr(error, 'strerror', None) or error}; choose another "
                          "output") from None
