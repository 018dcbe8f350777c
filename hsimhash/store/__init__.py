"""Stores: where an index keeps its rows. A store is named by its URL."""

from __future__ import annotations

from pathlib import Path

from hsimhash.store.base import LOCK_TIMEOUT_S, BulkLoad, CheckReport, Document, Record, Store
from hsimhash.store.embedded import EmbeddedStore
from hsimhash.store.hbase.address import DEFAULT_PORTS as HBASE_SCHEMES
from hsimhash.store.memory import MemoryStore

__all__ = ["HBASE_SCHEMES", "BulkLoad", "CheckReport", "Document", "Record", "Store", "create_store", "open_store"]


def _split(url: str) -> tuple[str, str]:
    scheme, separator, place = url.partition("://")
    if not separator or scheme not in ("lmdb", "memory", *HBASE_SCHEMES) or not place:
        raise ValueError(
            f"store {url!r} is no URL of a store; use lmdb://relative/path, lmdb:///absolute/path, "
            f"hbase://gateway:9091/table or memory://name"
        )
    return scheme, place


def create_store(url: str, record: Record, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Store:
    """Make an empty index at `url`; `IndexExistsError` where there is one, `ValueError` for no URL of a store."""
    scheme, place = _split(url)
    if scheme == "lmdb":
        return EmbeddedStore.create(url, Path(place), record, lock_timeout_s=lock_timeout_s)
    if scheme in HBASE_SCHEMES:
        from hsimhash.store.hbase.opening import create_hbase_store

        return create_hbase_store(url, record)
    return MemoryStore.create(url, record)


def open_store(url: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Store:
    """Open the index at `url`; `IndexNotFoundError` where there is none, `ValueError` for no URL of a store."""
    scheme, place = _split(url)
    if scheme == "lmdb":
        return EmbeddedStore(url, Path(place), lock_timeout_s=lock_timeout_s)
    if scheme in HBASE_SCHEMES:
        from hsimhash.store.hbase.opening import open_hbase_store

        return open_hbase_store(url)
    return MemoryStore.open(url)
