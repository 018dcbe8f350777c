"""`hsimhash match-sql`: print a statement that finds near fingerprints in your own PostgreSQL table."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_line
from hsimhash.cli.help import Command
from hsimhash.cli.options import utf8
from hsimhash.layout import Layout
from hsimhash.store.postgresql.codec import match_statements


@click.command("match-sql", cls=Command)
@click.option("--table", type=utf8, required=True, metavar="NAME", help="Your table: pages, or schema.pages.")
@click.option(
    "--column",
    type=utf8,
    default="fingerprint",
    metavar="NAME",
    help="The bigint column with fingerprints. Default: fingerprint.",
)
@click.option("--layout", default="4", metavar="NAME", help="4, 10, 16, 20, 28, or blocks/choice. Default: 4.")
@click.option(
    "--distance",
    type=int,
    metavar="BITS",
    help="Match rows that differ in at most BITS bits. Default: the layout's own distance.",
)
def match_sql_command(table: str, column: str, layout: str, distance: int | None) -> None:
    """Print SQL that finds near-duplicates in your own table, on PostgreSQL 14 or newer.

    \b
    Example: hsimhash match-sql --table pages --column simhash --layout 10
             hsimhash match-sql --table public.pages --distance 2

    The output is for psql. First come the indexes, one per drawer of the layout, which PostgreSQL maintains from then
    on. Then comes the query: $1 is a fingerprint, as a bigint with the same 64 bits, and it returns the rows within
    BITS bits, nearest first. This command itself reads and changes nothing.
    """
    chosen = Layout.parse(layout)
    indexes, query = match_statements(chosen, table, column, chosen.max_distance if distance is None else distance)
    for statement in indexes:
        print_line(f"{statement};")
    print_line(f"\nPREPARE near (bigint) AS\n{query};\n-- EXECUTE near(81985529216486895);")
