"""The command line: one module per command; parse, call, print."""

from hsimhash.cli.program import main

__all__ = ["main"]
