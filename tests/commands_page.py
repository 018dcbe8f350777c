"""The command reference, `hsimhash/cli/COMMANDS.md`, made of the help: `python -m tests.commands_page` writes it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from hsimhash.cli.program import COMMANDS, main

PAGE = Path(__file__).parents[1] / "hsimhash" / "cli" / "COMMANDS.md"
HEAD = """# Commands

What `--help` says of each command. `python -m tests.commands_page` writes this page; a test holds it to the program.
"""


def text() -> str:
    """Return the page as the program's help makes it."""
    return HEAD + "".join(map(_section, ["", *COMMANDS, "settings show"]))


def _section(command: str) -> str:
    shown = CliRunner().invoke(main, [*command.split(), "--help"], prog_name="hsimhash")
    return f"\n## `{f'hsimhash {command}'.rstrip()}`\n\n```text\n{shown.stdout.strip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
