"""Open, plan, create and drop an index on HBase, by its URL.

Opening takes one connection and two calls. The table's state and settings are read only to explain why the record
cannot be read, and for an index created by release 0.1.0, whose record does not have a TTL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from hsimhash.durations import ttl_in_words
from hsimhash.errors import (
    CorruptionError,
    HsimhashError,
    IndexExistsError,
    IndexNotFoundError,
    StoreTimeoutError,
)
from hsimhash.rowkey import splits
from hsimhash.store.base import DEADLINE_S, Record
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Gateway, Table
from hsimhash.store.hbase.gateway.failures import disabled, no_namespace
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import (
    AUTO_REGIONS,
    TABLE_ATTRIBUTES,
    UNKNOWN_TTL,
    Step,
    TableSettings,
    compared,
    described,
    drop_lines,
    families,
    missing_families,
    new_table,
    snapshot_line,
    snapshot_prefix,
)
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.store import (
    HBaseStore,
    compared_by_record,
    has_record,
    has_rows_of_others,
    record_ttl,
    recorded_ttl_s,
)

_PLAIN = (
    "Thrift1 creates a plain table: one region, no encoding, no prefix Bloom filter, no split restriction; it works, "
    "but more slowly, and one server has the whole load until HBase splits the table"
)
_UNREPORTED = (
    "Thrift1 can neither report nor alter a table's settings: --ttl, --compression and --family-option apply only to a "
    "new table"
)

_OTHER_TTL = (
    "the TTL in the record ({}) differs from the table's ({}); 'hsimhash create-table' without a dry run writes the "
    "table's TTL into the record"
)

_LONGER_TTL = (
    "with a longer TTL, documents that have expired come back if they are still in the files, some of them without all "
    "of their rows: run flush and major_compact, wait until the compaction ends, and only then alter the table; "
    "afterwards run 'hsimhash check --repair'"
)

_log = logging.getLogger("hsimhash.store")


def open_at(url: str, *, deadline_s: float = DEADLINE_S, address: Address | None = None) -> HBaseStore:
    """Open the index at `url`; raise `IndexNotFoundError` if the table or its record does not exist.

    Args:
        url: URL of the index. A deadline in it takes precedence over `deadline_s`.
        deadline_s: How long a call without a reply is retried.
        address: Address to use instead of the one in `url`, which errors name.
    """
    address = address or Address.parse(url)
    gateway, timeout_s = open_gateway(address, deadline_s=deadline_s), address.options.timeout_s
    ask_times = partial(_asked_times, gateway)
    read = partial(HBaseStore.open, url, gateway, ask_times=ask_times, exclusive=address.options.exclusive)
    try:
        with gateway.one_deadline():
            try:
                with gateway.ending(timeout_s):
                    return read()
            except StoreTimeoutError:
                if _is_disabled(gateway, timeout_s):
                    raise disabled(address.full_table.decode()) from None
                return read()
    except BaseException:
        gateway.close()
        raise


def _is_disabled(gateway: Gateway, timeout_s: float) -> bool:
    """Whether the table is disabled, which explains a time-out; False if the gateway does not respond."""
    try:
        with gateway.one_deadline(), gateway.ending(timeout_s):  # separate, because the caller's deadline may be over
            return gateway.is_disabled()
    except HsimhashError as error:
        _log.info("cannot determine whether the table is disabled: %s", error)
        return False


def _asked_times(gateway: Gateway) -> Times:
    """Return the time limits for an index whose record does not have a TTL, from the table's settings."""
    try:
        table = described(gateway)
    except HsimhashError as error:
        _log.warning(UNKNOWN_TTL, error)
        return Times()
    return Times(ttl_s=(table.ttl_s if table else None) or None)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that turn a table into an index, ending with its record, and messages about them.

    `regions` is the table's current number of regions, 0 if it does not exist. `refusal` says why the gateway cannot
    create a missing table, and what to do.
    """

    steps: tuple[Step, ...]
    regions: int
    notes: tuple[str, ...] = ()
    refusal: str = ""

    def with_record(self, record: Record, *, is_new: bool) -> Plan:
        """Return the plan with a last step for the record."""
        text = f"record: layout {record.layout.name}, profile {record.profile.get('name')}"
        return replace(self, steps=(*self.steps, Step("+" if is_new else "=", text)))


def plan(url: str, record: Record, wanted: TableSettings, *, is_plain_allowed: bool = False) -> Plan:
    """Return what `create` would do, and which steps need hbase shell, without changing anything.

    Raises:
        IndexExistsError: The table does not belong to an index, or has an index with different settings.
    """
    address = Address.parse(url)
    with open_gateway(address) as gateway:
        table = described(gateway)
        found = _table_plan(gateway, address, table, wanted, is_plain_allowed=is_plain_allowed)
        there = _same_record(url, gateway, record) if found.regions else None
        is_new = there is None
        recorded_s = None if is_new else recorded_ttl_s(gateway) or 0
        if not is_new and table and table.has_one_ttl and table.ttl_s not in (None, recorded_s):
            note = _OTHER_TTL.format(ttl_in_words(recorded_s), ttl_in_words(table.ttl_s))
            found = replace(found, notes=(*found.notes, note))
        return found.with_record(there or record, is_new=is_new)


def create(url: str, record: Record, wanted: TableSettings, *, is_plain_allowed: bool = False) -> Plan:
    """Create the index, and its table if that is missing; return what was done and what was found.

    An existing index is not changed. If the gateway cannot create the full table, a plain table is created if
    this is allowed.

    Raises:
        IndexExistsError: See `plan`.
        HsimhashError: The table is missing, and the gateway cannot create it. The message has the remedy.
    """
    address = Address.parse(url)
    with open_gateway(address) as gateway:
        done = _with_table(gateway, address, wanted, is_plain_allowed=is_plain_allowed)
        update = _update_ttl(gateway)
        try:
            HBaseStore.create(url, gateway, record)
        except IndexExistsError:
            there = _same_record(url, gateway, record)
            if there is None:
                raise
            if update:
                done = replace(done, notes=(*done.notes, update))
            return done.with_record(there, is_new=False)
    return done.with_record(record, is_new=True)


def create_at(url: str, record: Record, wanted: TableSettings | None = None) -> HBaseStore:
    """Create an index as `create` does, with `AUTO_REGIONS` regions by default, and open it.

    Raises:
        IndexExistsError: The table does not belong to an index, or already has a record, even an identical one.
        HsimhashError: The table is missing, and the gateway cannot create it. The message has the remedy.
    """
    address = Address.parse(url)
    gateway = open_gateway(address)
    try:
        _with_table(gateway, address, wanted or TableSettings(tuple(splits(record.layout, AUTO_REGIONS))))
        _update_ttl(gateway)
        return HBaseStore.create(url, gateway, record)
    except BaseException:
        gateway.close()
        raise


def _with_table(gateway: Gateway, address: Address, wanted: TableSettings, *, is_plain_allowed: bool = False) -> Plan:
    """Create the table if it is missing; return what was done, with messages about it."""
    found = _table_plan(gateway, address, described(gateway), wanted, is_plain_allowed=is_plain_allowed)
    if found.regions:
        return found
    try:
        make_table(gateway, wanted, is_plain_allowed=is_plain_allowed)
    except IndexExistsError:
        if not gateway.exists():
            raise
        return replace(found, notes=())  # another process has created it; the record that is written first is kept
    return found


def _table_plan(
    gateway: Gateway, address: Address, table: Table | None, wanted: TableSettings, *, is_plain_allowed: bool
) -> Plan:
    if table is None:
        namespaces = gateway.namespaces() or [address.namespace]
        steps = new_table(address, wanted, namespaces)
        refusal = _refusal(gateway, is_plain_allowed=is_plain_allowed)
        if not refusal and address.namespace not in namespaces:
            refusal = no_namespace(address.namespace)
        return Plan(tuple(steps), 0, () if refusal or gateway.makes_tables == "whole" else (_PLAIN,), refusal)
    if missing := missing_families(table):
        raise IndexExistsError(
            f"table {address.full_table.decode()} already exists, but does not belong to an index: it lacks the column "
            f"families {', '.join(missing)}; choose another table name"
        )
    check_enabled(gateway, address)
    if has_rows_of_others(gateway):
        raise IndexExistsError(
            f"table {address.full_table.decode()} already exists, but does not belong to an index: it has rows, but "
            f"does not have an index record; choose another table name"
        )
    notes = (_UNREPORTED,) if wanted.requested and not table.is_complete else ()
    if wanted.ttl_s and table.is_complete and 0 < (table.ttl_s or 0) < wanted.ttl_s:
        notes = (*notes, _LONGER_TTL)
    steps = compared_by_record(gateway, address, table, wanted)
    return Plan(tuple(steps), len(gateway.regions()), notes)


def make_table(gateway: Gateway, wanted: TableSettings, *, is_plain_allowed: bool = False) -> None:
    """Create a gateway's table, or a plain one if that is allowed and the gateway cannot create the full one.

    Raises:
        IndexExistsError: The table exists.
        HsimhashError: The gateway cannot create it. The message has the remedy.
    """
    if refusal := _refusal(gateway, is_plain_allowed=is_plain_allowed):
        raise HsimhashError(refusal)
    gateway.create_table(Table(families(wanted), TABLE_ATTRIBUTES), wanted.splits)


def _refusal(gateway: Gateway, *, is_plain_allowed: bool) -> str:
    """Say why a gateway cannot create the table, and what to do."""
    is_plain = gateway.makes_tables == "plain"
    if gateway.makes_tables == "whole" or (is_plain and is_plain_allowed):
        return ""
    return (
        f"this gateway cannot create the table with all of its settings: that requires Thrift2, and a transport "
        f"other than framed; run the output of 'hsimhash create-table --print-commands' in hbase shell, and then "
        f"this command again{'; or accept a plain table with --allow-plain' if is_plain else ''}"
    )


def check_enabled(gateway: Gateway, address: Address) -> None:
    """Raise `StoreUnavailableError` if the table is disabled.

    On a disabled table, other calls through Thrift2 time out; those through Thrift1 report that it is disabled.
    """
    if gateway.is_disabled():
        raise disabled(address.full_table.decode())


def _update_ttl(gateway: Gateway) -> str:
    """Write the table's TTL into the record; if the record had another one, return a note about it."""
    table = described(gateway)
    ttl_s = table.ttl_s if table else None
    # If only one family was altered, the record has the intended TTL.
    if table and ttl_s is not None and (table.has_one_ttl or recorded_ttl_s(gateway) is None):
        old_s = record_ttl(gateway, ttl_s)
        if old_s is not None:
            return f"wrote the table's TTL into the record: {ttl_in_words(ttl_s)}, instead of {ttl_in_words(old_s)}"
    return ""


