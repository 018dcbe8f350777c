"""What a gateway does to cells: on the model here, and in `integration/` on a real HBase, which it must match."""

from __future__ import annotations

import itertools

import pytest

from hsimhash.rowkey import documents_rowkey
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Cell, Change, Deletion, Gateway, Put
from hsimhash.store.hbase.rows.cells import TABLE_START, TABLE_STOP
from tests.support.hbase_model import Cluster, ModelGateway

AHEAD_MS = 60_000

_numbers = itertools.count(1)


@pytest.fixture
def gateway() -> Gateway:
    """A gateway to a table, which several tests may share."""
    return ModelGateway(Cluster())


@pytest.fixture
def row() -> bytes:
    """A row that no other test uses."""
    return documents_rowkey(next(_numbers) << 32)


def put(gateway: Gateway, row: bytes, value: bytes, qualifier: bytes = b"q") -> Cell:
    gateway.put([Put(row, DOCUMENT_FAMILY, qualifier, value)])
    return get(gateway, row, qualifier)


def get(gateway: Gateway, row: bytes, qualifier: bytes = b"q") -> Cell:
    cell = gateway.get([(row, qualifier)], DOCUMENT_FAMILY)[0]
    assert cell is not None
    return cell


def change(gateway: Gateway, row: bytes, expected: bytes | None, value: bytes) -> bool | None:
    return gateway.change([Change(row, DOCUMENT_FAMILY, b"q", expected, value)])[0]


def delete(gateway: Gateway, row: bytes, timestamp: int) -> None:
    gateway.delete([Deletion(row, DOCUMENT_FAMILY, b"q", timestamp)])


def test_the_latest_put_is_seen(gateway: Gateway, row: bytes) -> None:
    first, second = put(gateway, row, b"1"), put(gateway, row, b"2")
    assert second.value == b"2"
    assert second.timestamp >= first.timestamp


def test_a_delete_hides_all_versions_up_to_its_timestamp(gateway: Gateway, row: bytes) -> None:
    put(gateway, row, b"1")
    delete(gateway, row, put(gateway, row, b"2").timestamp)
    assert gateway.get([(row, b"q")], DOCUMENT_FAMILY) == [None]
    assert gateway.cells(row, DOCUMENT_FAMILY, limit=9) == []


def test_a_delete_leaves_what_was_put_after_its_timestamp(gateway: Gateway, row: bytes) -> None:
    found = put(gateway, row, b"1")
    delete(gateway, row, found.timestamp - 1)
    assert get(gateway, row) == found


def test_a_delete_ahead_of_the_clock_hides_a_later_put(gateway: Gateway, row: bytes) -> None:
    delete(gateway, row, put(gateway, row, b"1").timestamp + AHEAD_MS)
    gateway.put([Put(row, DOCUMENT_FAMILY, b"q", b"2")])
    assert gateway.get([(row, b"q")], DOCUMENT_FAMILY) == [None]


def test_a_put_with_an_earlier_timestamp_stays_under_what_was_put_since(gateway: Gateway, row: bytes) -> None:
    late = Put(row, DOCUMENT_FAMILY, b"q", b"1", 1_000)
    gateway.put([late, Put(row, DOCUMENT_FAMILY, b"r", b"3", 2_000), Put(row, DOCUMENT_FAMILY, b"s", b"4")])
    assert get(gateway, row) == Cell(row, b"q", b"1", 1_000)
    assert get(gateway, row, b"r").timestamp == 2_000
    assert get(gateway, row, b"s").timestamp > 2_000
    assert change(gateway, row, b"1", b"2")
    changed = get(gateway, row)
    assert changed.timestamp > 1_000
    gateway.put([late])
    assert get(gateway, row) == changed
    delete(gateway, row, changed.timestamp)
    gateway.put([late])
    assert gateway.get([(row, b"q")], DOCUMENT_FAMILY) == [None]


def test_none_and_empty_both_match_absent_and_empty(gateway: Gateway) -> None:
    for expected, before in itertools.product([None, b""], [None, b""]):
        row = documents_rowkey(next(_numbers) << 32)
        if before is not None:
            put(gateway, row, before)
        assert change(gateway, row, expected, b"new")
        assert get(gateway, row).value == b"new"
        assert not change(gateway, row, expected, b"newer")


def test_a_change_compares_the_whole_value(gateway: Gateway, row: bytes) -> None:
    put(gateway, row, b"value")
    assert not change(gateway, row, b"valu", b"1")
    assert not change(gateway, row, b"value2", b"1")
    assert not change(gateway, row, None, b"1")
    assert get(gateway, row).value == b"value"
    assert change(gateway, row, b"value", b"1")
    assert get(gateway, row).value == b"1"


