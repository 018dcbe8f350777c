"""Bulk loads compared with plain inserts: the same index, whatever the runs, interruptions and earlier contents."""

from __future__ import annotations

import errno
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hsimhash import HSimIndex
from hsimhash.errors import StoreUnavailableError
from hsimhash.fingerprint import Signatures
from hsimhash.layout import LAYOUT_NAMES, Layout
from hsimhash.progress import Observer, Progress
from hsimhash.store import Document, Mark, Record, Store, create_store, open_store
from hsimhash.store.conformance.contract import RECORD
from hsimhash.store.lmdb.files import JOBS
from hsimhash.store.lmdb.merge import _Merge, merge_documents
from hsimhash.store.lmdb.session import LmdbView
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.runs import write_array
from hsimhash.store.sliced_load import InsertedLoad
from tests.support.effort import tries
from tests.support.half_states import calls_of, files_in, killed_at_each_step

SMALL = 2  # documents that a merge writes at a time
Documents = list[tuple[str, int]]
LAST_BUCKET = [(doc_id, number << 32 | 0xFFFF) for number, doc_id in enumerate("abcd", start=1)]
ids = st.sampled_from(["a", "b", "c", "d", "e", "文", "x" * 600, "x" * 601])
VALUES = [0, 1, 2, 3, 2**63, 2**64 - 1, 0xFFFF << 16, 0xABCD_0000_0000_0000]
values = st.sampled_from(VALUES)
batches = st.lists(st.lists(st.tuples(ids, values), max_size=6), max_size=4)


def contents(store: Store) -> tuple[list[object], list[bytes]]:
    documents = list(itertools.chain.from_iterable(store.walk()))
    prefixes = sorted(
        {prefix for document in documents for prefix in store.record.layout.prefixes(document.fingerprint)}
    )
    return documents, sorted(row.tobytes() for row in store.scan(prefixes))


def assert_answers_agree_with_registers(store: Store, fingerprints: Sequence[int]) -> None:
    """Check that the documents of fingerprints are those that the registers have, whatever a merge has left behind."""
    with store.view() as view:
        listed, columns = view.documents(fingerprints), view.documents_of(fingerprints)
        found = {document for documents in listed for document in documents}
        assert set(view.lookup([document.doc_id.encode() for document in found])) == found
    in_columns = zip(columns.doc_ids, columns.registers.tolist(), strict=True)
    assert {Document(doc_id, *register) for doc_id, register in in_columns} == found
    assert found == {one for page in store.walk() for one in page if one.fingerprint in fingerprints}


def insert(store: Store, documents: Documents, seen: int) -> int:
    fingerprints = np.array([value for _, value in documents], np.uint64)
    return store.insert(
        [doc_id.encode() for doc_id, _ in documents],
        Signatures.of(fingerprints),
        np.full(len(documents), seen, np.int64),
    )


def merge(store: Store, documents: Mapping[str, int], seen: int) -> int:
    assert isinstance(store, LmdbStore)
    ids, fingerprints = [doc_id.encode() for doc_id in documents], np.array(list(documents.values()), np.uint64)
    return merge_documents(store.session, ids, Signatures.of(fingerprints), np.full(len(ids), seen, np.int64))


def _remains(store: Store) -> list[object]:
    """Return what merges of documents have left behind: folders, and rows in the record."""
    assert isinstance(store, LmdbStore)
    with LmdbView(store.session) as view:
        names = list(view.transaction.cursor(view.databases["record"]).iternext(values=False))
    return [*(store.session.path / JOBS).glob("*"), *(name for name in names if name.startswith(b"load:"))]


def load(store: Store, folder: Path, runs: list[Documents], seen: int) -> None:
    with store.bulk(folder) as bulk:
        for documents in runs:
            fingerprints = np.array([value for _, value in documents], np.uint64)
            bulk.add_run(fingerprints, [doc_id for doc_id, _ in documents], seen)


@pytest.fixture
def new_store(tmp_path: Path) -> Callable[[str], Store]:
    numbers = itertools.count()
    return lambda layout: create_store(
        f"lmdb://{tmp_path / f'store-{next(numbers)}'}", Record(Layout.named(layout), {"name": "test-1"})
    )


@pytest.fixture
def store(new_store: Callable[[str], Store]) -> Iterator[Store]:
    with new_store("10") as made:
        yield made


