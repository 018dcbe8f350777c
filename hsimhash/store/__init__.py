"""Stores: where an index keeps its rows. A store is named by its URL."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from hsimhash.errors import HsimhashError
from hsimhash.layout import Layout
from hsimhash.store.base import DEADLINE_S, LOCK_TIMEOUT_S, Claim, Document, Mark, Match, Record, Store
from hsimhash.store.facts import CheckReport, CollectReport
from hsimhash.store.hbase.address import DEFAULT_PORTS as HBASE_SCHEMES
from hsimhash.store.hbase.address import Address, Options
from hsimhash.store.lmdb import files
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.memory import MemoryStore
from hsimhash.store.postgresql.address import POSTGRESQL_SCHEME, DatabaseAddress
from hsimhash.store.redis.address import REDIS_SCHEMES, RedisAddress, RedisOptions
from hsimhash.store.redis.operations import create_redis_store, open_redis_store
from hsimhash.store.runs import BULK_LIMITS, BulkLimits, BulkLoad, FileLimits, StageOptions

__all__ = [
    "BULK_LIMITS",
    "CLUSTER",
    "EMBEDDED",
    "BulkLimits",
    "BulkLoad",
    "CheckReport",
    "Claim",
    "CollectReport",
    "Document",
    "FileLimits",
    "Mark",
    "Match",
    "Record",
    "StageOptions",
    "Store",
    "check_url",
    "create_store",
    "folder_of",
    "is_hbase",
    "is_on_server",
    "is_own_file",
    "is_postgresql",
    "is_redis",
    "new_record",
    "open_store",
    "postgresql_operations",
    "store_name",
]


_URLS = (
    "lmdb://relative/path, lmdb:///absolute/path, hbase://gateway:9091/namespace:table, "
    "postgresql://user@host/database?table=pages, redis://host:6379/0?prefix=name or memory://name"
)


def _scheme_in(url: str) -> str | None:
    scheme, _, place = url.partition("://")
    schemes = ("lmdb", "memory", POSTGRESQL_SCHEME, *HBASE_SCHEMES, *REDIS_SCHEMES)
    return scheme if scheme in schemes and place else None


def _scheme_of(url: str) -> str:
    scheme = _scheme_in(url)
    if scheme is None:
        raise ValueError(f"store {url!r} is not the URL of a store; use {_URLS}")
    return scheme


def check_url(url: str) -> None:
    """Raise `ValueError`, with the remedy, for what is no URL of a store."""
    url.encode()
    scheme = _scheme_in(url)
    if scheme is None:
        raise ValueError(f"use {_URLS}")
    if scheme in HBASE_SCHEMES:
        Address.parse(url)
    if scheme == POSTGRESQL_SCHEME:
        DatabaseAddress.parse(url)
    if scheme in REDIS_SCHEMES:
        RedisAddress.parse(url)


def folder_of(url: str) -> Path:
    """Return the folder of an embedded index's URL; `~` is the user's home, as in a shell."""
    return Path(url.removeprefix("lmdb://")).expanduser()


def is_own_file(url: str, path: Path) -> bool:
    """Whether a path leads to a file that the index itself is made of."""
    return url.startswith("lmdb://") and files.is_own(folder_of(url), path)


def is_hbase(url: str) -> bool:
    """Whether a URL is that of a store on HBase."""
    return url.partition("://")[0] in HBASE_SCHEMES


def is_postgresql(url: str) -> bool:
    """Whether a URL is that of a store on PostgreSQL."""
    return url.partition("://")[0] == POSTGRESQL_SCHEME


def is_on_server(url: str) -> bool:
    """Whether a URL is that of a store that others keep: neither in a folder nor in memory."""
    return url.partition("://")[0] not in ("lmdb", "memory")


def _hbase_operations() -> ModuleType:
    """Return what opens an index on HBase: it takes longer to import than an embedded index to open."""
    from hsimhash.store.hbase import operations

    return operations


def postgresql_operations() -> ModuleType:
    """Return what operators do with an index on PostgreSQL, which needs psycopg."""
    try:
        from hsimhash.store.postgresql import operations
    except ModuleNotFoundError as error:
        raise HsimhashError(
            f"a store on PostgreSQL needs {error.name}; install it: pip install 'hsimhash[postgresql]'"
        ) from error
    return operations


def is_redis(url: str) -> bool:
    """Whether a URL is that of a store on Redis."""
    return url.partition("://")[0] in REDIS_SCHEMES


def store_name(url: str) -> str:
    """Return the URL that the same store has in any working folder, and however it is talked to."""
    scheme = _scheme_of(url)
    if scheme == "lmdb":
        return f"{scheme}://{os.path.abspath(folder_of(url))}"  # noqa: PTH100 (links stay links)
    if scheme in HBASE_SCHEMES:
        address = Address.parse(url)
        return str(replace(address, options=Options(path=address.options.path)))
    if scheme == POSTGRESQL_SCHEME:
        return str(DatabaseAddress.parse(url))
    if scheme in REDIS_SCHEMES:
        place = RedisAddress.parse(url)
        return str(replace(place, user="", options=RedisOptions(prefix=place.options.prefix)))
    return url


class Defaults(NamedTuple):
    """How an index is made if nobody says: its layout, and within how many bits queries on that find documents.

    No distance: the layout's k.
    """

    layout: str
    distance: int | None


# Measured at a million documents: five rows a document instead of eleven, and twice as many near-duplicates found.
EMBEDDED = Defaults("4", 6)
CLUSTER = Defaults("10", None)  # a query within 6 bits takes five times as long there


def new_record(
    url: str, profile: dict[str, object], *, layout: Layout | None = None, distance: int | None = None
) -> Record:
    """Return how an index at `url` is to be made, where some of it may be left to the kind of store."""
    defaults = CLUSTER if is_hbase(url) else EMBEDDED
    usual = Layout.named(defaults.layout)
    assumed = {part for part, given in (("layout", layout), ("queries", distance)) if given is None}
    if distance is None and layout in (None, usual):
        distance = defaults.distance
    return Record(layout or usual, profile, distance, frozenset(assumed))


def create_store(
    url: str,
    record: Record,
    *,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    password: str | None = None,
    ttl_s: int | None = None,
) -> Store:
    """Make an empty index at `url`; `IndexExistsError` where there is one, `ValueError` for no URL of a store.

    Args:
        url: of the store.
        record: of the index.
        lock_timeout_s: see `open_store`.
        password: see there.
        ttl_s: of Redis alone, how long after it was last added a document is over; None: never.
    """
    scheme = _scheme_of(url)
    if ttl_s is not None and (scheme not in REDIS_SCHEMES or not 0 < ttl_s < 1 << 31):
        raise ValueError(
            f"a TTL of {ttl_s} s for {url}: it is for Redis, from 1 s to 2**31; 'hsimhash create-table --ttl' makes a "
            f"table on HBase with one, and elsewhere 'hsimhash expire' removes what is old"
        )
    if scheme == "lmdb":
        return LmdbStore.create(url, folder_of(url), record, lock_timeout_s=lock_timeout_s)
    if scheme in HBASE_SCHEMES:
        made: Store = _hbase_operations().create_hbase_store(url, record)
        return made
    if scheme == POSTGRESQL_SCHEME:
        created: Store = postgresql_operations().create_database_store(url, record, lock_timeout_s=lock_timeout_s)
        return created
    if scheme in REDIS_SCHEMES:
        return create_redis_store(url, record, password=password, ttl_s=ttl_s or 0)
    return MemoryStore.create(url, record)


def open_store(
    url: str,
    *,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    exclusive: bool = False,
    deadline_s: float = DEADLINE_S,
    password: str | None = None,
) -> Store:
    """Open the index at `url`; `IndexNotFoundError` if there is no index, `ValueError` if it is not the URL of a store.

    Args:
        url: of the store.
        lock_timeout_s: of the embedded store, how long a write waits for another process that writes.
        exclusive: of HBase alone, nobody else writes the documents that this store is given: they are written faster.
        deadline_s: of HBase and Redis, how long a call is tried without an answer, unless the URL says.
        password: of Redis alone, the user's, where the URL has no `password_file=`.
    """
    scheme = _scheme_of(url)
    if exclusive and scheme not in HBASE_SCHEMES:
        raise ValueError(f"exclusive writing is for HBase, and {url} is not on it; leave it out")
    if scheme == "lmdb":
        return LmdbStore(url, folder_of(url), lock_timeout_s=lock_timeout_s)
    if scheme in HBASE_SCHEMES:
        found: Store = _hbase_operations().open_hbase_store(url, exclusive=exclusive, deadline_s=deadline_s)
        return found
    if scheme == POSTGRESQL_SCHEME:
        opened: Store = postgresql_operations().open_database_store(
            url, lock_timeout_s=lock_timeout_s, deadline_s=deadline_s
        )
        return opened
    if scheme in REDIS_SCHEMES:
        return open_redis_store(url, deadline_s=deadline_s, password=password)
    return MemoryStore.open(url)
