"""`hsimhash describe` and `status`: show what an index holds."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from hsimhash.cli.console import print_fields, print_json, print_line, print_table
from hsimhash.cli.help import Command
from hsimhash.cli.jobs import refuse_walk, walk_workers_option, walks_ranges
from hsimhash.cli.options import json_option, open_index, with_settings
from hsimhash.durations import ttl_in_words
from hsimhash.index import HSimIndex
from hsimhash.settings import Settings
from hsimhash.store.capabilities import HasTable
from hsimhash.store.hbase.gateway.base import ttl_in
from hsimhash.store.reports import Survey, TableFacts, key_in_words


@click.command("describe", cls=Command)
@with_settings("store")
@click.option("--count", "is_counted", is_flag=True, help="HBase: count the documents; this reads all registers.")
@walk_workers_option
@json_option
def describe_command(settings: Settings, is_counted: bool, workers: int | None, as_json: bool) -> None:
    """Show how an index was created and what it holds.

    \b
    Example: hsimhash describe --store lmdb://pages
             hsimhash describe --store lmdb://pages --json | jq .documents
             hsimhash describe --store hbase://gw1/crawl:pages

    On HBase, describe also lists the settings of the column families, and the segments in each region. --json prints
    every part of the profile.
    """
    refuse_walk(settings.store, workers)
    if workers is not None and not is_counted:
        raise click.UsageError("--workers is only for --count; leave it out")
    with open_index(settings) as index:
        facts = index.describe(
            is_counted=is_counted or not walks_ranges(settings.store), workers=workers or os.cpu_count() or 1
        )
        table = index.store.table() if isinstance(index.store, HasTable) else None
    if as_json:
        print_json({**facts, **(table.to_json() if table else {})})
        return
    print_fields(_in_short(facts, index))
    if table:
        _print_table(table)


def _in_short(facts: Mapping[str, object], index: HSimIndex) -> dict[str, object]:
    """Return the facts to show to people: a single distance, and the profile's name without its parts."""
    parts: dict[str, object] = {
        "max_distance": index.distance,
        "layout": {**index.layout.to_json(), "drawers": len(index.layout.drawers)},
        "profile": index.profile.name,
    }
    if isinstance(ttl_s := facts.get("ttl_s"), int):
        parts["ttl_s"] = ttl_in_words(ttl_s)
    names = {"max_distance": "distance", "ttl_s": "ttl"}
    shown = {name: parts.get(name, value) for name, value in facts.items() if name != "distance"}
    return {names.get(name, name): value for name, value in shown.items()}


def _print_table(table: TableFacts) -> None:
    if table.families is None:
        print_line("column families: the gateway does not report their settings")
    else:
        names = dict.fromkeys(name for settings in table.families.values() for name in settings)
        rows = [(name, *(_setting(name, settings) for settings in table.families.values())) for name in names]
        print_table(("setting", *(f"family {name}" for name in table.families)), rows)
        for deviation in table.deviations or ["all settings match those of create-table"]:
            print_line(deviation)
    print_table(("region: segments", "server"), [(region.segments, region.server) for region in table.regions])


def _setting(name: str, settings: Mapping[str, str]) -> str:
    """Return a setting of a column family; a TTL in words."""
    value = settings.get(name, "")
    return ttl_in_words(ttl_in(settings)) if name == "TTL" and value.isdecimal() else value


@click.command("status", cls=Command)
@with_settings("store")
@json_option
def status_command(settings: Settings, as_json: bool) -> None:
    """Count the rows in an index, list crowded fingerprints and, on HBase, show how evenly regions share the rows.

    \b
    Example: hsimhash status --store hbase://gw1/crawl:pages
             hsimhash status --store hbase://gw1/crawl:pages --json | jq .skew
             hsimhash status --store lmdb://pages --json | jq .crowds

    A crowded fingerprint is shared by 1,000 documents or more: error pages, templates, spam. A query near it reads all
    of its documents unless the query has a limit. 'query FINGERPRINT --distance 0 --limit 10' shows some of them. In a
    large index, status looks for crowded fingerprints in a sample of about 20,000 documents. It can miss those shared
    by less than 0.1 % of the documents (1 % on PostgreSQL, if they were added together).

    On HBase, the counts are estimates from samples; they are exact for a small table. "skew" is the size of the fullest
    region divided by the mean. If it is above 2, create a new table with 'create-table --splits-from'. Hot buckets have
    more than 100 rows in the samples. status also shows what region servers report on their info port (16030, or
    info_port= in the URL): the store files of each region, its requests since it was opened, and for each server the
    percentages of local files and cache hits.
    """
    with open_index(settings) as index:
        survey = index.store.survey() if isinstance(index.store, HasTable) else None
        own = {"documents": index.count(), **index.store.describe()} if survey is None else {}
        crowds = index.store.crowds()
    facts = {
        "url": settings.store,
        **(survey.to_json(len(index.layout.drawers)) if survey else own),
        "crowds": [crowd.to_json() for crowd in crowds],
    }
    if as_json:
        print_json(facts)
        return
    shown = {name: value for name, value in facts.items() if not isinstance(value, list)}
    if isinstance(free := own.get("free_bytes"), int) and isinstance(size := own["file_bytes"], int):
        shown["free_pages"] = f"{free / size:.0%} of the file; later writes reuse them; 'hsimhash compact' removes them"
    print_fields(shown)
    if survey:
        _print_survey(survey)
    for crowd in crowds:
        print_line(
            f"crowded fingerprint: {crowd.fingerprint:016x}: at least {crowd.documents:,} documents, "
            f"about {crowd.share:.0%} of all documents"
        )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


def _print_survey(found: Survey) -> None:
    mean = found.rows / len(found.regions)
    rows = [
        (
            counted.region.segments,
            counted.region.server,
            f"{counted.rows:,}" if counted.is_exact else f"about {counted.rows:,}",
            f"{counted.rows / mean:.2f}" if mean else "",
            *((f"{load.store_files:,}", f"{load.requests:,}") if (load := found.load(counted.region)) else ("", "")),
        )
        for counted in found.regions
    ]
    print_table(("region", "server", "rows>", "ratio to mean>", "store files>", "requests>"), rows)
    servers = [
        (one.server, *map(_percent, (one.local_percent, one.cache_hit_percent)), one.problem) for one in found.servers
    ]
    columns = ("region server", "files local>", "cache hits>", "problem with the info port")
    shown = len(columns) if any(one.problem for one in found.servers) else len(columns) - 1
    print_table(columns[:shown], [row[:shown] for row in servers])
    for prefix, count in found.hot_buckets:
        print_line(f"hot bucket: segment {key_in_words(prefix)}: {count:,} rows in the samples")
