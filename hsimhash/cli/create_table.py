"""`hsimhash create-table`: make an empty index; harmless where the same one is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from hsimhash.cli.console import plural, print_line, say
from hsimhash.cli.options import is_on_hbase, refuse_memory, with_settings
from hsimhash.cli.sample import read_sample
from hsimhash.errors import IndexExistsError
from hsimhash.fingerprint import Profile
from hsimhash.layout import Layout
from hsimhash.rowkey import splits
from hsimhash.settings import Settings
from hsimhash.store import Record, create_store, open_store
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.table import AUTO_REGIONS, TableSettings, new_table, shell_lines
from hsimhash.times import UNIT_S

if TYPE_CHECKING:
    from hsimhash.store.hbase.operations import Plan

_TTL = re.compile(r"([1-9]\d{0,9})([smhdw]?)", re.ASCII)
_Texts = tuple[str, ...]


def _ttl_s(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:  # noqa: ARG001
    found = _TTL.fullmatch(value) if value is not None else None
    if value is not None and not found:
        raise click.BadParameter(f"{value!r} is no time such as 90d, 12h or 3600s")
    return int(found[1]) * UNIT_S[found[2] or "s"] if found else None


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
def create_table_command(settings: Settings, **options: Any) -> None:  # by the names of the options
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
    record = Record(Layout.parse(settings.layout), Profile.named(settings.profile).to_json())
    if is_on_hbase(settings):
        _create_on_hbase(settings, record, options)
        return
    _refuse_options(settings)
    refuse_memory(settings)
    try:
        create_store(settings.store, record, lock_timeout_s=settings.lock_timeout_s).close()
    except IndexExistsError:
        with open_store(settings.store) as store:
            store.record.check_same(record, settings.store)
        say(f"{settings.store} is already there with this layout and profile")
    else:
        say(f"made {settings.store} with layout {settings.layout} and profile {settings.profile}")


def _create_on_hbase(settings: Settings, record: Record, options: dict[str, Any]) -> None:
    wanted = _table_settings(settings, record.layout, options)
    if options["is_for_shell"]:
        for line in shell_lines(new_table(Address.parse(settings.store), wanted)):
            print_line(line)
        say(f"then 'hsimhash create-table --store {settings.store}' writes the index's record into the table")
        return
    from hsimhash.store.hbase import operations  # here: thriftpy2 would slow down the making of an embedded index

    if options["is_dry_run"]:
        planned = operations.plan(settings.store, record, wanted)
        for step in planned.steps:
            print_line(str(step))
        _tell(planned, options)
        return
    done = operations.create(settings.store, record, wanted, is_plain_allowed=options["is_plain_allowed"])
    _tell(done, options)
    if done.steps[-1].sign == "=":
        say(f"{settings.store} is already there with this layout and profile")
    else:
        what = "wrote the index's record into" if done.regions else "made"
        say(f"{what} {settings.store} with layout {settings.layout} and profile {settings.profile}")


def _table_settings(settings: Settings, layout: Layout, options: dict[str, Any]) -> TableSettings:
    """Return how the table is to be made; `ValueError` names what cannot be."""
    sample = options["sample"] and read_sample(options["sample"], "--splits-from", settings.fingerprint_format)
    keys = tuple(splits(layout, options["regions"] or AUTO_REGIONS, sample=sample))
    return TableSettings(keys, options["ttl_s"], options["compression"].upper(), options["family_options"])


def _tell(plan: Plan, options: dict[str, Any]) -> None:
    """Say in what the table that is there differs, and which options it does not heed."""
    differing = [step for step in plan.steps if step.sign == "~"]
    for step in differing:
        say(f"the table is there: {step.text}")
    if differing:
        say("hsimhash alters no table; in hbase shell:")
    for line in shell_lines(differing):
        click.echo(line, err=True)
    for note in plan.notes:
        say(note)
    if plan.regions and (options["sample"] or options["regions"] not in (None, plan.regions)):
        kept = plural(plan.regions, "region")
        say(f"the table is there and keeps its {kept}: --regions and --splits-from are for a new one")


def _refuse_options(settings: Settings) -> None:
    context = click.get_current_context()
    for parameter in context.command.params:
        is_given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if is_given and parameter.name not in type(settings).model_fields:
            raise click.UsageError(f"{parameter.opts[0]} is for a table on HBase, not for {settings.store}")
