"""The embedded store beyond the contract: locks, forks, disks, compaction, backup, repair."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest

from hsimhash.errors import (
    CorruptionError,
    IndexExistsError,
    IndexNotFoundError,
    StopAskedError,
    StoreBusyError,
    StoreClosedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.fingerprint import Profile, Signature, Signatures
from hsimhash.layout import Layout
from hsimhash.locks import wait_for_lock
from hsimhash.progress import Observer, Progress
from hsimhash.store import Document, Record, Store, create_store, open_store
from hsimhash.store.base import with_view
from hsimhash.store.conformance.contract import RECORD, put
from hsimhash.store.lmdb import compaction, files
from hsimhash.store.lmdb.audit import audit, glance
from hsimhash.store.lmdb.codec import Registered, digest, document_key, pack
from hsimhash.store.lmdb.session import LmdbView
from hsimhash.store.lmdb.store import LmdbStore
from tests.support.command_line import PROGRAM, run
from tests.support.effort import thorough, tries
from tests.support.processes import LIMIT_S, fork, forked, stopped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def store(path: Path) -> Iterator[LmdbStore]:
    with LmdbStore.create(f"lmdb://{path}", path, RECORD, lock_timeout_s=120) as made:  # for busy machines
        yield made


def spread(start: int, stop: int) -> list[tuple[str, int]]:
    """Return documents whose fingerprints lie far apart."""
    return [(str(number), number * 0x9E3779B97F4A7C15 % 2**64) for number in range(start, stop)]


def in_another_process(code: str, path: Path) -> subprocess.Popen[str]:
    """Start Python with `code`, in which `store` is the index at `path`."""
    prelude = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from hsimhash.store.lmdb.store import LmdbStore\n"
        f"store = LmdbStore('lmdb://x', Path({str(path)!r}))\n"
    )
    return subprocess.Popen([sys.executable, "-c", prelude + code], stdin=-1, stdout=-1, text=True)


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def killed_while(code: str, path: Path) -> None:
    """Kill another process when it reaches the end of `code`."""
    with in_another_process(f"{code}print('there', flush=True); sys.stdin.readline()\n", path) as other:
        assert answer(other) == "there"
        other.kill()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_second_writer_waits_and_then_names_who_writes(store: LmdbStore, path: Path) -> None:
    code = "with store.writing():\n    print('held', flush=True); sys.stdin.readline()\nprint('free', flush=True)"
    with in_another_process(code, path) as other:
        assert answer(other) == "held"
        with (
            open_store(f"lmdb://{path}?lock_timeout=100ms") as impatient,
            pytest.raises(StoreBusyError, match=f"process {other.pid} is writing"),
        ):
            put(impatient, ("a", 1))
        assert store.documents([1]) == [[]]  # readers are not blocked
        tell(other)
        assert answer(other) == "free"
        assert put(store, ("a", 1)) == 1


IN_A_WRITE = "with store.session.write():\n    print('held', flush=True); sys.stdin.readline()\n"


def test_a_writer_that_hangs_in_a_write_keeps_nobody_from_reading(path: Path, tmp_path: Path) -> None:
    with create_store(f"lmdb://{path}", Record(Layout.named("4"), Profile.named("auto-3").to_json())) as store:
        put(store, *spread(0, 50))
    there = ("--store", f"lmdb://{path}?lock_timeout=100ms")
    reading = [
        *(("describe", *there), ("status", *there), ("check", *there), ("export", *there), ("doctor", *there)),
        ("query", "0" * 16, *there),
        ("backup", str(tmp_path / "copy"), *there),
        ("relayout", *there, "--to", f"lmdb://{tmp_path / 'other'}", "--to-layout", "10"),
    ]
    (tmp_path / "one.jsonl").write_text('{"id": "new", "text": "the cat sat on the mat and looked at the door"}\n')
    writing = [
        ("remove", "1", "--yes", *there),
        ("expire", "--before", "2020-01-01", "--yes", *there),
        ("ingest", str(tmp_path / "one.jsonl"), *there),
        ("check", "--repair", *there),
        ("compact", *there),
        ("drop-table", "--yes", *there),
    ]

    def ended_of(words: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*PROGRAM, *words], capture_output=True, timeout=LIMIT_S, check=False)

    with in_another_process(IN_A_WRITE, path) as other:
        assert answer(other) == "held"
        try:
            with stopped(other.pid), ThreadPoolExecutor(4) as pool:
                ended = list(pool.map(ended_of, [*reading, *writing]))
        finally:
            tell(other)
    for words, one in zip([*reading, *writing], ended, strict=True):
        assert one.returncode == (4 if words in writing else 0), (words, one.stderr)
        if words in writing or words[0] == "doctor":
            assert b"process %d is writing" % other.pid in one.stdout + one.stderr, words


def test_a_first_write_waits_for_readers_in_other_threads(store: LmdbStore, path: Path) -> None:
    put(store, *spread(0, 50))
    store.close()
    with open_store(f"lmdb://{path}?lock_timeout=10ms") as opened, ThreadPoolExecutor(1) as pool:
        with opened.view() as view:
            with pytest.raises(
                StoreBusyError, match=r"another thread of this process .* has been reading it for 0.01 s"
            ):
                pool.submit(put, opened, ("a", 1)).result()
            assert view.documents([0]) == [[Document("0", 0, 7)]]
        assert pool.submit(put, opened, ("a", 1)).result() == 1
        assert opened.documents([1]) == [[Document("a", 1, 7)]]


@pytest.mark.parametrize("times", [tries(100, 20)])
def test_threads_that_read_are_not_disturbed_by_a_first_write(store: LmdbStore, path: Path, times: int) -> None:
    put(store, *spread(0, 50))
    store.close()
    fingerprints = [fingerprint for _, fingerprint in spread(0, 50)]
    for number in range(times):
        written = threading.Event()

        def read(opened: Store, written: threading.Event = written) -> int:
            rounds = 0
            while not written.is_set() or not rounds:
                assert all(opened.documents(fingerprints))
                rounds += 1
            return rounds

        with open_store(f"lmdb://{path}") as one, open_store(f"lmdb://{path}") as another:
            with ThreadPoolExecutor(4) as pool:
                readers = [pool.submit(read, store) for store in (one, another, another)]
                try:
                    assert put(one, (f"new {number}", number)) == 1
                finally:
                    written.set()
                assert all(reader.result(LIMIT_S) for reader in readers)
            assert another.lookup([b"new %d" % number]) == [Document(f"new {number}", number, 7)]


def test_threads_that_read_all_the_time_do_not_delay_a_write_that_fails(store: LmdbStore) -> None:
    put(store, *spread(0, 50))
    fingerprints = [fingerprint for _, fingerprint in spread(0, 50)]
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            assert all(store.documents(fingerprints))

    def fail_to_put(transaction: lmdb.Transaction) -> None:
        transaction.put(b"never stored", b"", db=store.session.environment.databases["record"])
        raise ZeroDivisionError

    def fail() -> None:
        for _ in range(20):
            with pytest.raises(ZeroDivisionError), store.session.write() as transaction:
                fail_to_put(transaction)

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            pool.submit(fail).result(LIMIT_S)
        finally:
            is_over.set()
        for reader in readers:
            reader.result(LIMIT_S)
    with store.view() as view:
        assert view.transaction.get(b"never stored", db=view.databases["record"]) is None


def test_an_index_that_was_dropped_is_not_written(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    with open_store(f"lmdb://{path}") as reader:
        files.drop_at(path, lock_timeout_s=1)
        for opened in (store, reader):
            with pytest.raises(IndexNotFoundError, match=r"no longer there.*this write was not stored"):
                put(opened, ("b", 2))
    assert not path.exists()


def test_an_index_replaced_before_the_first_write_is_not_written(store: LmdbStore, path: Path) -> None:
    store.close()
    with open_store(f"lmdb://{path}") as opened:
        files.drop_at(path, lock_timeout_s=1)
        with LmdbStore.create(f"lmdb://{path}", path, RECORD) as new:
            with pytest.raises(IndexNotFoundError, match=r"deleted or replaced; this write was not stored"):
                put(opened, ("a", 1))
            assert new.count() == 0


def test_an_index_can_be_written_after_a_compaction_under_the_same_lock(store: LmdbStore) -> None:
    with store.writing():
        put(store, ("a", 1))
        store.compact()
        put(store, ("b", 2))
    assert store.count() == 2


def test_no_other_memory_of_the_process_is_written_into_an_index(store: LmdbStore, path: Path) -> None:
    secret = b"memory that was freed and not cleared"
    for number in range(20):
        freed = [bytearray(secret * 100) for _ in range(1_000)]
        del freed  # the next allocations reuse this memory
        put(store, *[(f"{number}-{one}", number << 50 | one) for one in range(50)])
    assert secret not in (path / files.DATA).read_bytes()


def test_a_killed_writer_leaves_no_lock(store: LmdbStore, path: Path) -> None:
    killed_while("with store.writing(): ", path)
    assert put(store, ("a", 1)) == 1


def test_a_writer_whose_lock_file_is_deleted_stores_nothing_and_says_so(store: LmdbStore, path: Path) -> None:
    def write_without_lock_file() -> None:
        with store.session.write() as transaction:
            (path / "writer.lock").unlink()
            store.session.rows(transaction).put([(b"a", Registered(Signature(1), 7))])

    with pytest.raises(StoreBusyError, match="was deleted"):
        write_without_lock_file()
    assert store.lookup([b"a"]) == [None]
    assert put(store, ("a", 1)) == 1


@pytest.mark.parametrize("call", ["insert", "remove"])
def test_a_call_whose_lock_file_is_deleted_meanwhile_changes_nothing(store: LmdbStore, path: Path, call: str) -> None:
    class Deleting(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:  # called by `remove`
            (path / "writer.lock").unlink(missing_ok=True)
            return super().__iter__()

        def __getitem__(self, place: Any) -> Any:  # called by `insert`
            (path / "writer.lock").unlink(missing_ok=True)
            return super().__getitem__(place)

    put(store, ("a", 1))
    calls: dict[str, Callable[[], int]] = {
        "insert": lambda: store.insert(Deleting([b"a"]), Signatures.of([2]), np.array([7])),
        "remove": lambda: store.remove(Deleting([b"a"])),
    }
    with pytest.raises(StoreBusyError, match="was deleted"):
        calls[call]()
    assert store.lookup([b"a"]) == [Document("a", 1, 7)]


@pytest.mark.parametrize("name", ["data.mdb", "data.mdb-lock"])
def test_a_writer_whose_index_was_deleted_says_so_and_stores_nothing(store: LmdbStore, path: Path, name: str) -> None:
    put(store, ("a", 1))
    (path / name).unlink()
    assert store.documents([1]) == [[Document("a", 1, 7)]]  # a reader has the file open
    for _ in range(2):
        with pytest.raises(IndexNotFoundError, match="no longer there"):
            put(store, ("b", 1))
    assert store.lookup([b"b"]) == [None]


def test_an_index_whose_lmdb_lock_file_was_deleted_opens_again(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    (path / "data.mdb-lock").unlink()
    store.close()
    with open_store(f"lmdb://{path}") as again:
        assert again.insert([b"b"], Signatures.of([1]), np.array([7])) == 1
        with in_another_process("print(store.count(), flush=True)", path) as other:
            assert answer(other) == "2"


def test_a_file_that_is_no_index_is_a_clear_error(path: Path) -> None:
    path.mkdir()
    (path / "data.mdb").write_bytes(b"not lmdb at all" * 1000)
    with pytest.raises((CorruptionError, StoreUnavailableError), match="index"):
        open_store(f"lmdb://{path}")


@pytest.mark.parametrize("disk", ["small_disk", "small_ext4"])
def test_a_full_disk_is_a_clear_error_and_loses_nothing(disk: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(disk)
    path = (found if isinstance(found, Path) else found("2m")) / "index"
    acknowledged: list[str] = []

    def fill(store: LmdbStore) -> None:
        for start in range(0, 30_000, 300):
            documents = spread(start, start + 300)
            put(store, *documents)
            acknowledged.extend(doc_id for doc_id, _ in documents)

    with LmdbStore.create(f"lmdb://{path}", path, RECORD) as store:
        with pytest.raises(StoreUnavailableError, match="no space left"):
            fill(store)
        assert acknowledged
        assert None not in store.lookup([doc_id.encode() for doc_id in acknowledged])
        assert store.count() == len(acknowledged)
        assert store.check().is_sound


@thorough
def test_a_full_disk_stops_a_bulk_load_that_goes_on_later(small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    disk = small_disk("6m")
    path, ballast = disk / "index", disk / "ballast"
    values = np.random.default_rng(1).integers(0, 2**64, 8_000, np.uint64)
    with LmdbStore.create(f"lmdb://{path}", path, RECORD) as store:
        bulk = store.bulk(tmp_path / "runs")
        bulk.add_run(values, [str(number) for number in range(len(values))], 1)
        ballast.write_bytes(b"x" * (4 << 20))
        with pytest.raises(StoreUnavailableError, match="no space left"):
            bulk.merge()
        ballast.unlink()
        assert bulk.merge() == len(values)
        assert store.count() == len(values)
        assert store.check() == store.check(repair=True)


def test_a_read_only_disk_can_be_read_but_not_written(read_only_disk: tuple[Path, Callable[[], None]]) -> None:
    disk, make_read_only = read_only_disk
    url = f"lmdb://{disk / 'index'}"
    with create_store(url, RECORD) as store:
        assert isinstance(store, LmdbStore)
        put(store, ("a", 1))
    make_read_only()
    with open_store(url) as store:
        assert store.documents([1]) == [[Document("a", 1, 7)]]
        with pytest.raises(StoreUnavailableError, match="read-only"):
            store.remove([b"a"])
        assert store.count() == 1
    with pytest.raises(StoreUnavailableError, match="cannot create an index"):
        create_store(f"lmdb://{disk / 'other'}", RECORD)


def test_compact_shrinks_the_file_deletes_what_a_kill_left_and_loses_nothing(store: LmdbStore, path: Path) -> None:
    (path / "data-1-1.mdb-lock").touch()  # left by a kill after its data file was deleted
    put(store, *spread(0, 5_000))
    store.remove([str(number).encode() for number in range(4_900)])
    before, after = store.compact()
    assert after < before / 4
    assert put(store, ("new", 5)) == 1
    with in_another_process("print(store.count(), store.lookup([b'new'])[0].fingerprint, flush=True)", path) as other:
        assert answer(other) == "101 5"
    assert {file.name for file in path.iterdir()} == {"data.mdb", "data.mdb-lock", "writer.lock"}


def test_compact_is_refused_while_others_have_the_index_open_and_names_them(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    with in_another_process("print('open', flush=True); sys.stdin.readline(); print(store.count())\n", path) as other:
        assert answer(other) == "open"
        with pytest.raises(StoreBusyError, match=rf"in use by other processes \({other.pid}\)"):
            store.compact()
        put(store, ("b", 1))
        tell(other)
        assert answer(other) == "2"
        assert other.wait() == 0
    with open_store(f"lmdb://{path}"), pytest.raises(StoreBusyError, match="2 times in this process"):
        store.compact()
    store.compact()
    assert store.count() == 2


def test_what_opens_during_a_compaction_waits_for_it(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    code = (
        "from hsimhash.store.lmdb import compaction\n"
        "copy_rows = compaction.copy_rows\n"
        "def slow(*arguments):\n"
        "    print('there', flush=True); sys.stdin.readline(); copy_rows(*arguments)\n"
        "compaction.copy_rows = slow\n"
        "store.compact(); print('done', flush=True)\n"
    )
    store.close()
    with in_another_process(code, path) as other:
        assert answer(other) == "there"
        with pytest.raises(StoreBusyError, match=f"process {other.pid} is still compacting"):
            LmdbStore(f"lmdb://{path}", path, lock_timeout_s=0)
        with ThreadPoolExecutor(1) as thread:
            opening = thread.submit(open_store, f"lmdb://{path}")
            assert not wait([opening], timeout=0.05).done
            tell(other)
            assert answer(other) == "done"
            with opening.result() as opened:
                assert opened.count() == 1


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGKILL"])
@pytest.mark.parametrize("step", ["os.fsync", "os.unlink", "os.replace"])
def test_compact_interrupted_after_any_step_loses_nothing_and_the_next_one_cleans_up(
    store: LmdbStore, path: Path, step: str, signal_name: str
) -> None:
    put(store, *[(str(number), number << 32) for number in range(500)])
    store.close()
    code = (
        "import os, signal\n"
        f"step = {step}\n"
        "def interrupted(*arguments):\n"
        "    step(*arguments)\n"
        f"    os.kill(os.getpid(), signal.{signal_name})\n"
        f"{step} = interrupted\n"
        "store.compact()\n"
    )
    with in_another_process(code, path) as other:
        assert other.wait() == -signal.Signals[signal_name]
    with open_store(f"lmdb://{path}") as opened:
        assert opened.count() == 500
        assert opened.check().is_sound
        opened.compact()
        assert opened.count() == 500
    assert {file.name for file in path.glob("data*")} == {"data.mdb", "data.mdb-lock"}


def test_a_writer_sees_the_last_commit_of_one_that_was_killed(store: LmdbStore, path: Path) -> None:
    """LMDB makes a commit durable and then shows it to readers; about a quarter of these kills happen in between."""
    put(store, ("0", 0))

    def write() -> None:
        with open_store(f"lmdb://{path}") as own:
            for document in spread(begun, begun + 100_000):
                put(own, document)

    for begun in range(1_000_000, tries(41, 6) * 1_000_000, 1_000_000):
        before = store.count()
        child = fork(write)
        while store.count() <= before + 2:
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with store.writing():
            seen = {document.doc_id for page in store.walk() for document in page}
            put(store, ("0", begun))
            assert seen == {document.doc_id for page in store.walk() for document in page}


def test_an_index_with_a_large_bucket_can_be_compacted_and_backed_up(store: LmdbStore, path: Path) -> None:
    put(store, *[(str(number), number) for number in range(2_000)])
    store.close()
    code = "store.compact()\nstore.backup(store.session.path.parent / 'backup')\nprint('done', flush=True)\n"
    with in_another_process(code, path) as other:  # LMDB's own compacting copy ended the process
        assert answer(other) == "done"
    with open_store(f"lmdb://{path.parent / 'backup'}") as copy:
        report = copy.check()
    assert report.is_sound
    assert (report.documents, report.drawer_rows) == (2_000, 2_000 * len(RECORD.layout.drawers))


def test_a_backup_is_the_index_as_it_was(store: LmdbStore, tmp_path: Path) -> None:
    put(store, ("a", 1), ("b", 2))
    store.backup(tmp_path / "backup")
    put(store, ("c", 3))
    with open_store(f"lmdb://{tmp_path / 'backup'}") as copy:
        assert copy.count() == 2
        assert copy.record == RECORD
        assert copy.check().is_sound
        assert copy.insert([b"d"], Signatures.of([4]), np.array([7])) == 1


def test_two_stores_of_one_process_share_the_index(store: LmdbStore, path: Path) -> None:
    with open_store(f"lmdb://{path}") as second, open_store(f"lmdb://{path.parent}/./index") as third:
        put(store, ("a", 1))
        assert second.count() == third.count() == 1
    assert store.count() == 1


def test_check_repairs_what_a_damaged_index_lacks(store: LmdbStore) -> None:
    put(store, ("a", 1), ("b", 2), ("c", 3))
    databases = store.session.environment.databases
    with store.session.write() as transaction:
        transaction.delete(RECORD.layout.prefixes(1)[4], pack(1), db=databases["drawers"])  # a match is missed
        transaction.put(RECORD.layout.prefixes(2)[0], pack(99 << 40), db=databases["drawers"])  # in the wrong bucket
        transaction.put(b"\x00\x00\x00\x00\x63", pack(5), db=databases["drawers"])  # no such drawer
        transaction.delete(document_key(pack(3), b"c"), db=databases["documents"])  # listed nowhere
        transaction.put(document_key(pack(50), b"b"), pack(7), db=databases["documents"])  # leftover
        for prefix in RECORD.layout.prefixes(60):
            transaction.put(prefix, pack(60), db=databases["drawers"])  # leftovers
    report = store.check()
    assert not report.is_sound
    # The drawer rows of 3 are leftovers too because no document is listed under it any more.
    assert (report.problems, report.leftovers, report.repaired) == (4, 21, 0)
    assert any("drawer 5" in example for example in report.examples)
    repaired = store.check(repair=True)
    assert repaired.repaired == repaired.problems + repaired.leftovers == 25
    again = store.check()
    assert (again.documents, again.problems, again.leftovers) == (2, 0, 0)
    assert store.documents([1, 2]) == [[Document("a", 1, 7)], [Document("b", 2, 7)]]


def test_check_lists_a_document_again_where_its_register_says(store: LmdbStore) -> None:
    put(store, ("a", 1), ("b", 2))
    databases = store.session.environment.databases
    with store.session.write() as transaction:
        transaction.delete(document_key(pack(1), b"a"), db=databases["documents"])
        transaction.put(document_key(pack(9), b"a"), pack(7), db=databases["documents"])
    report = store.check(repair=True)
    assert (report.problems, report.leftovers) == (1, 1)
    assert store.documents([1, 9]) == [[Document("a", 1, 7)], []]
    again = store.check()
    assert (again.documents, again.problems, again.leftovers) == (2, 0, 0)


@pytest.mark.damages
def test_check_finds_a_lost_document_while_others_are_added(store: LmdbStore) -> None:
    put(store, *[(str(number), number) for number in range(20)])
    with store.session.write() as transaction:
        transaction.delete(document_key(pack(3), b"3"), db=store.session.environment.databases["documents"])
    added: list[int] = []

    def add_one(_: Progress) -> None:
        if not added:
            added.append(put(store, ("new", 2**63)))

    assert audit(store.session, observer=Observer(progress=add_one), page_rows=7).problems == 1


def test_an_index_made_anew_in_the_same_folder_opens_while_an_error_of_the_old_one_is_kept(path: Path) -> None:
    url = f"lmdb://{path}"
    with LmdbStore.create(url, path, RECORD) as old, old.view() as view:
        kept = view  # as the traceback of an error would
    shutil.rmtree(path)
    record = Record(Layout.named("4"), {"name": "test-1"})
    with LmdbStore.create(url, path, record) as new:
        assert new.record == record
    assert kept.databases


@pytest.mark.damages
def test_check_pages_through_one_large_bucket(tmp_path: Path) -> None:
    path = tmp_path / "index"
    record = Record(Layout.named("4"), {"name": "test-1"})
    with LmdbStore.create(f"lmdb://{path}", path, record) as store:
        put(store, *[(str(number), number) for number in range(50)])
        with store.session.write() as transaction:
            transaction.put(digest(b"ghost"), pack(1) + pack(1), db=store.session.environment.databases["register"])
        report = audit(store.session, page_rows=7)
    assert (report.documents, report.drawer_rows, report.problems, report.leftovers) == (51, 200, 1, 0)


def test_progress_of_check_ends_at_its_total(store: LmdbStore) -> None:
    put(store, *[(str(number), number) for number in range(50)])
    seen: list[tuple[int, int]] = []
    store.check(observer=Observer(progress=lambda one: seen.append((one.done, one.total))))
    assert seen[-1] == (550, 550)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.75])
def test_a_data_file_that_is_cut_off_is_a_clear_error(path: Path, share: float) -> None:
    with LmdbStore.create(f"lmdb://{path}", path, RECORD) as store:
        put(store, *spread(0, 3_000))
    data = (path / "data.mdb").resolve()
    os.truncate(data, int(data.stat().st_size * share))
    with pytest.raises(CorruptionError, match="is damaged"):
        open_store(f"lmdb://{path}")


def zero_pages_with(content: bytes, path: Path) -> None:
    """Zero the data file's leaves whose rows contain `content`; in unused space, any page may contain it by chance."""
    data = (path / "data.mdb").resolve()
    stored = data.read_bytes()
    pages = [stored[at : at + mmap.PAGESIZE] for at in range(0, len(stored), mmap.PAGESIZE)]

    def is_hit(page: bytes) -> bool:
        flags, _, first_row = struct.unpack_from("=HHH", page, 10)  # from LMDB's page header
        return bool(flags & 2) and content in page[first_row:]

    assert any(map(is_hit, pages))
    data.write_bytes(b"".join(bytes(len(page)) if is_hit(page) else page for page in pages))


