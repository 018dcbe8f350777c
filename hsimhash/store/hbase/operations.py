"""What operators do with an index on HBase: plan and make it, describe it, drop it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.rowkey import splits
from hsimhash.store.base import Record
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.admin import Admin
from hsimhash.store.hbase.connect import open_gateway
from hsimhash.store.hbase.gateway import Gateway, Region
from hsimhash.store.hbase.opening import usable_ttl_s
from hsimhash.store.hbase.protocol import Times
from hsimhash.store.hbase.store import HBaseStore, has_record, record_ttl
from hsimhash.store.hbase.table import (
    AUTO_REGIONS,
    Step,
    Table,
    TableSettings,
    compared,
    drop_lines,
    families,
    new_table,
    snapshot_line,
)

_UNFIT = "this gateway cannot make the table as it must be; see --print-shell and --allow-plain"
_PLAIN = (
    "made a plain table: one region, no encoding, no prefix Bloom filter, no split restriction; it works, but slower, "
    "and one server has all the load until HBase splits it"
)
_UNTOLD = (
    "Thrift1 does not tell how the table is set, and alters none: --ttl, --compression and --family-option are for a "
    "new one"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What makes a table an index: the steps, of which the record's is the last, and what there is to say.

    `regions` is how many the table has that is there; 0: there is none.
    """

    steps: tuple[Step, ...]
    regions: int
    notes: tuple[str, ...] = ()

    def with_record(self, record: Record, *, is_new: bool) -> Plan:
        """Return the plan with the step of the record, the last one."""
        text = f"record: layout {record.layout.name}, profile {record.profile.get('name')}"
        return replace(self, steps=(*self.steps, Step("+" if is_new else "=", text)))


def plan(url: str, record: Record, wanted: TableSettings) -> Plan:
    """Return what `create` would do, and which steps only hbase shell does; nothing is changed.

    Raises:
        IndexExistsError: the table is no index's, or has an index that was made otherwise.
    """
    address = Address.parse(url)
    with Admin(address) as admin:
        found = _table_plan(admin, address, wanted)
    if not found.regions:
        return found.with_record(record, is_new=True)
    with closing(open_gateway(address)) as gateway:
        return found.with_record(record, is_new=not _has_same(url, gateway, record))


def create(url: str, record: Record, wanted: TableSettings, *, is_plain_allowed: bool = False) -> Plan:
    """Make the index, its table too where there is none; return what was done and what was found.

    Where the index is there already, nothing happens. A lesser table is made where it is allowed, and the gateway can
    make no other.

    Raises:
        IndexExistsError: see `plan`.
        HsimhashError: the table is missing, and the gateway cannot make it; the message says what to do.
    """
    address = Address.parse(url)
    with Admin(address) as admin:
        done = _table_plan(admin, address, wanted)
        if not done.regions:
            done = replace(done, notes=_make_table(admin, wanted, is_plain_allowed=is_plain_allowed))
        ttl_s = usable_ttl_s(admin)
    with closing(open_gateway(address)) as gateway:
        try:
            _write_record(url, gateway, record, ttl_s)
        except IndexExistsError:
            if not _has_same(url, gateway, record):
                raise
            return done.with_record(record, is_new=False)
    return done.with_record(record, is_new=True)


def create_hbase_store(url: str, record: Record, wanted: TableSettings | None = None) -> HBaseStore:
    """Make an index as `create` does, by default with `AUTO_REGIONS`, and open it.

    Raises:
        IndexExistsError: the table has a record.
        HsimhashError: the table is missing, and the gateway cannot make it; the message says what to do.
    """
    address = Address.parse(url)
    with Admin(address) as admin:
        if not admin.exists():
            _make_table(admin, wanted or TableSettings(tuple(splits(record.layout, AUTO_REGIONS))))
        admin.check_enabled()
        ttl_s = usable_ttl_s(admin)
    gateway = open_gateway(address)
    try:
        return _write_record(url, gateway, record, ttl_s)
    except BaseException:
        gateway.close()
        raise


