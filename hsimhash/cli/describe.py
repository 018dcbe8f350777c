"""`hsimhash describe`: facts about an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import print_fields, print_json, print_line, print_table, shown
from hsimhash.cli.options import is_on_hbase, json_option, open_index, with_settings
from hsimhash.settings import Settings
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.survey import range_in_words

if TYPE_CHECKING:
    from hsimhash.index import HSimIndex
    from hsimhash.store.hbase.operations import TableFacts


@click.command("describe")
@with_settings("store")
@click.option("--count", "is_counted", is_flag=True, help="HBase: count the documents too, which reads all registers.")
@json_option
def describe_command(settings: Settings, is_counted: bool, as_json: bool) -> None:
    """Show how an index was made and what is in it.

    On HBase also how its column families are set, what of it is not as 'create-table' makes it, and which segments of
    which drawers each region has.

    \b
    Example: hsimhash describe --store lmdb://pages
             hsimhash describe --store lmdb://pages --json | jq .documents
             hsimhash describe --store hbase://gw1/crawl:pages
    """
    with open_index(settings) as index:
        facts = index.describe(is_counted=is_counted or not is_on_hbase(settings))
        found = _facts_of_table(index)
    if as_json:
        print_json({**facts, **(_table_json(found) if found else {})})
        return
    layout = {**index.layout.to_json(), "drawers": len(index.layout.drawers)}
    print_fields(list(_fields({**facts, "layout": layout})))
    if found:
        _print_table(found)


def _facts_of_table(index: HSimIndex) -> TableFacts | None:
    if not isinstance(index.store, HBaseStore):
        return None
    from hsimhash.store.hbase.operations import describe  # here: thriftpy2 is for HBase alone, and slow to import

    return describe(index.store)


def _fields(facts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values; the parts of the layout, the profile and the format each on a line of their own."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name} ")
        else:
            yield prefix + name.replace("_", " "), shown(name, value)


def _table_json(found: TableFacts) -> dict[str, object]:
    ranges = [
        {"start": one.start.hex(), "stop": one.stop.hex(), "segments": range_in_words(one), "server": one.server}
        for one in found.regions
    ]
    if not found.table.is_told:
        return {"region_ranges": ranges}
    families = {family.name: family.attributes | family.configuration for family in found.table.families}
    return {"families": families, "deviations": found.deviations, "region_ranges": ranges}


def _print_table(found: TableFacts) -> None:
    families = found.table.families
    if not found.table.is_told:
        print_line("families: this gateway, Thrift1, does not tell how they are set")
    else:
        names = list(dict.fromkeys(name for family in families for name in family.attributes))
        rows = [(name, *(family.attributes.get(name, "") for family in families)) for name in names]
        print_table(("setting", *(f"family {family.name}" for family in families)), rows)
        for deviation in found.deviations or ["all settings are as create-table makes them"]:
            print_line(deviation)
    print_table(("region: segments", "server"), [(range_in_words(region), region.server) for region in found.regions])
