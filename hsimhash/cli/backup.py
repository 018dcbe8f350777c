"""`hsimhash backup`: copy an index while it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import say
from hsimhash.cli.options import open_index, utf8, with_settings

if TYPE_CHECKING:
    from hsimhash.settings import Settings


@click.command()
@click.argument("target", type=utf8, metavar="DEST")
@with_settings("store")
def backup(settings: Settings, target: str) -> None:
    """Write a copy of an index, as it is now, to the folder DEST, which must be new or empty.

    Others may read and write meanwhile. The copy is an index: open it with --store lmdb://DEST.

    \b
    Example: hsimhash backup backups/2026-01-31 --store lmdb://pages
    """
    if "://" in target:
        raise click.BadParameter(f"{target!r} is no folder; leave the lmdb:// away", param_hint="DEST")
    folder = Path(target)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.BadParameter(f"{target} is there and not empty; give a new folder", param_hint="DEST")
    with open_index(settings) as index:
        index.backup(folder)
    say(f"{settings.store} was copied; open the copy with --store lmdb://{target}")
