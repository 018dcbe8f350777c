# ruff: noqa: N802  (the methods have Thrift's names)
"""What operators do with a table: plan, create, describe and drop it, on a stand-in for a Thrift2 gateway."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hsimhash.errors import CorruptionError, HsimhashError, IndexExistsError, IndexNotFoundError, StoreUnavailableError
from hsimhash.layout import Layout
from hsimhash.store import Record, open_store
from hsimhash.store.base import IDENTITY_PART
from hsimhash.store.hbase import operations
from hsimhash.store.hbase.gateway.connection import THRIFT2, Connection
from hsimhash.store.hbase.gateway.table import TABLE_ATTRIBUTES, TableSettings, families
from hsimhash.store.hbase.store import HBaseStore, record_ttl
from tests.support.effort import thorough
from tests.support.gateway_stand_in import StandIn, stand_in
from tests.support.half_states import calls_of, killed_at_each_step

RECORD = Record(Layout.named("10"), {"name": "any"})
WANTED = TableSettings((b"\x40", b"\x80"), 86_400, "GZ")
DENIED = "org.apache.hadoop.hbase.security.AccessDeniedException: Insufficient permissions"


class TableStandIn(StandIn):
    """A gateway to a cluster with at most one table, whose regions have two replicas each."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Any = None  # the descriptor that createTable received
        self.cells, self.replicas = {}, 2
        self.is_disabled = self.is_hidden = self.is_slow = False
        self.thinks_s = 0.0  # before it says whether the table is disabled

    def tableExists(self, arguments: Any) -> bool:
        return self.made is not None

    def isTableDisabled(self, arguments: Any) -> bool:
        threading.Event().wait(self.thinks_s)
        return self.is_disabled

    def listNamespaceDescriptors(self, arguments: Any) -> list[Any]:
        return [THRIFT2.TNamespaceDescriptor(name=name) for name in ("default", "hbase")]

    def getTableDescriptor(self, arguments: Any) -> Any:
        if self.is_hidden:
            raise THRIFT2.TIOError(message=DENIED, canRetry=False)
        return self.made

    def createTable(self, arguments: Any) -> None:
        self.made, self.splits = arguments.desc, arguments.splitKeys or []
        if self.is_slow:
            raise THRIFT2.TIOError(message="org.apache.hadoop.hbase.TableExistsException: t", canRetry=False)

    def disableTable(self, arguments: Any) -> None:
        if self.is_disabled:
            raise THRIFT2.TIOError(message="org.apache.hadoop.hbase.TableNotEnabledException: t", canRetry=False)
        self.is_disabled = True

    def deleteTable(self, arguments: Any) -> None:
        self.made, self.cells, self.is_disabled = None, {}, False

    def putMultiple(self, arguments: Any) -> None:
        self.cells |= {column.qualifier: column.value for put in arguments.tputs for column in put.columnValues}

    def checkAndPut(self, arguments: Any) -> bool:
        if self.cells.get(arguments.qualifier) != arguments.value:
            return False
        self.putMultiple(SimpleNamespace(tputs=[arguments.tput]))
        return True


@pytest.fixture
def gateway() -> Iterator[TableStandIn]:
    with stand_in(TableStandIn) as one:
        yield one


def url(gateway: StandIn) -> str:
    return f"hbase://127.0.0.1:{gateway.port}/t?timeout=30s"


def test_a_plan_changes_nothing_and_is_what_is_done(gateway: TableStandIn) -> None:
    planned = operations.plan(url(gateway), RECORD, WANTED)
    assert str(planned.steps[0]) == "+ create table default:t: 3 regions"
    assert str(planned.steps[-1]) == "+ create record: layout 10, profile any"
    assert (gateway.made, gateway.cells, planned.notes) == (None, {}, ())
    assert operations.create(url(gateway), RECORD, WANTED) == planned


