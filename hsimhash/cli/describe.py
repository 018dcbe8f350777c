"""`hsimhash describe`: facts about an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from hsimhash.cli.console import print_fields, print_json, print_line, print_table, shown
from hsimhash.cli.options import gateway_of, is_on_hbase, json_option, open_index, with_settings
from hsimhash.index import HSimIndex
from hsimhash.settings import Settings
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.admin import Admin
from hsimhash.store.hbase.gateway import Region
from hsimhash.store.hbase.survey import range_in_words
from hsimhash.store.hbase.table import Table, TableSettings, deviations


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
        regions, table = _on_hbase(index) if is_on_hbase(settings) else ([], None)
    if as_json:
        print_json({**facts, **(_table_facts(regions, table) if regions else {})})
        return
    layout = {**index.layout.to_json(), "drawers": len(index.layout.drawers)}
    print_fields(list(_fields({**facts, "layout": layout})))
    if regions:
        _print_table(regions, table)


def _fields(facts: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values; the parts of the layout, the profile and the format each on a line of their own."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{prefix}{name} ")
        else:
            yield prefix + name.replace("_", " "), shown(name, value)


def _on_hbase(index: HSimIndex) -> tuple[list[Region], Table | None]:
    """Return the regions, and how the table is made where the gateway tells."""
    with Admin(Address.parse(index.url)) as admin:
        return gateway_of(index).regions(), admin.table() if admin.can_describe else None


def _deviations(table: Table) -> list[str]:
    return list(map(str, deviations(table, TableSettings())))


def _table_facts(regions: list[Region], table: Table | None) -> dict[str, object]:
    ranges = [
        {"start": one.start.hex(), "stop": one.stop.hex(), "segments": range_in_words(one), "server": one.server}
        for one in regions
    ]
    if table is None:
        return {"region_ranges": ranges}
    families = {family.name: family.attributes | family.configuration for family in table.families}
    return {"families": families, "deviations": _deviations(table), "region_ranges": ranges}


def _print_table(regions: list[Region], table: Table | None) -> None:
    if table is None:
        print_line("families: this gateway, Thrift1, does not tell how they are set")
    else:
        names = list(dict.fromkeys(name for family in table.families for name in family.attributes))
        rows = [(name, *(family.attributes.get(name, "") for family in table.families)) for name in names]
        print_table(("setting", *(f"family {family.name}" for family in table.families)), rows)
        for deviation in _deviations(table) or ["all settings are as create-table makes them"]:
            print_line(deviation)
    print_table(("region: segments", "server"), [(range_in_words(region), region.server) for region in regions])