@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_bulk_load_gives_the_index_of_plain_inserts(
    name: str, new_store: Callable[[str], Store], tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    fingerprints = rng.integers(0, 2**64, 900, np.uint64)
    fingerprints[::5] = fingerprints[0]
    documents = [(f"https://example.org/{number % 700}", int(value)) for number, value in enumerate(fingerprints)]
    with new_store(name) as plain, new_store(name) as bulk:
        insert(plain, documents[:100], 1)
        insert(bulk, documents[:100], 1)
        added = insert(plain, documents[50:], 2)
        load(bulk, tmp_path / "runs", [documents[50:400], documents[400:]], 2)
        assert bulk.bulk(tmp_path / "runs").merge() == added
        assert contents(bulk) == contents(plain)
        assert bulk.check() == plain.check()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=tries(60, 15))
@example(before=[], runs=[[("x" * 601, 0), ("x" * 600, 0)]], stops=[], other=False)
@example(before=[[("a", 1)]], runs=[[("a", 2)]], stops=[], other=False)  # the index's last register is written again
@example(before=[[("e", 5 << 32 | 0xFFFF)]], runs=[LAST_BUCKET], stops=[], other=False)  # rows join its last bucket
@given(before=batches, runs=batches, stops=st.lists(st.integers(0, 3), max_size=3), other=st.booleans())
def test_an_interrupted_merge_ends_as_an_undisturbed_one(
    new_store: Callable[[str], Store],
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Documents],
    runs: list[Documents],
    stops: list[int],
    other: bool,
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    with new_store("4") as plain, new_store("4") as bulk:
        for number, documents in enumerate(before):
            insert(plain, documents, number)
            insert(bulk, documents, number)
        load(bulk, folder, runs, 100)
        for most in stops:  # a merge that stops after a few commits, as if killed between them
            remaining = itertools.count(most, -1)
            bulk.bulk(folder, SMALL).merge(Observer(stop=lambda remaining=remaining: next(remaining) <= 0))
            if other:  # somebody else writes meanwhile
                insert(bulk, [("somebody else", 77)], 5)
            assert_answers_agree_with_registers(bulk, VALUES)
        if stops and other:
            insert(plain, [("somebody else", 77)], 5)
        added = bulk.bulk(folder, SMALL).merge()
        assert added == insert(plain, [document for documents in runs for document in documents], 100)
        assert_answers_agree_with_registers(bulk, VALUES)
        bulk.bulk(folder).delete()
        assert contents(bulk) == contents(plain)
        assert bulk.check().problems == 0
        assert bulk.check(repair=True).problems == 0
        assert bulk.check().leftovers == 0
        assert contents(bulk) == contents(plain)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=tries(60, 15))
@given(before=batches, added=batches)
def test_documents_that_are_merged_give_the_index_of_plain_inserts(
    new_store: Callable[[str], Store], before: list[Documents], added: list[Documents]
) -> None:
    with new_store("4") as plain, new_store("4") as merged:
        for seen, documents in enumerate(before):
            insert(plain, documents, seen)
            insert(merged, documents, seen)
        for seen, documents in enumerate(filter(None, added), start=100):
            assert merge(merged, dict(documents), seen) == insert(plain, documents, seen)
            assert contents(merged) == contents(plain)
        assert merged.check() == plain.check()
        assert _remains(merged) == []


def test_a_kill_during_a_merge_of_documents_leaves_a_sound_index_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    """The kill comes at each file operation and after each commit."""
    numbers, before = itertools.count(), {"same": 1, "moved": 2, "other": 2}
    documents = {"same": 1, "moved": 1 << 40, "new": 3, "x" * 600: 2}

    def url() -> str:
        return f"lmdb://{tmp_path / f'store-{number}'}"

    def prepare() -> None:
        nonlocal number
        number = next(numbers)
        with create_store(url(), RECORD) as store:
            insert(store, list(before.items()), 1)

    def work() -> None:
        with open_store(url()) as store:
            merge(store, documents, 2)

    def arm(step: Callable[[], None]) -> None:
        files_in(tmp_path)(step)
        calls_of(_Merge, "_advance")(step)

    number, reached = 0, set[int]()
    for _ in killed_at_each_step(prepare, work, arm, every=tries(1, 4)):
        with open_store(url()) as store:
            assert store.check().is_sound
            assert_answers_agree_with_registers(store, [1, 2, 3, 1 << 40])
            found = {one.doc_id: one.fingerprint for page in store.walk() for one in page}
            assert set(before) <= set(found)
            assert all(value in (before.get(doc_id), documents.get(doc_id)) for doc_id, value in found.items())
            reached.add(sum(found.get(doc_id) == value for doc_id, value in documents.items()))
            insert(store, [("moved", 5)], 3)  # the next merge must not undo this
            assert merge(store, {"last": 4}, 4) == 1
            assert store.check().is_sound
            assert store.lookup([b"moved", b"other"]) == [Document("moved", 5, 3), Document("other", 2, 1)]
            merge(store, documents, 5)
            assert {one.doc_id: one.fingerprint for page in store.walk() for one in page} == {
                "other": 2,
                "last": 4,
                **documents,
            }
            assert store.check().problems == store.check().leftovers == 0
            assert _remains(store) == []
    assert reached == {1, len(documents)}


