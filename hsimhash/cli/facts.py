"""`hsimhash describe`: how an index was made; `hsimhash status`: how many rows there are, and where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import print_fields, print_json, print_line, print_table
from hsimhash.cli.options import Settings, json_option, open_index, with_settings
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.rowkey import SEGMENT_BYTES
from hsimhash.store import is_hbase
from hsimhash.store.base import Region
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.survey import Survey, range_in_words

if TYPE_CHECKING:
    from hsimhash.store.hbase.operations import TableFacts


@click.command("describe")
@with_settings("store")
@click.option("--count", "is_counted", is_flag=True, help="HBase: count the documents too, which reads all registers.")
@json_option
def describe_command(settings: Settings, is_counted: bool, as_json: bool) -> None:
    """Show how an index was made and what is in it.

    On HBase also how its column families are set, where that differs from what 'create-table' makes, and which segments
    of which drawers each region has.

    \b
    Example: hsimhash describe --store lmdb://pages
             hsimhash describe --store lmdb://pages --json | jq .documents
             hsimhash describe --store hbase://gw1/crawl:pages
    """
    with open_index(settings) as index:
        facts = index.describe(is_counted=is_counted or not is_hbase(settings.store))
        found = _facts_of_table(index)
    if as_json:
        print_json({**facts, **(_table_json(found) if found else {})})
        return
    print_fields({**facts, "layout": {**index.layout.to_json(), "drawers": len(index.layout.drawers)}})
    if found:
        _print_table(found)


def _facts_of_table(index: HSimIndex) -> TableFacts | None:
    if not isinstance(index.store, HBaseStore):
        return None
    from hsimhash.store.hbase.operations import describe  # here: thriftpy2 is for HBase alone, and slow to import

    return describe(index.store)


def _region_json(region: Region) -> dict[str, object]:
    return {
        "start": region.start.hex(),
        "stop": region.stop.hex(),
        "segments": range_in_words(region),
        "server": region.server,
    }


def _table_json(found: TableFacts) -> dict[str, object]:
    ranges = {"region_ranges": [_region_json(one) for one in found.regions]}
    if not found.table.is_told:
        return dict(ranges)
    families = {family.name: family.attributes | family.configuration for family in found.table.families}
    return {"families": families, "deviations": found.deviations, **ranges}


def _print_table(found: TableFacts) -> None:
    families = found.table.families
    if not found.table.is_told:
        print_line("families: the gateway does not report how they are set")
    else:
        names = list(dict.fromkeys(name for family in families for name in family.attributes))
        rows = [(name, *(family.attributes.get(name, "") for family in families)) for name in names]
        print_table(("setting", *(f"family {family.name}" for family in families)), rows)
        for deviation in found.deviations or ["all settings are as create-table makes them"]:
            print_line(deviation)
    print_table(("region: segments", "server"), [(range_in_words(region), region.server) for region in found.regions])


@click.command("status")
@with_settings("store")
@json_option
def status_command(settings: Settings, as_json: bool) -> None:
    """Show how many rows an index has and, on HBase, how evenly its regions share them.

    On HBase rows are estimated from samples, exact in a small table. "skew" says how many times the mean the fullest
    region has: over 2, 'create-table --splits-from' spreads a new table better. Hot buckets are those of over 100 rows
    that the samples met; crowded fingerprints are those of over 1,000 documents, which are one row.

    \b
    Example: hsimhash status --store hbase://gw1/crawl:pages
             hsimhash status --store hbase://gw1/crawl:pages --json | jq .skew
    """
    with open_index(settings) as index:
        store = index.store
        found = store.survey() if isinstance(store, HBaseStore) else None
        own = {"documents": index.count(), **store.describe()} if found is None else _sums(found, index.layout)
    facts = {"url": settings.store, **own}
    if as_json:
        print_json({**facts, **(_survey_json(found) if found else {})})
        return
    print_fields(facts)
    if found:
        _print_survey(found)


def _sums(found: Survey, layout: Layout) -> dict[str, object]:
    return {
        "regions": len(found.regions),
        "servers": len({counted.region.server for counted in found.regions} - {""}),
        "drawer_rows": found.rows,
        "is_exact": all(counted.is_exact for counted in found.regions),
        "fingerprints": round(found.rows / len(layout.drawers)),
        "skew": found.skew and round(found.skew, 2),
    }


def _survey_json(found: Survey) -> dict[str, object]:
    return {
        "region_rows": [
            {**_region_json(counted.region), "rows": counted.rows, "is_exact": counted.is_exact}
            for counted in found.regions
        ],
        "hot_buckets": [
            {"segment": prefix[:SEGMENT_BYTES].hex(), "drawer": prefix[SEGMENT_BYTES], "rows": rows}
            for prefix, rows in found.hot_buckets
        ],
        "crowds": [
            {
                "fingerprint": f"{crowd.fingerprint:016x}",
                "documents": crowd.documents,
                "bytes": crowd.bytes,
                "share": round(crowd.share, 3),
            }
            for crowd in found.crowds
        ],
    }


def _print_survey(found: Survey) -> None:
    mean = found.rows / len(found.regions)
    rows = [
        (
            range_in_words(counted.region),
            counted.region.server,
            f"{counted.rows:,}" if counted.is_exact else f"about {counted.rows:,}",
            f"{counted.rows / mean:.2f}" if mean else "",
        )
        for counted in found.regions
    ]
    print_table(("region", "server", "rows>", "to mean>"), rows)
    for prefix, count in found.hot_buckets:
        segment, drawer = prefix[:SEGMENT_BYTES].hex(), prefix[SEGMENT_BYTES]
        print_line(f"hot bucket: segment {segment}, drawer {drawer}: {count:,} rows met")
    for crowd in found.crowds:
        print_line(
            f"crowded fingerprint: {crowd.fingerprint:016x}: {crowd.documents:,} documents or more, "
            f"{crowd.bytes / 1e6:,.1f} MB or more in one row; about {crowd.share:.0%} of all documents"
        )
