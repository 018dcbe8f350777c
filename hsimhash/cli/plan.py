"""`hsimhash plan`: which layout for how many documents, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from hsimhash.cli.console import print_json, print_line, print_table, size
from hsimhash.cli.options import Settings, json_option, read_sample, with_settings
from hsimhash.plan import STORES, Cost, cost, layouts_of, recommend

_NAMES = {"lmdb": "LMDB, embedded", "hbase": "HBase"}
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
    """Compare layouts by what it takes to find every document within K bits, and recommend one for each store.

    Up to the layout's own distance a query reads one bucket of each drawer, beyond it also buckets of neighbouring
    segments. Bytes and times are measured ones, with all in memory: bytes for ids of 35 bytes, on HBase uncompressed
    and for one replica; times for one query and one added document. Without a sample candidates are those of uniform
    fingerprints; real ones are skewed.

    \b
    Example: hsimhash plan --documents 100000000
             hsimhash export --store lmdb://pages --format tsv | shuf -n 100000 > sample.tsv
             hsimhash plan --documents 1000000000 --sample sample.tsv
    """
    fingerprints = read_sample(sample, "--sample", settings.fingerprint_format) if sample else None
    try:
        layouts = layouts_of(distance)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--distance'") from error
    costs = {
        name: [cost(layout, documents, distance, prices, sample=fingerprints) for layout in layouts]
        for name, prices in STORES.items()
    }
    best = {name: recommend(of_store) for name, of_store in costs.items()}
    if as_json:
        recommended = {name: {"layout": one.layout.name, "reason": reason} for name, (one, reason) in best.items()}
        shown = [{"layout": layout.name, **fields} for layout, fields in zip(layouts, _fields(costs), strict=True)]
        print_json({"recommended": recommended, "layouts": shown})
        return
    for name, of_store in costs.items():
        _print_table(_NAMES[name], of_store, *best[name])
    print_line(
        "HBase: uncompressed, × replication (HDFS keeps 3); 'create-table --compression GZ' halves ids that are URLs"
    )


def _fields(costs: Mapping[str, Sequence[Cost]]) -> Iterator[dict[str, object]]:
    """Yield for each layout what it costs, by store."""
    for of_layout in zip(*costs.values(), strict=True):
        first = of_layout[0]
        skew = {} if first.hottest_bucket is None else {"hottest_bucket": first.hottest_bucket}
        yield {"drawers": len(first.layout.drawers), "rows": first.rows, **skew} | {
            name: {
                "bytes": one.bytes,
                "reads": one.cover.reads,
                "candidates": one.candidates,
                "candidates_p99": one.candidates_p99,
                "us": one.time_us,
            }
            for name, one in zip(costs, of_layout, strict=True)
        }


def _print_table(name: str, costs: Sequence[Cost], best: Cost, reason: str) -> None:
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
    print_table(columns, rows, title=name)
    print_line(f"recommended: layout {best.layout.name}: {reason}")


def _count(number: float | None) -> str:
    return f"{number:,.0f}" if number is None or number >= 10 else f"{number:.2g}"
