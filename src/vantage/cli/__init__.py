"""The command `vantage`: arguments in, exit status out. Help and bad input are answered before torch is imported."""

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """`vantage.cli.entry.main`; no traceback for Ctrl-C while that is imported, which takes most of a second.

    Without `argv` the process is the command's own, and whatever its environments have started ends with it.
    """
    try:
        from vantage.cli import entry
        from vantage.system import kill_descendants, tie_forks

        if argv is not None:
            return entry.main(argv)
        tie_forks()
        try:
            return entry.main()
        finally:
            kill_descendants()
    except KeyboardInterrupt:
        return 130
