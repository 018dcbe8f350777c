"""`hsimhash plan`: which layout for how many documents, and what it costs."""

from __future__ import annotations

from pathlib import Path

import click

from hsimhash.cli.console import print_json, print_line, print_table, size
from hsimhash.cli.options import Settings, json_option, read_sample, with_settings
from hsimhash.plan import HBASE_PRICES, LMDB_PRICES, Cost, cost, layouts_for, recommend

MOST_DOCUMENTS = 10**15  # more than anybody has; beyond it tables and sizes are no longer readable


@click.command("plan", short_help="Compare layouts: rows, bytes, candidates and reads per query.")
@click.option(
    "--documents", type=click.IntRange(1, MOST_DOCUMENTS), required=True, metavar="N", help="How many documents."
)
@click.option("--distance", type=click.IntRange(min=0), default=3, show_default=True, metavar="K", help="Bits.")
@click.option(
    "--sample",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Fingerprints of your own, one a line (or id<TAB>fingerprint): shows hot buckets.",
)
@with_settings("fingerprint_format")
@json_option
def plan_command(settings: Settings, documents: int, distance: int, sample: Path | None, as_json: bool) -> None:
    """Compare the layouts that find every pair within K bits, and recommend one.

    Bytes and times are measured ones, with all in memory: bytes for ids of 35 bytes, on HBase uncompressed and for one
    replica; times for one query and one added document. Without a sample candidates are those of uniform fingerprints;
    real ones are skewed.

    \b
    Example: hsimhash plan --documents 100000000
             hsimhash export --store lmdb://pages --format tsv | shuf -n 100000 > sample.tsv
             hsimhash plan --documents 1000000000 --sample sample.tsv
    """
    fingerprints = read_sample(sample, "--sample", settings.fingerprint_format) if sample else None
    try:
        layouts = layouts_for(distance)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--distance'") from error
    costs = [cost(layout, documents, sample=fingerprints) for layout in layouts]
    best, reason = recommend(costs, LMDB_PRICES)
    best_hbase, reason_hbase = recommend(costs, HBASE_PRICES)
    if as_json:
        print_json(
            {
                "recommended": best.layout.name,
                "reason": reason,
                "recommended_hbase": best_hbase.layout.name,
                "reason_hbase": reason_hbase,
                "layouts": [_fields(one) for one in costs],
            }
        )
        return
    _print_table(costs, best)
    print_line(
        "HBase: uncompressed, × replication (HDFS keeps 3); 'create-table --compression GZ' halves ids that are URLs"
    )
    print_line(f"recommended: layout {best.layout.name}: {reason}")
    if best_hbase is not best:
        print_line(f"on HBase: layout {best_hbase.layout.name}: {reason_hbase}")


def _fields(cost: Cost) -> dict[str, object]:
    return {
        "layout": cost.layout.name,
        "drawers": cost.reads,
        "rows": cost.rows,
        "lmdb_bytes": cost.lmdb_bytes,
        "hbase_bytes": cost.hbase_bytes,
        "reads": cost.reads,
        "lmdb_us": cost.time_us(LMDB_PRICES),
        "hbase_us": cost.time_us(HBASE_PRICES),
        "candidates": cost.candidates,
        "candidates_p99": cost.candidates_p99,
        "hottest_bucket": cost.hottest_bucket,
    }


def _print_table(costs: list[Cost], best: Cost) -> None:
    is_sampled = costs[0].hottest_bucket is not None
    columns = ["", "layout", "reads>", "rows>", "LMDB>", "HBase>", "LMDB µs>", "HBase µs>", "candidates>"]
    rows = [
        [
            "*" if cost is best else "",
            cost.layout.name,
            f"{cost.reads}",
            f"{cost.rows:,}",
            size(cost.lmdb_bytes),
            size(cost.hbase_bytes),
            f"{cost.time_us(LMDB_PRICES):,.0f}",
            f"{cost.time_us(HBASE_PRICES):,.0f}",
            _count(cost.candidates),
            *([_count(cost.candidates_p99), _count(cost.hottest_bucket)] if is_sampled else []),
        ]
        for cost in costs
    ]
    print_table([*columns, *(["p99>", "hottest bucket>"] if is_sampled else [])], rows)


def _count(number: float | None) -> str:
    return f"{number:,.0f}" if number is None or number >= 10 else f"{number:.2g}"
