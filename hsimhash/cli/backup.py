"""`hsimhash backup`: copy an index while it is used."""

from __future__ import annotations

import re
from pathlib import Path

import click

from hsimhash.cli.console import print_line, say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import is_on_hbase, open_index, utf8, with_settings
from hsimhash.settings import Settings
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.table import snapshot_line


@click.command("backup")
@click.argument("target", type=utf8, metavar="DEST")
@with_settings("store")
def backup_command(settings: Settings, target: str) -> ExitCode:
    """Write a copy of an index, as it is now, to the folder DEST, which must be new or empty.

    Others may read and write meanwhile. The copy is an index: open it with --store lmdb://DEST.

    On HBase a snapshot is a backup: the lines that take one, and copy it to DEST, are printed, and the exit code is 2.

    \b
    Example: hsimhash backup backups/2026-01-31 --store lmdb://pages
    """
    if is_on_hbase(settings):
        return _tell(settings, target)
    if "://" in target:
        raise click.BadParameter(f"{target!r} is no folder; leave the lmdb:// away", param_hint="DEST")
    if not target:
        raise click.BadParameter("no folder is named; give a new one", param_hint="DEST")
    folder = Path(target)
    if folder.is_symlink() and not folder.exists():
        raise click.BadParameter(f"{target} is a link to nowhere; give a new folder", param_hint="DEST")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.BadParameter(f"{target} is there and not empty; give a new folder", param_hint="DEST")
    with open_index(settings) as index:
        index.backup(folder)
    say(f"{settings.store} was copied; open the copy with --store lmdb://{target}")
    return ExitCode.DONE


def _tell(settings: Settings, target: str) -> ExitCode:
    address = Address.parse(settings.store)
    last = re.sub(r"[^\w.-]", "-", target.rstrip("/").rpartition("/")[2], flags=re.ASCII)
    name = f"{address.table}-{last}"
    say("a table is backed up by its servers; in hbase shell:")
    print_line(snapshot_line(address, name))
    say(f"and to copy it: hbase org.apache.hadoop.hbase.snapshot.ExportSnapshot -snapshot {name} -copy-to {target}")
    return ExitCode.MISUSED
