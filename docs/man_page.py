"""Print the manual page of hsimhash: `python -m docs.man_page > hsimhash.1`."""

from __future__ import annotations

import click

from hsimhash import __version__
from tests.commands_page import helps


def literal(text: str) -> str:
    """Escape text so that roff shows it unchanged."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def page() -> str:
    """Return the manual page: the help of the program, then of each command."""
    head = f'.TH HSIMHASH 1 "" "hsimhash {__version__}" "User Commands"\n.SH NAME\n'
    sections = (f".SH {name.upper()}\n.nf\n{literal(shown)}\n.fi\n" for name, shown in helps())
    return f"{head}hsimhash \\- find near\\-duplicate documents\n{''.join(sections)}"


if __name__ == "__main__":
    click.echo(page(), nl=False)
