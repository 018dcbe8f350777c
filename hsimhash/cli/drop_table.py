"""`hsimhash drop-table`: delete an index and all that is in it."""

from __future__ import annotations

import click

from hsimhash.cli.console import say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import confirm, is_on_hbase, refuse_memory, with_settings, yes_option
from hsimhash.settings import Settings
from hsimhash.store import folder_of
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
    from hsimhash.store.hbase.operations import drop  # here: thriftpy2 is for HBase alone, and slow to import

    def is_sure(snapshot_line: str) -> bool:
        say("a snapshot keeps it, if taken before, in hbase shell:")
        click.echo(snapshot_line, err=True)
        say("what is made of the snapshot needs 'hsimhash check --repair' before use: it has no rows of one moment")
        return confirm(f"Drop {settings.store} and all that is in it?", is_confirmed=is_confirmed)

    return drop(settings.store, is_sure)


def _drop_folder(settings: Settings, is_confirmed: bool) -> bool:
    folder = folder_of(settings.store)
    refuse_no_index(folder)
    if not confirm(f"Delete the index in {folder} and all that is in it?", is_confirmed=is_confirmed):
        return False
    drop_index(folder, lock_timeout_s=settings.lock_timeout_s)
    if folder.is_dir():
        say(f"{folder} has files that are not the index's; they stay")
    return True
