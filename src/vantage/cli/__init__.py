"""The command `vantage`: arguments in, exit status out. Help and bad input are answered before torch is imported."""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """`vantage.cli.entry.main`; no traceback for Ctrl-C while that is imported, which takes most of a second."""
    try:
        from vantage.cli import entry

        return entry.main(argv)
    except KeyboardInterrupt:
        return 130
