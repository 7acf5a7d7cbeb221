"""Log messages about files of a run that cannot be saved. `recorder` saves them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vantage.errors import VantageError

log = logging.getLogger(__name__)


class SaveFailures:
    """Logs each failure once, until its reason changes, and when the file is saved again."""

    def __init__(self) -> None:
        self._reasons: dict[str, int | str] = {}
        """By file: the errno, the type of the cause, or the message of its last failure."""

    def failed(self, name: str, error: VantageError, effect: str = "") -> None:
        """Log that the file or directory `name` cannot be saved; `effect` ends the message."""
        former = self._reasons.get(name)
        cause = error.__cause__
        reason: int | str
        if cause is None:
            reason = str(error)
        else:
            reason = getattr(cause, "errno", None) or type(cause).__name__
        self._reasons[name] = reason
        if reason != former:
            log.warning(f"{error}{effect}")

    @contextmanager
    def logged(self, path: Path, effect: str = "") -> Iterator[None]:
        """Within this context `path` is saved; log a failure, whose message ends with `effect`."""
        try:
            yield
        except VantageError as error:
            self.failed(path.name, error, effect)
        else:
            self.saved(path)

    def saved(self, path: Path) -> None:
        """Log that `path` is saved again, if its last save failed."""
        if self._reasons.pop(path.name, None) is not None:
            log.warning(f"{path} is saved again")
