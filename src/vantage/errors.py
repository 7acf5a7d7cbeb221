"""What can go wrong, as people meet it. The command turns each class into an exit status; no torch here."""


class VantageError(Exception):
    """Every error that Vantage raises on purpose. `status` is the command's exit status."""

    status = 1


class ConfigError(VantageError):
    """A key, value or name that cannot be used; the message names the remedy."""

    status = 2


class EnvError(VantageError):
    """An environment raised, or returned something outside its own spaces."""


class CheckpointError(VantageError):
    """A checkpoint that cannot be read, or that cannot be written."""


class NonFiniteError(VantageError):
    """A loss, a gradient or a running statistic that is not finite, caught before it reaches the policy."""
