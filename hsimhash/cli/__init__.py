"""The command line: parses arguments, calls the package, prints results."""

from hsimhash.cli.program import main

__all__ = ["main"]
