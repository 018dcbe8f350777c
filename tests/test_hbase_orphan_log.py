"""The log of orphans, on the model of a well-behaved cluster: what writes log, and what `collect` does with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash import HSimIndex
from hsimhash.errors import HsimhashError, StoreUnavailableError
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signature, as_signature, as_signatures
from hsimhash.layout import Layout
from hsimhash.rowkey import ORPHANS_FLAG, RECORD_ROWKEY, filed_rowkeys, orphans_rowkey
from hsimhash.store import CollectReport
from hsimhash.store.base import Record
from hsimhash.store.conformance.random_calls import packed_key
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, RECORD_FAMILY, Cell, Deletion, Having, Put
from hsimhash.store.hbase.rows.cells import (
    HOUR_MS,
    TABLE_START,
    TABLE_STOP,
    WORKED_OFF,
    Orphan,
    listing_key,
    listing_put,
    register_key,
    row_flag,
)
from hsimhash.store.hbase.rows.protocol import Times, begin_load, end_load
from hsimhash.store.hbase.store import HBaseStore
from tests.support.command_line import make_index, run
from tests.support.effort import thorough
from tests.support.hbase_model import DAY_MS, MINUTE_MS, Cluster, ModelGateway

HOUR = 61 * MINUTE_MS
RECORD = Record(Layout.named("4"), {"name": "test-2", "sketch": {}, "key": {}})
OF_PARTS = Record(RECORD.layout, {**RECORD.profile, "keying": "in-parts"})
DRAWERS = len(RECORD.layout.drawers)
# As whole keys these differ; as keys in parts they share one part.
ONE, OTHER = Signature(5, 6, packed_key([1, 2, 3, 4, 5])), Signature(7, 6, packed_key([2, 3, 4, 6, 7]))


class CountingGateway(ModelGateway):
    """Counts the cells and rows that are requested or returned, and the calls that write."""

    reads = 0
    puts = 0

    def rows(
        self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int = 1, having: Having | None = None
    ) -> list[list[Cell]]:
        found = super().rows(start, stop, family, limit=limit, columns=columns, having=having)
        self.reads += 1 + len(found)
        return found

    def cells(self, row: bytes, family: bytes, *, after: bytes | None = None, limit: int) -> list[Cell]:
        found = super().cells(row, family, after=after, limit=limit)
        self.reads += 1 + len(found)
        return found

    def cells_of(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell]]:
        self.reads += len(rows)
        return super().cells_of(rows, family, limit=limit)

    def get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | None]:
        self.reads += len(keys)
        return super().get(keys, family)

    def put(self, puts: Sequence[Put], **given: object) -> None:
        self.puts += bool(puts)
        super().put(puts, **given)  # type: ignore[arg-type]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def gateway(cluster: Cluster) -> CountingGateway:
    return CountingGateway(cluster)


@pytest.fixture(params=[RECORD, OF_PARTS], ids=["format 2", "format 3"])
def store(cluster: Cluster, gateway: CountingGateway, request: pytest.FixtureRequest) -> HBaseStore:
    times = Times(wall_clock=lambda: cluster.now / 1_000, clock=lambda: cluster.now / 1_000)
    HBaseStore.create("hbase://model/pages", gateway, request.param)
    return HBaseStore("hbase://model/pages", gateway, request.param, ask_times=lambda: times)


def put(store: HBaseStore, *documents: tuple[str, Signature | int]) -> int:
    ids = [doc_id.encode() for doc_id, _ in documents]
    signatures = as_signatures([as_signature(one) for _, one in documents])
    return store.insert(ids, signatures, np.full(len(ids), 7, np.int64))


def log(store: HBaseStore) -> list[Orphan]:
    rows = store.gateway.rows(TABLE_START, TABLE_STOP, DOCUMENT_FAMILY, limit=10_000, columns=10_000)
    found = (Orphan.of(cell) for cells in rows for cell in cells)
    return [orphan for orphan in found if orphan is not None]


def left(store: HBaseStore, *documents: tuple[str, Signature | int]) -> set[tuple[bytes, bytes]]:
    """Return the rows and qualifiers that these documents do not need; check that all those they need are there."""
    signatures = {doc_id.encode(): as_signature(one) for doc_id, one in documents}
    needed = {(row.tobytes(), b"") for row in filed_rowkeys(RECORD.layout, signatures.values(), store.record.keying)}
    for doc_id, signature in signatures.items():
        needed |= {listing_key(signature.fingerprint, doc_id), register_key(doc_id)}
    found = {
        (cell.row, cell.qualifier)
        for family in (DOCUMENT_FAMILY, DRAWER_FAMILY)
        for cells in store.gateway.rows(TABLE_START, TABLE_STOP, family, limit=10_000, columns=10_000)
        for cell in cells
    }
    assert needed <= found
    return found - needed


# Entries.

doc_ids = st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1).map(str.encode)
keys = st.one_of(st.just(0), st.integers(1, 2**64 - 1))


@given(st.integers(0, 2**32 - 1), doc_ids, st.integers(0, 2**64 - 1), keys, st.booleans(), st.sampled_from(Keying))
def test_an_entry_reads_back_but_for_the_sketch_and_what_no_row_has_of_the_key(
    hour: int, doc_id: bytes, fingerprint: int, key: int, is_register: bool, keying: Keying
) -> None:
    signature = Signature(fingerprint, 9, key)
    row, _, qualifier, _, _ = Orphan(hour, doc_id, signature, is_register).put(keying)
    read = Orphan.of(Cell(row, qualifier, b"", 1))
    assert read is not None
    assert (read.hour, read.doc_id, read.signature.fingerprint, read.is_register) == (
        hour,
        doc_id,
        fingerprint,
        is_register,
    )
    if not is_register:
        rows, needed = (filed_rowkeys(RECORD.layout, [one], keying).tolist() for one in (read.signature, signature))
        assert rows == needed


def test_the_bytes_of_an_entry_are_what_the_format_says() -> None:
    row = orphans_rowkey(472_222, 0x0123456789ABCDEF)
    assert row.hex() == "0007349efc0123456789abcdef"
    signature = Signature(0x0123456789ABCDEF, 1, 0x1122334455667788)
    whole, parts = (Orphan(472_222, b"a", signature).put(keying) for keying in Keying)
    assert whole[:4] == (row, b"d", b"a\x00\x11\x22\x33\x44", b"")
    assert parts[:4] == (row, b"d", b"a\x00\x11\x22\x33\x44\x55\x66\x77\x88", b"")
    for keying in Keying:
        assert Orphan(472_222, b"a", Signature(signature.fingerprint, 1)).put(keying).qualifier == b"a"
        assert Orphan(472_222, b"a", signature, is_register=True).put(keying).qualifier == b"a\x00"


@pytest.mark.parametrize("qualifier", [b"", b"\x00", b"\xff", b"a\x00\x01", b"a\x00" + bytes(5)], ids=repr)
def test_cells_of_the_log_that_cannot_be_are_problems_and_deleted(store: HBaseStore, qualifier: bytes) -> None:
    store.gateway.put([Put(orphans_rowkey(1, 5), DOCUMENT_FAMILY, qualifier, b"")])
    assert store.check().problems == 1
    assert store.check(repair=True).repaired == 1
    assert left(store) == set()


# What is logged.


def test_moves_and_removals_are_logged_and_nothing_else(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("a", ONE), ("b", ONE), ("c", 9), ("d", 10), ("e", 11))
    put(store, ("a", ONE), ("e", Signature(11, 3)))  # the same signature, and a different sketch
    put(store, ("e", Signature(11, 3, 1 << 32)))  # its first key
    assert log(store) == []
    put(store, ("a", OTHER), ("b", ONE._replace(key=OTHER.key)), ("c", 12), ("new", 13))
    store.remove([b"d", b"unknown"])
    hour = cluster.now // HOUR_MS
    prefixes_of = store.record.key_prefixes
    logged = [(one.hour, one.doc_id, one.signature.fingerprint, prefixes_of(one.signature.key)) for one in log(store)]
    assert sorted(logged) == [
        (hour, b"a", 5, prefixes_of(ONE.key)),
        (hour, b"b", 5, prefixes_of(ONE.key)),
        (hour, b"c", 9, []),
        (hour, b"d", 10, []),
    ]


def test_a_move_takes_no_call_more_and_a_removal_one(store: HBaseStore, gateway: CountingGateway) -> None:
    gateway.puts = 0
    put(store, ("a", 1), ("b", 2))
    added = gateway.puts
    put(store, ("a", 3), ("b", 4))
    assert gateway.puts == 2 * added
    store.remove([b"a", b"b"])
    assert gateway.puts == 2 * added + 1


# What is collected.


def test_what_moves_and_removals_leave_is_collected_once_it_is_old(cluster: Cluster, store: HBaseStore) -> None:
    stays = [("a", OTHER), ("b", ONE._replace(key=OTHER.key)), ("c", Signature(12)), ("f", Signature(9))]
    put(store, ("a", ONE), ("b", ONE), ("c", 9), ("d", 10), ("f", 9))
    put(store, *stays)
    store.remove([b"d"])
    before = left(store, *stays)
    assert store.collect() == CollectReport(0, 0, 0)  # the log of the current hour is not even read
    assert left(store, *stays) == before
    cluster.advance(HOUR)
    of_key = set(store.record.key_prefixes(ONE.key)) - set(store.record.key_prefixes(OTHER.key))
    deleted = 3 + DRAWERS + len(of_key)  # three listings, the drawer rows of 10, the rows of a key
    assert store.collect() == CollectReport(4, deleted, 0)
    ((row, qualifier), register) = sorted(left(store, *stays))  # the removed document's register, and its log entry
    assert (row_flag(row), qualifier) == (ORPHANS_FLAG, b"d\x00")
    assert register == register_key(b"d")
    assert store.collect() == CollectReport(0, 0, 0)
    cluster.advance(DAY_MS)
    assert store.collect() == CollectReport(1, 1, 0)
    assert left(store, *stays) == set()
    assert store.check().leftovers == 0


def test_entries_stay_while_something_is_young(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("a", 5))
    put(store, ("a", 6))
    cluster.advance(HOUR)
    put(store, ("a", 5))
    put(store, ("a", 7))  # both fingerprints get new listings
    assert store.collect().left == 1
    assert len(log(store)) == 3
    cluster.advance(HOUR)
    assert store.collect().left == 0
    assert left(store, ("a", 7)) == set()


def test_a_document_that_came_back_stays(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("a", ONE))
    store.remove([b"a"])
    put(store, ("a", ONE))
    cluster.advance(HOUR)
    assert store.collect() == CollectReport(1, 0, 0)
    assert left(store, ("a", ONE)) == set()


@thorough
@pytest.mark.parametrize("fresh", [0, 1])
def test_a_crowded_fingerprint_is_read_once(
    cluster: Cluster, store: HBaseStore, gateway: CountingGateway, fresh: int
) -> None:
    count = 11_000
    put(store, *((f"{number:06}", ONE) for number in range(count)))
    put(store, *((f"stays {number}", ONE) for number in range(fresh)))
    store.remove([b"%06d" % number for number in range(count)])
    cluster.advance(HOUR)
    gateway.reads = 0
    deleted = count + (DRAWERS + len(store.record.key_prefixes(ONE.key))) * (not fresh)
    assert store.collect() == CollectReport(count, deleted, 0)
    assert gateway.reads < 5 * count
    assert store.check().leftovers == 0


def test_a_key_that_one_of_a_crowd_has_costs_no_look_at_the_others(
    cluster: Cluster, store: HBaseStore, gateway: CountingGateway
) -> None:
    put(store, *((f"{number:06}", ONE) for number in range(5_000)))
    store.remove([b"000007"])
    cluster.advance(HOUR)
    gateway.reads = 0
    assert store.collect() == CollectReport(1, 1, 0)
    assert gateway.reads < 100


def test_reads_are_in_proportion_to_what_was_removed_and_not_to_the_table(
    cluster: Cluster, store: HBaseStore, gateway: CountingGateway
) -> None:
    values = np.random.default_rng(1).integers(0, 2**64, 6_000, np.uint64).tolist()
    reads = []
    for start in (0, 1_000):  # in a table of 1,000 documents, then of 6,000
        put(store, *((str(number), values[number]) for number in range(start, 6 * start or 1_000)))
        store.remove([str(number).encode() for number in range(start, start + 500)])
        cluster.advance(HOUR)
        gateway.reads = 0
        assert store.collect() == CollectReport(500, 500 * (1 + DRAWERS), 0)
        reads.append(gateway.reads)
    assert reads[1] == pytest.approx(reads[0], rel=0.02)
    assert reads[1] < 500 * (2 * 2 + 3 + DRAWERS)


def test_a_load_under_way_holds_back_what_is_as_young(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("a", 5), ("b", 6))
    put(store, ("a", 7))
    cluster.advance(2 * HOUR)
    begin_load(store.gateway, "one")
    put(store, ("b", 8))
    cluster.advance(3 * HOUR)
    assert store.collect().left == 1
    assert [orphan.doc_id for orphan in log(store)] == [b"b"]
    end_load(store.gateway, "one")
    assert store.collect().entries == 1
    assert left(store, ("a", 7), ("b", 8)) == set()


@pytest.mark.parametrize("wrong_h", [-20, 20])
def test_a_writer_whose_clock_is_wrong_by_hours_leaves_nothing(
    cluster: Cluster, store: HBaseStore, wrong_h: int
) -> None:
    right = store.times
    put(store, ("a", 5), ("b", 6))
    for number in range(3):
        store.times = replace(right, wall_clock=lambda: cluster.now / 1_000 + 3_600 * wrong_h)
        put(store, ("a", 10 + number))
        store.times = right
        put(store, ("b", 20 + number))
        cluster.advance(HOUR)
        store.collect()
    cluster.advance(DAY_MS)
    store.collect()
    assert left(store, ("a", 12), ("b", 22)) == set()


def test_a_repair_works_off_the_log_wherever_its_rows_are(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("a", 5), ("b", 6))
    for hour in (0, 3, 2**32 - 1):
        store.gateway.put([Orphan(hour, b"x", Signature(hour)).put(Keying.WHOLE)])
    put(store, ("a", 7))
    assert store.check().is_sound
    assert store.check(repair=True).is_sound
    assert len(log(store)) == 4
    cluster.advance(HOUR)
    assert store.check(repair=True).repaired == 1 + DRAWERS
    assert left(store, ("a", 7), ("b", 6)) == set()


def test_the_log_is_neither_counted_nor_sampled_nor_exported(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("a", 5))
    put(store, ("a", 7))
    assert store.count() == 1
    assert [one.doc_id for page in store.walk() for one in page] == ["a"]
    assert [one.doc_id for page in store.registered(0, 1) for one in page] == ["a"]
    assert store.check_sample(100, 1).is_sound
    assert store.check().is_sound


class DyingGateway(ModelGateway):
    """Fails at one of its calls and at all later ones."""

    calls_left = 10**9

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise StoreUnavailableError("killed")

    def rows(self, *args: object, **given: object) -> list[list[Cell]]:
        self._count()
        return super().rows(*args, **given)  # type: ignore[arg-type]

    def get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | None]:
        self._count()
        return super().get(keys, family)

    def put(self, puts: Sequence[Put], **given: object) -> None:
        self._count()
        super().put(puts, **given)  # type: ignore[arg-type]

    def delete(self, deletions: Sequence[Deletion]) -> None:
        self._count()
        super().delete(deletions)


def test_a_collection_that_is_killed_anywhere_is_finished_by_the_next() -> None:
    for calls in range(100):
        cluster = Cluster()
        gateway = DyingGateway(cluster)
        HBaseStore.create("hbase://model/pages", gateway, RECORD)
        times = Times(wall_clock=lambda cluster=cluster: cluster.now / 1_000)  # type: ignore[misc]
        store = HBaseStore("hbase://model/pages", gateway, RECORD, ask_times=lambda times=times: times)  # type: ignore[misc]
        put(store, ("a", ONE), ("b", ONE), ("c", 9), ("d", 10))
        put(store, ("a", OTHER), ("c", 12))
        store.remove([b"d"])
        cluster.advance(DAY_MS)
        gateway.calls_left = calls
        try:
            store.collect()
            is_killed = False
        except StoreUnavailableError:
            is_killed = True
        gateway.calls_left = 10**9
        store.collect()
        assert left(store, ("a", OTHER), ("b", ONE), ("c", 12)) == set()
        if not is_killed:
            assert calls > 10
            return
    raise AssertionError("it never ends")


def test_what_a_failed_add_left_is_for_a_repair(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("a", 5))
    store.gateway.put([listing_put(8, b"never added")])
    cluster.advance(HOUR)
    assert store.collect() == CollectReport(0, 0, 0)
    assert store.check().leftovers == 1


def test_how_far_it_came_is_beside_the_record(cluster: Cluster, store: HBaseStore) -> None:
    store.collect()
    (cell,) = store.gateway.get([(RECORD_ROWKEY, WORKED_OFF)], RECORD_FAMILY)
    assert cell is not None
    assert int(cell.value) == (cluster.now - HOUR_MS) // HOUR_MS


# Other stores, and the command.


def test_an_index_in_memory_has_no_such_log() -> None:
    with (
        HSimIndex.create("memory://orphans") as index,
        pytest.raises(HsimhashError, match="an index on HBase or Redis"),
    ):
        index.collect()


def test_the_command_is_for_hbase(tmp_path: object) -> None:
    url = make_index(tmp_path)  # type: ignore[arg-type]
    result = run("collect", "--store", url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "removing a document also removes its rows, so nothing is left to collect" in result.stderr