def test_a_merge_of_documents_that_fails_leaves_no_runs(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("6m")
    with create_store(f"lmdb://{disk / 'index'}", RECORD) as store:
        insert(store, [("before", 1)], 1)
        many = {str(number): number << 30 for number in range(20_000)}
        with pytest.raises(StoreUnavailableError, match=r"[Nn]o space left"):
            merge(store, many, 2)
        assert _remains(store) == []
        assert store.lookup([b"before"]) == [Document("before", 1, 1)]
        assert store.check().is_sound
        assert merge(store, {"after": 2}, 2) == 1


def test_a_merge_reports_how_far_it_is_also_when_it_goes_on(new_store: Callable[[str], Store], tmp_path: Path) -> None:
    documents = [(str(number), number << 40) for number in range(7)]
    seen: list[Progress] = []
    with new_store("4") as undisturbed, new_store("4") as stopped:
        load(undisturbed, tmp_path / "runs", [documents], 1)
        undisturbed.bulk(tmp_path / "runs", SMALL).merge(Observer(progress=seen.append))
        done, total = [one.done for one in seen], 7 * (1 + 4 + 1)
        assert done == sorted(set(done))
        assert (done[0], done[-1], {one.total for one in seen}) == (SMALL, total, {total})
        load(stopped, tmp_path / "others", [documents], 1)
        seen.clear()
        bulk = stopped.bulk(tmp_path / "others", SMALL)
        assert bulk.merge(Observer(lambda: len(seen) == len(done) - 2, seen.append)) is None  # among the registers
        seen.clear()
        bulk.merge(Observer(progress=seen.append))
        assert 7 * (1 + 4) < seen[0].done < seen[-1].done == total


def test_merging_twice_changes_nothing(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path / "runs", [[("a", 1), ("b", 2)], [("a", 3)]], 1)
    bulk = store.bulk(tmp_path / "runs")
    assert bulk.merge() == 2
    first = contents(store)
    assert bulk.merge() == 2  # the number this load added, however often it is called
    assert contents(store) == first


def test_runs_are_found_again_and_discarded(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path / "runs", [[("a", 1)], [("b", 2)], [("c", 3)]], 1)
    bulk = store.bulk(tmp_path / "runs")
    assert bulk.runs == 3
    bulk.discard_after(1)
    assert store.bulk(tmp_path / "runs").runs == 1
    assert bulk.merge() == 1
    assert store.lookup([b"a", b"b"])[1] is None
    bulk.delete()
    assert not (tmp_path / "runs").exists()
    assert bulk.merge() == 0


def test_a_half_written_run_does_not_count(store: Store, tmp_path: Path) -> None:
    (tmp_path / "runs" / "run-000001.tmp").mkdir(parents=True)
    assert store.bulk(tmp_path / "runs").runs == 0
    load(store, tmp_path / "runs", [[("a", 1)]], 1)
    assert store.bulk(tmp_path / "runs").merge() == 1


def test_a_folder_that_is_a_file_is_a_clear_error(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError, match=r"cannot use .*fix this problem"):
        store.bulk(tmp_path / "file" / "runs")


def test_a_limit_counts_no_document_that_a_stopped_merge_has_only_listed(tmp_path: Path) -> None:
    with HSimIndex.create(f"lmdb://{tmp_path / 'index'}") as index:
        index.add(5, "z")
        index.add(2**40, "a")
        with index.bulk(tmp_path / "runs") as bulk:
            bulk.add_run(np.array([5], np.uint64), ["a"], 1)
            assert (
                bulk.merge(Observer(stop=lambda: True)) is None
            )  # "a" is already listed under 5 but does not exist yet
            assert [match.doc_id for match in index.query(5, limit=1)] == ["z"]
            assert [match.doc_id for match in index.query_many([5], limit=1)[0]] == ["z"]
            bulk.merge()
        assert [match.doc_id for match in index.query(5, limit=1)] == ["a"]


def test_other_runs_than_those_merged_are_merged_too(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path / "runs", [[("a", 1)]], 1)
    bulk = store.bulk(tmp_path / "runs")
    assert bulk.merge() == 1
    bulk.discard_after(0)
    bulk.add_run(np.array([2], np.uint64), ["b"], 1)
    assert bulk.merge() == 1
    assert None not in store.lookup([b"a", b"b"])


def test_a_run_that_is_added_after_a_merge_is_merged_too(store: Store, tmp_path: Path) -> None:
    load(store, tmp_path / "runs", [[("a", 1)]], 1)
    bulk = store.bulk(tmp_path / "runs")
    assert bulk.merge() == 1
    bulk.add_run(np.array([2, 3], np.uint64), ["b", "c"], 1)
    bulk.merge()
    assert None not in store.lookup([b"a", b"b", b"c"])


def test_a_compaction_between_two_parts_of_a_merge_does_not_confuse_it(store: Store, tmp_path: Path) -> None:
    insert(store, [(str(number), number) for number in range(10)], 1)
    load(store, tmp_path / "runs", [[("x", 1 << 40)]], 1)
    bulk = store.bulk(tmp_path / "runs")
    assert bulk.merge(Observer(stop=lambda: True)) is None
    store.compact()
    while store.session.last_transaction()[1] < 30:  # type: ignore[attr-defined]
        insert(store, [("x", 1 << 41)], 1)
        store.remove([b"x"])
    assert bulk.merge() == 1
    assert store.check().is_sound
    assert [document.doc_id for document in store.documents([1 << 40])[0]] == ["x"]


@pytest.mark.parametrize(
    ("ids", "seen", "error", "message"),
    [
        ("ab", 1, TypeError, "got a single str"),
        (["a"], 1, ValueError, "2 signatures for 1"),
        (["a", "b\n"], 1, ValueError, "control"),
        (["a", "b"], -1, ValueError, "whole ms since 1970"),
        (["a", "b"], 1.5, ValueError, "whole ms since 1970"),
    ],
)
def test_a_bad_run_is_refused_before_anything_is_written(
    store: Store, tmp_path: Path, ids: list[str], seen: int, error: type[Exception], message: str
) -> None:
    bulk = store.bulk(tmp_path / "runs")
    with pytest.raises(error, match=message):
        bulk.add_run(np.array([1, 2], np.uint64), ids, seen)
    assert bulk.runs == 0


def test_a_load_by_inserts_counts_what_changes_and_starts_again_if_the_index_forgot_a_slice(tmp_path: Path) -> None:
    record = Record(Layout.named("4"), {"name": "test-1"})
    with create_store("memory://whole", record) as whole, create_store("memory://restored", record) as restored:
        insert(whole, [("0", 0), ("1", 99)], 1)
        bulk = InsertedLoad(whole, tmp_path / "runs", 2)
        bulk.add_run(np.arange(6, dtype=np.uint64), [str(number) for number in range(6)], 1)
        seen: list[Progress] = []
        assert bulk.merge(Observer(lambda: len(seen) == 3, seen.append)) is None
        token = json.loads((tmp_path / "runs" / "merged.json").read_text())["token"]
        assert whole.marked(token) == 2
        insert(restored, [("0", 0)], 1)
        restored.insert([], Signatures.of([]), np.empty(0, np.int64), mark=Mark(token, 1))
        shutil.copytree(tmp_path / "runs", tmp_path / "copy")
        assert InsertedLoad(whole, tmp_path / "runs", 2).merge() == 5  # all but "0"
        assert InsertedLoad(restored, tmp_path / "copy", 2).merge() == 5
        assert contents(restored) == contents(whole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_array_that_a_full_disk_does_not_take_says_so() -> None:
    with pytest.raises(OSError, match="No space left on device") as full:
        write_array(Path("/dev/full"), np.zeros(100_000, np.uint64))
    assert full.value.errno == errno.ENOSPC
