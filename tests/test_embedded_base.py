"""The base of an embedded index: when it exists, and what writes, kills, other processes and damage do to it."""

from __future__ import annotations

import os
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lmdb
import numpy as np
import pytest

from hsimhash.errors import CorruptionError, FormatVersionError, StoreBusyError
from hsimhash.fingerprint import Signatures
from hsimhash.fingerprint.bits import Uint64s
from hsimhash.layout import Layout
from hsimhash.progress import Observer, Progress
from hsimhash.store import Record
from hsimhash.store.base import RECORD_PARTS
from hsimhash.store.base_files.base_format import BaseHeader
from hsimhash.store.lmdb import files
from hsimhash.store.lmdb.checkup import checks
from hsimhash.store.lmdb.compaction import make_base
from hsimhash.store.lmdb.files import BaseLimits
from hsimhash.store.lmdb.store import LmdbStore
from tests.support.processes import fork, forked

RECORD = Record(Layout.named("10"), {"name": "test-1"})
LIMITS = BaseLimits(documents=1_000)
damages = pytest.mark.damages  # the index is not sound at the end


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def store(path: Path) -> Iterator[LmdbStore]:
    with LmdbStore.create(f"lmdb://{path}", path, RECORD, limits=LIMITS) as made:
        yield made


def opened(path: Path) -> LmdbStore:
    return LmdbStore(f"lmdb://{path}", path, limits=LIMITS)