@pytest.mark.damages
def test_damage_inside_the_data_file_is_named_with_its_place_and_the_remedy(store: LmdbStore, path: Path) -> None:
    put(store, *[(str(number), number << 32) for number in range(2_000)])
    store.close()
    zero_pages_with(digest(b"7"), path)
    message = rf"index {path} is damaged: .*(MDB_|wrong type).*; restore a backup, or delete the index with"
    with open_store(f"lmdb://{path}") as damaged:
        for attempt in (
            lambda: damaged.lookup([b"7"]),
            lambda: damaged.check(),
            lambda: put(damaged, ("7", 1)),
            lambda: damaged.compact(),
            lambda: damaged.backup(path.parent / "backup"),
        ):
            with pytest.raises(CorruptionError, match=message):
                attempt()


def test_a_write_past_the_limit_on_files_names_the_limit_and_stores_nothing(store: LmdbStore, path: Path) -> None:
    store.close()

    def write() -> None:
        size_bytes = (path / "data.mdb").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 10_000, resource.RLIM_INFINITY))
        with (
            open_store(f"lmdb://{path}") as limited,
            pytest.raises(StoreUnavailableError, match=r"this write was not stored; .*'ulimit -f'"),
        ):
            put(limited, *[(str(number), number << 32) for number in range(2_000)])

    with forked(write):
        pass
    with open_store(f"lmdb://{path}") as whole:
        assert put(whole, ("7", 1)) == 1