def _table_plan(admin: Admin, address: Address, wanted: TableSettings) -> Plan:
    table = admin.table()
    if table is None:
        steps = new_table(address, wanted, admin.namespaces() or [address.namespace])
        return Plan(tuple(steps), 0, () if admin.can_split else (_UNFIT,))
    missing = {family.name for family in families(wanted)} - {family.name for family in table.families}
    if missing:
        raise IndexExistsError(
            f"table {address.full_table.decode()} is there, and not hsimhash's: it lacks the column families "
            f"{', '.join(sorted(missing))}; choose another name"
        )
    admin.check_enabled()
    is_special = replace(wanted, splits=()) != TableSettings()
    notes = (_UNTOLD,) if is_special and not table.is_told else ()
    return Plan(tuple(compared(address, table, wanted)), admin.region_count(), notes)


def _make_table(admin: Admin, wanted: TableSettings, *, is_plain_allowed: bool = False) -> tuple[str, ...]:
    """Make the table, and return what there is to say of it."""
    is_plain = is_plain_allowed and admin.is_plain
    try:
        if is_plain:
            admin.create_plain_table(wanted)
        else:
            admin.create_table(wanted)
    except IndexExistsError:
        if not admin.exists():
            raise
        return ()  # another process has made it meanwhile; whose record comes first decides
    return (_PLAIN,) if is_plain else ()


def _write_record(url: str, gateway: Gateway, record: Record, ttl_s: int | None) -> HBaseStore:
    if ttl_s is not None:
        record_ttl(gateway, ttl_s)
    return HBaseStore.create(url, gateway, record, times=Times(ttl_s=ttl_s or None))


def _has_same(url: str, gateway: Gateway, record: Record) -> bool:
    """Whether the table has an index; `IndexExistsError` where that was made otherwise."""
    try:
        HBaseStore.open(url, gateway).record.check_same(record, url)
    except IndexNotFoundError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class TableFacts:
    """How an index's table is made, in what it is not as `create` makes it, and its regions."""

    table: Table
    deviations: tuple[str, ...]
    regions: tuple[Region, ...]


def describe(store: HBaseStore) -> TableFacts:
    """Return facts about the table of an index."""
    address = Address.parse(store.url)
    with Admin(address) as admin:
        table = admin.table() or Table((), {}, is_told=False)
    steps = compared(address, table, TableSettings())
    deviations = tuple(step.text for step in steps if step.sign != "=")
    return TableFacts(table, deviations, tuple(store.gateway.regions()))


def drop(url: str, is_sure: Callable[[str], bool]) -> bool:
    """Delete an index, a damaged one too, and its table; return whether that was done.

    Args:
        url: of the index.
        is_sure: says so, given the line for hbase shell that keeps a snapshot.
    """
    address = Address.parse(url)
    with Admin(address) as admin:
        _check_index(admin, address)
        is_dropped = is_sure(snapshot_line(address, f"{address.table}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"))
        if is_dropped:
            admin.delete_table()
    return is_dropped


def _check_index(admin: Admin, address: Address) -> None:
    """Raise where a table is no index: neither set as no other is, nor with a part of a record, to read if enabled."""
    name, table = address.full_table.decode(), admin.table()
    if table is None:
        raise IndexNotFoundError(f"no index at {address}: there is no such table")
    found = {family.name for family in table.families}
    if found != {family.name for family in families(TableSettings())}:
        raise HsimhashError(
            f"table {name} is no index: its column families are {', '.join(sorted(found))}; to drop it, use hbase shell"
        )
    if table.is_told and all(step.sign == "=" for step in compared(address, table, TableSettings())):
        return
    admin.check_enabled()
    with closing(open_gateway(address)) as gateway:
        if not has_record(gateway):
            raise HsimhashError(
                f"table {name} has the column families of an index, but no index's record; if it shall go, in hbase "
                f"shell: {'; '.join(drop_lines(address))}"
            )