def _same_record(url: str, gateway: Gateway, record: Record) -> Record | None:
    """Return the record of a complete index, if there is one.

    Raises:
        IndexExistsError: It differs in settings that were passed.
    """
    try:
        there = HBaseStore.open(url, gateway).record
    except (IndexNotFoundError, CorruptionError):
        return None
    there.check_same(record, url)
    return there


def drop_at(url: str, is_sure: Callable[[str], bool]) -> bool:
    """Delete an index, even a damaged one, and its table; return whether it was deleted.

    Args:
        url: URL of the index.
        is_sure: Called with the hbase shell line that takes a snapshot; returns whether to delete the index.
    """
    address = Address.parse(url)
    with open_gateway(address) as gateway:
        _check_index(gateway, address)
        is_dropped = is_sure(snapshot_line(address, f"{snapshot_prefix(address)}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"))
        if is_dropped:
            gateway.delete_table()
    return is_dropped


def _check_index(gateway: Gateway, address: Address) -> None:
    """Raise unless the table has exactly an index's settings, or (if enabled) at least part of a record."""
    name, table = address.full_table.decode(), gateway.table()
    if table is None:
        raise IndexNotFoundError(f"no index at {address}: there is no such table")
    found = {family.name for family in table.families}
    if found != {family.name for family in families(TableSettings())}:
        raise HsimhashError(
            f"table {name} is not an index: its column families are {', '.join(sorted(found))}; drop it in hbase shell"
        )
    if table.is_complete and all(step.sign == "=" for step in compared(address, table, TableSettings())):
        return
    check_enabled(gateway, address)
    if not has_record(gateway):
        raise HsimhashError(
            f"table {name} has the column families of an index, but does not have an index record; to delete the "
            f"table, in hbase shell: {'; '.join(drop_lines(address))}"
        )
