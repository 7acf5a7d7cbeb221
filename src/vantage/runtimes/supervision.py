"""How `hogwild` and `ray` watch workers: how many are replaced, and how long one may be silent."""

from __future__ import annotations

import logging

from vantage.errors import VantageError

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0
"""Seconds beyond the time of waiting after which this process has paused."""


class Restarts:
    """Counts the workers that were replaced; at most `max_restarts` are."""

    def __init__(self, max_restarts: int) -> None:
        self._max_restarts = max_restarts
        self.count = 0

    def add(self, name: str, error: VantageError) -> None:
        """Log that `name` failed and is replaced; raise its `error` if no replacement is left."""
        if self.count >= self._max_restarts:
            raise type(error)(f"{name} failed, and {self.count} were replaced already "
                              f"(max_restarts): {error}")
        self.count += 1
        log.warning(f"{name} failed and is replaced ({self.count} of {self._max_restarts}): "
                    f"{error}")


class ReceiveClock:
    """Measures how long a worker has been silent while this process was receiving.

    If the caller pauses or this process is stopped, workers may wait for room in their pipes.
    """

    def __init__(self, now: float) -> None:
        self._received_at = now
        self._receiving_since = now

    def received(self, now: float, seconds: float) -> None:
        """Note that messages were received at `now`, after waiting for at most `seconds`."""
        if now - self._received_at > seconds + PAUSE_SECONDS:
            self._receiving_since = now
        self._received_at = now

    def silence(self, heard_at: float) -> float:
        """Seconds without a message from a worker that was last heard at `heard_at`."""
        return self._received_at - max(heard_at, self._receiving_since)