@pytest.mark.parametrize("error", [lmdb.DiskError("No space left on device"), OSError(errno.ENOSPC, "No space")])
def test_no_space_is_named_as_what_it_is(path: Path, error: Exception) -> None:
    assert str(files.store_error(path, error)).startswith(f"no space left on the disk of index {path}; this write")


def test_a_write_that_is_cut_short_on_a_disk_with_room_reports_damage(path: Path) -> None:
    path.mkdir()
    error = files.store_error(path, lmdb.Error("mdb_txn_commit: Input/output error"))
    assert isinstance(error, CorruptionError)
    assert "although the disk is not full" in str(error)


@pytest.mark.damages
def test_damage_between_sound_pages_is_found_where_all_rows_are_walked(store: LmdbStore, path: Path) -> None:
    put(store, *[(f"{number:04}", number << 32) for number in range(3_000)])
    store.close()
    zero_pages_with(b"1500", path)
    code = (  # LMDB's own forward iteration would end the process
        "from hsimhash.errors import CorruptionError\n"
        "for walk in (store.check, lambda: list(store.walk()), store.compact):\n"
        "    try:\n"
        "        walk()\n"
        "    except CorruptionError as error:\n"
        "        print('is damaged' in str(error), flush=True)\n"
    )
    with in_another_process(code, path) as other:
        assert [answer(other) for _ in range(3)] == ["True"] * 3