def test_each_change_of_a_call_has_its_outcome(gateway: Gateway) -> None:
    rows = [documents_rowkey(next(_numbers) << 32) for _ in range(3)]
    changes = [
        Change(row, DOCUMENT_FAMILY, b"q", expected, b"1")
        for row, expected in zip(rows, (None, b"0", b""), strict=True)
    ]
    assert gateway.change(changes) == [True, False, True]
    assert gateway.change([]) == []


def test_a_change_finds_nothing_where_the_cell_was_deleted(gateway: Gateway, row: bytes) -> None:
    delete(gateway, row, put(gateway, row, b"1").timestamp)
    assert not change(gateway, row, b"1", b"2")
    assert change(gateway, row, None, b"2")


def test_rows_and_cells_come_in_order_and_in_pages(gateway: Gateway) -> None:
    rows = [documents_rowkey(next(_numbers) << 32) for _ in range(3)]
    names = [b"a", b"a\x00", b"b", b"\xff"]
    gateway.put([Put(row, DOCUMENT_FAMILY, name, b"") for row in reversed(rows) for name in reversed(names)])
    stop = rows[-1] + b"\x00"
    found = gateway.rows(rows[0], stop, DOCUMENT_FAMILY, limit=9, columns=2)
    assert [[(cell.row, cell.qualifier) for cell in cells] for cells in found] == [
        [(row, name) for name in names[:2]] for row in rows
    ]
    assert [cells[0].row for cells in gateway.rows(rows[0], stop, DOCUMENT_FAMILY, limit=2)] == rows[:2]
    assert [cells[0].row for cells in gateway.rows(rows[0] + b"\x00", stop, DOCUMENT_FAMILY, limit=2)] == rows[1:]
    for place in range(len(names)):
        after = gateway.cells(rows[0], DOCUMENT_FAMILY, after=names[place], limit=2)
        assert [cell.qualifier for cell in after] == names[place + 1 : place + 3]
    first = gateway.cells_of([rows[2], b"none", rows[0]], DOCUMENT_FAMILY, limit=3)
    assert [[cell.qualifier for cell in cells] for cells in first] == [names[:3], [], names[:3]]


def test_families_are_apart(gateway: Gateway, row: bytes) -> None:
    document = put(gateway, row, b"1")
    gateway.put([Put(row, DRAWER_FAMILY, b"", b"")])
    (drawer,) = gateway.cells(row, DRAWER_FAMILY, limit=9)
    assert drawer == Cell(row, b"", b"", drawer.timestamp)
    assert gateway.scan([(row, row + b"\x00")]).tobytes() == row
    gateway.delete([Deletion(row, DRAWER_FAMILY, b"", drawer.timestamp)])
    assert gateway.scan([(row, row + b"\x00")]).size == 0
    assert gateway.cells(row, DOCUMENT_FAMILY, limit=9) == [document]


def test_the_whole_table_lies_between_its_start_and_its_stop(gateway: Gateway) -> None:
    edges = [bytes(13), b"\xff" * 13]
    gateway.put([Put(edge, DOCUMENT_FAMILY, b"q", b"") for edge in edges])
    found = [cells[0].row for cells in gateway.rows(TABLE_START, TABLE_STOP, DOCUMENT_FAMILY, limit=1_000)]
    assert [found[0], found[-1]] == edges


class TestTheModelAlone:
    """What tests cannot make a real cluster do at will, such as clocks that go wrong."""

    @pytest.fixture
    def cluster(self, gateway: ModelGateway) -> Cluster:
        return gateway.cluster

    def test_a_put_of_an_older_clock_stays_under_what_was_there_and_a_change_does_not(
        self, gateway: Gateway, cluster: Cluster, row: bytes
    ) -> None:
        first = put(gateway, row, b"1")
        cluster.drifts = [-AHEAD_MS] * len(cluster.drifts)
        assert put(gateway, row, b"2") == first
        assert change(gateway, row, b"1", b"2")
        assert get(gateway, row) == first._replace(value=b"2")

    def test_a_compaction_drops_tombstones_and_older_versions(
        self, gateway: Gateway, cluster: Cluster, row: bytes
    ) -> None:
        put(gateway, row, b"1")
        delete(gateway, row, cluster.now + AHEAD_MS)
        cluster.compact()
        assert put(gateway, row, b"2").value == b"2"

    def test_deleting_one_version_brings_the_older_one_back(
        self, gateway: Gateway, cluster: Cluster, row: bytes
    ) -> None:
        put(gateway, row, b"1")
        second = put(gateway, row, b"2")
        cluster.delete_one_version(Deletion(row, DOCUMENT_FAMILY, b"q", second.timestamp))
        assert get(gateway, row).value == b"1"

    def test_what_is_due_happens_at_its_moment(self, cluster: Cluster) -> None:
        seen: list[int] = []
        start = cluster.now
        for due in (5, 3, 20):
            cluster.later(start + due, lambda: seen.append(cluster.now - start))
        cluster.advance(10)
        assert (seen, cluster.now - start) == ([3, 5], 10)