def test_a_table_is_made_as_asked_over_one_connection(gateway: TableStandIn) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    assert gateway.accepted == 1
    assert gateway.splits == list(WANTED.splits)
    found = {family.name.decode(): family.attributes for family in gateway.made.columns}
    for family in families(WANTED):
        assert found[family.name] == {name.encode(): value.encode() for name, value in family.attributes.items()}
    assert gateway.made.attributes == {name.encode(): value.encode() for name, value in TABLE_ATTRIBUTES.items()}
    with open_store(url(gateway)) as store:
        assert isinstance(store, HBaseStore)
        assert (store.record, store.times.ttl_s) == (RECORD, 86_400)


def test_where_the_same_index_is_nothing_happens(gateway: TableStandIn) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    gateway.methods.clear()
    again = operations.create(url(gateway), RECORD, WANTED)
    assert {step.sign for step in again.steps} == {"="}
    assert again.regions == 3  # each region counts once, however many replicas it has
    assert not {"createTable", "checkAndPut", "putMultiple"} & set(gateway.methods)
    assert operations.plan(url(gateway), RECORD, WANTED) == again
    with pytest.raises(IndexExistsError, match="an index already exists"):
        operations.create_at(url(gateway), RECORD)


def test_a_longer_ttl_comes_with_a_warning_about_documents_that_have_expired(gateway: TableStandIn) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    for ttl_s, is_longer in ((86_400, False), (3_600, False), (90_000, True)):
        notes = operations.plan(url(gateway), RECORD, replace(WANTED, ttl_s=ttl_s)).notes
        assert any("documents that have expired come back" in note for note in notes) == is_longer, ttl_s


@pytest.mark.parametrize(("stored", "old"), [(b"1d", "unlimited"), (b"5400", "90min")])
def test_create_writes_the_ttl_of_the_table_into_the_record(gateway: TableStandIn, stored: bytes, old: str) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    gateway.cells[b"ttl"] = stored
    given = url(gateway), RECORD, WANTED
    if stored.isdigit():
        assert "TTL in the record (90min) differs from the table's (1d)" in operations.plan(*given).notes[0]
    assert operations.create(*given).notes == ("wrote the table's TTL into the record: 1d, instead of " + old,)
    assert gateway.cells[b"ttl"] == b"86400"
    assert operations.create(url(gateway), RECORD, WANTED).notes == ()


def test_an_index_that_was_made_otherwise_is_refused(gateway: TableStandIn) -> None:
    operations.create_at(url(gateway), RECORD).close()
    assert len(gateway.splits) == 15
    other = Record(Layout.named("4"), {"name": "any"})
    for call in (operations.plan, operations.create):
        with pytest.raises(IndexExistsError, match="created with different settings"):
            call(url(gateway), other, TableSettings())


def test_a_table_that_another_process_makes_meanwhile_becomes_the_index(gateway: TableStandIn) -> None:
    gateway.is_slow = True
    done = operations.create(url(gateway), RECORD, WANTED)
    assert (done.steps[-1].sign, done.notes) == ("+", ())
    assert gateway.cells[b"ttl"] == b"86400"


def test_a_table_of_others_is_refused(gateway: TableStandIn) -> None:
    gateway.made = THRIFT2.TTableDescriptor(columns=[THRIFT2.TColumnFamilyDescriptor(name=b"theirs")])
    for call in (operations.plan, operations.create, operations.create_at):
        with pytest.raises(IndexExistsError, match="lacks the column families d, f, i"):
            call(url(gateway), RECORD, WANTED)
    with pytest.raises(HsimhashError, match="its column families are theirs"):
        operations.drop_at(url(gateway), lambda _: True)
    assert gateway.made is not None


