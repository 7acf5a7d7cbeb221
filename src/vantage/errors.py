"""What can go wrong, as people meet it. The command turns each class into an exit status; no torch here."""


LONGEST_LINE = 2_000
"""Characters of a line of a message. A value from a file may be as long as the file."""


def bounded(text: str) -> str:
    """`text` with the middle of lines left out that are longer than `LONGEST_LINE`."""
    if len(text) <= LONGEST_LINE:
        return text
    return "\n".join(line if len(line) <= LONGEST_LINE else
                     f"{line[:LONGEST_LINE // 2]} [...] {line[-LONGEST_LINE // 2:]}" for line in text.split("\n"))


class VantageError(Exception):
    """Every error that Vantage raises on purpose. `status` is the command's exit status."""

    status = 1

    def __init__(self, message: str = "") -> None:
        super().__init__(bounded(message))


class ConfigError(VantageError):
    """A key, value or name that cannot be used; the message names the remedy."""

    status = 2


class EnvError(VantageError):
    """An environment raised, or returned something outside its own spaces."""


class CheckpointError(VantageError):
    """A checkpoint that cannot be read, or that cannot be written."""


class NonFiniteError(VantageError):
    """A loss, a gradient or a running statistic that is not finite, caught before it reaches the policy."""
