"""`hsimhash drop-table`: delete an index and all that is in it."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import click

from hsimhash.cli.console import say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import confirm, is_on_hbase, refuse_memory, with_settings, yes_option
from hsimhash.errors import HsimhashError, IndexNotFoundError
from hsimhash.settings import Settings
from hsimhash.store import folder_of
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.admin import Admin
from hsimhash.store.hbase.connect import open_gateway
from hsimhash.store.hbase.store import has_record
from hsimhash.store.hbase.table import TableSettings, deviations, drop_lines, families, snapshot_line
from hsimhash.store.lmdb.data_file import drop_index, refuse_no_index


@click.command("drop-table")
@with_settings("store", "lock_timeout_s")
@yes_option
def drop_table_command(settings: Settings, is_confirmed: bool) -> ExitCode:
    """Delete an index, a damaged one too, and all that is in it. What is no index is refused.

    On HBase the line for hbase shell that keeps a snapshot is shown first; the table is disabled and dropped. A table
    that has an index's column families, but neither its record nor its settings, is refused. An embedded index goes
    with its job folders; other files in its folder stay.

    \b
    Example: hsimhash drop-table --store lmdb://old --yes
             hsimhash drop-table --store hbase://gw1/crawl:old
    """
    refuse_memory(settings)
    is_dropped = _drop_table(settings, is_confirmed) if is_on_hbase(settings) else _drop_folder(settings, is_confirmed)
    if not is_dropped:
        return ExitCode.FAILED
    say(f"dropped {settings.store}")
    return ExitCode.DONE


def _drop_table(settings: Settings, is_confirmed: bool) -> bool:
    address = Address.parse(settings.store)
    with Admin(address) as admin:
        found = admin.family_names()
        if not found:
            raise IndexNotFoundError(f"no index at {settings.store}: there is no such table")
        if found != {family.name for family in families(TableSettings())}:
            raise HsimhashError(
                f"table {address.full_table.decode()} is no index: its column families are {', '.join(sorted(found))}; "
                f"if it shall go, drop it in hbase shell"
            )
        if not _is_index(admin, address):
            raise HsimhashError(
                f"table {address.full_table.decode()} has the column families of an index, but no index's record; if "
                f"it shall go, in hbase shell: {'; '.join(drop_lines(address))}"
            )
        say("a snapshot keeps it, if taken before, in hbase shell:")
        click.echo(snapshot_line(address, f"{address.table}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"), err=True)
        say("what is made of the snapshot needs 'hsimhash check --repair' before use: it has no rows of one moment")
        is_confirmed = confirm(f"Drop {settings.store} and all that is in it?", is_confirmed=is_confirmed)
        if is_confirmed:
            admin.delete_table()
    return is_confirmed


def _is_index(admin: Admin, address: Address) -> bool:
    """Whether a table is an index: it is set as no other is, or has a part of a record, which takes it enabled."""
    table = admin.table() if admin.can_describe else None
    if table is not None and not deviations(table, TableSettings()):
        return True
    admin.check_enabled()
    with closing(open_gateway(address)) as gateway:
        return has_record(gateway)


def _drop_folder(settings: Settings, is_confirmed: bool) -> bool:
    folder = folder_of(settings.store)
    refuse_no_index(folder)
    if not confirm(f"Delete the index in {folder} and all that is in it?", is_confirmed=is_confirmed):
        return False
    drop_index(folder, lock_timeout_s=settings.lock_timeout_s)
    if folder.is_dir():
        say(f"{folder} has files that are not the index's; they stay")
    return True