def test_who_may_not_see_how_a_table_is_made_makes_an_index_of_it(
    gateway: TableStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    gateway.cells, gateway.is_hidden = {}, True
    operations.create_at(url(gateway), RECORD).close()
    assert "cannot read the table's TTL" in caplog.text
    assert gateway.cells.pop(IDENTITY_PART)
    assert gateway.cells == RECORD.to_parts()


def test_deviations_are_described(gateway: TableStandIn) -> None:
    with operations.create_at(url(gateway), RECORD, WANTED) as store:
        assert store.table().deviations == ()
        record_ttl(store.gateway, 50)
        (deviation,) = store.table().deviations
        assert deviation.startswith("TTL is 1d in the table, but 50s in the record")
        record_ttl(store.gateway, 86_400)
        gateway.made.attributes = {}
        found = store.table()
    assert [region.start for region in found.regions] == [b"", *WANTED.splits]
    assert all("split_restriction" in deviation for deviation in found.deviations)
    assert len(found.deviations) == 2


@thorough
def test_a_disabled_table_is_named_where_the_record_took_all_of_the_deadline(gateway: TableStandIn) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    gateway.is_disabled, gateway.thinks_s = True, 0.3
    gateway.hung |= {"get", "getMultiple"}  # HBase itself would retry for minutes
    with pytest.raises(StoreUnavailableError, match="is disabled; enable it"):
        operations.open_at(url(gateway).replace("timeout=30s", "timeout=1s&deadline=1s"))


@pytest.mark.parametrize("is_disabled", [False, True])
def test_an_index_is_dropped_by_who_is_sure(gateway: TableStandIn, is_disabled: bool) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    gateway.is_disabled = is_disabled
    assert not operations.drop_at(url(gateway), lambda line: not line.startswith("snapshot 'default:t', 't-"))
    assert gateway.made is not None
    assert operations.drop_at(url(gateway), lambda _: True)
    assert gateway.made is None
    with pytest.raises(IndexNotFoundError, match="no such table"):
        operations.drop_at(url(gateway), lambda _: True)


def test_a_table_without_a_record_that_is_not_set_as_an_index_is_not_dropped(gateway: TableStandIn) -> None:
    operations.create(url(gateway), RECORD, WANTED)
    gateway.made.attributes = {}
    gateway.cells = {}
    with pytest.raises(HsimhashError, match="does not have an index record; to delete the table"):
        operations.drop_at(url(gateway), lambda _: True)
    gateway.cells = {b"layout": b"damaged"}
    assert operations.drop_at(url(gateway), lambda _: True)


OTHER = Record(Layout.named("4"), {"name": "any"})
STEPS = calls_of(Connection, "receive")  # each step is a call and its reply


def test_create_table_ends_a_creation_that_was_killed_at_any_step_or_names_drop_table(gateway: TableStandIn) -> None:
    place = url(gateway)
    for _ in killed_at_each_step(lambda: None, lambda: operations.create(place, RECORD, WANTED), STEPS):
        if b"layout" in gateway.cells:
            with pytest.raises(IndexExistsError, match=r"'hsimhash drop-table'|requested") as refused:
                operations.create(place, OTHER, WANTED)
            if "requested" not in str(refused.value):
                with pytest.raises(CorruptionError, match="the same 'hsimhash create-table' command again"):
                    open_store(place)
        elif gateway.made is not None:
            with pytest.raises(HsimhashError, match=r"'hsimhash create-table'|HSimIndex\.create"):
                open_store(place)
        operations.create(place, RECORD, WANTED)
        with open_store(place) as store:
            assert store.record == RECORD
        assert operations.drop_at(place, lambda _: True)


def test_drop_table_ends_a_drop_that_was_killed_at_any_step(gateway: TableStandIn) -> None:
    place, seen = url(gateway), set()

    def prepare() -> None:
        if gateway.made is None:
            operations.create(place, RECORD, WANTED)

    for _ in killed_at_each_step(prepare, lambda: operations.drop_at(place, lambda _: True), STEPS):
        seen.add((gateway.made is not None, gateway.is_disabled))
        if gateway.is_disabled:
            with pytest.raises(StoreUnavailableError, match="'hsimhash drop-table' again"):
                operations.create(place, RECORD, WANTED)
        if gateway.made is not None:
            assert operations.drop_at(place, lambda _: True)
        assert gateway.made is None
    assert seen == {(True, False), (True, True), (False, False)}
