"""`hsimhash status`: how many rows there are, and where."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_fields, print_json, print_line, print_table, shown
from hsimhash.cli.options import json_option, open_index, with_settings
from hsimhash.layout import Layout
from hsimhash.rowkey import SEGMENT_BYTES
from hsimhash.settings import Settings
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.survey import Survey, range_in_words


@click.command("status")
@with_settings("store")
@json_option
def status_command(settings: Settings, as_json: bool) -> None:
    """Show how many rows an index has and, on HBase, how evenly its regions share them.

    On HBase rows are estimated from samples, exact in a small table; "skew" is how many times as many rows as the mean
    the fullest region has: over 2, 'create-table --splits-from' spreads a new table better. Hot buckets are those of
    over 100 rows that the samples met, crowded fingerprints those of over 1,000 documents, which are one row.

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
        print_json({**facts, **(_parts(found) if found else {})})
        return
    print_fields([(name.replace("_", " "), shown(name, value)) for name, value in facts.items()])
    if found:
        _print_regions(found)
        _print_crowded(found)


def _sums(found: Survey, layout: Layout) -> dict[str, object]:
    return {
        "regions": len(found.regions),
        "servers": len({counted.region.server for counted in found.regions} - {""}),
        "drawer_rows": found.rows,
        "is_exact": all(counted.is_exact for counted in found.regions),
        "fingerprints": round(found.rows / len(layout.drawers)),
        "skew": found.skew and round(found.skew, 2),
    }


def _parts(found: Survey) -> dict[str, object]:
    return {"region_rows": _regions(found), "hot_buckets": _hot_buckets(found), "crowds": _crowds(found)}


def _print_crowded(found: Survey) -> None:
    for bucket in _hot_buckets(found):
        print_line(f"hot bucket: segment {bucket['segment']}, drawer {bucket['drawer']}: {bucket['rows']:,} rows met")
    for crowd in found.crowds:
        print_line(
            f"crowded fingerprint: {crowd.fingerprint:016x}: {crowd.documents:,} documents or more, "
            f"{crowd.bytes / 1e6:,.1f} MB or more in one row; about {crowd.share:.0%} of all documents"
        )


def _regions(found: Survey) -> list[dict[str, object]]:
    return [
        {
            "start": counted.region.start.hex(),
            "stop": counted.region.stop.hex(),
            "server": counted.region.server,
            "rows": counted.rows,
            "is_exact": counted.is_exact,
        }
        for counted in found.regions
    ]


def _hot_buckets(found: Survey) -> list[dict[str, object]]:
    return [
        {"segment": prefix[:SEGMENT_BYTES].hex(), "drawer": prefix[SEGMENT_BYTES], "rows": rows}
        for prefix, rows in found.hot_buckets
    ]


def _crowds(found: Survey) -> list[dict[str, object]]:
    return [
        {
            "fingerprint": f"{crowd.fingerprint:016x}",
            "documents": crowd.documents,
            "bytes": crowd.bytes,
            "share": round(crowd.share, 3),
        }
        for crowd in found.crowds
    ]


def _print_regions(found: Survey) -> None:
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
