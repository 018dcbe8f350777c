"""Comparing an index that is there with the one that the settings ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from hsimhash.cli.console import say
from hsimhash.errors import IndexExistsError
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.settings import Settings


def refuse_others(settings: Settings, cause: IndexExistsError | None = None) -> None:
    """Raise `IndexExistsError` if the index there has another layout or profile, having told the differences."""
    differences = list(_differences(settings))
    for difference in differences:
        say(difference)
    if differences:
        raise IndexExistsError(
            f"there is an index at {settings.store}, made otherwise; ask for what it has, or choose another place"
        ) from cause


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
