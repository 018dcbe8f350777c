"""Tables: what queries return, that nothing writes to them, and the effects of kills, damage and other versions."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hsimhash import HSimIndex, Profile, Signature, Signatures
from hsimhash.errors import (
    CorruptionError,
    FormatVersionError,
    IndexExistsError,
    IndexNotFoundError,
    StoreBusyError,
    StoreReadOnlyError,
    StoreTimeoutError,
)
from hsimhash.fingerprint import wordlists
from hsimhash.layout import Layout
from hsimhash.load import IngestOptions, ingest
from hsimhash.locks import WRITER_LOCK, take_lock
from hsimhash.store import Document, Record
from hsimhash.store.tables import write
from hsimhash.store.tables.folder import MANIFEST, RUNS, own_files
from hsimhash.store.tables.write import TablesOptions, write_tables
from tests.support.effort import tries
from tests.support.places import write_parts
from tests.support.processes import fork

PROFILES = ("auto-1", "auto-2", "auto-3")  # their records have the formats 1 to 3


def signatures_of(rng: np.random.Generator, count: int) -> Signatures:
    """Return signatures, many of which are near each other or share a key."""
    values = rng.integers(0, 2**64, count, np.uint64)
    for place in range(1, count, 2):
        values[place] = values[int(rng.integers(place))]
        for bit in rng.choice(64, int(rng.integers(5)), replace=False).tolist():
            values[place] ^= np.uint64(1 << bit)
    keys = (np.uint64(5) << np.uint64(60)) | rng.choice(rng.integers(0, 2**60, 40, np.uint64), count)
    sketches = rng.choice(rng.integers(0, 2**64, 9, np.uint64), count)
    return Signatures.of(
        values, np.where(rng.random(count) < 0.7, sketches, 0), np.where(rng.random(count) < 0.5, keys, 0)
    )


@pytest.fixture
def index(tmp_path: Path) -> HSimIndex:
    made = HSimIndex.create(tmp_path / "index", profile="auto-2")
    made.add_many(
        signatures_of(np.random.default_rng(3), 600), [f"文档 {number}" for number in range(600)], first_seen=7
    )
    return made


@pytest.fixture
def folder(index: HSimIndex, tmp_path: Path) -> Path:
    assert index.write_tables(tmp_path / "tables") == 600
    return tmp_path / "tables"


def opened(folder: Path) -> HSimIndex:
    return HSimIndex.open(f"tables://{folder}")


@pytest.mark.every_case
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("layout", ["4", "10", "16", "28"])
def test_every_query_has_the_answer_of_the_index(tmp_path: Path, layout: str, profile: str) -> None:
    rng, size = np.random.default_rng(PROFILES.index(profile)), tries(500, 160)
    for number in range(tries(3, 1)):
        with HSimIndex.create(tmp_path / f"index-{number}", layout=layout, profile=profile) as index:
            signatures, ids = signatures_of(rng, size), [str(one) for one in range(size)]
            index.add_many(signatures, ids, first_seen=rng.integers(0, 2**62, size).tolist())
            moved = rng.choice(size, size // 4, replace=False)
            index.add_many(signatures_of(rng, size // 4), [ids[place] for place in moved.tolist()])
            index.remove([ids[place] for place in rng.choice(size, size // 8, replace=False).tolist()])
            folder = tmp_path / f"tables-{number}"
            parts, is_packed = int(rng.integers(1, 4)), bool(rng.integers(2))
            write_parts(folder, index.store.record, index.documents(), parts, is_packed=is_packed)
            asked = [*(one.signature for one in list(index.documents())[:20]), *signatures_of(rng, 10)]
            with opened(folder) as tables:
                assert list(tables.documents()) == list(index.documents())
                assert tables.get_many(ids) == index.get_many(ids)
                assert (tables.count(), tables.profile, tables.distance) == (
                    index.count(),
                    index.profile,
                    index.distance,
                )
                for k in range(0, max(12, index.layout.max_distance) + 1, tries(3, 6)):
                    for limit in (None, 2):
                        expected = index.query_many(asked, max_distance=k, limit=limit)
                        assert tables.query_many(asked, max_distance=k, limit=limit) == expected
                        few = [tables.query(one, max_distance=k, limit=limit) for one in asked[:10]]
                        assert few == expected[:10]
                walked = [one for shard in range(3) for page in tables.store.registered(shard, 3) for one in page]
                assert walked == list(index.documents())
                assert tables.check().is_sound


def test_a_signature_of_a_document_finds_it_in_every_distance(folder: Path, index: HSimIndex) -> None:
    with opened(folder) as tables:
        for document in list(index.documents())[:50]:
            assert any(match.doc_id == document.doc_id for match in tables.query(document.signature, max_distance=0))


WRITES: dict[str, Callable[[HSimIndex], object]] = {
    "add": lambda index: index.add(5, "a"),
    "add_many": lambda index: index.add_many([5], ["a"]),
    "claim": lambda index: index.claim(5, "a"),
    "remove": lambda index: index.remove("a"),
    "ingest": lambda index: ingest(index, [], IngestOptions(job=Path("job"))),
    "nothing": lambda index: index.add_many([], []),
    "writing": lambda index: index.store.writing(),
    "repair": lambda index: index.check(repair=True),
    "create": lambda index: HSimIndex.create(index.url),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_refused_and_says_what_to_do(folder: Path, name: str) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with opened(folder) as tables, pytest.raises(StoreReadOnlyError, match=r"is read-only: .*write_tables"):
        WRITES[name](tables)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_readers_keep_what_they_opened_and_others_see_what_replaces_it(
    index: HSimIndex, folder: Path, tmp_path: Path
) -> None:
    with opened(folder) as old:
        before = list(old.documents())
        index.remove([document.doc_id for document in before[:300]])
        with pytest.raises(IndexExistsError, match="already contains tables"):
            index.write_tables(folder)
        assert index.write_tables(folder, overwrite=True, compress=True) == 300
        assert list(old.documents()) == before
        assert old.query_many([one.signature for one in before[:50]], max_distance=0) != []
        with pickle.loads(pickle.dumps(old)) as new:
            assert list(new.documents()) == before[300:]
    assert len(own_files(folder)) == 2


def test_tables_can_be_written_from_tables_and_over_themselves(folder: Path, tmp_path: Path) -> None:
    with opened(folder) as tables:
        whole = list(tables.documents())
        assert tables.write_tables(tmp_path / "others") == 600
        assert tables.write_tables(folder, overwrite=True) == 600
    for place in (folder, tmp_path / "others"):
        with opened(place) as again:
            assert list(again.documents()) == whole


def test_of_repeated_ids_the_last_document_counts(tmp_path: Path) -> None:
    record = Record(Layout.named("4"), Profile.named("auto-1").to_json())
    documents = [
        Document("a", 1, 1),
        Document("b", 2, 1),
        Document("a", 3, 2),
        Document("b", 2, 4),
        Document("a", 4, 3),
    ]
    for run_documents in (1, 2, 9):
        options = TablesOptions(overwrite=True, run_documents=run_documents)
        assert write_tables(tmp_path / "tables", record, documents, options).documents == 2
        with opened(tmp_path / "tables") as tables:
            assert list(tables.documents()) == [Document("b", 2, 4), Document("a", 4, 3)]
            assert tables.check().is_sound


@pytest.mark.parametrize("is_packed", [False, True])
def test_an_empty_index_is_written_and_answers(tmp_path: Path, is_packed: bool) -> None:
    with HSimIndex.create(tmp_path / "index") as index:
        assert index.write_tables(tmp_path / "tables", compress=is_packed) == 0
    with opened(tmp_path / "tables") as tables:
        assert tables.query(5) == []
        assert tables.query_many([5, 6], max_distance=12) == [[], []]
        assert tables.get("a") is None
        assert tables.is_empty()
        report = tables.check()
        assert (report.documents, report.drawer_rows) == (0, 0)
        assert tables.store.crowds() == ()


def test_a_fitted_profile_is_kept(tmp_path: Path) -> None:
    table = tmp_path / "own.rarity"
    general = Profile.named("auto-3")
    words = [f"wort{number}" for number in range(200)]
    lines = [f'{{"id": "{number}", "text": "{" ".join(words[number : number + 60])}"}}' for number in range(120)]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    command = [sys.executable, "-m", "hsimhash", "fit", str(tmp_path / "texts.jsonl"), "--output", str(table)]
    subprocess.run(command, check=True, capture_output=True)
    profile = Profile.named(f"auto-3:rarity={table}")
    with HSimIndex.create(tmp_path / "index", profile=profile) as index:
        text = " ".join(words[:60])
        index.add_text(text, "a")
        index.write_tables(tmp_path / "tables")
    table.unlink()
    sha256 = next(path.name for path in own_files(tmp_path / "tables") if path.name.startswith("list-"))[5:]
    wordlists._contents.pop(sha256)
    with opened(tmp_path / "tables") as tables:
        assert tables.profile.rarity == sha256 != general.rarity
        assert [match.doc_id for match in tables.query_text(text)] == ["a"]
    (tmp_path / "tables" / f"list-{sha256}").unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        opened(tmp_path / "tables")


def test_what_is_read_of_damaged_tables_is_right_or_an_error_that_names_the_file(
    index: HSimIndex, tmp_path: Path
) -> None:
    rng = np.random.default_rng(9)
    for is_packed in (False, True):
        folder = tmp_path / f"tables-{is_packed}"
        index.write_tables(folder, compress=is_packed)
        files = {path: path.read_bytes() for path in sorted(folder.iterdir())}
        asked = [one.signature for one in list(index.documents())[:5]]
        expected = index.query_many(asked), index.get_many(["文档 3", "文档 4", "keine"])
        for _ in range(tries(2_000, 60)):
            path = list(files)[int(rng.integers(len(files)))]
            changed = bytearray(files[path])
            changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
            path.unlink()
            path.write_bytes(changed)
            if path.suffix in (".rows", ".docs"):
                with pytest.raises(CorruptionError, match=path.name), opened(folder) as tables:
                    tables.check()
            with suppress(CorruptionError, FormatVersionError), opened(folder) as tables:
                assert tables.query_many(asked) == expected[0]
                assert [tables.query(one) for one in asked] == expected[0]
                assert tables.get_many(["文档 3", "文档 4", "keine"]) == expected[1]
                assert list(tables.documents()) == list(index.documents())
            path.unlink()  # a file that is mapped stays as it is
            path.write_bytes(files[path])


def test_a_changed_byte_of_the_manifest_is_damage_or_of_no_consequence(folder: Path) -> None:
    whole = (folder / MANIFEST).read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"[]", b"{}", b"\xff" + whole):
        (folder / MANIFEST).write_bytes(content)
        with pytest.raises(CorruptionError, match=r"tables\.json"):
            opened(folder)


def test_a_missing_part_and_a_truncated_one_are_damage(folder: Path) -> None:
    for path in own_files(folder):
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises(CorruptionError, match=f"{path.name} is missing"):
            opened(folder)
        path.write_bytes(whole[:-3])
        with pytest.raises(CorruptionError, match=path.name):
            opened(folder)
        path.write_bytes(whole)
    assert opened(folder).count() == 600


def test_parts_of_other_tables_are_refused(folder: Path, tmp_path: Path) -> None:
    with HSimIndex.create(tmp_path / "another", profile="auto-2") as another:
        another.add_many(signatures_of(np.random.default_rng(5), 600), [f"文档 {number}" for number in range(600)])
        another.write_tables(tmp_path / "others")
    for suffix in (".rows", ".docs"):
        (own,) = (path for path in own_files(folder) if path.suffix == suffix)
        (other,) = (path for path in own_files(tmp_path / "others") if path.suffix == suffix)
        whole = own.read_bytes()
        own.unlink()
        shutil.copy(other, own)
        with pytest.raises(CorruptionError, match="is not the file"):
            opened(folder)
        own.unlink()
        own.write_bytes(whole)


def test_a_folder_without_tables_and_those_of_other_releases_are_refused(folder: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere", tmp_path / "index" / "data.mdb", tmp_path / "index"):
        with pytest.raises(IndexNotFoundError, match=r"no tables in .*write_tables"):
            opened(place)
    whole = (folder / MANIFEST).read_text(encoding="utf-8")
    for version, said in (("1", "documents.parquet"), ("2", "documents.parquet"), ("4", "upgrade hsimhash")):
        (folder / MANIFEST).write_text(whole.replace('"version": 3', f'"version": {version}', 1), encoding="utf-8")
        with pytest.raises(FormatVersionError, match=said):
            opened(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(IndexNotFoundError, match="unfinished"):
        opened(folder)


def test_other_files_are_never_touched(index: HSimIndex, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    for overwrite in (False, True):
        with pytest.raises(IndexExistsError, match=r"other files, such as notes\.txt"):
            index.write_tables(tmp_path / "mine", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    with pytest.raises(IndexExistsError, match="other files"):
        index.write_tables(tmp_path / "index")


@pytest.mark.parametrize("step", ["run_of", "build_base", "build_documents"])
def test_an_interrupted_write_leaves_nothing_and_a_killed_one_what_the_next_call_deletes(
    index: HSimIndex, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, folder = getattr(write, step), tmp_path / "tables"

    def interrupted(*given: object, **named: object) -> object:
        whole(*given, **named)
        raise KeyboardInterrupt

    def killed(*given: object, **named: object) -> object:
        whole(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    with monkeypatch.context() as patched:
        patched.setattr(write, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            index.write_tables(folder)
    assert not folder.exists()

    def write_and_die() -> None:
        setattr(write, step, killed)
        index.write_tables(folder)

    pid = fork(write_and_die)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert (folder / RUNS).exists()
    with pytest.raises(IndexNotFoundError, match="unfinished"):
        opened(folder)
    assert index.write_tables(folder) == 600
    assert sorted(path.suffix for path in folder.iterdir()) == [".docs", ".json", ".rows"]
    with opened(folder) as tables:
        assert list(tables.documents()) == list(index.documents())


def test_an_interrupted_write_over_tables_leaves_these(
    index: HSimIndex, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def interrupted(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "build_documents", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.write_tables(folder, overwrite=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_two_writers_do_not_meet(index: HSimIndex, folder: Path) -> None:
    lock = take_lock(folder / WRITER_LOCK)
    assert lock is not None
    with lock, pytest.raises(StoreBusyError, match="is writing tables"):
        index.write_tables(folder, overwrite=True)
    assert opened(folder).count() == 600


def test_a_time_that_is_over_ends_a_read(folder: Path) -> None:
    with opened(folder) as tables, pytest.raises(StoreTimeoutError, match="was exceeded"):
        tables.query(Signature(5), timeout=0)


def test_a_packed_base_is_smaller(index: HSimIndex, tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 2**64, 50_000, np.uint64)
    sizes = []
    with HSimIndex.create(tmp_path / "large", profile="auto-1", layout="10") as large:
        large.add_many(values, list(map(str, range(50_000))))
        for compress in (False, True):
            large.write_tables(tmp_path / "tables", compress=compress, overwrite=True)
            with opened(tmp_path / "tables") as tables:
                sizes.append(int(tables.store.describe()["rows_bytes"]) / 500_000)
                assert tables.query_many(values[:200]) == large.query_many(values[:200])
    assert [round(one, 1) for one in sizes] == [8.7, 6.4]


def test_ids_of_any_length_are_found(tmp_path: Path) -> None:
    ids = ["é", "文档", "\U0001f600", "x" * 2048, "x" * 2047 + "y", *(f"{number}" * 40 for number in range(300))]
    with HSimIndex.create(tmp_path / "index", profile="auto-1") as index:
        index.add_many(np.arange(len(ids), dtype=np.uint64) // np.uint64(3), ids, first_seen=5)
        index.write_tables(tmp_path / "tables")
    with opened(tmp_path / "tables") as tables:
        found = tables.get_many(ids)
        assert [one and one.doc_id for one in found] == ids
        assert all(one < other for one, other in pairwise(tables.documents()) if one.fingerprint == other.fingerprint)
        assert tables.check().is_sound