def values_of(start: int, stop: int) -> Uint64s:
    """Return fingerprints that lie far apart."""
    return np.arange(start, stop, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def load(store: LmdbStore, start: int, stop: int) -> int:
    """Load documents in bulk, in two runs."""
    with store.bulk(store.session.path / "jobs" / "load") as bulk:
        for part in np.array_split(np.arange(start, stop), 2):
            bulk.add_run(values_of(start, stop)[part - start], [str(number) for number in part], 7)
        merged = bulk.merge()
        bulk.delete()
    assert merged is not None
    return merged


def insert(store: LmdbStore, start: int, stop: int) -> None:
    ids = [str(number).encode() for number in range(start, stop)]
    store.insert(ids, Signatures.of(values_of(start, stop)), np.full(stop - start, 7))


def missed(store: LmdbStore, start: int, stop: int) -> list[int]:
    """Return the documents that a query for a near fingerprint does not find."""
    queries = values_of(start, stop) ^ np.uint64(0b101 << 30)
    with store.view() as view:
        rows = [view.scan(RECORD.layout.prefixes(one)) for one in queries.tolist()]
        near = [set(row[:, 5:].copy().view(">u8").ravel().tolist()) for row in rows]
        wanted = values_of(start, stop).tolist()
        found = view.documents(wanted)
    return [
        start + place
        for place, value in enumerate(wanted)
        if value not in near[place] or str(start + place) not in {one.doc_id for one in found[place]}
    ]


def top_rows(store: LmdbStore) -> int:
    with store.view() as view:
        return int(view.transaction.stat(view.databases["drawers"])["entries"])


def base_rows(store: LmdbStore) -> int:
    with store.view() as view:
        return view.base.rows if view.base is not None else 0


def test_a_large_load_makes_a_base_and_smaller_ones_go_to_the_top_until_they_are_a_share_of_it(
    store: LmdbStore, path: Path
) -> None:
    load(store, 0, 900)
    assert (base_rows(store), top_rows(store), files.bases(path)) == (0, 9_000, [])
    load(store, 900, 4_000)
    assert (base_rows(store), top_rows(store)) == (4_000, 0)
    first = files.bases(path)
    load(store, 4_000, 4_300)
    assert (base_rows(store), top_rows(store), files.bases(path)) == (4_000, 3_000, first)
    load(store, 4_300, 4_600)
    assert (base_rows(store), top_rows(store)) == (4_600, 0)
    assert len(files.bases(path)) == 1
    assert files.bases(path) != first
    assert missed(store, 0, 4_600) == []
    report = store.check()
    assert (report.documents, report.drawer_rows, report.problems, report.leftovers) == (4_600, 46_000, 0, 0)


def test_inserts_never_make_a_base_and_compact_does(store: LmdbStore) -> None:
    for start in range(0, 3_000, 500):
        insert(store, start, start + 500)
    assert base_rows(store) == 0
    before, after = store.compact()
    assert (base_rows(store), top_rows(store)) == (3_000, 0)
    assert before > 2 * after
    assert missed(store, 0, 3_000) == []


def test_a_small_index_keeps_without_a_base_and_older_releases_can_read_it(store: LmdbStore, path: Path) -> None:
    insert(store, 0, 500)
    store.compact()
    assert base_rows(store) == 0
    with store.session.environment.env.begin() as transaction:
        record = store.session.environment.databases["record"]
        parts = {name: transaction.get(name, db=record) for name in RECORD_PARTS}
    assert Record.from_parts(parts, "it") == RECORD


def test_an_older_release_refuses_an_index_with_a_base(store: LmdbStore) -> None:
    load(store, 0, 2_000)
    with store.session.environment.env.begin() as transaction:
        record = store.session.environment.databases["record"]
        parts = {name: transaction.get(name, db=record) for name in RECORD_PARTS}
    with pytest.raises(FormatVersionError, match="upgrade hsimhash"):
        Record.from_parts(parts, "it")


def test_readers_of_the_same_process_read_on_while_bases_are_named(store: LmdbStore) -> None:
    insert(store, 0, 300)
    faults, is_over = list[BaseException](), threading.Event()

    def read() -> None:
        try:
            with store.view():  # a view that stays open
                while not is_over.is_set():
                    assert missed(store, 0, 300) == []
        except BaseException as error:
            faults.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for start in (300, 2_000, 4_000):
        load(store, start, start + 1_500)
    is_over.set()
    for reader in readers:
        reader.join()
    assert faults == []
    assert base_rows(store) >= 4_800


def test_rows_that_documents_left_in_the_base_are_leftovers_until_it_is_made_again(store: LmdbStore) -> None:
    load(store, 0, 2_000)
    store.remove([str(number).encode() for number in range(100)])
    store.insert([b"100"], Signatures.of(values_of(50, 51)), np.array([7]))  # moves to a removed fingerprint
    report = store.check()
    assert (report.problems, report.leftovers) == (0, 100 * 10)  # those of 0 to 100, except 50
    assert "do not belong to a document" in report.examples[0]
    assert [document.doc_id for document in store.documents(values_of(50, 51).tolist())[0]] == ["100"]
    assert store.documents(values_of(0, 3).tolist()) == [[], [], []]
    store.check(repair=True)
    assert (store.check().leftovers, base_rows(store)) == (0, 1_900)


def test_a_view_keeps_its_base_and_others_see_the_next_one(store: LmdbStore, path: Path) -> None:
    load(store, 0, 2_000)
    with opened(path) as other, other.view() as view:
        first = files.bases(path)
        load(store, 2_000, 4_000)
        assert not first[0].exists()
        assert len(view.scan(RECORD.layout.prefixes(int(values_of(7, 8)[0])))) >= 10
        assert view.estimate() == 2_000
        assert base_rows(other) == 4_000
        assert missed(other, 0, 4_000) == []


def test_another_process_that_has_the_index_open_finds_what_a_merge_brings(store: LmdbStore, path: Path) -> None:
    ready, go = os.pipe(), os.pipe()

    def reads() -> None:
        with opened(path) as other:
            assert other.count() == 500
            os.write(ready[1], b".")
            os.read(go[0], 1)
            assert missed(other, 0, 3_000) == []
            insert(other, 3_000, 3_010)

    insert(store, 0, 500)
    pid = fork(reads)
    os.read(ready[0], 1)
    load(store, 500, 3_000)
    os.write(go[1], b".")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert missed(store, 0, 3_010) == []
    with forked(lambda: [missed(store, 0, 3_010) == [] or os._exit(1)]):
        pass


@pytest.mark.parametrize("at", ["build_base", "name_base", "remove_bases"])
@pytest.mark.parametrize("has_base", [False, True])
def test_a_merge_that_is_killed_leaves_the_old_or_the_new_and_continues(
    store: LmdbStore, path: Path, at: str, has_base: bool
) -> None:
    if has_base:
        load(store, 0, 2_000)
    else:
        insert(store, 0, 200)
    known = store.count()

    def killed() -> None:
        import hsimhash.store.lmdb.environment as environment
        from hsimhash.store.lmdb import merge

        def die(*_: object, **__: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        owner = environment.Environment if at == "name_base" else merge
        calls = []
        whole = getattr(owner, at)

        def then_die(*arguments: object, **options: object) -> object:
            calls.append(1)
            result = whole(*arguments, **options)
            if at != "remove_bases" or len(calls) == 2:
                die()
            return result

        setattr(owner, at, then_die)
        with opened(path) as mine:
            load(mine, 2_000, 5_000)

    pid = fork(killed)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert store.check().problems == 0
    assert missed(store, 0, known) == []
    assert load(store, 2_000, 5_000) == 3_000
    assert len(files.bases(path)) == 1
    assert missed(store, 0, known) + missed(store, 2_000, 5_000) == []
    assert store.check().is_sound


def test_a_merge_that_is_asked_to_end_leaves_no_file_and_continues(store: LmdbStore, path: Path) -> None:
    told: list[Progress] = []
    stopping = Observer(stop=lambda: len(told) > 2, progress=told.append)
    with store.bulk(path / "jobs" / "load") as bulk:
        bulk.add_run(values_of(0, 3_000), [str(number) for number in range(3_000)], 7)
        assert bulk.merge(stopping) is None
        assert files.bases(path) == []
        assert bulk.merge() == 3_000
        bulk.delete()
    assert missed(store, 0, 3_000) == []


def flip(base: Path, at: int) -> None:
    content = bytearray(base.read_bytes())
    content[at] ^= 0x10
    base.unlink()
    base.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a row": (lambda base: flip(base, 5_000), "is damaged at byte 4,096"),
    "the header": (lambda base: flip(base, 20), "header is damaged"),
    "its content": (lambda base: os.truncate(base, 0), "header is damaged"),
    "the directory": (lambda base: flip(base, base.stat().st_size - 4_000), "directory"),
    "its length": (lambda base: os.truncate(base, 70_000), "bytes instead of"),
    "all": (lambda base: base.unlink(), "is missing"),
}


@damages
@pytest.mark.every_case
@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_base_is_named_and_made_again_by_check_or_a_merge(store: LmdbStore, path: Path, what: str) -> None:
    damage, said = DAMAGES[what]
    load(store, 0, 2_000)
    insert(store, 2_000, 2_010)
    for repair in (lambda one: one.check(repair=True), lambda one: load(one, 3_000, 3_900)):
        store.close()
        (base,) = files.bases(path)
        damage(base)
        store = opened(path)
        with pytest.raises(CorruptionError, match=f"{said}.*check --repair|{said}.*check\\(repair=True\\)") as caught:
            missed(store, 0, 2_000)
        assert base.name in str(caught.value)
        report = store.check()
        assert (report.problems, report.is_sound) == (1, False)
        assert said in report.examples[0]
        assert base.name in report.examples[0]
        with pytest.raises(CorruptionError):
            store.backup(path.parent / "backup")
        assert not (path.parent / "backup").exists()
        insert(store, 2_500, 2_501)
        repair(store)
        assert store.check().is_sound
        assert missed(store, 0, 2_010) + missed(store, 2_500, 2_501) == []
        assert len(files.bases(path)) == 1
    store.close()


def test_a_merge_that_cannot_commit_its_base_leaves_the_index_as_it_was(store: LmdbStore, path: Path) -> None:
    insert(store, 0, 100)
    name_base = store.session.environment.name_base

    def name_and_lose_the_lock(*arguments: Any) -> None:
        name_base(*arguments)
        (path / "writer.lock").unlink()

    with (
        patch.object(store.session.environment, "name_base", name_and_lose_the_lock),
        pytest.raises(StoreBusyError, match="was deleted"),
    ):
        load(store, 100, 3_000)
    assert (base_rows(store), missed(store, 0, 100)) == (0, [])
    insert(store, 100, 200)
    assert load(store, 100, 3_000) == 2_800
    assert (base_rows(store), missed(store, 0, 3_000)) == (3_000, [])


@damages
def test_a_base_whose_drawers_differ_is_a_problem_and_made_again(store: LmdbStore, path: Path) -> None:
    """The base is as a bug would leave it: its checksums are right."""
    load(store, 0, 2_000)
    with store.view() as view:
        assert view.base is not None
        name = view.base.name
    (base,) = files.bases(path)
    rows = [(base.read_bytes(), 4_096 + 8 * 2_000 * 3 + 8 * 77)]
    content = bytearray(rows[0][0])
    content[rows[0][1]] ^= 1  # a bit of a fingerprint in the fourth drawer, outside its segment
    header = BaseHeader.unpack(bytes(content[:4_096]))
    tail = 4_096 + header.rows_bytes
    block = (rows[0][1] - 4_096) // 4_096
    at = tail + 4 * (header.cells + header.fences + block)
    content[at : at + 4] = zlib.crc32(content[4_096 + block * 4_096 :][:4_096]).to_bytes(4, "little")
    head = replace(header, tail=zlib.crc32(content[tail:])).packed()
    store.close()
    base.unlink()
    base.write_bytes(head + content[4_096:])
    with lmdb.open(str(path / "data.mdb"), subdir=False, max_dbs=5, map_size=1 << 40) as env:
        record = env.open_db(b"record", create=False)
        with env.begin(write=True) as transaction:
            transaction.put(b"base", replace(name, header=zlib.crc32(head)).to_json(), db=record)
    with opened(path) as again:
        report = again.check()
        assert (report.problems, "different fingerprints" in report.examples[0]) == (1, True)
        again.check(repair=True)
        assert (again.check().is_sound, missed(again, 0, 2_000)) == (True, [])


def test_a_backup_has_the_base_and_lasts(store: LmdbStore, path: Path, tmp_path: Path) -> None:
    load(store, 0, 2_000)
    insert(store, 2_000, 2_100)
    store.backup(tmp_path / "backup")
    load(store, 3_000, 6_000)
    store.close()
    files.drop_at(path, lock_timeout_s=1)
    assert not path.exists()
    with opened(tmp_path / "backup") as copy:
        assert (copy.count(), missed(copy, 0, 2_100), copy.check().is_sound) == (2_100, [], True)


@damages
def test_doctor_names_a_large_top_and_a_damaged_base(store: LmdbStore, path: Path) -> None:
    load(store, 0, 2_000)
    for count, status in ((2_100, "ok"), (2_900, "warn")):
        insert(store, 2_000, count)
        (found,) = (one for one in checks(store.url, path) if one.name == "base")
        assert (found.status, "newer than the base" in found.message) == (status, True)
    store.close()
    flip(files.bases(path)[0], 20)
    found = {one.name: one for one in checks(store.url, path)}
    assert (found["read"].status, found["base"].status, found["file"].status) == ("fail", "fail", "ok")
    assert "check --repair" in found["base"].message
    with opened(path) as again:
        again.check(repair=True)


def test_what_killed_merges_leave_is_deleted_by_the_next_one_and_by_compact(store: LmdbStore, path: Path) -> None:
    for work in (lambda: load(store, 0, 2_000), lambda: load(store, 2_000, 4_000), store.compact):
        (path / "base-0123456789abcdef.rows").write_bytes(b"unfinished")
        (path / "base.tmp").mkdir()
        work()
        assert len(files.bases(path)) == 1
        assert not (path / "base.tmp").exists()
    assert missed(store, 0, 4_000) == []


@damages
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is not a regular file"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("nowhere"), "is missing"),
    ],
    ids=["folder", "pipe", "dangling link"],
)
def test_what_is_no_file_in_place_of_the_base_is_damage_and_beside_it_is_left_alone(
    make: Callable[[Path], object], said: str, store: LmdbStore, path: Path
) -> None:
    load(store, 0, 2_000)
    store.close()
    (base,) = files.bases(path)
    base.unlink()
    for name in (base.name, "base-0123456789abcdef.rows"):
        make(path / name)
    with opened(path) as again:
        with pytest.raises(CorruptionError, match=f"{base.name} {said}; .*call index.check"):
            missed(again, 0, 10)
        assert again.check(repair=True).problems == 1
        assert missed(again, 0, 2_000) == []
        load(again, 2_000, 4_000)
        again.compact()
        assert missed(again, 0, 4_000) == []
        assert again.check().problems == 0


