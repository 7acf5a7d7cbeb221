"""What can go wrong, as people meet it. The command turns each class into an exit status; no torch here."""

from __future__ import annotations

from vantage.wording import bounded, for_reader


class VantageError(Exception):
    """Every error that Vantage raises on purpose. `status` is the command's exit status."""

    status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(bounded(message))

    @property
    def message(self) -> str:
        """The text with flags, whoever reads it."""
        return str(self.args[0])

    def __str__(self) -> str:
        return for_reader(self.message)


class ConfigError(VantageError):
    """A key, value or name that cannot be used; the message names the remedy."""

    status = 2


class EnvError(VantageError):
    """An environment raised, or returned something outside its own spaces."""


class CheckpointError(VantageError):
    """A checkpoint that cannot be read, or that cannot be written."""


class NonFiniteError(VantageError):
    """A loss, a gradient or a running statistic that is not finite, caught before it reaches the policy."""
