"""`hsimhash match-sql`: the statement that finds near fingerprints in a table of one's own, on PostgreSQL."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_line
from hsimhash.cli.options import utf8
from hsimhash.layout import Layout
from hsimhash.store.postgresql.codec import match_statements


@click.command("match-sql")
@click.option("--table", type=utf8, required=True, metavar="NAME", help="A table of yours, perhaps schema.table.")
@click.option(
    "--column",
    type=utf8,
    default="fingerprint",
    metavar="NAME",
    help="Its fingerprints, a bigint; by default fingerprint.",
)
@click.option("--layout", default="4", metavar="NAME", help="4, 10, 16, 20, 28, or blocks/choice; by default 4.")
@click.option("--distance", type=int, metavar="BITS", help="How many bits may differ; by default the layout's k.")
def match_sql_command(table: str, column: str, layout: str, distance: int | None) -> None:
    """Print the statements for psql that find near-duplicates in a table of your own, on PostgreSQL 14 or newer.

    First the indexes, one for each drawer of the layout, which PostgreSQL keeps from then on. Then the query: its $1 is
    a fingerprint, as a bigint of the same 64 bits, and it returns the rows within BITS bits, nearest first. Nothing is
    read or changed here.

    \b
    Example: hsimhash match-sql --table pages --column simhash --layout 10
             hsimhash match-sql --table public.pages --distance 2
    """
    chosen = Layout.parse(layout)
    indexes, query = match_statements(chosen, table, column, chosen.max_distance if distance is None else distance)
    for statement in indexes:
        print_line(f"{statement};")
    print_line(f"\nPREPARE near (bigint) AS\n{query};\n-- EXECUTE near(81985529216486895);")
