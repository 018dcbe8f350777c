"""Stores: where an index keeps its rows. A store is named by its URL."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from hsimhash.errors import HsimhashError, Remedy
from hsimhash.store.base import DEADLINE_S, LOCK_TIMEOUT_S, Claim, Document, Mark, Match, Record, Store
from hsimhash.store.kinds import (
    HBASE,
    KINDS,
    LMDB,
    POSTGRESQL,
    REDIS,
    check_url,
    folder_of,
    is_embedded,
    is_hbase,
    is_on_server,
    is_postgresql,
    is_redis,
    kind_of,
    new_record,
    store_name,
    url_of,
)
from hsimhash.store.lmdb import files
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.memory import MemoryStore
from hsimhash.store.reports import CheckReport, CollectReport
from hsimhash.store.runs import BULK_LIMITS, BulkLimits, BulkLoad, FileLimits, StageOptions
from hsimhash.store.urls import masked

__all__ = [
    "BULK_LIMITS",
    "KINDS",
    "LMDB",
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
    "is_embedded",
    "is_hbase",
    "is_on_server",
    "is_own_file",
    "is_postgresql",
    "is_redis",
    "new_record",
    "open_store",
    "postgresql_operations",
    "store_name",
    "url_of",
]


def is_own_file(url: str, path: Path) -> bool:
    """Whether a path leads to a file that the index itself is made of."""
    return is_embedded(url) and files.is_own(folder_of(url), path)


def _hbase_operations() -> ModuleType:
    """Return what opens an index on HBase: it takes longer to import than an embedded index to open."""
    from hsimhash.store.hbase import operations

    return operations


def _redis_operations() -> ModuleType:
    """Return what opens an index on Redis: to import it as well would take an eighth more."""
    from hsimhash.store.redis import operations

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
    kind, url = kind_of(url), url_of(url)
    if ttl_s is not None and (kind is not REDIS or not 0 < ttl_s < 1 << 31):
        raise ValueError(
            f"invalid ttl_s {ttl_s} for {masked(url)}: only Redis takes one here, from 1 to 2**31 - 1 seconds; on "
            f"HBase, the command 'hsimhash create-table' creates a table with a TTL; elsewhere, remove old documents "
            f"with " + Remedy("index.remove(doc_ids, before=...)", "'hsimhash expire'")
        )
    made: Store
    if kind is LMDB:
        made = LmdbStore.create(url, folder_of(url), record, lock_timeout_s=lock_timeout_s)
    elif kind is HBASE:
        made = _hbase_operations().create_hbase_store(url, record)
    elif kind is POSTGRESQL:
        made = postgresql_operations().create_database_store(url, record, lock_timeout_s=lock_timeout_s)
    elif kind is REDIS:
        made = _redis_operations().create_redis_store(url, record, password=password, ttl_s=ttl_s or 0)
    else:
        made = MemoryStore.create(url, record)
    return made


def open_store(
    url: str,
    *,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    exclusive: bool = False,
    deadline_s: float = DEADLINE_S,
    password: str | None = None,
) -> Store:
    """Open the index at `url`; `IndexNotFoundError` if it does not exist, `ValueError` if the URL is not valid.

    Args:
        url: of the store.
        lock_timeout_s: of LMDB and PostgreSQL, how long a write waits for another process that writes alone.
        exclusive: of HBase alone, nobody else writes the documents that this store is given: they are written faster.
        deadline_s: of HBase and Redis, how long a call is tried without an answer, unless the URL says.
        password: of Redis alone, the user's, where the URL has no `password_file=`.
    """
    kind, url = kind_of(url), url_of(url)
    if exclusive and kind is not HBASE:
        raise ValueError(f"exclusive writing is for HBase, and {masked(url)} is not on it; leave it out")
    opened: Store
    if kind is LMDB:
        opened = LmdbStore(url, folder_of(url), lock_timeout_s=lock_timeout_s)
    elif kind is HBASE:
        opened = _hbase_operations().open_hbase_store(url, exclusive=exclusive, deadline_s=deadline_s)
    elif kind is POSTGRESQL:
        opened = postgresql_operations().open_database_store(url, lock_timeout_s=lock_timeout_s, deadline_s=deadline_s)
    elif kind is REDIS:
        opened = _redis_operations().open_redis_store(url, deadline_s=deadline_s, password=password)
    else:
        opened = MemoryStore.open(url)
    return opened
