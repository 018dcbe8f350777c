"""From a URL to a store: one connection to a gateway and one read of the record.

What else the cluster can tell, whether the table is there, enabled, and how it is made, is asked only to explain why
the record cannot be read, or for an index of release 0.1.0, whose record has no TTL.
"""

from __future__ import annotations

import logging
from functools import partial

from hsimhash.errors import (
    HsimhashError,
    IndexNotFoundError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.store.base import DEADLINE_S
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.admin import Admin
from hsimhash.store.hbase.connect import open_gateway
from hsimhash.store.hbase.failures import disabled
from hsimhash.store.hbase.gateway import Gateway
from hsimhash.store.hbase.protocol import Times
from hsimhash.store.hbase.store import HBaseStore

_log = logging.getLogger("hsimhash.store")


def open_hbase_store(url: str, *, exclusive: bool = False, deadline_s: float = DEADLINE_S) -> HBaseStore:
    """Open the index in the table at `url`; `IndexNotFoundError` where there is no table, or no record in it.

    Args:
        url: of the index; a deadline in it beats `deadline_s`.
        exclusive: see `HBaseStore`.
        deadline_s: how long a call is tried without an answer.
    """
    address = Address.parse(url)
    gateway = open_gateway(address, deadline_s=deadline_s)
    try:
        return _open(url, address, gateway, exclusive=exclusive)
    except BaseException:
        gateway.close()
        raise


def _open(url: str, address: Address, gateway: Gateway, *, exclusive: bool) -> HBaseStore:
    read = partial(HBaseStore.open, url, gateway, times=partial(_asked_times, address), exclusive=exclusive)
    with gateway.one_deadline():
        try:
            with gateway.ending(address.options.timeout_s):
                return read()
        except StoreTimeoutError:
            _explain(address)
            return read()


def _explain(address: Address) -> None:
    """Say so where the table whose record is not read in time is disabled."""
    try:
        with Admin(address, timeout_s=address.options.timeout_s) as admin:
            is_disabled = admin.is_disabled()
    except HsimhashError as error:
        _log.info("cannot tell whether the table is disabled: %s", error)
        return
    if is_disabled:
        raise disabled(address.full_table.decode())


def _asked_times(address: Address) -> Times:
    """Return the times for a table whose record has no TTL, from how the table is made."""
    try:
        with Admin(address, timeout_s=address.options.timeout_s) as admin:
            return Times(ttl_s=usable_ttl_s(admin) or None)
    except HsimhashError as error:
        _warn(error)
        return Times()


def usable_ttl_s(admin: Admin) -> int | None:
    """Return the table's TTL, 0: never; None where who may only read and write is not told how the table is made."""
    try:
        return admin.ttl_s() or 0
    except (IndexNotFoundError, StoreUnavailableError):
        raise
    except HsimhashError as error:
        _warn(error)
        return None


def _warn(error: HsimhashError) -> None:
    _log.warning(
        "cannot tell the table's TTL (%s); if it has one, documents added again expire with the rest; "
        "'hsimhash create-table' writes the TTL into the record",
        error,
    )
