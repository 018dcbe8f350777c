"""`hsimhash plan`: which layout for how many documents, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hsimhash.cli.console import print_json, print_line, print_table, size
from hsimhash.cli.options import Settings, json_option, read_sample, with_settings
from hsimhash.fingerprint import Profile
from hsimhash.plan import Cost, cost, layouts_of, outgrown, recommend
from hsimhash.store import KINDS

MOST_DOCUMENTS = 10**15  # more than anybody has; beyond it tables and sizes are no longer readable


@click.command("plan", short_help="Compare layouts: rows, bytes, candidates and reads per query.")
@click.option(
    "--documents", type=click.IntRange(1, MOST_DOCUMENTS), required=True, metavar="N", help="How many documents."
)
@click.option(
    "--distance",
    type=click.IntRange(min=0),
    metavar="K",
    help="Bits; by default those of a new index: 6 on LMDB, PostgreSQL and Redis, 3 on HBase.",
)
@click.option(
    "--sample",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Fingerprints of your own, one a line (or id<TAB>fingerprint): shows hot buckets.",
)
@with_settings("profile", "fingerprint_format")
@json_option
def plan_command(settings: Settings, documents: int, distance: int | None, sample: Path | None, as_json: bool) -> None:
    """Compare layouts by what it takes to find every document within K bits, and recommend one for each store.

    Up to the layout's own distance a query reads one bucket of each drawer, beyond it also buckets of neighbouring
    segments. Bytes and times are measured ones, with all in memory: bytes for ids of 35 bytes, on HBase uncompressed
    and for one replica; times for one query and one added document. Without a sample candidates are those of uniform
    fingerprints; real ones are skewed. A profile with sketches and
    keys takes a row and 16 bytes more a document, and a read more a query.

    \b
    Example: hsimhash plan --documents 100000000
             hsimhash export --store lmdb://pages --format tsv | shuf -n 100000 > sample.tsv
             hsimhash plan --documents 1000000000 --sample sample.tsv
    """
    fingerprints = read_sample(sample, "--sample", settings.fingerprint_format) if sample else None
    has_signatures = Profile.named(settings.profile).makes_signatures
    costs: dict[str, list[Cost]] = {}
    for name, kind in KINDS.items():
        reached = kind.max_distance if distance is None else distance
        try:
            layouts = layouts_of(reached)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--distance'") from error
        costs[name] = [
            cost(layout, documents, reached, kind.prices, sample=fingerprints, has_signatures=has_signatures)
            for layout in layouts
        ]
    if as_json:
        print_json({name: _fields(of_store) for name, of_store in costs.items()})
        return
    for name, of_store in costs.items():
        _print_table(KINDS[name].title, of_store)
    print_line(
        "HBase: uncompressed, × replication (HDFS keeps 3); 'create-table --compression GZ' halves ids that are URLs"
    )


def _fields(costs: Sequence[Cost]) -> dict[str, object]:
    """Return what is recommended of a store's layouts, and what each of them costs."""
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
                "reads": one.cover.reads,
                "candidates": one.candidates,
                "candidates_p99": one.candidates_p99,
                "hottest_bucket": one.hottest_bucket,
                "us": one.time_us,
            }
            for one in costs
        ],
    }


def _print_table(name: str, costs: Sequence[Cost]) -> None:
    (best, reason), greater = recommend(costs), outgrown(costs)
    is_sampled = costs[0].hottest_bucket is not None
    columns = [
        "",
        "layout",
        "rows>",
        "bytes>",
        "reads>",
        "candidates>",
        *(["p99>", "hottest bucket>"] * is_sampled),
        "µs>",
    ]
    rows = [
        [
            "*" if cost is best else "",
            cost.layout.name,
            f"{cost.rows:,}",
            size(cost.bytes),
            f"{cost.cover.reads:,}",
            _count(cost.candidates),
            *([_count(cost.candidates_p99), _count(cost.hottest_bucket)] if is_sampled else []),
            f"{cost.time_us:,.0f}",
        ]
        for cost in costs
    ]
    print_table(columns, rows, title=f"{name}: queries within {best.cover.distance} bits")
    print_line(f"recommended: create-table --layout {best.layout.name} --distance {best.cover.distance}: {reason}")
    if greater is not None:
        print_line(f"from about {greater[0]:,} documents on: layout {greater[1].name}")


def _count(number: float | None) -> str:
    return f"{number:,.0f}" if number is None or number >= 10 else f"{number:.2g}"
