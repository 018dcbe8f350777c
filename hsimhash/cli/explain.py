"""`hsimhash explain`: what a query reads, bucket by bucket."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Any

import click
import numpy as np

from hsimhash.cli.console import print_fields, print_json, print_table
from hsimhash.cli.options import Settings, json_option, open_index, stored, utf8, with_settings
from hsimhash.fingerprint import format_fingerprint, parse_fingerprint
from hsimhash.rowkey import bucket_range, fingerprints_of
from hsimhash.store import Store


@click.command("explain")
@click.option("--query", "fingerprint", metavar="FP", help="A fingerprint: 16 hex digits, 0x…, or decimal.")
@click.option("--id", "doc_id", type=utf8, metavar="ID", help="A document.")
@with_settings("store", "max_distance", "fingerprint_format")
@json_option
def explain_command(settings: Settings, fingerprint: str | None, doc_id: str | None, as_json: bool) -> None:
    """Show what a query reads: each drawer's bucket as a half-open range of rowkeys, its rows, and how many are near.

    On HBase also the region and the server that have it. The buckets are read one by one here, each with its time; a
    query reads them all at once, and its own time is shown below.

    \b
    Example: hsimhash explain --query 0123456789abcdef --store hbase://gw1/crawl:pages
             hsimhash explain --id https://example.org/a --store lmdb://pages
    """
    if (fingerprint is None) == (doc_id is None):
        raise click.UsageError("give one of --query and --id")
    given = None if fingerprint is None else parse_fingerprint(fingerprint, format=settings.fingerprint_format)
    with open_index(settings) as index:
        query = stored(index, doc_id or "").fingerprint if given is None else given
        k = index.layout.max_distance if settings.max_distance is None else settings.max_distance
        began = time.perf_counter()
        matches = index.query(query, max_distance=k)
        milliseconds = 1_000 * (time.perf_counter() - began)
        buckets = _buckets(index.store, query, k)
    facts = {
        "fingerprint": format_fingerprint(query),
        "max_distance": k,
        "scans": len(buckets),
        "candidates": sum(one["rows"] for one in buckets),
        "near": sum(one["near"] for one in buckets),
        "documents": len(matches),
        "milliseconds": round(milliseconds, 2),
    }
    if as_json:
        print_json({**facts, "buckets": buckets})
    else:
        _print(buckets)
        print_fields(facts)


def _buckets(store: Store, query: int, k: int) -> list[dict[str, Any]]:
    """Read the bucket of each drawer that a query for distance `k` reads, one after the other; return what it was."""
    layout, regions, found = store.record.layout, store.regions(), []
    starts = [region.start for region in regions]
    for drawer, prefix in zip(layout.drawers, layout.prefixes(query), strict=True):
        began = time.perf_counter()
        rows = store.scan([prefix])
        milliseconds = 1_000 * (time.perf_counter() - began)
        start, stop = bucket_range(prefix)
        bucket: dict[str, Any] = {"drawer": drawer.number, "start": start.hex(), "stop": stop.hex()}
        if regions:
            region = regions[bisect_right(starts, prefix) - 1]
            bucket |= {"region": region.start.hex(), "server": region.server}
        near = int(np.count_nonzero(np.bitwise_count(fingerprints_of(rows) ^ np.uint64(query)) <= k))
        found.append({**bucket, "rows": len(rows), "near": near, "milliseconds": round(milliseconds, 2)})
    return found


def _print(buckets: list[dict[str, Any]]) -> None:
    names = list(buckets[0])
    columns = [f"{name}>" if name in ("drawer", "rows", "near", "milliseconds") else name for name in names]
    rows = [[str(one[name]) if name != "region" else one[name] or "first" for name in names] for one in buckets]
    print_table(columns, rows)
