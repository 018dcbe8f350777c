"""`hsimhash create-table`: make an empty index; harmless where the same one is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import say
from hsimhash.cli.options import create_index, with_settings
from hsimhash.errors import IndexExistsError
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout

if TYPE_CHECKING:
    from hsimhash.settings import Settings


@click.command("create-table")
@with_settings("store", "layout", "profile")
def create_table(settings: Settings) -> None:
    """Make an empty index. Its layout and its profile stay what they are.

    Where an index with the same layout and profile is, nothing happens; where one with others is, the differences are
    told and the exit code is 5.

    \b
    Example: hsimhash create-table --store lmdb://pages --layout 10 --profile auto-1
    """
    try:
        create_index(settings).close()
    except IndexExistsError as error:
        differences = list(_differences(settings))
        for difference in differences:
            say(difference)
        if differences:
            raise IndexExistsError(
                f"there is an index at {settings.store}, made otherwise; ask for what it has, or choose another place"
            ) from error
        say(f"{settings.store} is already there with this layout and profile")
    else:
        say(f"made {settings.store} with layout {settings.layout} and profile {settings.profile}")


def _differences(settings: Settings) -> Iterator[str]:
    """Yield a line for each field in which the index there differs from what the settings ask for."""
    with HSimIndex.open(settings.store) as index:
        yield from _compare("layout", index.layout.to_json(), Layout.parse(settings.layout).to_json())
        yield from _compare("profile", index.profile.to_json(), Profile.named(settings.profile).to_json())


def _compare(part: str, stored: Mapping[str, object], asked: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(stored.keys() | asked.keys()):
        if stored.get(name) != asked.get(name):
            there, wanted = json.dumps(stored.get(name)), json.dumps(asked.get(name))
            yield f"{part}.{name}: the index has {there}, asked for {wanted}"
