"""The HBase store on the model of a well-behaved cluster: cells, paging, `check`, times, bulk loads."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.errors import CorruptionError, IndexExistsError, StoreUnavailableError
from hsimhash.fingerprint.signature import Signature, Signatures, as_signature, as_signatures
from hsimhash.layout import Layout
from hsimhash.progress import Observer
from hsimhash.rowkey import RECORD_ROWKEY, documents_rowkey, encode, filed_rowkeys
from hsimhash.store.base import RECORD_PARTS, Document, Mark, Record
from hsimhash.store.conformance.random_calls import packed_key
from hsimhash.store.hbase.gateway.base import (
    DOCUMENT_FAMILY,
    DRAWER_FAMILY,
    RECORD_FAMILY,
    Cell,
    Change,
    Deletion,
    Put,
    always,
)
from hsimhash.store.hbase.rows import view
from hsimhash.store.hbase.rows.cells import (
    COLLECTED,
    TABLE_START,
    TABLE_STOP,
    Register,
    listing_key,
    listing_put,
    register_key,
    rows_of_key,
)
from hsimhash.store.hbase.rows.protocol import Times, begin_load, end_load, loads_begun
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.upkeep import audit
from hsimhash.store.reports import CheckReport
from tests.support.effort import tries
from tests.support.hbase_model import DAY_MS, DRIFT_MS, MINUTE_MS, Cluster, ModelGateway

URL = "hbase://model/pages"
RECORD = Record(Layout.named("4"), {"name": "test-1"})
SIGNED = Record(RECORD.layout, {"name": "test-2", "sketch": {}, "key": {}})
OF_PARTS = Record(RECORD.layout, {**SIGNED.profile, "keying": "in-parts"})
KEYS = {  # the last two are filed together
    SIGNED.keying: (0, 1 << 32, 2 << 32, (2 << 32) + 1),
    OF_PARTS.keying: (0, packed_key([1, 2, 3, 4, 5]), packed_key([2, 3, 4, 6, 7]), packed_key([2, 3, 4])),
}
DRAWERS = len(RECORD.layout.drawers)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def store(cluster: Cluster) -> HBaseStore:
    return HBaseStore.create(URL, ModelGateway(cluster), RECORD)


@pytest.fixture(params=[SIGNED, OF_PARTS], ids=["format 2", "format 3"])
def signed(cluster: Cluster, request: pytest.FixtureRequest) -> HBaseStore:
    return HBaseStore.create("hbase://model/signed", ModelGateway(cluster), request.param)


def put(store: HBaseStore, *documents: tuple[str, Signature | int], seen: int = 7) -> int:
    ids = [doc_id.encode() for doc_id, _ in documents]
    signatures = as_signatures([as_signature(one) for _, one in documents])
    return store.insert(ids, signatures, np.full(len(ids), seen, np.int64))


def stored(store: HBaseStore, family: bytes, row: bytes, qualifier: bytes = b"") -> Cell:
    cell = store.gateway.get([(row, qualifier)], family)[0]
    assert cell is not None
    return cell


def register(store: HBaseStore, doc_id: str) -> Cell:
    return stored(store, DOCUMENT_FAMILY, *register_key(doc_id.encode()))


def erase(store: HBaseStore, family: bytes, row: bytes, qualifier: bytes = b"") -> None:
    store.gateway.delete([Deletion(row, family, qualifier, stored(store, family, row, qualifier).timestamp)])


def drawer_rows(value: int) -> list[bytes]:
    return [row.tobytes() for row in encode(RECORD.layout, np.array([value], np.uint64))[0]]


# Cells.

fingerprints = st.integers(0, 2**64 - 1)
signatures = st.builds(Signature, fingerprints, fingerprints, fingerprints)
times = st.integers(0, 2**63 - 1)


@given(st.one_of(st.none(), signatures), times, st.integers(0, 2**32 - 1))
def test_a_register_reads_back(signature: Signature | None, first_seen: int, changes: int) -> None:
    written = Register(signature, first_seen if signature is not None else 0, changes)
    assert Register.from_bytes(written.to_bytes(has_signatures=True)) == written
    plain = written._replace(signature=signature and Signature(signature.fingerprint))
    assert Register.from_bytes(written.to_bytes(has_signatures=False)) == plain


def test_the_bytes_of_a_register_are_what_the_format_says() -> None:
    filed = Register().filed(Signature(0x0123456789ABCDEF), 1_000)
    plain = "0123456789abcdef00000000000003e800000001"
    assert filed.to_bytes(has_signatures=False).hex() == plain
    assert filed.to_bytes(has_signatures=True).hex() == plain + "00" * 16
    assert filed.removed().to_bytes(has_signatures=False).hex() == "00000002"
    assert Register.from_bytes(b"") == Register()
    assert Register.from_bytes(bytes.fromhex(plain)[:16]) == filed._replace(changes=0)
    assert filed._replace(changes=2**32 - 1).removed().to_bytes(has_signatures=True) == bytes(4)
    signed = Register().filed(Signature(0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x1122334455667788), 1_000)
    assert signed.to_bytes(has_signatures=True).hex() == plain + "fedcba98765432101122334455667788"


@pytest.mark.parametrize("length", [1, 3, 5, 15, 17, 19, 21, 35, 37])
def test_a_register_of_any_other_length_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptionError, match=f"{length} bytes instead of"):
        Register.from_bytes(bytes(length))


def test_no_state_of_a_register_comes_back(store: HBaseStore) -> None:
    values = []
    for _ in range(3):
        put(store, ("a", 5))
        values.append(register(store, "a").value)
        store.remove([b"a"])
        values.append(register(store, "a").value)
    assert len(set(values)) == 6


# The record.


def test_a_record_that_was_half_written_is_completed(cluster: Cluster) -> None:
    whole = HBaseStore.create(URL, ModelGateway(cluster), RECORD)
    erase(whole, RECORD_FAMILY, RECORD_ROWKEY, b"format")
    with pytest.raises(CorruptionError, match="lacks format"):
        HBaseStore.open(URL, ModelGateway(cluster))
    other = Record(Layout.named("10"), {"name": "test-1"})
    with pytest.raises(IndexExistsError, match="another index is being created"):
        HBaseStore.create(URL, ModelGateway(cluster), other)
    with HBaseStore.create(URL, ModelGateway(cluster), RECORD):
        assert HBaseStore.open(URL, ModelGateway(cluster)).record == RECORD


def test_an_unreadable_record_is_named(cluster: Cluster, store: HBaseStore) -> None:
    cluster.put(Put(RECORD_ROWKEY, RECORD_FAMILY, b"layout", b"{"))
    with pytest.raises(CorruptionError, match=r"the record of .* cannot be read"):
        HBaseStore.open(URL, ModelGateway(cluster))


def test_the_record_survives_collections(cluster: Cluster, store: HBaseStore) -> None:
    cluster.advance(DAY_MS)
    store.check(repair=True)
    assert HBaseStore.open(URL, ModelGateway(cluster)).record == RECORD


# Documents of a fingerprint, in pages.


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ROWS_AT_ONCE": 2, "FIRST_CELLS": 3, "MORE_CELLS": 5}.items():
        monkeypatch.setattr(view, name, value)
    for name, value in {"PAGE_ROWS": 3, "PAGE_COLUMNS": 2, "PAGE_CELLS": 4}.items():
        monkeypatch.setattr(audit, name, value)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 9, 30])
def test_wide_rows_come_whole_whatever_the_pages(store: HBaseStore, count: int) -> None:
    documents = sorted(Document(f"{number}", value, 7) for number in range(count) for value in [number % 2 << 40])
    put(store, *[(document.doc_id, document.fingerprint) for document in documents])
    store.remove([b"0"])
    kept = [document for document in documents if document.doc_id != "0"]
    by_value = [[document for document in kept if document.fingerprint == value] for value in (0, 1 << 40, 5)]
    assert store.documents([0, 1 << 40, 5]) == by_value
    for limit in range(1, count + 2):
        assert store.documents([0, 1 << 40, 5], limit) == [found[:limit] for found in by_value]
    assert list(itertools.chain.from_iterable(store.walk())) == by_value[0] + by_value[1]
    assert store.count() == len(kept)
    assert store.check().documents == len(kept)


def test_documents_that_moved_come_as_their_registers_have_them_and_do_not_count(store: HBaseStore) -> None:
    put(store, *[(str(number), 5) for number in range(6)])
    put(store, ("0", 4), ("2", 4))
    found = store.documents([5], 2)[0]
    assert found == [Document("0", 4, 7), Document("1", 5, 7), Document("2", 4, 7), Document("3", 5, 7)]


def test_a_few_of_a_million_ids_are_read_without_the_rest(cluster: Cluster) -> None:
    class Counting(ModelGateway):
        read = 0

        def cells_of(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell]]:
            found = super().cells_of(rows, family, limit=limit)
            self.read += sum(map(len, found))
            return found

    gateway = Counting(cluster)
    store = HBaseStore.create(URL, gateway, RECORD)
    put(store, *[(f"{number:06}", 5) for number in range(2_000)])
    gateway.read = 0
    assert len(store.documents([5], 10)[0]) == 10
    assert gateway.read == 10


# Writes.


class Stalling(ModelGateway):
    """Stalls once for eleven minutes: after it has put the first rows, or before it sets or puts a register."""

    def __init__(self, cluster: Cluster, *, is_after_rows: bool) -> None:
        super().__init__(cluster)
        self.is_after_rows = is_after_rows
        self.stall_ms = 11 * MINUTE_MS

    def _stall(self) -> None:
        self.cluster.advance(self.stall_ms)
        self.stall_ms = 0

    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        if is_timely is not always and not self.is_after_rows:
            self._stall()
        super().put(puts, is_timely=is_timely)
        if self.is_after_rows:
            self._stall()

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        if not self.is_after_rows:
            self._stall()
        return super().change(changes, is_timely=is_timely)


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
@pytest.mark.parametrize("is_after_rows", [False, True], ids=["before a register", "after rows"])
@pytest.mark.parametrize("stopped", ["clock", "wall_clock"])  # as when the machine sleeps, or its clock is set back
def test_no_register_is_sent_long_after_its_rows(
    cluster: Cluster, stopped: str, is_after_rows: bool, exclusive: bool
) -> None:
    began, clocks = cluster.now, {"clock": lambda: cluster.now / 1_000, "wall_clock": lambda: cluster.now / 1_000}
    times = Times(put_from=1, **clocks | {stopped: lambda: 0.0})
    HBaseStore.create(URL, ModelGateway(cluster), RECORD)
    gateway = Stalling(cluster, is_after_rows=is_after_rows)
    store = HBaseStore(URL, gateway, RECORD, ask_times=lambda: times, exclusive=exclusive)
    assert put(store, ("a", 5)) == 1
    rows = [(DOCUMENT_FAMILY, *listing_key(5, b"a")), *((DRAWER_FAMILY, row) for row in drawer_rows(5))]
    assert min(stored(store, *row).timestamp for row in rows) > began + 11 * MINUTE_MS


class Deaf(ModelGateway):
    """Gets no reply to a compare-and-set, which takes effect only if `makes` is true."""

    makes = True

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        if self.makes:
            super().change(changes, is_timely=is_timely)
        return [None] * len(changes)


def test_a_change_whose_reply_is_lost_counts_once(cluster: Cluster) -> None:
    store = HBaseStore.create(URL, Deaf(cluster), RECORD)
    assert put(store, ("a", 5), ("b", 5)) == 2
    assert put(store, ("a", 5), ("b", 6)) == 1
    assert store.remove([b"a", b"nobody"]) == 1
    assert store.lookup([b"a", b"b"]) == [None, Document("b", 6, 7)]


def test_a_server_that_never_says_what_it_wrote_is_an_error(cluster: Cluster) -> None:
    HBaseStore.create(URL, ModelGateway(cluster), RECORD)
    gateway = Deaf(cluster)
    gateway.makes = False
    store = HBaseStore.open(URL, gateway)
    with pytest.raises(StoreUnavailableError, match="no reply to any of 2 compare-and-sets"):
        put(store, ("a", 5), ("b", 5))
    with pytest.raises(StoreUnavailableError, match="cannot store the job's progress: gave up after 10 tries"):
        store.insert([], Signatures.of([]), np.empty(0, np.int64), mark=Mark("job", 1))


# Exclusive writes.


class Recording(ModelGateway):
    """Records the registers that are put, so that copies can land late; the next such put fails if `fails` is set."""

    fails = False

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.registers: list[Put] = []
        self.changes = 0

    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        registers = [put for put in puts if put.timestamp is not None]
        self.registers += registers
        if registers and self.fails:
            self.fails = False
            raise StoreUnavailableError("no reply")
        super().put(puts, is_timely=is_timely)

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        self.changes += len(changes)
        return super().change(changes, is_timely=is_timely)

    def land_late(self) -> None:
        super().put(self.registers)


@pytest.fixture
def recording(cluster: Cluster) -> Recording:
    HBaseStore.create(URL, ModelGateway(cluster), RECORD)
    return Recording(cluster)


@pytest.fixture
def alone(recording: Recording) -> HBaseStore:
    """An exclusive store that puts registers, no matter how few documents it writes."""
    return HBaseStore(URL, recording, RECORD, ask_times=partial(Times, put_from=1), exclusive=True)


def test_exclusive_writes_put_many_new_registers_and_compare_the_others(recording: Recording) -> None:
    store = HBaseStore(URL, recording, RECORD, exclusive=True)
    assert put(store, *many(0, 60)) == 60
    assert (len(recording.registers), recording.changes) == (60, 0)
    assert put(store, ("doc 0", 5), *many(40, 90)) == 31
    assert (len(recording.registers), recording.changes) == (60, 31)
    assert put(store, *many(80, 140, factor=2)) == 60
    assert (len(recording.registers), recording.changes) == (110, 41)
    assert store.check().is_sound


def test_a_register_that_lands_late_undoes_neither_a_move_nor_a_removal(
    cluster: Cluster, recording: Recording, alone: HBaseStore
) -> None:
    assert put(alone, ("a", 5), ("b", 5)) == 2
    cluster.drifts = [-DRIFT_MS] * len(cluster.drifts)
    assert put(alone, ("a", 6)) == 1
    assert alone.remove([b"b"]) == 1
    cluster.drifts = [DRIFT_MS] * len(cluster.drifts)
    recording.land_late()
    assert alone.lookup([b"a", b"b"]) == [Document("a", 6, 7), None]
    assert alone.check().is_sound


def test_a_register_that_was_not_acknowledged_and_lands_late_undoes_no_put_though_a_clock_went_back(
    cluster: Cluster, recording: Recording, alone: HBaseStore
) -> None:
    recording.fails = True
    with pytest.raises(StoreUnavailableError):
        put(alone, ("a", 5))
    cluster.drifts = [-DRIFT_MS] * len(cluster.drifts)
    assert put(alone, ("a", 6)) == 1
    recording.land_late()
    assert alone.lookup([b"a"]) == [Document("a", 6, 7)]


def test_a_register_that_is_put_under_a_delete_marker_is_compared_and_set(
    cluster: Cluster, recording: Recording, alone: HBaseStore
) -> None:
    recording.delete([Deletion(register_key(b"a")[0], DOCUMENT_FAMILY, b"a", cluster.now)])
    assert put(alone, ("a", 5)) == 1
    assert recording.changes == 1
    assert alone.lookup([b"a"]) == [Document("a", 5, 7)]


@pytest.fixture
def ageing(cluster: Cluster, store: HBaseStore) -> HBaseStore:
    """The store on a table whose cells expire after ten hours."""
    store.times = Times(ttl_s=36_000, clock=lambda: cluster.now / 1_000, wall_clock=lambda: cluster.now / 1_000)
    return store


def test_with_a_ttl_an_unchanged_document_is_written_again_past_half_of_it(
    cluster: Cluster, ageing: HBaseStore
) -> None:
    put(ageing, ("a", 5))
    first = register(ageing, "a")
    cluster.advance(299 * MINUTE_MS)
    assert put(ageing, ("a", 5), seen=9) == 0
    assert register(ageing, "a") == first
    cluster.advance(2 * MINUTE_MS)
    assert put(ageing, ("a", 5), seen=9) == 0
    assert register(ageing, "a").timestamp > first.timestamp
    assert ageing.lookup([b"a"]) == [Document("a", 5, 7)]
    assert stored(ageing, DRAWER_FAMILY, drawer_rows(5)[0]).timestamp > first.timestamp


def test_with_a_ttl_a_register_stamped_in_the_future_is_written_again(cluster: Cluster, ageing: HBaseStore) -> None:
    cluster.drifts = [MINUTE_MS] * len(cluster.drifts)
    put(ageing, ("a", 5))
    first = register(ageing, "a")
    put(ageing, ("a", 5))
    assert register(ageing, "a") != first


def test_rows_that_expire_before_their_register_are_no_problem(cluster: Cluster, ageing: HBaseStore) -> None:
    put(ageing, ("a", 5))
    cluster.advance(9 * 60 * MINUTE_MS + MINUTE_MS)
    erase(ageing, DOCUMENT_FAMILY, *listing_key(5, b"a"))
    assert ageing.check().is_sound


# Check.


def test_registers_that_lack_rows_are_problems_and_mended(store: HBaseStore) -> None:
    put(store, ("unlisted", 5), ("unfiled", 6), ("sound", 7), ("also unfiled", 6))
    erase(store, DOCUMENT_FAMILY, *listing_key(5, b"unlisted"))
    erase(store, DRAWER_FAMILY, drawer_rows(6)[2])
    report = store.check()
    assert (report.documents, report.problems, report.repaired) == (4, 3, 0)
    assert any("'unlisted' (fingerprint 0000000000000005)" in example for example in report.examples)
    assert store.check(repair=True).repaired == 3
    assert store.check() == replace(store.check(), problems=0, drawer_rows=3 * DRAWERS, documents=4, leftovers=0)
    assert [document.doc_id for document in store.documents([5])[0]] == ["unlisted"]


@pytest.mark.parametrize(
    "wrong",
    [
        Put(b"\x00\x00\x00\x01" + drawer_rows(5)[0][4:], DRAWER_FAMILY, b"", b""),
        Put(drawer_rows(5)[0][:4] + bytes([DRAWERS + 1]) + drawer_rows(5)[0][5:], DRAWER_FAMILY, b"", b""),
        Put(drawer_rows(5)[0][:4] + b"\x00" + drawer_rows(5)[0][5:], DRAWER_FAMILY, b"", b""),
        Put(drawer_rows(5)[0], DRAWER_FAMILY, b"what", b""),
        Put(b"short", DRAWER_FAMILY, b"", b""),
        Put(b"short", DOCUMENT_FAMILY, b"a", b""),
        Put(b"\x00\x00\x00\x01" + documents_rowkey(5)[4:], DOCUMENT_FAMILY, b"a", b""),
        Put(documents_rowkey(5), DOCUMENT_FAMILY, b"\xff", b""),
        Put(register_key(b"a")[0], DOCUMENT_FAMILY, b"b", Register(Signature(5), 7).to_bytes(has_signatures=False)),
        Put(*register_key(b"c")[:1], DOCUMENT_FAMILY, b"c", b"?"),
    ],
    ids=repr,
)
def test_cells_that_cannot_be_are_problems_and_deleted(store: HBaseStore, wrong: Put) -> None:
    put(store, ("a", 5), ("b", 2**40))
    store.gateway.put([wrong])
    assert store.check().problems == 1
    report = store.check(repair=True)
    assert (report.problems, report.repaired) == (1, 1)
    assert store.check().is_sound
    assert store.gateway.get([(wrong.row, wrong.qualifier)], wrong.family) == [None]
    assert store.count() == 2


def test_leftovers_are_counted_and_collected_once_they_are_old(cluster: Cluster, store: HBaseStore) -> None:
    put(store, ("moved", 5), ("removed", 6), ("stays", 7))
    put(store, ("moved", 7))
    store.remove([b"removed"])
    store.gateway.put([listing_put(8, b"never added")])
    report = store.check(repair=True)
    assert (report.problems, report.leftovers, report.repaired) == (0, 3, 0)
    cluster.advance(61 * MINUTE_MS)
    report = store.check(repair=True)
    assert (report.problems, report.leftovers, report.repaired) == (0, 3 + 2 * DRAWERS, 3 + 2 * DRAWERS)
    assert store.gateway.get([register_key(b"removed")], DOCUMENT_FAMILY) != [None]
    cluster.advance(DAY_MS)
    store.check(repair=True)
    assert store.gateway.get([register_key(b"removed")], DOCUMENT_FAMILY) == [None]
    report = store.check()
    assert (report.documents, report.drawer_rows, report.leftovers) == (2, DRAWERS, 0)


# The key drawer.

IDS = ("a", "b", "c")
changes = st.one_of(
    st.tuples(st.sampled_from(IDS), st.builds(Signature, st.sampled_from([5, 6]), st.just(9), st.integers(0, 3))),
    st.tuples(st.sampled_from(IDS), st.none()),
    st.sampled_from(["check", "wait"]),
)


def rows_in(store: HBaseStore) -> set[bytes]:
    return {cells[0].row for cells in store.gateway.rows(TABLE_START, TABLE_STOP, DRAWER_FAMILY, limit=1_000)}


@pytest.mark.parametrize("record", [SIGNED, OF_PARTS], ids=["format 2", "format 3"])
@given(steps=st.lists(changes, max_size=20))
def test_the_rows_are_those_that_registers_need_once_all_is_old(
    record: Record,
    steps: list[tuple[str, Signature | None] | str],
) -> None:
    cluster, expected, keys = Cluster(), dict[str, Signature](), KEYS[record.keying]
    store = HBaseStore.create(URL, ModelGateway(cluster), record)

    for step in [*steps, "wait", "check"]:
        if step == "check":
            assert store.check(repair=True).is_sound
        elif step == "wait":
            cluster.advance(DAY_MS)
        elif step[1] is None:
            assert store.remove([step[0].encode()]) == (expected.pop(step[0], None) is not None)
        else:
            given = step[1]._replace(key=keys[step[1].key])
            assert put(store, (step[0], given)) == (expected.get(step[0]) != given)
            expected[step[0]] = given
        needed = {row.tobytes() for row in filed_rowkeys(record.layout, expected.values(), record.keying)}
        assert needed <= rows_in(store)
    assert rows_in(store) == needed
    assert {one.doc_id: one.signature for page in store.walk() for one in page} == expected
    assert {row.tobytes() for row in store.sweep([(bytes(5), b"\xff" * 5)])} == {
        row for row in needed if not record.is_key_row(row)
    }
    for prefix in {prefix for key in keys for prefix in record.key_prefixes(key)}:
        assert {row.tobytes() for row in store.scan([prefix])} == {row for row in needed if row.startswith(prefix)}
    assert store.check() == CheckReport(len(expected), len(needed))


def test_a_register_that_lacks_its_row_in_the_key_drawer_is_a_problem_and_no_other(signed: HBaseStore) -> None:
    _, key, other, _ = KEYS[signed.record.keying]
    put(signed, ("sound", Signature(5, 0, key)), ("unfiled", Signature(5, 0, other)), ("keyless", Signature(5)))
    own, its = (rows_of_key(signed.record, Signature(5, 0, one)) for one in (other, key))
    erase(signed, DRAWER_FAMILY, own[-1])
    report = signed.check(repair=True)
    assert (report.documents, report.problems, report.repaired) == (3, 1, 1)
    assert "'unfiled'" in report.examples[0]
    assert signed.check() == CheckReport(3, DRAWERS + len({*own, *its}))


def test_a_row_of_the_key_drawer_stays_while_a_query_may_need_it(cluster: Cluster, signed: HBaseStore) -> None:
    _, key, other, _ = KEYS[signed.record.keying]
    left = sorted(set(signed.record.key_prefixes(key)) - set(signed.record.key_prefixes(other)))
    put(signed, ("a", Signature(5, 0, key)))
    cluster.advance(DAY_MS)
    put(signed, ("a", Signature(5, 0, other)))
    report = signed.check(repair=True)
    assert (report.leftovers, report.repaired) == (len(left), 0)
    assert len(signed.scan(left)) == len(left)
    cluster.advance(61 * MINUTE_MS)
    report = signed.check(repair=True)
    assert (report.leftovers, report.repaired) == (len(left), len(left))
    assert len(signed.scan(left)) == 0


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("count", [2, 3, 6, 7, 20])
def test_a_row_of_the_key_drawer_is_kept_by_any_of_a_fingerprints_documents(
    cluster: Cluster, signed: HBaseStore, count: int
) -> None:
    _, key, other, _ = KEYS[signed.record.keying]
    put(signed, *[(f"{number:02}", Signature(5, 0, key)) for number in range(count - 1)])
    put(signed, ("last", Signature(5, 0, other)), ("gone", Signature(6, 0, other)))
    put(signed, ("gone", Signature(5)))
    cluster.advance(DAY_MS)
    assert signed.check(repair=True).problems == 0
    own = rows_of_key(signed.record, Signature(5, 0, other))
    assert sorted(row.tobytes() for row in signed.scan(signed.record.key_prefixes(other))) == sorted(own)


def test_in_format_1_a_drawer_may_have_the_key_drawers_number(cluster: Cluster) -> None:
    layout = Layout.parse(",".join(["3"] * 18 + ["2"] * 5) + "/2")
    store = HBaseStore.create(URL, ModelGateway(cluster), Record(layout, {"name": "test-1"}))
    put(store, ("a", Signature(5, 6, 1 << 32)))
    assert store.check() == CheckReport(1, 253)
    assert store.lookup([b"a"]) == [Document("a", 5, 7)]
    assert len(store.sweep([(bytes(5), b"\xff" * 5)])) == 253


def test_a_bulk_load_keeps_sketches_and_keys(signed: HBaseStore, tmp_path: Path) -> None:
    keys = KEYS[signed.record.keying]
    documents = {f"doc {number}": Signature(number, number + 1, keys[number % 4]) for number in range(500)}
    with signed.bulk(tmp_path / "runs", step_documents=100) as bulk:
        bulk.add_run(list(documents.values()), list(documents), 7)
        assert bulk.merge() == 500
    assert {one.doc_id: one.signature for page in signed.walk() for one in page} == documents
    rows = 500 * DRAWERS + sum(len(signed.record.key_prefixes(one.key)) for one in documents.values())
    assert signed.check() == CheckReport(500, rows)


@pytest.mark.parametrize("part", RECORD_PARTS)
def test_no_index_is_created_under_a_delete_ahead_of_the_clock(cluster: Cluster, part: bytes) -> None:
    cluster.delete(Deletion(RECORD_ROWKEY, RECORD_FAMILY, part, cluster.now + DAY_MS))
    with pytest.raises(CorruptionError, match=rf"i:{part.decode()} in row .* written 3 times.*clocks"):
        HBaseStore.create(URL, ModelGateway(cluster), RECORD)


def test_a_delete_ahead_of_the_clock_is_named(cluster: Cluster, store: HBaseStore) -> None:
    cluster.delete(Deletion(RECORD_ROWKEY, RECORD_FAMILY, COLLECTED, cluster.now + DAY_MS))
    with pytest.raises(CorruptionError, match="clocks"):
        store.check(repair=True)


# Bulk loads.


def rows(*documents: tuple[str, int]) -> tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], list[str], int]:
    return np.array([value for _, value in documents], np.uint64), [doc_id for doc_id, _ in documents], 7


def many(start: int, stop: int, factor: int = 1) -> list[tuple[str, int]]:
    return [(f"doc {number}", number * factor) for number in range(start, stop)]


def contents(store: HBaseStore) -> dict[str, int]:
    return {document.doc_id: document.fingerprint for page in store.walk() for document in page}


def test_a_bulk_load_adds_what_its_last_run_says(store: HBaseStore, tmp_path: Path) -> None:
    put(store, ("doc 0", 0), ("doc 1", 99))
    with store.bulk(tmp_path / "runs") as bulk:
        bulk.add_run(*rows(*many(0, 2_500)))
        bulk.add_run(*rows(*many(2_000, 3_000, 3)))
        told: list[tuple[int, int]] = []
        assert bulk.merge(Observer(progress=lambda one: told.append((one.done, one.total)))) == 2_999
        assert told[-1] == (3_500, 3_500)
        assert bulk.merge() == 2_999
        bulk.delete()
    assert contents(store) == dict(many(0, 2_500)) | dict(many(2_000, 3_000, 3))
    assert store.check().is_sound
    assert not (tmp_path / "runs").exists()


class Failing(ModelGateway):
    """Fails halfway through one of its writing calls."""

    calls_left = 0

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise StoreUnavailableError("killed")

    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        half = len(puts) // 2
        super().put(puts[:half], is_timely=is_timely)
        self._count()
        super().put(puts[half:], is_timely=is_timely)

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        outcomes = super().change(changes[:1], is_timely=is_timely)
        self._count()
        return outcomes + super().change(changes[1:], is_timely=is_timely)


@pytest.mark.parametrize("is_of_another_release", [False, True])
def test_a_merge_goes_on_though_its_slices_have_another_size_by_now(
    store: HBaseStore, tmp_path: Path, is_of_another_release: bool
) -> None:
    with store.bulk(tmp_path / "runs", step_documents=100) as bulk:
        bulk.add_run(*rows(*many(0, 1_000)))
        told = itertools.count()
        assert bulk.merge(Observer(stop=lambda: next(told) == 6)) is None
    if is_of_another_release:
        state = json.loads((tmp_path / "runs" / "merged.json").read_text())
        del state["slices"]
        (tmp_path / "runs" / "merged.json").write_text(json.dumps(state))
    with store.bulk(tmp_path / "runs", step_documents=200) as again:
        assert again.merge() == 1_000
    assert contents(store) == dict(many(0, 1_000))


@pytest.mark.parametrize("calls", range(1, 16, tries(1, 4)))
def test_a_bulk_load_that_was_killed_anywhere_goes_on_and_counts_right(
    cluster: Cluster, store: HBaseStore, tmp_path: Path, calls: int
) -> None:
    put(store, ("doc 5", 5), ("doc 6", 7))
    failing = Failing(cluster)
    with HBaseStore.open(URL, failing).bulk(tmp_path / "runs", step_documents=1_000) as bulk:
        bulk.add_run(*rows(*many(0, 2_000)))
        failing.calls_left = calls
        with pytest.raises(StoreUnavailableError, match="killed"):
            bulk.merge()
    with store.bulk(tmp_path / "runs") as again:
        assert again.runs == 1
        assert again.merge() == 1_999
    assert contents(store) == dict(many(0, 2_000))
    assert store.check().is_sound


def test_a_bulk_load_can_be_stopped_and_goes_on_with_a_run_more(store: HBaseStore, tmp_path: Path) -> None:
    answers: Iterator[bool] = iter([False, True])
    with store.bulk(tmp_path / "runs", step_documents=1_000) as bulk:
        bulk.add_run(*rows(*many(0, 3_000)))
        assert bulk.merge(Observer(stop=lambda: next(answers))) is None
        assert 0 < store.count() < 3_000
        bulk.add_run(*rows(*many(3_000, 4_000)))
        assert bulk.merge() == 4_000
    assert contents(store) == dict(many(0, 4_000))


def test_runs_that_are_discarded_take_the_state_of_their_merge_with_them(store: HBaseStore, tmp_path: Path) -> None:
    with store.bulk(tmp_path / "runs") as bulk:
        bulk.add_run(*rows(*many(0, 10)))
        assert bulk.merge() == 10
        bulk.discard_after(0)
        assert bulk.merge() == 0
        bulk.add_run(*rows(*many(5, 15)))
        assert bulk.merge() == 5


def test_a_bulk_load_keeps_the_time_at_which_it_first_began_until_it_ends(store: HBaseStore) -> None:
    began = begin_load(store.gateway, "one")
    assert {"one": begin_load(store.gateway, "one")} == loads_begun(store.gateway) == {"one": began}
    end_load(store.gateway, "one")
    assert loads_begun(store.gateway) == {}
