"""Writing the output file of a command completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vantage.errors import ConfigError, VantageError


@contextmanager
def whole_file(output: Path) -> Iterator[Path]:
    """A temporary path that replaces `output` when the block ends, and is removed when it raises.

    ConfigError if the file cannot be written, VantageError if the block wrote nothing.
    """
    temporary = None
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.is_dir():
            raise ConfigError(f"{output} is a directory; choose another output")
        handle, name = tempfile.mkstemp(output.suffix.lower(), f".{output.stem}-", output.parent)
        os.close(handle)
        temporary = Path(name)
        temporary.chmod(0o666 & ~_umask())
        yield temporary
        if not temporary.stat().st_size:
            raise VantageError(f"nothing was written into {output}")
        os.replace(temporary, output)
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror or error}; choose another output") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