def test_every_base_has_the_mode_of_the_data_file(store: LmdbStore, path: Path) -> None:
    works: list[Callable[[], object]] = [
        lambda: load(store, 0, 2_000),
        lambda: load(store, 2_000, 4_000),
        store.compact,
        lambda: make_base(store.session),
    ]
    for mode, work in zip((0o664, 0o640, 0o660, 0o666), works, strict=True):
        (path / "data.mdb").chmod(mode)
        work()
        (base,) = files.bases(path)
        assert base.stat().st_mode & 0o777 == mode


def test_a_base_is_a_file_of_the_index(store: LmdbStore, path: Path) -> None:
    load(store, 0, 2_000)
    (base,) = files.bases(path)
    assert files.is_own(path, base)
    assert not files.is_own(path, path.parent / base.name)
    facts = store.describe()
    assert facts["drawer_rows"] == 20_000
    assert facts["base_bytes"] == base.stat().st_size
    assert facts["file_bytes"] == base.stat().st_size + (path / "data.mdb").stat().st_size


def test_an_index_whose_documents_all_left_has_an_empty_base(store: LmdbStore) -> None:
    load(store, 0, 2_000)
    store.remove([str(number).encode() for number in range(2_000)])
    store.compact()
    assert (base_rows(store), store.count(), store.check().leftovers) == (0, 0, 0)
    assert store.scan(RECORD.layout.prefixes(5)).shape == (0, 13)
    insert(store, 0, 10)
    load(store, 10, 20)
    assert missed(store, 0, 20) == []
