"""Print the manual page of hsimhash: `python docs/man_page.py > hsimhash.1`."""

from __future__ import annotations

from typing import cast

import click

from hsimhash import __version__
from hsimhash.cli.program import COMMANDS, main

WIDTH = 78


def literal(text: str) -> str:
    """Return text as roff shows it unchanged."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def help_of(command: click.Command, name: str) -> str:
    """Return the help of a command as it is printed."""
    with click.Context(command, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH) as context:
        return command.get_help(context)


def section(title: str, text: str) -> str:
    """Return a section that keeps its lines."""
    return f".SH {title}\n.nf\n{literal(text)}\n.fi\n"


def page() -> str:
    """Return the page: the program, then each command."""
    context = click.Context(main, info_name="hsimhash")
    parts = [
        f'.TH HSIMHASH 1 "" "hsimhash {__version__}" "User Commands"\n',
        ".SH NAME\nhsimhash \\- find near\\-duplicate documents\n",
        section("DESCRIPTION", help_of(main, "hsimhash")),
    ]
    for name in COMMANDS:
        command = cast("click.Command", main.get_command(context, name))
        parts.append(section(f"HSIMHASH {name.upper()}", help_of(command, f"hsimhash {name}")))
        if isinstance(command, click.Group):
            for inner, one in command.commands.items():
                parts.append(
                    section(f"HSIMHASH {name.upper()} {inner.upper()}", help_of(one, f"hsimhash {name} {inner}"))
                )
    return "".join(parts)


if __name__ == "__main__":
    click.echo(page(), nl=False)
