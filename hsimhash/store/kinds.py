"""The kinds of stores, by what the URL of a store tells before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from hsimhash.cover import DEFAULT_DISTANCE, HBASE_PRICES, LMDB_PRICES, POSTGRESQL_PRICES, REDIS_PRICES, Prices
from hsimhash.layout import Layout
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.address import DEFAULT_PORTS as HBASE_SCHEMES
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.postgresql.address import POSTGRESQL_SCHEME, DatabaseAddress
from hsimhash.store.redis.address import REDIS_SCHEMES, RedisAddress
from hsimhash.store.urls import masked

_URLS = (
    "a folder's path (./pages, /data/pages), lmdb://relative/path, lmdb:///absolute/path, "
    "hbase://gateway:9091/namespace:table, postgresql://user@host/database?table=pages, "
    "redis://host:6379/0?prefix=name or memory://name"
)
_PATH_STARTS = ("/", "./", "../", "~")


class Kind(NamedTuple):
    """A kind of store."""

    title: str
    schemes: Collection[str]
    parse: Callable[[str], object]  # `ValueError`, with the remedy, for what is no URL of this kind
    name_of: Callable[[str], str]  # see `store_name`
    prices: Prices
    # How an index is made if nobody says, and within how many bits queries on that find documents; None: the layout's.
    # Measured at a million documents: five rows each instead of layout 10's eleven, and, within 6 bits instead of 3,
    # twice as many near-duplicates found.
    layout: str = "4"
    distance: int | None = DEFAULT_DISTANCE

    @property
    def max_distance(self) -> int:
        """Within how many bits queries on a new index find documents if nobody says."""
        return Layout.named(self.layout).max_distance if self.distance is None else self.distance


def folder_of(url: str) -> Path:
    """Return the folder of an embedded index's URL; `~` is the user's home, as in a shell."""
    try:
        return Path(url_of(url).removeprefix("lmdb://")).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{masked(url)} begins at a home folder that is not known; write the whole path") from error


LMDB = Kind(
    "LMDB, embedded",
    ["lmdb"],
    folder_of,
    lambda url: f"lmdb://{os.path.abspath(folder_of(url))}",  # noqa: PTH100 (links stay links)
    LMDB_PRICES,
)
HBASE = Kind(
    "HBase",
    HBASE_SCHEMES,
    Address.parse,
    lambda url: Address.parse(url).index_url,
    HBASE_PRICES,
    layout="10",
    distance=None,  # a query within 6 bits takes five times as long there
)
POSTGRESQL = Kind(
    "PostgreSQL",
    [POSTGRESQL_SCHEME],
    DatabaseAddress.parse,
    lambda url: str(DatabaseAddress.parse(url)),
    POSTGRESQL_PRICES,
)
REDIS = Kind(
    "Redis",
    REDIS_SCHEMES,
    RedisAddress.parse,
    lambda url: RedisAddress.parse(url).index_url,
    REDIS_PRICES,
)
MEMORY = Kind("memory", ["memory"], str, str, LMDB_PRICES)
KINDS = {"lmdb": LMDB, "hbase": HBASE, "postgresql": POSTGRESQL, "redis": REDIS}  # those that last, by name
_BY_SCHEME = {scheme: kind for kind in (*KINDS.values(), MEMORY) for scheme in kind.schemes}


def url_of(place: str | os.PathLike[str]) -> str:
    """Return the URL of a store that is given as its URL, or as the path of an embedded index's folder.

    A path is a `Path`, or a string that can be nothing else because it begins with `/`, `./`, `../` or `~`. Any other
    string is returned as it is.
    """
    if isinstance(place, os.PathLike):
        return f"lmdb://{os.fsdecode(place)}"
    if not isinstance(place, str):
        raise TypeError(f"an index is named by a URL or a path, not {type(place).__name__}: {masked(repr(place)):.80}")
    is_path = place.startswith(_PATH_STARTS) or place in (".", "..")
    return f"lmdb://{place}" if is_path else place


def kind_in(url: str) -> Kind | None:
    """Return the kind of store that a URL or path names, None if it names none."""
    return _BY_SCHEME.get(url_of(url).partition("://")[0])


def kind_of(url: str) -> Kind:
    """Return the kind of store that a URL or path names; raise `ValueError` if it names none."""
    kind = kind_in(url)
    if kind is None or not url_of(url).partition("://")[2]:
        raise ValueError(f"store {masked(url)!r} is not the URL of a store: {_expected(url)}")
    return kind


def check_url(url: str) -> None:
    """Raise `ValueError`, with the remedy, unless this is the URL or path of a store."""
    url.encode()
    kind = kind_in(url)
    if kind is None or not url_of(url).partition("://")[2]:
        raise ValueError(_expected(url))
    kind.parse(url)


def _expected(url: str) -> str:
    is_word = url and ":" not in url and masked(url) == url
    return f"for a folder, use ./{url} or lmdb://{url}" if is_word else f"use {_URLS}"


def store_name(url: str) -> str:
    """Return the URL that the same store has in any working folder, and however it is talked to."""
    return kind_of(url).name_of(url)


def is_embedded(url: str) -> bool:
    """Whether a URL or path is that of an index in a folder of this machine."""
    return kind_in(url) is LMDB


def is_hbase(url: str) -> bool:
    """Whether a URL is that of a store on HBase."""
    return kind_in(url) is HBASE


def is_postgresql(url: str) -> bool:
    """Whether a URL is that of a store on PostgreSQL."""
    return kind_in(url) is POSTGRESQL


def is_redis(url: str) -> bool:
    """Whether a URL is that of a store on Redis."""
    return kind_in(url) is REDIS


def is_on_server(url: str) -> bool:
    """Whether a URL is that of a store that others keep: neither in a folder nor in memory."""
    return kind_in(url) not in (LMDB, MEMORY)


def new_record(
    url: str, profile: dict[str, object], *, layout: Layout | None = None, distance: int | None = None
) -> Record:
    """Return how an index at `url` is to be made, where some of it may be left to the kind of store."""
    kind = kind_of(url)
    usual = Layout.named(kind.layout)
    assumed = {part for part, given in (("layout", layout), ("queries", distance)) if given is None}
    if distance is None and layout in (None, usual):
        distance = kind.distance
    return Record(layout or usual, profile, distance, frozenset(assumed))
