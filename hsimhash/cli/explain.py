"""`hsimhash explain`: what a query reads, bucket by bucket."""

from __future__ import annotations

import time

import click

from hsimhash.cli.console import print_fields, print_json, print_table
from hsimhash.cli.options import Settings, json_option, open_index, utf8, with_settings
from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import format_fingerprint, parse_fingerprint
from hsimhash.index import HSimIndex
from hsimhash.store.explain import Scan, explain


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
        query = _fingerprint_of(index, doc_id or "") if given is None else given
        k = index.layout.max_distance if settings.max_distance is None else settings.max_distance
        began = time.perf_counter()
        matches = index.query(query, max_distance=k)
        milliseconds = 1_000 * (time.perf_counter() - began)
        scans = explain(index.store, query, k)
    facts = {
        "fingerprint": format_fingerprint(query),
        "max_distance": k,
        "scans": len(scans),
        "candidates": sum(scan.rows for scan in scans),
        "near": sum(scan.near for scan in scans),
        "documents": len(matches),
        "milliseconds": round(milliseconds, 2),
    }
    if as_json:
        print_json({**facts, "buckets": [_json(scan) for scan in scans]})
    else:
        _print(scans)
        print_fields(facts)


def _fingerprint_of(index: HSimIndex, doc_id: str) -> int:
    document = index.get(doc_id)
    if document is None:
        raise HsimhashError(f"{index.url} has no document {doc_id!r}")
    return document.fingerprint


def _json(scan: Scan) -> dict[str, object]:
    where = {"region": scan.region.start.hex(), "server": scan.region.server} if scan.region else {}
    return {
        "drawer": scan.drawer,
        "start": scan.start.hex(),
        "stop": scan.stop.hex(),
        **where,
        "rows": scan.rows,
        "near": scan.near,
        "milliseconds": round(scan.milliseconds, 2),
    }


def _print(scans: list[Scan]) -> None:
    facts = [_json(scan) for scan in scans]
    for fact in facts:
        if "region" in fact:
            fact["region"] = fact["region"] or "first"
    names = list(facts[0])
    columns = [f"{name}>" if name in ("drawer", "rows", "near", "milliseconds") else name for name in names]
    print_table(columns, [[str(one[name]) for name in names] for one in facts])