@pytest.mark.damages
def test_a_row_that_cannot_be_is_named_with_its_place_and_the_remedy(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    with store.session.write() as transaction:
        transaction.put(digest(b"a"), b"short", db=store.session.environment.databases["register"])
    for attempt in (
        lambda: store.lookup([b"a"]),
        lambda: put(store, ("a", 2)),
        lambda: store.remove([b"a"]),
        lambda: store.check(),
    ):
        with pytest.raises(
            CorruptionError, match=rf"index {path} is damaged: a register has 5 bytes.*restore a backup"
        ):
            attempt()


@pytest.mark.damages
@pytest.mark.parametrize(
    ("database", "key", "value"),
    [
        ("drawers", bytes(4), bytes(8)),
        ("drawers", bytes(12), bytes(8)),
        ("register", b"short", bytes(16)),
        ("register", digest(b"z"), bytes(15)),
        ("documents", b"short", bytes(8)),
        ("documents", bytes(8) + b"z", b"short"),
    ],
)
def test_a_row_of_a_wrong_length_is_damage_for_every_call_that_reads_it(
    store: LmdbStore, path: Path, database: str, key: bytes, value: bytes
) -> None:
    put(store, *[(f"{number}", number << 40) for number in range(1, 200)])
    compaction.make_base(store.session)
    put(store, *[(f"{number}", number << 40) for number in range(200, 300)])
    with store.session.write() as transaction:
        assert transaction.put(key, value, db=store.session.environment.databases[database])
    for attempt in (
        lambda: store.lookup([b"z"]),
        lambda: with_view(store, lambda view: view.scan([bytes(5)])),
        lambda: with_view(store, lambda view: view.sweep([(bytes(5), b"\xff" * 5)])),
        lambda: with_view(store, lambda view: view.documents([0])),
        lambda: list(store.walk()),
        lambda: put(store, ("z", 0)),
        lambda: store.remove([b"z"]),
        lambda: store.check(),
        lambda: compaction.make_base(store.session),
        lambda: store.compact(),
        lambda: store.check(repair=True),
    ):
        try:
            attempt()
        except CorruptionError as error:
            assert str(error).startswith(f"index {path} is damaged: ")  # noqa: PT017 - it may also succeed


@pytest.mark.damages
def test_a_record_that_cannot_be_read_is_named_with_the_remedy(store: LmdbStore, path: Path) -> None:
    with store.session.write() as transaction:
        transaction.put(b"layout", b"{", db=store.session.environment.databases["record"])
    store.close()
    with pytest.raises(
        CorruptionError, match=rf"index {path} is damaged: its record cannot be read .*restore a backup"
    ):
        open_store(f"lmdb://{path}")


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not an index")
    url = f"lmdb://{tmp_path / 'file'}"
    for use in (open_store, lambda place: create_store(place, RECORD)):
        with pytest.raises(StoreUnavailableError, match=r"/file is a file, not the folder of an index; choose another"):
            use(url)
    for command in (("drop-table", "--yes"), ("describe",)):
        assert "is a file, not the folder of an index" in run(*command, "--store", url).stderr
        assert (
            "it is a file, not the folder of tables" in run(*command, "--store", url.replace("lmdb", "tables")).stderr
        )


def test_a_place_below_a_file_is_refused(store: LmdbStore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailableError, match="cannot create an index in"):
        create_store(f"lmdb://{tmp_path / 'file' / 'index'}", RECORD)
    with pytest.raises(StoreUnavailableError, match=r"Not a directory|File exists"):
        store.backup(tmp_path / "file" / "backup")


def test_an_index_is_not_made_over_one_that_was_made_meanwhile(store: LmdbStore, path: Path) -> None:
    store.close()
    other = path.parent / "other"
    other.mkdir()
    with ThreadPoolExecutor(1) as thread, wait_for_lock(other / "writer.lock", 1):
        making = thread.submit(create_store, f"lmdb://{other}", RECORD)
        assert not wait([making], timeout=0.05).done
        shutil.copy(path / "data.mdb", other / "data.mdb")
    with pytest.raises(IndexExistsError, match="already"):
        making.result()


def test_an_index_that_is_dropped_while_it_is_opened_leaves_no_file(
    store: LmdbStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()

    def dropping(file: Path, mode: int) -> bool:
        monkeypatch.undo()
        files.drop_at(path, lock_timeout_s=1)
        return True

    (path / "notes").touch()  # so that the folder stays
    monkeypatch.setattr(os, "access", dropping)  # after the data file was locked, before LMDB opens it
    with pytest.raises(IndexNotFoundError, match="no index at"):
        open_store(f"lmdb://{path}")
    assert [file.name for file in path.iterdir()] == ["notes"]


def as_0_1_0_made_it(path: Path) -> Path:
    """Give an index the files that release 0.1.0 created; return the data file."""
    (path / "data.mdb-lock").unlink()
    data = (path / "data.mdb").rename(path / "data-4711-18a0b2c4d6e8f012.mdb")
    (path / "data.mdb").symlink_to(data.name)
    (path / "writer.queue").touch()
    return data


def test_an_index_of_the_first_release_opens_and_a_compaction_ends_its_link(store: LmdbStore, path: Path) -> None:
    put(store, *[(str(number), number << 32) for number in range(1_000)])
    store.close()
    data = as_0_1_0_made_it(path)
    with open_store(f"lmdb://{path}") as again:
        assert again.insert([b"new"], Signatures.of([1]), np.array([7])) == 1
        assert {file.name for file in path.glob("data*")} == {"data.mdb", data.name, f"{data.name}-lock"}
        again.compact()
        assert again.count() == 1_001
        assert {file.name for file in path.glob("data*")} == {"data.mdb", "data.mdb-lock"}


def test_a_lost_link_is_named_and_no_new_index_is_made_over_the_old_one(store: LmdbStore, path: Path) -> None:
    put(store, *[(str(number), number << 32) for number in range(1_000)])
    store.close()
    data = as_0_1_0_made_it(path)
    (path / "data.mdb").unlink()
    for attempt in (lambda: open_store(f"lmdb://{path}"), lambda: create_store(f"lmdb://{path}", RECORD)):
        with pytest.raises(CorruptionError, match="to repair the index, run"):
            attempt()
    (path / "data.mdb").symlink_to(data.name)
    with open_store(f"lmdb://{path}") as again:
        assert again.count() == 1_000


def test_another_index_in_the_same_place_is_refused(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    shutil.rmtree(path)
    other = Record(Layout.named("4"), {"name": "test-1"})
    with forked(lambda: create_store(f"lmdb://{path}", other).close()):
        pass
    assert len(store.scan(RECORD.layout.prefixes(1))) == 10  # of the old index, unchanged
    with pytest.raises(IndexNotFoundError, match="no longer there"):
        put(store, ("b", 1))
    store.close()
    with open_store(f"lmdb://{path}") as new:
        assert (new.record, new.count()) == (other, 0)


def test_a_store_opened_by_a_relative_path_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "there")
    create_store("lmdb://pages", RECORD).close()
    monkeypatch.chdir(tmp_path / "here")
    with create_store("lmdb://pages", RECORD) as store:
        assert store.insert([b"a"], Signatures.of([1]), np.array([7])) == 1
        monkeypatch.chdir(tmp_path / "there")
        store.compact()
        assert store.count() == 1
    with open_store("lmdb://pages") as other:
        assert other.count() == 0


def test_opening_while_others_compact_never_fails(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    store.close()
    code = (
        "for _ in range(150):\n"
        "    with LmdbStore('lmdb://x', store.session.path) as other:\n"
        "        assert other.count() == 1\n"
        "    store.close(); store = LmdbStore('lmdb://x', store.session.path)\n"
    )
    with in_another_process(code, path) as other, LmdbStore(f"lmdb://{path}", path) as mine:
        while other.poll() is None:
            with contextlib.suppress(StoreBusyError):
                mine.compact()
        assert other.returncode == 0


@thorough
def test_check_with_repair_beside_a_writer_harms_nothing(store: LmdbStore) -> None:
    put(store, *[(str(number), number << 30) for number in range(400)])
    is_over = threading.Event()

    def move() -> int:
        rng, moves = np.random.default_rng(2), 0
        while not is_over.is_set():
            put(store, *[(str(number), int(rng.integers(0, 2**63))) for number in rng.integers(0, 400, 20).tolist()])
            moves += 1
        return moves

    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        try:
            reports = [audit(store.session, repair=True, page_rows=50) for _ in range(4)]
        finally:
            is_over.set()
        assert moving.result() > 0
    assert [report.problems for report in reports] == [0] * 4
    assert None not in store.lookup([str(number).encode() for number in range(400)])
    assert store.check().is_sound


def test_a_whole_id_and_a_cut_one_never_share_a_key() -> None:
    whole_id_bytes = 511 - 8 - 1
    long = b"x" * 600
    crafted = long[:487] + digest(long)
    assert len(crafted) == whole_id_bytes + 1
    keys = {document_key(pack(1), doc_id) for doc_id in (long, crafted, crafted[:whole_id_bytes])}
    assert len(keys) == 3
    assert max(map(len, keys)) == 511


def test_a_killed_reader_does_not_make_the_file_grow_for_ever(store: LmdbStore, path: Path) -> None:
    killed_while("view = store.view().__enter__()\n", path)
    for number in range(300):
        put(store, ("a", number))
    assert store.session.file_bytes() < 2_000_000


def test_close_from_many_threads_releases_once(path: Path) -> None:
    LmdbStore.create(f"lmdb://{path}", path, RECORD).close()
    with open_store(f"lmdb://{path}") as kept:
        for _ in range(50):
            closing = open_store(f"lmdb://{path}")
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda one: one.close(), [closing] * 4))
        assert kept.count() == 0


def test_a_view_sees_one_state_while_a_document_moves(store: LmdbStore) -> None:
    put(store, ("doc", 1))
    with store.view() as view:
        assert len(view.scan(RECORD.layout.prefixes(0)))
        put(store, ("doc", 2**63))
        assert view.documents([1, 2**63]) == [[Document("doc", 1, 7)], []]
    assert store.documents([1, 2**63]) == [[], [Document("doc", 2**63, 7)]]


@pytest.mark.parametrize("limit", [None, 59_000])
def test_a_query_ends_within_its_time_and_says_how_far_it_came(store: LmdbStore, limit: int | None) -> None:
    put(store, *[(f"{number:05}", 1) for number in range(60_000)])
    with (
        store.view(timeout_s=0.001) as view,
        pytest.raises(
            StoreTimeoutError, match=r"time limit of 0.001 s was exceeded; .*,?\d+ documents of fingerprint 0{15}1"
        ),
    ):
        view.documents([1], limit)
    with store.view(timeout_s=60) as view:
        assert len(view.documents([1], 10)[0]) == 10


def test_every_read_of_a_query_ends_when_its_time_is_over(store: LmdbStore) -> None:
    put(store, ("a", 1))
    with store.view(timeout_s=0) as view:
        reads: list[Callable[[], object]] = [
            lambda: view.scan(RECORD.layout.prefixes(1)),
            lambda: view.documents_of([1]),
            lambda: view.sweep([(bytes(5), b"\xff" * 5)]),
            lambda: view.documents([1]),
            lambda: view.documents([1, 2, 3, 4, 5]),
        ]
        for read in reads:
            with pytest.raises(StoreTimeoutError, match="the time limit of 0 s was exceeded"):
                read()


def test_an_exception_that_is_kept_keeps_no_lock(store: LmdbStore, path: Path) -> None:
    def interrupted(documents: object) -> None:
        raise KeyboardInterrupt

    kept = []
    for _ in range(2):
        try:
            with store.writing(), store.writing():
                interrupted(put(store, ("a", 1)))
        except KeyboardInterrupt as error:
            kept.append(error)
        with open_store(f"lmdb://{path}?lock_timeout=0s") as other:
            assert other.remove([b"a"]) == 1
    assert len(kept) == 2


def test_the_wait_for_another_writer_ends_when_asked(store: LmdbStore, tmp_path: Path, path: Path) -> None:
    with in_another_process("with store.writing(): print('held', flush=True); sys.stdin.readline()", path) as other:
        assert answer(other) == "held"
        bulk = store.bulk(tmp_path / "runs")
        bulk.add_run(np.array([1], np.uint64), ["a"], 7)
        assert bulk.merge(Observer(stop=lambda: True)) is None
        with pytest.raises(StopAskedError), store.writing(stop=lambda: True):
            pass
        tell(other)
    assert bulk.merge() == 1


def test_a_backup_or_compaction_touches_no_file_of_others(store: LmdbStore, path: Path, tmp_path: Path) -> None:
    put(store, *[(str(number), number << 32) for number in range(2_000)])
    mine = path / "data-before-upgrade.mdb"
    mine.write_text("mine")
    (path / "data.mdb").chmod(0o640)
    store.compact()
    assert mine.read_text() == "mine"
    assert (path / "data.mdb").stat().st_mode & 0o777 == 0o640
    store.close()
    zero_pages_with(b"1500", path)
    target = tmp_path / "backup"
    target.mkdir()
    with open_store(f"lmdb://{path}") as damaged, pytest.raises(CorruptionError):
        damaged.backup(target)
    assert list(target.iterdir()) == []
    with open_store(f"lmdb://{path}") as damaged, pytest.raises(CorruptionError):
        damaged.backup(tmp_path / "new" / "backup")
    assert not (tmp_path / "new").exists()
    files.drop_at(path, lock_timeout_s=1)
    assert [file.name for file in path.iterdir()] == [mine.name]


@pytest.fixture
def read_only_view(small_disk: Callable[[str], Path], tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Yield a folder, and the same folder mounted read-only at another path."""
    folder, mounted = small_disk("64m"), tmp_path / "read-only"
    mounted.mkdir()
    subprocess.run(["mount", "--bind", str(folder), str(mounted)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(mounted)], check=True)
    yield folder, mounted
    subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def test_a_read_only_mount_is_read_while_nobody_writes_and_says_so_when_somebody_did(
    read_only_view: tuple[Path, Path],
) -> None:
    folder, mounted = read_only_view
    with LmdbStore.create(f"lmdb://{folder / 'index'}", folder / "index", RECORD) as store:
        put(store, ("a", 1))
        code = (
            "from hsimhash.errors import StoreUnavailableError\n"
            "print(store.count(), flush=True)\n"
            "try:\n"
            "    with store.view() as view:\n"
            "        print('reading', flush=True); sys.stdin.readline(); view.documents([1])\n"
            "except StoreUnavailableError as error:\n"
            "    print(error, flush=True)\n"
            "print(store.count(), flush=True)\n"
        )
        with in_another_process(code, mounted / "index") as other:
            assert answer(other) == "1"
            assert answer(other) == "reading"
            put(store, ("b", 1))
            tell(other)
            assert "was written to while it was being read from a read-only mount" in answer(other)
            assert answer(other) == "2"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_reader_without_the_right_names_the_file_it_needs() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # which the user `nobody` can reach too
        Path(folder).chmod(0o755)
        url = f"lmdb://{folder}/index"
        create_store(url, RECORD).close()

        def open_as_nobody() -> None:
            os.setuid(65534)
            with pytest.raises(StoreUnavailableError, match=r"cannot write .*data.mdb-lock"):
                open_store(url)

        with forked(open_as_nobody):
            pass


def test_a_fork_beside_a_compaction_leaves_a_child_that_can_open_the_index(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    store.close()

    def read_and_write() -> None:
        with open_store(f"lmdb://{path}") as own:
            assert own.count() == 1
            assert own.insert([b"b"], Signatures.of([1]), np.array([7])) == 1

    being_copied = files.open_lmdb(path / "data.mdb", is_read_only=True, has_lock=False)
    with contextlib.closing(being_copied), forked(read_and_write):
        pass
    with open_store(f"lmdb://{path}") as again:
        assert again.documents([1]) == [[Document("a", 1, 7), Document("b", 1, 7)]]


def test_a_child_keeps_its_parents_file_though_that_has_the_descriptor_of_a_lock(store: LmdbStore, path: Path) -> None:
    put(store, ("a", 1))
    store.close()
    shutil.rmtree(path)

    def write() -> None:
        for file in own:
            file.write("kept")
            file.flush()

    with contextlib.ExitStack() as files_open:
        own = [files_open.enter_context((path.parent / f"own-{number}").open("w")) for number in range(8)]
        with forked(write):
            pass


def test_a_killed_backup_is_no_index(store: LmdbStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, *[(str(number), number << 40) for number in range(3_000)])
    target, copy_rows = path.parent / "backup", compaction.copy_rows

    def copy_and_die(*arguments: object) -> None:
        copy_rows(*arguments)  # type: ignore[arg-type]
        os._exit(0)

    monkeypatch.setattr(compaction, "copy_rows", copy_and_die)
    with forked(lambda: store.backup(target)):
        pass
    assert list(target.iterdir())
    with pytest.raises(IndexNotFoundError):
        open_store(f"lmdb://{target}")


def test_closing_waits_for_a_write_in_another_thread(store: LmdbStore, path: Path) -> None:
    with ThreadPoolExecutor(1) as other:
        with store.session.write() as transaction:
            closed = other.submit(store.close)
            transaction.put(b"key", b"value")
            assert not closed.done()
        closed.result()
    with pytest.raises(StoreClosedError):
        store.remove([b"a"])
    with LmdbStore(f"lmdb://{path}", path) as again, again.view() as view:
        assert view.transaction.get(b"key") == b"value"


def test_a_glance_sees_any_row_that_is_missing_wrong_or_too_much(path: Path) -> None:
    record = Record(Layout.named("4"), {"name": "x", "sketch": {}, "key": {}})
    rng = np.random.default_rng(3)
    values, sketches, keys = rng.integers(0, 2**64, (3, 300), np.uint64)
    values[::3], keys[::4], keys[1::7] = values[0], 0, keys[1]  # many documents share a fingerprint or a key
    ids = [f"{number}{'x' * 600 * (number % 50 == 0)}".encode() for number in range(300)]
    with LmdbStore.create(f"lmdb://{path}", path, record) as store:
        store.insert(ids, Signatures.of(values, sketches, keys), np.zeros(300, np.int64))
        store.insert(ids[:40], Signatures.of(values[40:80], sketches[:40], keys[40:80]), np.zeros(40, np.int64))
        store.remove(ids[80:100])

        def seen() -> list[bytes] | None:
            with LmdbView(store.session) as view:
                found = glance(view, record)
                return None if found is None else found.rows

        left_over = seen()
        assert left_over
        assert len(left_over) == store.check().leftovers == store.check(repair=True).repaired
        assert seen() == []
        with store.session.write() as transaction:
            databases = {
                name: store.session.environment.databases[name] for name in ("register", "documents", "drawers")
            }
            rows = [(name, *row) for name, one in databases.items() for row in transaction.cursor(one).iternext()]
        for number in rng.choice(len(rows), tries(200, 10), replace=False).tolist():
            name, key, value = rows[number]
            other = bytearray(value)
            other[int(rng.integers(8))] ^= 1 << int(rng.integers(8))
            for put_back, changed in (
                ((key, value), None),
                (None, (key, bytes(other))),
                ((key, value), (key[::-1], value)),
            ):
                if name == "documents" and put_back is None:
                    continue  # this changes only the time first seen, which nothing else records
                with store.session.write() as transaction:
                    if put_back is not None or name == "register":
                        transaction.delete(key, value if name == "drawers" else b"", db=databases[name])
                    if changed is not None:
                        transaction.put(*changed, db=databases[name])
                assert seen() != [], (name, key, value, changed)
                with store.session.write() as transaction:
                    if changed is not None:
                        transaction.delete(changed[0], changed[1] if name == "drawers" else b"", db=databases[name])
                    transaction.put(key, value, db=databases[name])
        assert seen() == []


def branch_separators(data: bytearray, key_bytes: int) -> list[int]:
    """Return where keys begin in the branch pages of the database whose keys have `key_bytes` bytes."""
    found = []
    for page in range(2, len(data) // 4096):
        start = 4096 * page
        number, _, flags, lower = struct.unpack_from("<QHHH", data, start)
        if number != page or flags & 0x1F != 1:
            continue
        nodes = [start + one for one in struct.unpack_from(f"<{(lower - 16) // 2}H", data, start + 16)]
        if len(nodes) > 8 and {struct.unpack_from("<H", data, one + 6)[0] for one in nodes[1:]} == {key_bytes}:
            found += [one + 8 for one in nodes[len(nodes) // 2 :]]
    return found


@pytest.mark.damages
@pytest.mark.parametrize("key_bytes", [5, 16])  # of the drawers and the registers
def test_a_page_that_leads_elsewhere_is_found_though_all_rows_are_there_in_a_walk(path: Path, key_bytes: int) -> None:
    with LmdbStore.create(f"lmdb://{path}", path, RECORD) as store:
        put(store, *spread(0, 3_000))
    file = path / "data.mdb"
    data = bytearray(file.read_bytes())
    data[branch_separators(data, key_bytes)[0]] ^= 0x40
    file.write_bytes(data)
    with LmdbStore(f"lmdb://{path}", path) as store:
        report = store.check()
    assert report.problems + report.leftovers > 100
