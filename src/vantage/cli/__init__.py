"""The command `vantage`: arguments in, exit status out. Help and bad input are answered before torch is imported."""

from vantage.cli.entry import main

__all__ = ["main"]
