"""`hsimhash create-table` and `hsimhash drop-table`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hsimhash.cli.console import print_line, say
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.options import (
    confirm,
    create_index,
    expiry_in_words,
    how_made,
    opening_of,
    read_sample,
    refuse_flags,
    refuse_memory,
    say_created,
    wanted_record,
    warn_of,
    with_settings,
    yes_option,
)
from hsimhash.cover import DEFAULT_DISTANCE, MOST_DISTANCE, check_distance
from hsimhash.durations import duration_in_words, seconds_in
from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError, plural
from hsimhash.fingerprint import Profile
from hsimhash.rowkey import splits
from hsimhash.settings import Settings
from hsimhash.store import Record, backend_of, open_store
from hsimhash.store.capabilities import HasTable
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.table import AUTO_REGIONS, TableSettings, new_table, shell_lines

if TYPE_CHECKING:
    from hsimhash.store.hbase.operations import Plan

_Pairs = tuple[tuple[str, str], ...]


def _ttl_s(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:  # noqa: ARG001
    if value is None:
        return None
    seconds = seconds_in(value)
    if not seconds or seconds % 1 or value[-1].isdigit():  # a number without a unit could mean days
        raise click.BadParameter(
            f"{value!r} is not a valid time: expected a whole number of seconds, at least 1, with a unit "
            f"(s, min, h, d or w), such as 90d"
        )
    return int(seconds)


def _regions(ctx: click.Context, param: click.Parameter, value: str) -> int | None:  # noqa: ARG001
    if value == "auto":
        return None
    if not re.fullmatch(r"[1-9]\d{0,4}", value, re.ASCII):
        raise click.BadParameter(f"{value!r} is neither auto nor a number from 1 to 65536")
    return int(value)


def _pairs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> _Pairs:  # noqa: ARG001
    for one in value:
        if not re.fullmatch(r"[A-Z_]+=.+", one):
            raise click.BadParameter(
                f"{one!r} is not a column family attribute: expected KEY=VALUE, such as IN_MEMORY=true"
            )
    return tuple((name, text) for name, _, text in (one.partition("=") for one in value))


@click.command("create-table", cls=Command)
@with_settings("store", "layout", "profile", "max_distance", "fingerprint_format")
@click.option(
    "--regions",
    callback=_regions,
    default="auto",
    metavar="N|auto",
    help=f"HBase: initial number of regions. auto: {AUTO_REGIONS}.",
)
@click.option(
    "--splits-from",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="SAMPLE",
    help="HBase: file of your own fingerprints, to split regions evenly: one per line (or id<TAB>fingerprint), or the "
    "output of 'hsimhash fingerprint -'.",
)
@click.option(
    "--ttl",
    "ttl_s",
    callback=_ttl_s,
    metavar="TIME",
    help="HBase, Redis: expire documents this long after they were last added: 90d, 12h, 3600s. On HBase, adding a "
    "document again counts only after half of this time.",
)
@click.option("--compression", metavar="CODEC", help="HBase: GZ, SNAPPY, LZ4 or ZSTD. Default: NONE.")
@click.option(
    "--family-option",
    "family_options",
    callback=_pairs,
    multiple=True,
    metavar="KEY=VALUE",
    help="HBase: set an attribute of all column families, such as IN_MEMORY=true.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="HBase: only print what would be created.")
@click.option(
    "--print-commands",
    "print_commands",
    is_flag=True,
    help="HBase, PostgreSQL: print commands for hbase shell or psql instead of running them.",
)
@click.option(
    "--allow-plain",
    "is_plain_allowed",
    is_flag=True,
    help="HBase: create a plain, slower table if only a Thrift1 gateway is running.",
)
def create_table_command(
    settings: Settings,
    regions: int | None,
    splits_from: Path | None,
    ttl_s: int | None,
    compression: str | None,
    family_options: _Pairs,
    print_commands: bool,
    **how: bool,
) -> ExitCode:
    """Create an empty index. Its layout, profile and distance cannot be changed later.

    \b
    Example: hsimhash create-table --store lmdb://pages --layout 10 --profile auto-3
             hsimhash create-table --store hbase://gw1,gw2/crawl:pages --regions 64 --splits-from sample.tsv --ttl 90d
             hsimhash create-table --store hbase://gw1/crawl:pages --print-commands | hbase shell -n
             hsimhash create-table --store 'postgresql://db1/crawl?table=pages' --print-commands | psql -d crawl

    If the same index already exists, nothing happens. If its layout, profile or distance differs, create-table prints
    the difference, and the exit code is 5.

    ingest learns word weights from your texts only if it creates the index itself. For an index that create-table
    creates, learn them first, with 'hsimhash fit', and pass --profile auto-3:rarity=TABLE.

    On HBase, create-table creates the table with its settings. It turns an existing table without an index, such as one
    made with --print-commands, into an index. It does not alter an existing table, but prints how its settings differ.
    If the TTL, the compression or a family option that you pass differs, the exit code is 5. --dry-run marks what would
    be created with +, what you should alter in hbase shell with ~, and what is already right with =. On PostgreSQL, it
    creates three tables in one transaction. --print-commands does not need a server.
    """
    record = wanted_record(settings, settings.max_distance)
    if settings.max_distance is not None:
        check_distance(settings.max_distance, record.layout)
    backend = backend_of(settings.store)
    refuse_flags(settings.store, *_given_flags(settings))
    if HasTable not in backend.capabilities:
        if print_commands:
            for line in backend.creation_lines(settings.store, record):
                print_line(line)
        else:
            _create_index(settings, record, ttl_s)
        return ExitCode.DONE
    fingerprints = read_sample(splits_from, "--splits-from", settings.fingerprint_format) if splits_from else None
    keys = tuple(splits(record.layout, regions or AUTO_REGIONS, sample=fingerprints))
    wanted = TableSettings(keys, ttl_s, compression and compression.upper(), family_options)
    if print_commands:
        for line in shell_lines(new_table(Address.parse(settings.store), wanted)):
            print_line(line)
        say("run these lines in hbase shell, then run this command again without --print-commands to write the record")
        return ExitCode.DONE
    plan = _create_table(settings, record, wanted, **how)
    if plan.regions and (splits_from or regions not in (None, plan.regions)):
        kept = plural(plan.regions, "region")
        say(f"the table exists and keeps its {kept}; --regions and --splits-from apply only to a new table")
    if any(step.sign == "~" and step.attribute in wanted.requested for step in plan.steps):
        say("the table does not have the settings that you requested; to set them, run the hbase shell lines above")
        return ExitCode.MISMATCH
    return ExitCode.DONE


def _given_flags(settings: Settings) -> list[str]:
    """Return the flags on the command line that do not stand for settings."""
    context = click.get_current_context()
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if not hasattr(settings, parameter.name or "")
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]


def _create_index(settings: Settings, record: Record, ttl_s: int | None) -> None:
    """Create an index unless the same one exists."""
    try:
        create_index(settings, ttl_s)
    except IndexExistsError as error:
        try:
            with open_store(settings.store, opening_of(settings)) as store:
                store.record.check_same(record, settings.store)
                if ttl_s is not None and (there := store.describe()["ttl_s"]) != ttl_s:
                    said = f"a TTL of {duration_in_words(int(there))}" if there else "no TTL"
                    asked = duration_in_words(ttl_s)
                    raise IndexExistsError(f"the index at {settings.store} has {said}, but --ttl is {asked}")
                say(f"{settings.store} already exists {how_made(store.record)}")
        except IndexNotFoundError:
            raise error from None  # what exists there is not an index


def _create_table(
    settings: Settings, record: Record, wanted: TableSettings, *, is_dry_run: bool, is_plain_allowed: bool
) -> Plan:
    """Create the table, or only print the plan; return the plan."""
    # Imported here because importing thriftpy2 would slow down the creation of an embedded index.
    from hsimhash.store.hbase import operations

    if is_dry_run:
        plan = operations.plan(settings.store, record, wanted, is_plain_allowed=is_plain_allowed)
        for step in plan.steps:
            print_line(str(step))
        _tell(plan)
        if plan.refusal:
            raise HsimhashError(plan.refusal)
        return plan
    warn_of(Profile.named(settings.profile))
    plan = operations.create(settings.store, record, wanted, is_plain_allowed=is_plain_allowed)
    _tell(plan)
    if plan.steps[-1].sign == "=":
        with open_store(settings.store, opening_of(settings)) as store:
            ttl_s = int(store.describe()["ttl_s"])
            expiry = f"; {expiry_in_words(ttl_s)}" if ttl_s else ""
            say(f"{settings.store} already exists {how_made(store.record)}{expiry}")
    elif plan.regions:
        say(f"wrote the index's record to {settings.store} {how_made(record)}")
    else:
        with open_store(settings.store, opening_of(settings)) as store:
            say_created(settings.store, store)
    return plan


def _tell(plan: Plan) -> None:
    """Print how the existing table differs."""
    differing = [step for step in plan.steps if step.sign == "~"]
    for step in differing:
        say(f"the table exists: {step.text}")
    for note in plan.notes:
        say(note)
    if differing:
        say("create-table does not alter tables; run these lines in hbase shell, then run this command again:")
    for line in shell_lines(differing):
        click.echo(line, err=True)


next(one for one in create_table_command.params if one.name == "max_distance").help = (
    f"Default distance for queries, which match fingerprints that differ in at most BITS bits, 0 to {MOST_DISTANCE}. "
    f"Default: {DEFAULT_DISTANCE} for layout 4, except on HBase; otherwise the distance of the layout."
)


@click.command("drop-table", cls=Command)
@with_settings("store", "lock_timeout_s")
@yes_option
def drop_table_command(settings: Settings, is_confirmed: bool) -> ExitCode:
    """Delete an index and everything in it, even if it is damaged. Refuses anything that is not an index.

    \b
    Example: hsimhash drop-table --store lmdb://old --yes
             hsimhash drop-table --store hbase://gw1/crawl:old

    On HBase, drop-table prints the hbase shell line for a snapshot, then disables and drops the table. It refuses a
    table that has the column families of an index but neither its record nor its settings. On PostgreSQL, it drops the
    tables of the index; on Redis, it deletes the keys of the index. It deletes an embedded index with its job folders,
    but leaves other files in the folder.
    """
    refuse_memory(settings)

    def is_sure(question: str) -> bool:
        return confirm(question, is_confirmed=is_confirmed)

    if not backend_of(settings.store).drop(settings.store, opening_of(settings), is_sure=is_sure, say=say):
        return ExitCode.FAILED
    say(f"dropped {settings.store}")
    return ExitCode.DONE
