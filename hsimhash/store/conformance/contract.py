"""The contract of `Store`, as tests."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hsimhash.errors import CorruptionError, IndexExistsError, IndexNotFoundError, StoreClosedError
from hsimhash.fingerprint import Profile, Signature, Signatures, wordlists
from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.wordlists import keep_list, kept_lists, list_content
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.matching import CROWDED_ROWS
from hsimhash.plan import cost
from hsimhash.progress import Observer, Progress
from hsimhash.rowkey import encode
from hsimhash.store import Document, Mark, Record, Store
from hsimhash.store.base import LIST_PIECE_BYTES
from hsimhash.store.conformance.place import StorePlace
from hsimhash.store.conformance.random_calls import Trial, packed_key, run_trial
from hsimhash.store.reports import CROWDED_DOCUMENTS, SAMPLED_DOCUMENTS

RECORD = Record(Layout.named("10"), {"name": "test-1"})


@pytest.fixture
def store(place: StorePlace) -> Iterator[Store]:
    with place.create(place.url(), RECORD) as made:
        yield made


def put(store: Store, *documents: tuple[str, int], seen: int = 7) -> int:
    ids = [doc_id.encode() for doc_id, _ in documents]
    values = np.array([value for _, value in documents], np.uint64)
    return store.insert(ids, Signatures.of(values), np.full(len(ids), seen, np.int64))


def rows_of(store: Store, *fingerprints: int) -> set[bytes]:
    prefixes = sorted({prefix for value in fingerprints for prefix in store.record.layout.prefixes(value)})
    return {row.tobytes() for row in store.scan(prefixes)}


def test_documents_that_are_inserted_in_parts_are_counted_and_stored(store: Store) -> None:
    ids, first_seen = [b"a", b"b", b"c"], np.array([5, 6, 7], np.int64)
    put(store, ("a", 1), ("b", 9), seen=3)
    assert store.insert_in_parts(ids, Signatures.of([1, 2, 3]), first_seen) == 2
    assert store.lookup(ids) == [Document("a", 1, 3), Document("b", 2, 6), Document("c", 3, 7)]
    assert store.insert_in_parts([], Signatures.of([]), first_seen[:0]) == 0


def test_scan_returns_the_rowkeys_of_the_buckets(store: Store) -> None:
    near = 5 ^ 1  # shares nine of the ten buckets
    put(store, ("a", 5), ("b", near), ("c", 5))
    expected = {row.tobytes() for row in encode(RECORD.layout, np.array([5, near], np.uint64)).reshape(-1, 13)}
    assert rows_of(store, 5, near) == expected
    prefixes = RECORD.layout.prefixes(5)
    assert len(store.scan(prefixes[:1])) == 2


def test_a_scan_for_the_first_rows_has_at_least_as_many_of_each_bucket(store: Store) -> None:
    put(store, *((str(value), value) for value in range(8)), ("far", 2**64 - 1))
    prefixes = sorted({prefix for value in (0, 7, 2**64 - 1) for prefix in RECORD.layout.prefixes(value)})
    whole = rows_of(store, 0, 7, 2**64 - 1)
    sizes = Counter(row[:5] for row in whole)
    assert max(sizes.values()) == 8
    for most in (1, 3, 8, 9):
        found = {row.tobytes() for row in store.scan(prefixes, most)}
        assert found <= whole
        assert all(count >= min(most, sizes[prefix]) for prefix, count in Counter(row[:5] for row in found).items())
        assert {row[:5] for row in found} == set(sizes)


def test_sweep_returns_the_rows_of_ranges_of_prefixes(store: Store) -> None:
    values = np.array([0, 5, 2**64 - 1, 0x0123456789ABCDEF], np.uint64)
    put(store, *((str(value), int(value)) for value in values))
    rows = sorted(row.tobytes() for row in encode(RECORD.layout, values).reshape(-1, 13))
    first, last, none = bytes(5), b"\xff" * 5, b"\x80" + bytes(4)
    cut = rows[len(rows) // 2][:5]
    for ranges in ([(first, last)], [(first, cut), (cut, last)], [(cut, last)], [(first, cut)], [(none, none)], []):
        within = [row for row in rows if any(start <= row < stop for start, stop in ranges)]
        assert sorted(row.tobytes() for row in store.sweep(ranges)) == within


def test_a_view_with_a_time_allowed_reads_what_one_without_reads(store: Store) -> None:
    put(store, ("a", 5), ("b", 2**64 - 1))
    flag = RECORD.layout.prefixes(5)[0][-1:]
    prefixes = sorted({*RECORD.layout.prefixes(5), *(number.to_bytes(4, "big") + flag for number in range(10_001))})
    prefixes.append(RECORD.layout.prefixes(2**64 - 1)[-1])
    with store.view(timeout_s=60.0) as view:
        assert sorted(map(bytes, view.scan(prefixes))) == sorted(map(bytes, store.scan(prefixes)))
        assert {bytes(row[5:]) for row in view.scan(prefixes)} == {(5).to_bytes(8, "big"), b"\xff" * 8}
        assert view.documents([5, 6]) == store.documents([5, 6]) == [[Document("a", 5, 7)], []]
        assert view.lookup([b"b", b"c"]) == [Document("b", 2**64 - 1, 7), None]
        whole = [(bytes(5), b"\xff" * 5)]
        assert sorted(map(bytes, view.sweep(whole))) == sorted(map(bytes, store.sweep(whole)))


@pytest.mark.parametrize("name", ["auto-1", "auto-2", "auto-3"])
def test_a_document_takes_the_rows_and_a_query_reads_the_buckets_that_plan_counts(
    place: StorePlace, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    profile, count = Profile.named(name), 40
    record = Record(Layout.named("4"), profile.to_json())
    key_rows = record.most_key_rows
    values, sketches = np.random.default_rng(2).integers(0, 2**64, (2, count), np.uint64)
    keys = np.array([packed_key(range(5 * number, 5 * number + 5)) for number in range(count)], np.uint64)
    signatures = Signatures.of(values, sketches, keys)

    def logged(call: Callable[[], object]) -> str:
        caplog.clear()
        call()
        return caplog.messages[-1]

    with HSimIndex(place.create(place.url(), record), profile, slow_s=1e-9) as index:
        index.add_many(signatures, list(map(str, range(count))))
        planned = cost(index.layout, count, index.layout.max_distance, index.backend.prices, key_rows=key_rows)
        assert index.check().drawer_rows == planned.rows == count * (4 + key_rows)
        assert f"ranges: {planned.reads}," in logged(lambda: index.query(signatures.at(0)))
        for k in (3, 6, 16):
            reads = index.cover(k).bucket_count + key_rows
            assert f"ranges: {reads}," in logged(partial(index.query, signatures.at(1), max_distance=k))
            assert f"ranges: {reads}," in logged(partial(index.query_many, signatures[:1], max_distance=k))


def test_estimate_is_about_the_number_of_documents(store: Store) -> None:
    assert store.estimate() == 0
    values = np.random.default_rng(1).integers(0, 2**64, 3_000, np.uint64)
    store.insert([str(value).encode() for value in values], Signatures.of(values), np.zeros(len(values), np.int64))
    assert 2_000 < store.estimate() < 4_500


def test_a_fingerprint_that_very_many_documents_share_is_named_as_crowded(store: Store) -> None:
    randoms = np.random.default_rng(1)

    def insert(name: str, values: Uint64s) -> None:
        ids = [f"{name} {number}".encode() for number in randoms.permutation(len(values))]
        store.insert(ids, Signatures.of(values), np.zeros(len(ids), np.int64))

    insert("own", randoms.integers(0, 2**64, 3_000, np.uint64))
    insert("some", np.full(CROWDED_DOCUMENTS - 1, 5, np.uint64))
    for sampled in (SAMPLED_DOCUMENTS, 1_000):
        assert store.crowds(sampled=sampled) == ()
    insert("many", np.full(3_000, 2**64 - 1, np.uint64))
    for sampled in (SAMPLED_DOCUMENTS, 1_000):
        (crowd,) = store.crowds(sampled=sampled)
        assert (crowd.fingerprint, crowd.documents) == (2**64 - 1, 3_000)
        assert crowd.share == pytest.approx(3_000 / 6_999, rel=0.3)


def test_record_keeps_the_distance_of_its_queries(place: StorePlace) -> None:
    url, record = place.url(), Record(Layout.named("4"), {"name": "test-1"}, 6)
    with place.create(url, record), place.open(url) as store:
        assert store.record == record


def test_record_keeps_the_lists_of_its_profile_in_pieces(place: StorePlace) -> None:
    idf = list_content({f"word{number}": f"{number / 1e6:.6f}" for number in range(60_000)})
    words, stops = f"a{'云' * 400_000}\n".encode(), b"page\n"  # a line that is longer than a piece
    idf_sha256, *others = map(keep_list, (idf, words, stops))
    lists = dict(zip(("words", "stops"), others, strict=True), idf="own", idf_sha256=idf_sha256)
    url, record = place.url(), Record(Layout.named("4"), {"name": "mine-1", **lists})
    assert len(record.list_parts()) == len(idf) // LIST_PIECE_BYTES + 4
    with place.create(url, record) as made:
        if not url.startswith("memory:"):
            made.close()  # otherwise LMDB's file, which this process has open, would be shared
        for sha256 in (idf_sha256, *others):
            wordlists._contents.pop(sha256)
        with place.open(url) as store:
            assert store.record == record
    assert kept_lists((idf_sha256, *others)) == dict(zip((idf_sha256, *others), (idf, words, stops), strict=True))


def test_an_index_with_a_damaged_list_is_refused(place: StorePlace) -> None:
    url, sha256 = place.url(), keep_list(b"one\n")
    wordlists._contents[sha256] = b"another\n"
    message = f"the list of stop words of .*, with SHA-256 {sha256[:16]}…, is damaged: "
    message += "its 8 bytes have a different SHA-256"
    record = Record(Layout.named("4"), {"name": "mine-1", "stops": sha256})
    with pytest.raises(CorruptionError, match=message), place.create(url, record):
        place.open(url)


@pytest.mark.parametrize("value", [0, 1, 2**64 - 1, 2**63, 0x00000000FFFFFFFF, 0xFFFFFFFF00000000])
def test_edge_fingerprints_are_stored_and_found(store: Store, value: int) -> None:
    put(store, ("edge", value))
    assert len(rows_of(store, value)) == len(RECORD.layout.drawers)
    assert store.documents([value]) == [[Document("edge", value, 7)]]


def test_an_empty_store_has_nothing(store: Store) -> None:
    assert store.scan(RECORD.layout.prefixes(3)).shape == (0, 13)
    assert store.scan([]).shape == (0, 13)
    assert store.documents([3]) == [[]]
    assert store.documents([]) == []
    assert store.lookup([b"a"]) == [None]
    assert store.remove([b"a"]) == 0
    assert store.count() == 0
    assert not any(store.walk())
    assert store.check().is_sound


def test_one_bucket_of_twenty_thousand_is_returned_whole(place: StorePlace) -> None:
    if place.is_quick:
        pytest.skip("takes long")
    values = np.arange(20_000, dtype=np.uint64)  # the first three blocks of 16 bits are the same
    with place.create(place.url(), Record(Layout.named("4"), {"name": "test-1"})) as store:
        store.insert([str(value).encode() for value in values], Signatures.of(values), np.zeros(20_000, np.int64))
        rows = store.scan(store.record.layout.prefixes(0)[:1])
    assert sorted(int.from_bytes(row[5:].tobytes(), "big") for row in rows) == values.tolist()


def test_documents_of_a_fingerprint_come_in_order_of_id_up_to_the_limit(store: Store) -> None:
    ids = sorted(["b", "a", "ä", "文档", "\U0001f600", "x" * 2048, "x" * 2047 + "y", "x" * 503, "x" * 504, "x" * 487])
    put(store, *[(doc_id, 9) for doc_id in reversed(ids)], ("other", 10))
    assert [document.doc_id for document in store.documents([9])[0]] == ids
    for limit in range(1, len(ids) + 2):
        assert [document.doc_id for document in store.documents([9], limit)[0]] == ids[:limit]
    long = "x" * 2048
    assert store.remove([long.encode()]) == 1
    assert [document.doc_id for document in store.documents([9])[0]] == [doc_id for doc_id in ids if doc_id != long]


def test_documents_in_columns_are_the_same_documents(place: StorePlace) -> None:
    long = ["x" * length for length in (487, 502, 503, 504, 2048)]
    documents = [
        *((doc_id, Signature(9, 5, 7)) for doc_id in ["a", "文档", *long]),
        ("z", Signature(2**64 - 1, 2**64 - 1)),
    ]
    with place.create(place.url(), Record(Layout.named("4"), Profile.named("auto-2").to_json())) as store:
        for some in ([*documents, ("moved", Signature(9)), ("gone", Signature(9))], [("moved", Signature(10, 1))]):
            ids, signatures = zip(*some, strict=True)
            seen = np.arange(len(ids), dtype=np.int64)
            store.insert([one.encode() for one in ids], Signatures.collected(signatures), seen)
        store.remove([b"gone"])
        asked = [9, 10, 11, 2**64 - 1]
        with store.view() as view:
            listed, columns = view.documents(asked), view.documents_of(asked)
            assert view.documents_of([]).doc_ids == view.documents_of([11]).doc_ids == []
    rows = zip(columns.places.tolist(), columns.doc_ids, columns.registers.tolist(), strict=True)
    found = [(place, Document(doc_id, *register)) for place, doc_id, register in rows]
    assert columns.places.tolist() == sorted(columns.places.tolist())
    assert sorted(found) == [(place, document) for place, several in enumerate(listed) for document in several]
    assert len(found) >= len(documents) + 1


def test_a_limit_counts_no_document_that_has_moved_away(place: StorePlace) -> None:
    sketch, profile = 2**64 - 1, Profile.named("auto-2")
    with HSimIndex(place.create(place.url(), Record(Layout.named("4"), profile.to_json())), profile) as index:
        index.add(Signature(5, sketch), "a")
        index.add(Signature(4, sketch), "a")  # still listed under 5 on HBase and Redis
        index.add(Signature(5, 1), "b")  # its sketch disagrees
        index.add(Signature(5, sketch), "d")
        query = Signature(5, sketch)
        for limit, expected in ((1, ["d"]), (2, ["d", "a"])):
            assert [match.doc_id for match in index.query(query, limit=limit)] == expected
            assert [match.doc_id for match in index.query_many([query], limit=limit)[0]] == expected
        claim = index.claim(query, "e")
        assert claim.match is not None
        assert claim.match.doc_id == "d"


@pytest.mark.parametrize(
    ("layout", "profile", "crowded_rows"),
    [
        ("4", "auto-2", CROWDED_ROWS),
        ("10", "auto-1", CROWDED_ROWS),
        ("4", "auto-2", 2),
        ("4", "auto-3", 2),
        ("10", "auto-3", CROWDED_ROWS),
    ],
)
def test_answers_are_those_of_brute_force_whatever_was_written_and_asked(
    place: StorePlace, layout: str, profile: str, crowded_rows: int
) -> None:
    calls = 60 if place.is_quick else 1_000
    done = run_trial(place, Trial(layout, profile, seed=1, calls=calls, crowded_rows=crowded_rows))
    assert done["matches"] > done["queries"] > 0


def test_adding_again_keeps_first_seen_and_moving_takes_the_new_one(place: StorePlace, store: Store) -> None:
    assert put(store, ("a", 5), seen=1) == 1
    assert put(store, ("a", 5), seen=2) == 0
    assert store.lookup([b"a"]) == [Document("a", 5, 1)]
    assert put(store, ("a", 6), seen=3) == 1
    assert store.lookup([b"a"]) == [Document("a", 6, 3)]
    place.settle(store)
    assert store.documents([5, 6]) == [[], [Document("a", 6, 3)]]
    assert store.count() == 1


def test_a_move_takes_the_old_fingerprint_out_only_when_no_document_is_left(place: StorePlace, store: Store) -> None:
    old = {row.tobytes() for row in encode(RECORD.layout, np.array([5], np.uint64))[0]}
    put(store, ("a", 5), ("b", 5))
    put(store, ("a", 2**40))
    place.settle(store)
    assert rows_of(store, 5) & old
    put(store, ("b", 2**40))
    place.settle(store)
    assert not rows_of(store, 5) & old


def test_a_bulk_load_that_was_stopped_goes_on_and_takes_one_run_more(store: Store, tmp_path: Path) -> None:
    put(store, ("0", 0), ("1", 99))
    index, folder, seen = HSimIndex(store, Profile.named("auto-1")), tmp_path / "runs", list[Progress]()
    index.bulk(folder, 2).add_run(np.arange(6, dtype=np.uint64), [str(number) for number in range(6)], 7)
    assert index.bulk(folder, 2).merge(Observer(lambda: len(seen) > 1, seen.append)) is None
    seen.clear()
    assert index.bulk(folder, 2).merge(Observer(progress=seen.append)) == 5  # all but "0"
    assert 0 < seen[0].done < seen[-1].done == seen[-1].total
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    index.bulk(folder, 2).add_run(np.array([2**40, 2**50], np.uint64), ["5", "6"], 7)
    index.bulk(folder, 2).merge()
    index.bulk(folder).delete()
    assert not folder.exists()
    expected = [*((str(number), number) for number in range(5)), ("5", 2**40), ("6", 2**50)]
    assert [document[:2] for page in store.walk() for document in page] == expected
    assert store.check().is_sound


def test_the_last_occurrence_of_an_id_in_a_batch_counts(store: Store) -> None:
    assert put(store, ("a", 1), ("b", 2), ("a", 3)) == 2
    assert store.lookup([b"a", b"b"]) == [Document("a", 3, 7), Document("b", 2, 7)]
    assert store.documents([1]) == [[]]
    assert store.check().leftovers == 0


def test_removed_documents_are_gone_and_can_come_back(place: StorePlace, store: Store) -> None:
    put(store, ("a", 5), ("b", 5), ("c", 6))
    assert store.remove([b"a", b"nobody", b"a"]) == 1
    assert store.documents([5]) == [[Document("b", 5, 7)]]
    assert store.count() == 2
    put(store, ("a", 5), seen=9)
    assert store.lookup([b"a"]) == [Document("a", 5, 9)]
    assert store.remove([b"a", b"b", b"c"]) == 3
    assert store.count() == 0
    place.settle(store)
    assert not rows_of(store, 5, 6)


def test_documents_are_removed_only_if_they_were_first_seen_before(store: Store) -> None:
    put(store, ("a", 5), seen=1)
    put(store, ("b", 5), seen=2)
    assert [store.count(before=time) for time in (0, 2, 3)] == [0, 1, 2]
    assert store.remove([b"a", b"b", b"nobody"], before=2) == 1
    assert any(store.walk())
    assert store.lookup([b"a", b"b"]) == [None, Document("b", 5, 2)]


def test_walk_yields_every_document_once_in_order(store: Store) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2**64, 12_000, np.uint64)
    values[:500] = values[0]
    ids = [f"doc {number}" for number in range(len(values))]
    store.insert([doc_id.encode() for doc_id in ids], Signatures.of(values), np.arange(len(values), dtype=np.int64))
    walked = list(itertools.chain.from_iterable(store.walk()))
    expected = [
        Document(doc_id, int(value), place) for place, (doc_id, value) in enumerate(zip(ids, values, strict=True))
    ]
    assert walked == sorted(expected, key=lambda document: (document.fingerprint, document.doc_id))


def test_check_of_a_used_store_is_sound(place: StorePlace, store: Store) -> None:
    put(store, *[(str(number), number % 7) for number in range(100)])
    put(store, *[(str(number), number % 5) for number in range(50)])
    store.remove([b"1", b"2", b"3"])
    assert store.check().is_sound
    place.settle(store)
    report = store.check()
    assert (report.documents, report.problems, report.leftovers) == (97, 0, 0)
    assert report.drawer_rows == 7 * len(RECORD.layout.drawers)


def test_create_refuses_an_existing_index_and_open_a_missing_one(place: StorePlace) -> None:
    url = place.url()
    with pytest.raises(IndexNotFoundError, match="no index at"):
        place.open(url)
    with place.create(url, RECORD):
        with pytest.raises(IndexExistsError, match="already"):
            place.create(url, RECORD)
        with place.open(url) as again:
            assert again.record == RECORD


def test_a_closed_store_refuses_every_call_and_close_twice_is_harmless(store: Store) -> None:
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.scan(RECORD.layout.prefixes(0)),
        lambda: store.documents([0]),
        lambda: store.lookup([b"a"]),
        lambda: put(store, ("a", 1)),
        lambda: store.remove([b"a"]),
        store.count,
        lambda: list(store.walk()),
        store.check,
        store.describe,
        store.crowds,
        lambda: store.marked("job"),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


def test_threads_add_remove_and_read_at_once(store: Store) -> None:
    put(store, *[(f"fixed {number}", number << 32) for number in range(50)])
    start = threading.Barrier(8)

    def work(worker: int) -> None:
        start.wait()
        for number in range(30):
            put(store, (f"{worker} {number}", worker))
            assert Document(f"fixed {number}", number << 32, 7) in store.documents([number << 32])[0]
            if number % 2:
                store.remove([f"{worker} {number}".encode()])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert store.count() == 50 + 8 * 15
    assert store.check().is_sound


def test_a_forked_child_reads_and_the_parent_goes_on(store: Store) -> None:
    put(store, ("a", 5))

    def read() -> None:
        assert store.documents([5]) == [[Document("a", 5, 7)]]

    child = multiprocessing.get_context("fork").Process(target=read)
    child.start()
    child.join()
    assert child.exitcode == 0
    put(store, ("b", 5))
    assert len(store.documents([5])[0]) == 2


def test_a_mark_is_remembered_by_its_token_with_documents_and_without(place: StorePlace) -> None:
    url = place.url()
    nothing = Signatures.of([]), np.empty(0, np.int64)
    with place.create(url, RECORD) as store, place.open(url) as other:
        assert store.marked("job") == 0
        assert store.insert([b"a"], Signatures.of([5]), np.array([7], np.int64), mark=Mark("job", 3)) == 1
        assert store.insert([], *nothing, mark=Mark("another", 2**40)) == 0
        assert [other.marked(token) for token in ("job", "another", "")] == [3, 2**40, 0]
        assert other.insert([], *nothing, mark=Mark("job", 4)) == 0
        assert store.marked("job") == 4
        assert (store.count(), store.record) == (1, RECORD)
        assert store.check().is_sound
