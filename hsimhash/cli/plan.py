"""`hsimhash plan`: estimate the costs of an index on each store, and recommend a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from hsimhash.cli.console import print_json, print_line, print_table, say, size
from hsimhash.cli.count_type import Count
from hsimhash.cli.help import Command
from hsimhash.cli.options import json_option, read_sample, with_settings
from hsimhash.cover import MOST_DISTANCE
from hsimhash.errors import in_shell, plural
from hsimhash.fingerprint import Profile
from hsimhash.plan import Cost, cost, layouts_of, outgrown, recommend
from hsimhash.settings import Settings
from hsimhash.store import backend_of, backends
from hsimhash.store.urls import masked

LEAST_SAMPLED = 10_000  # a smaller sample gets a warning
MOST_DOCUMENTS = 10**15  # beyond this, tables and sizes are no longer readable


def _kind(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    """Return the name of a kind of store, given by name or URL."""
    if value is None or value in backends():
        return value
    with suppress(ValueError):
        if (name := backend_of(value).name) in backends():
            return name
    raise click.BadParameter(f"unknown store {masked(value)!r:.80}: expected {', '.join(backends())}, or a URL")


@click.command("plan", cls=Command)
@click.option(
    "--documents",
    type=Count(1, MOST_DOCUMENTS),
    required=True,
    metavar="N",
    help="Number of documents: 10_000, 50M, 2.5B, 1e8.",
)
@click.option(
    "--store",
    "kind",
    callback=_kind,
    metavar="KIND",
    help=f"Compare all layouts on this kind of store: {', '.join(backends())}, or a URL.",
)
@click.option(
    "--distance",
    type=click.IntRange(min=0),
    metavar="BITS",
    help=f"Query distance in bits, 0 to {MOST_DISTANCE}. Default: the distance of a new index: "
    f"{', '.join(f'{kind.max_distance} on {name}' for name, kind in backends().items())}.",
)
@click.option(
    "--sample",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File of your own fingerprints, to find hot buckets: one per line (or id<TAB>fingerprint), or the output of "
    "'hsimhash fingerprint -'.",
)
@with_settings("profile", "fingerprint_format")
@json_option
def plan_command(
    settings: Settings, documents: int, kind: str | None, distance: int | None, sample: Path | None, as_json: bool
) -> None:
    """Estimate the size and speed of an index, and recommend a layout.

    \b
    Example: hsimhash plan --documents 50M
             hsimhash plan --documents 2.5B --store hbase
             hsimhash export --store lmdb://pages --format tsv | shuf -n 100000 > sample.tsv
             hsimhash plan --documents 1e9 --sample sample.tsv

    Without --store, plan prints the recommended layout for each kind of store. With --store, it compares all layouts on
    that kind of store.

    The layout determines how many rows a document takes, and how many buckets and candidates a query reads. A query
    beyond the layout's distance also reads neighbouring buckets. If the profile makes keys, rows and reads include one
    for each part of a key.

    Times are for one query and one added document together, with everything in memory. Sizes assume ids of 35 bytes; on
    HBase they are for one uncompressed replica. Without a sample, plan assumes that fingerprints are uniformly
    distributed; real fingerprints are skewed.
    """
    fingerprints = read_sample(sample, "--sample", settings.fingerprint_format) if sample else None
    if fingerprints is not None and len(fingerprints) < LEAST_SAMPLED:
        say(
            f"{sample} has only {plural(len(fingerprints), 'fingerprint')}: in a sample this small, a few "
            f"near-duplicates look like hot buckets; use {LEAST_SAMPLED:,} or more"
        )
    profile = Profile.named(settings.profile)
    key_rows = profile.key_kind.most_parts if profile.makes_signatures else 0
    costs: dict[str, list[Cost]] = {}
    for name in [kind] if kind else backends():
        backend = backends()[name]
        reached = backend.max_distance if distance is None else distance
        try:
            layouts = layouts_of(reached)
        except ValueError as error:
            raise click.BadParameter(in_shell(error), param_hint="'--distance'") from error
        costs[name] = [
            cost(layout, documents, reached, backend.prices, sample=fingerprints, key_rows=key_rows)
            for layout in layouts
        ]
    if as_json:
        print_json({name: _fields(of_store) for name, of_store in costs.items()})
    elif kind:
        _print_layouts(kind, costs[kind])
    else:
        _print_stores(costs, documents)


def _fields(costs: Sequence[Cost]) -> dict[str, object]:
    """Return the recommended layout of a store, and the cost of each layout."""
    (best, reason), greater = recommend(costs), outgrown(costs)
    return {
        "distance": best.cover.distance,
        "recommended": best.layout.name,
        "reason": reason,
        "outgrown": None if greater is None else {"documents": greater[0], "layout": greater[1].name},
        "layouts": [
            {
                "layout": one.layout.name,
                "drawers": len(one.layout.drawers),
                "rows": one.rows,
                "bytes": one.bytes,
                "reads": one.reads,
                "candidates": one.candidates,
                "candidates_p99": one.candidates_p99,
                "hottest_bucket": one.hottest_bucket,
                "us": one.time_us,
            }
            for one in costs
        ],
    }


def _print_stores(costs: Mapping[str, Sequence[Cost]], documents: int) -> None:
    """Print a row for each store: the layout to choose, and its cost."""
    best = {name: recommend(of_store)[0] for name, of_store in costs.items()}
    is_sampled = any(one.hottest_bucket is not None for one in best.values())
    rows = [[name, str(one.cover.distance), *_cells(one, is_sampled=is_sampled)] for name, one in best.items()]
    title = f"The recommended layout for {documents:,} documents, by store"
    print_table(["store", "distance>", *_columns(is_sampled=is_sampled)], rows, title=title)
    for name, of_store in costs.items():
        if greater := outgrown(of_store):
            print_line(f"{name}: layout {greater[1].name} becomes better at about {greater[0]:,} documents")
    print_line(f"Compare all layouts: hsimhash plan --documents {documents} --store {next(iter(costs))}")


def _print_layouts(name: str, costs: Sequence[Cost]) -> None:
    """Print a row for each layout, and the one to choose."""
    (best, reason), greater = recommend(costs), outgrown(costs)
    is_sampled = costs[0].hottest_bucket is not None
    rows = [["*" if one is best else "", *_cells(one, is_sampled=is_sampled)] for one in costs]
    title = f"{backends()[name].title}: queries within {best.cover.distance} bits"
    print_table(["", *_columns(is_sampled=is_sampled)], rows, title=title)
    print_line(f"recommended: create-table --layout {best.layout.name} --distance {best.cover.distance}: {reason}")
    if greater is not None:
        print_line(f"layout {greater[1].name} becomes better at about {greater[0]:,} documents")
    if note := backends()[name].size_note(best.bytes):
        print_line(note)


def _columns(*, is_sampled: bool) -> list[str]:
    sampled = ["p99>", "hottest bucket>"] if is_sampled else []
    return ["layout", "rows>", "bytes>", "reads>", "candidates>", *sampled, "µs>"]


def _cells(one: Cost, *, is_sampled: bool) -> list[str]:
    sampled = [_count(one.candidates_p99), _count(one.hottest_bucket)] if is_sampled else []
    return [
        one.layout.name,
        f"{one.rows:,}",
        size(one.bytes),
        f"{one.reads:,}",
        _count(one.candidates),
        *sampled,
        f"{one.time_us:,.0f}",
    ]


def _count(number: float | None) -> str:
    return f"{number:,.0f}" if number is None or number >= 10 else f"{number:.2g}"
