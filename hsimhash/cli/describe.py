"""`hsimhash describe`: facts about an index."""

from __future__ import annotations

import json
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
        facts = index.describe()
    if as_json:
        print_json(facts)
    else:
        print_fields([(name.replace("_", " "), _shown(name, value)) for name, value in facts.items()])


def _shown(name: str, value: object) -> str:
    if isinstance(value, int):
        return size(value) if name.endswith("_bytes") else f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {json.dumps(part, ensure_ascii=False)}" for key, part in value.items())
    return str(value)
