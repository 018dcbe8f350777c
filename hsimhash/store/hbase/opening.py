"""From a URL to a store: the table, the gateway, the record."""

from __future__ import annotations

import logging

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError, StoreUnavailableError
from hsimhash.rowkey import splits
from hsimhash.store.base import Record
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.admin import Admin
from hsimhash.store.hbase.connect import open_gateway
from hsimhash.store.hbase.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.table import AUTO_REGIONS, TableSettings

_log = logging.getLogger("hsimhash.store")


def create_hbase_store(url: str, record: Record, settings: TableSettings | None = None) -> HBaseStore:
    """Write an index's record into the table at `url`, made where it is missing: with `settings`, or `AUTO_REGIONS`.

    Raises:
        IndexExistsError: the table has a record.
        HsimhashError: the table is missing, and the gateway cannot make it; the message says what to do.
    """
    address = Address.parse(url)
    with Admin(address) as admin:
        if not admin.exists():
            _create_table(admin, settings or TableSettings(tuple(splits(record.layout, AUTO_REGIONS))))
        admin.check_enabled()
        times = _times(admin)
    gateway = open_gateway(address)
    try:
        return HBaseStore.create(url, gateway, record, times=times)
    except BaseException:
        gateway.close()
        raise


def _create_table(admin: Admin, settings: TableSettings) -> None:
    try:
        admin.create_table(settings)
    except IndexExistsError:
        if not admin.exists():
            raise
        # Another process has made it meanwhile; whose record comes first decides.


def open_hbase_store(url: str, *, exclusive: bool = False) -> HBaseStore:
    """Open the index in the table at `url`; `IndexNotFoundError` where there is no table, or no record in it."""
    address = Address.parse(url)
    with Admin(address) as admin:
        if not admin.exists():
            raise IndexNotFoundError(f"no index at {url}: there is no such table; 'hsimhash create-table' makes one")
        admin.check_enabled()
        times = _times(admin)
    gateway = open_gateway(address)
    try:
        return HBaseStore.open(url, gateway, times=times, exclusive=exclusive)
    except BaseException:
        gateway.close()
        raise


def _times(admin: Admin) -> Times:
    try:
        return Times(ttl_s=admin.ttl_s())
    except (IndexNotFoundError, StoreUnavailableError):
        raise
    except HsimhashError as error:  # who may only read and write need not be told how the table is made
        _log.warning(
            "cannot tell the table's TTL (%s); if it has one, documents added again expire with the rest", error
        )
        return Times()
