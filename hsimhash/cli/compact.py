"""`hsimhash compact`: give an index's free space back."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_fields, print_json, print_line, say, size
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import is_on_hbase, json_option, open_index, with_settings
from hsimhash.settings import Settings
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.table import compact_line


@click.command("compact")
@with_settings("store", "lock_timeout_s")
@json_option
def compact_command(settings: Settings, as_json: bool) -> ExitCode:
    """Rewrite an index without its free space; print its bytes before and after.

    Nobody else may have the index open: those who have are named, and nothing is changed. Who opens it meanwhile waits.
    The disk must have room for both.

    On HBase the region servers compact by themselves: the line for hbase shell that makes them do it now is printed,
    and the exit code is 2.

    \b
    Example: hsimhash compact --store lmdb://pages
    """
    if is_on_hbase(settings):
        return _tell(settings)
    with open_index(settings) as index:
        before, after = index.compact()
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    else:
        print_fields([("before", size(before)), ("after", size(after))])
    return ExitCode.DONE


def _tell(settings: Settings) -> ExitCode:
    say("a table is compacted by its servers; in hbase shell:")
    print_line(compact_line(Address.parse(settings.store)))
    return ExitCode.MISUSED
