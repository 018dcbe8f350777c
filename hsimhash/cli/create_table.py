"""`hsimhash create-table`: make an empty index; harmless where the same one is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hsimhash.cli.console import say
from hsimhash.cli.hbase_table import Wish, create_on_hbase
from hsimhash.cli.options import create_index, is_on_hbase, with_settings
from hsimhash.cli.record import refuse_others
from hsimhash.errors import IndexExistsError
from hsimhash.settings import Settings

_TTL = re.compile(r"([1-9]\d{0,9})([smhdw]?)", re.ASCII)
_UNIT_S = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_Texts = tuple[str, ...]


def _ttl_s(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:  # noqa: ARG001
    found = _TTL.fullmatch(value) if value is not None else None
    if value is not None and not found:
        raise click.BadParameter(f"{value!r} is no time such as 90d, 12h or 3600s")
    return int(found[1]) * _UNIT_S[found[2]] if found else None


def _regions(ctx: click.Context, param: click.Parameter, value: str) -> int | None:  # noqa: ARG001
    if value == "auto":
        return None
    if not re.fullmatch(r"[1-9]\d{0,4}", value, re.ASCII):
        raise click.BadParameter(f"{value!r} is neither auto nor a number from 1 to 65536")
    return int(value)


def _pairs(ctx: click.Context, param: click.Parameter, value: _Texts) -> tuple[_Texts, ...]:  # noqa: ARG001
    for one in value:
        if not re.fullmatch(r"[A-Z_]+=.+", one):
            raise click.BadParameter(f"{one!r} is no setting of a column family such as IN_MEMORY=true")
    return tuple((name, text) for name, _, text in (one.partition("=") for one in value))


@click.command("create-table")
@with_settings("store", "layout", "profile", "fingerprint_format")
@click.option(
    "--regions", callback=_regions, default="auto", metavar="N|auto", help="HBase: how many regions to begin with."
)
@click.option(
    "--splits-from",
    "sample",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="SAMPLE",
    help="HBase: fingerprints of your own, one a line (or id<TAB>fingerprint), for regions of equal rows.",
)
@click.option("--ttl", "ttl_s", callback=_ttl_s, metavar="TIME", help="HBase: documents expire after 90d, 12h, 3600s.")
@click.option("--compression", default="NONE", metavar="CODEC", help="HBase: GZ, SNAPPY, LZ4, ZSTD; by default none.")
@click.option(
    "--family-option",
    "family_options",
    callback=_pairs,
    multiple=True,
    metavar="KEY=VALUE",
    help="HBase: a setting of all column families by HBase's own name, such as IN_MEMORY=true.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="HBase: only tell what would be made.")
@click.option("--print-shell", "is_for_shell", is_flag=True, help="HBase: print the lines for hbase shell that do it.")
@click.option(
    "--allow-plain", "is_plain_allowed", is_flag=True, help="HBase: make a lesser table where only Thrift1 runs."
)
def create_table_command(settings: Settings, **options: Any) -> None:  # by the names and types of the fields of `Wish`
    """Make an empty index. Its layout and its profile stay what they are.

    Where an index with the same layout and profile is, nothing happens; where one with others is, the differences are
    told and the exit code is 5.

    On HBase the table is made with its settings. One that is there without an index, such as one that the lines of
    --print-shell made, becomes one. --print-shell needs no cluster. --dry-run prints + for what would be made, ~ for
    what should be altered in hbase shell, = for what is as it should be.

    \b
    Example: hsimhash create-table --store lmdb://pages --layout 10 --profile auto-1
             hsimhash create-table --store hbase://gw1,gw2/crawl:pages --regions 64 --splits-from sample.tsv --ttl 90d
             hsimhash create-table --store hbase://gw1/crawl:pages --print-shell | hbase shell -n
    """
    if is_on_hbase(settings):
        create_on_hbase(settings, Wish(**options))
        return
    _refuse_options(settings)
    try:
        create_index(settings).close()
    except IndexExistsError as error:
        refuse_others(settings, error)
        say(f"{settings.store} is already there with this layout and profile")
    else:
        say(f"made {settings.store} with layout {settings.layout} and profile {settings.profile}")


def _refuse_options(settings: Settings) -> None:
    context = click.get_current_context()
    for parameter in context.command.params:
        is_given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if is_given and parameter.name not in type(settings).model_fields:
            raise click.UsageError(f"{parameter.opts[0]} is for a table on HBase, not for {settings.store}")
