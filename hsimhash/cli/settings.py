"""`hsimhash settings show`: show the value and source of every setting."""

from __future__ import annotations

import json

import click

from hsimhash.cli.console import print_json, print_line
from hsimhash.cli.help import Group
from hsimhash.cli.options import json_option, load_settings, setting_flags


@click.group("settings", cls=Group)
def settings_command() -> None:
    """Show the settings and where they come from.

    \b
    Example: hsimhash settings show
             HSIMHASH_STORE=lmdb://pages hsimhash settings show

    Flags override environment variables (HSIMHASH_…), which override the settings file, which overrides the defaults.
    """


@settings_command.command(short_help="Show every setting, its value and its source.")
@setting_flags()
@json_option
def show(as_json: bool, **flags: object) -> None:
    """Show every setting, its value and its source: default, file and line, variable, or flag.

    \b
    Example: HSIMHASH_STORE=lmdb://pages hsimhash settings show

    Pass flags of other commands to see what they change.
    """
    loaded = load_settings(flags)
    rows = [(key, value, loaded.sources[key]) for key, value in loaded.settings.shown().items()]
    if as_json:
        print_json({key: {"value": value, "source": source} for key, value, source in rows})
        return
    shown = [(key, json.dumps(value, ensure_ascii=False), source) for key, value, source in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print_line("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
