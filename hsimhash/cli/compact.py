"""`hsimhash compact`: give an index's free space back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import print_fields, print_json, size
from hsimhash.cli.options import json_option, open_index, with_settings

if TYPE_CHECKING:
    from hsimhash.settings import Settings


@click.command()
@with_settings("store", "lock_timeout_s")
@json_option
def compact(settings: Settings, as_json: bool) -> None:
    """Rewrite an index without its free space; print its bytes before and after.

    Others may read meanwhile; writers wait. The disk must have room for both.

    \b
    Example: hsimhash compact --store lmdb://pages
    """
    with open_index(settings) as index:
        before, after = index.compact()
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    else:
        print_fields([("before", size(before)), ("after", size(after))])
