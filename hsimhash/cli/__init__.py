"""The command line: parse, call, print."""

from hsimhash.cli.program import main

__all__ = ["main"]
