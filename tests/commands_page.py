"""The command reference, generated from the help texts: `python -m tests.commands_page` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from hsimhash.cli.program import COMMANDS, main
from hsimhash.store import Backend, backends
from hsimhash.store.capabilities import BacksUp, Collects, Compacts, HasTable, LoadsFiles, WalksRanges

PAGE = Path(__file__).parents[1] / "docs" / "pages" / "reference" / "commands.md"
HEAD = """# Commands

The `--help` text of every command. `python -m tests.commands_page` generates this page; a test checks that it is up to
date.
"""


# What commands do with each optional capability of a store.
WHAT = {
    "`bulk-load`, `relayout --stage`: load HFiles": LoadsFiles,
    "`check`, `describe --count`, `expire` with several processes": WalksRanges,
    "`describe`, `status`: regions": HasTable,
    "`collect`": Collects,
    "`compact`": Compacts,
    "`backup`": BacksUp,
}
URLS = {
    "lmdb": "lmdb://pages",
    "hbase": "hbase://gw1/pages",
    "postgresql": "postgresql://db1/crawl?table=pages",
    "redis": "redis://cache/0?prefix=pages",
}


def text() -> str:
    """Return the page, generated from the program's help."""
    return HEAD + matrix() + "".join(f"\n## `{name}`\n\n```text\n{shown}\n```\n" for name, shown in helps())


def helps() -> Iterator[tuple[str, str]]:
    """Yield the program, its commands and their subcommands, each with its help text."""
    for command in ("", *COMMANDS):
        yield _help_of(command)
        group = main.get_command(click.Context(main), command)
        if isinstance(group, click.Group):
            yield from (_help_of(f"{command} {name}") for name in group.commands)


def _help_of(command: str) -> tuple[str, str]:
    shown = CliRunner().invoke(main, [*command.split(), "--help"], prog_name="hsimhash")
    return f"hsimhash {command}".rstrip(), shown.stdout.strip()


def matrix() -> str:
    """Return the table of what works on which store, according to their backends."""
    kinds = {name: backends()[name] for name in URLS}
    rows = [[what, *(_answer(one, capability) for one in kinds.values())] for what, capability in WHAT.items()]
    head = ["what", *(one.title for one in kinds.values())]
    lines = [head, ["---"] * len(head), *rows]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"""
## What works on which store

Every command works on every store, with these exceptions. If a store does not support a command, the command prints
what to do instead. If a flag is only for some stores, its help begins with their names.

{table}"""


def _answer(backend: Backend, capability: type) -> str:
    if capability in backend.capabilities:
        return "yes"
    instead = backend.instead(capability, URLS[backend.name], "copy")
    if instead is None:
        return ""
    return "prints the commands" if instead.lines else "not needed"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
