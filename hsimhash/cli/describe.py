"""`hsimhash describe`: facts about an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import print_fields, print_json, size
from hsimhash.cli.options import json_option, open_index, with_settings

if TYPE_CHECKING:
    from hsimhash.settings import Settings


@click.command()
@with_settings("store")
@json_option
def describe(settings: Settings, as_json: bool) -> None:
    """Show how an index was made and what is in it.

    \b
    Example: hsimhash describe --store lmdb://pages
             hsimhash describe --store lmdb://pages --json | jq .documents
    """
    with open_index(settings) as index:
        facts, layout = index.describe(), index.layout
    if as_json:
        print_json(facts)
    else:
        print_fields(list(_fields({**facts, "layout": {**layout.to_json(), "drawers": len(layout.drawers)}})))


def _fields(facts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values; the parts of the layout, the profile and the format each on a line of their own."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name} ")
        else:
            yield prefix + name.replace("_", " "), _shown(name, value)


def _shown(name: str, value: object) -> str:
    if isinstance(value, int):
        return size(value) if name.endswith("_bytes") else f"{value:,}"
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "none" if value is None else str(value)
