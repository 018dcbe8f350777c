"""Ingest makes the same index and decisions as taking documents one by one, wherever a kill or a stop happens."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsimhash.errors import CorruptionError, HsimhashError, StoreBusyError, StoreUnavailableError
from hsimhash.fingerprint import Profile, Signature, Signatures
from hsimhash.fingerprint.signature import MAX_SKETCH, as_signature, as_signatures
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.reader import Batch, Position
from hsimhash.inputs.records import Documents as Records
from hsimhash.layout import Layout
from hsimhash.load import IngestLimits, IngestOptions, Summary, ingest
from hsimhash.load.decisions import Decision, DuplicateRule, Verdict, decide
from hsimhash.load.intake import Gathering
from hsimhash.load.job import Counts
from hsimhash.progress import UNWATCHED, Observer, Progress
from hsimhash.store import Document, Match, Record
from hsimhash.store.conformance.random_calls import packed_key
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.memory import MemoryStore
from tests.support.command_line import run
from tests.support.effort import thorough, tries
from tests.support.hbase_model import Cluster, ModelGateway
from tests.support.oracles import are_near

SMALL = IngestLimits(
    run_documents=4,
    gathered_documents=4,
    decided_at_once=3,
    block_bytes=60,
    step_documents=3,
)
SMALL_BYTES = 8_000  # inputs with fewer bytes are ingested with the small limits
PROFILE = Profile.named("auto-1")
Documents = list[tuple[str, int]] | list[tuple[str, Signature]]
# Few ids and close fingerprints, so that documents repeat, move, and lie at every distance up to beyond k.
ids = st.sampled_from(["a", "b", "c", "d", "e", "文"])
values = st.sampled_from([0, 1, 3, 7, 15, 31, 0b10_0001, 2**63, 2**63 + 1])
# Few sketches, with pairs 14 to 17 bits apart, and nearer and farther ones; few keys, two of them under one prefix.
signatures = st.builds(
    Signature,
    values,
    st.sampled_from([0, 2**16 - 1, 2**32 - 1, 2**33 - 1, 2**64 - 1, 1, 3]),
    st.sampled_from([0, *(packed_key(tags) for tags in ((1, 2, 3, 4, 5), (2, 1, 6, 7, 5), (1, 2, 3), (6, 7, 8, 9)))]),
)
documents = st.lists(st.tuples(ids, signatures), max_size=25)
kills = st.lists(st.one_of(st.integers(1, 14), st.integers(1, 80)), max_size=4)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    return lambda: tmp_path_factory.mktemp("place")


# The oracle.


@dataclass
class OneByOne:
    """An index as a dictionary, queried and filled one document at a time."""

    held: dict[str, Signature]
    mode: str
    k: int = 3
    max_sketch: int | None = MAX_SKETCH
    profile: str = "auto-2"

    def take(self, doc_id: str, given: Signature | int) -> dict[str, object]:
        signature = as_signature(given)
        others = ((other, value) for other, value in self.held.items() if other != doc_id)
        matches = sorted(filter(None, (self._match(signature, *one) for one in others)))
        before = self.held.get(doc_id)
        verdict = "added" if before is None else "unchanged" if before == signature else "changed"
        if matches and self.mode == "skip":
            verdict = "duplicate"
        else:
            self.held[doc_id] = signature
        names = ("distance", "id", "fingerprint", "similarity", "found_by")
        match = dict(zip(names, matches[0], strict=True)) if matches else None
        return {"id": doc_id, **shown(signature), "match": match, "verdict": verdict}

    def _match(self, asked: Signature, doc_id: str, held: Signature) -> tuple[object, ...] | None:
        if not are_near(asked, held, self.k, self.max_sketch, Profile.named(self.profile).key_kind):
            return None
        distance, differing = ((a ^ b).bit_count() for a, b in zip(asked[:2], held[:2], strict=True))
        similarity = max(0, 1 - differing / 32) if asked.sketch != 0 != held.sketch else None
        return distance, doc_id, f"{held.fingerprint:016x}", similarity, "distance" if distance <= self.k else "key"


def shown(signature: Signature) -> dict[str, str]:
    names = signature._fields if signature.sketch or signature.key else ("fingerprint",)
    found = {name: f"{getattr(signature, name):016x}" for name in names}
    return {"fingerprint": "0" * 16, **found}


def stored(given: Documents, profile: str) -> list[tuple[str, Signature]]:
    """Return documents as an index with this profile stores them."""
    has_signatures = profile != "auto-1"
    return [(doc_id, one if has_signatures else Signature(one[0])) for doc_id, one in given]


def held(index: HSimIndex) -> dict[str, Signature]:
    return {document.doc_id: document.signature for document in index.documents()}


def contents(index: HSimIndex) -> dict[str, int]:
    return {document.doc_id: document.fingerprint for document in index.documents()}


def write(path: Path, given: Documents) -> Path:
    """Write fingerprints to a .tsv file, or signatures to a .json file."""
    is_tsv = path.suffix == ".tsv"
    lines = (f"{doc_id}\t{one:016x}" if is_tsv else json.dumps({"id": doc_id, **shown(one)}) for doc_id, one in given)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def load(
    index: HSimIndex,
    path: Path,
    mode: str = "add",
    observer: Observer = UNWATCHED,
    *,
    reading: InputOptions | None = None,
    **options: object,
) -> Summary:
    has_fingerprints = path.suffix in (".tsv", ".json")
    reading = reading or (
        InputOptions("fingerprints", fingerprint_format="hex") if has_fingerprints else InputOptions()
    )
    found = find_inputs([str(path)], reading)
    limits = SMALL if path.stat().st_size < SMALL_BYTES else IngestLimits()
    options = {"reading": reading, "workers": 1, "limits": limits, **options}
    return ingest(index, found, IngestOptions(mode, **options), observer)  # type: ignore[arg-type]


def stopping_after(number: int) -> Observer:
    """Return an observer that stops an ingest after `number` checks whether to stop."""
    remaining = itertools.count(number, -1)
    return Observer(stop=lambda: next(remaining) <= 0)


def lines_in(summary: Summary, name: str) -> list[dict[str, object]]:
    path = summary.job / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def filled(folder: Path, before: Documents, kind: str = "lmdb", profile: str = "auto-1") -> HSimIndex:
    if kind == "lmdb":
        index = HSimIndex.create(f"lmdb://{folder / 'index'}", layout="4", distance=3, profile=profile)
    else:
        record = Record(Layout.named("4"), Profile.named(profile).to_json())
        store = HBaseStore.create("hbase://model/pages", ModelGateway(Cluster()), record)
        index = HSimIndex(store, Profile.named(profile))
    index.add_many([one for _, one in before], [doc_id for doc_id, _ in before], first_seen=1)
    return index


# Kills. Every durable step ends with fsync, so raising at each fsync in turn stops the work between any two steps.


class KilledError(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(number: int, *, is_before: bool) -> Iterator[None]:
    remaining = itertools.count(number - 1, -1)
    fsync = os.fsync

    def sync_or_die(fd: int) -> None:
        is_last = next(remaining) == 0
        if is_last and is_before:
            raise KilledError
        fsync(fd)
        if is_last:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync_or_die)
        yield


def load_with_kills(index: HSimIndex, path: Path, mode: str, kills_at: list[int], *, is_before: bool) -> Summary:
    for number in kills_at:
        with killed_at(number, is_before=is_before):
            try:
                return load(index, path, mode, job=path.parent / "job")
            except KilledError:
                pass
    return load(index, path, mode, job=path.parent / "job")


stores = pytest.mark.parametrize("kind", ["lmdb", "hbase-model"])
profiles = pytest.mark.parametrize("profile", ["auto-1", "auto-2", "auto-3"])
slow = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=tries(25, 8),
    deadline=None,
)


@slow
@given(before=documents, given=documents, kills_at=kills, is_before=st.booleans())
@pytest.mark.parametrize("mode", ["skip", "tag"])
@profiles
@stores
def test_decisions_are_those_of_documents_that_come_one_by_one_whatever_is_killed(
    kind: str,
    profile: str,
    mode: str,
    before: Documents,
    given: Documents,
    kills_at: list[int],
    is_before: bool,
    place: Callable[[], Path],
) -> None:
    folder = place()
    oracle = OneByOne(dict(stored(before, profile)), mode, profile=profile)
    expected = [oracle.take(*document) for document in stored(given, profile)]
    with filled(folder, before, kind, profile) as index:
        summary = load_with_kills(index, write(folder / "in.json", given), mode, kills_at, is_before=is_before)
        assert held(index) == oracle.held
        assert lines_in(summary, "tags") == tags_of(expected, mode)
        verdicts = [one["verdict"] for one in expected]
        counts = summary.counts
        assert (counts.added, counts.unchanged, counts.duplicates) == tuple(
            sum(verdicts.count(one) for one in names)
            for names in (("added", "changed"), ("unchanged",), ("duplicate",))
        )
        assert (counts.documents, counts.replaced) == (len(given), verdicts.count("changed"))


def tags_of(decisions: list[dict[str, object]], mode: str) -> list[dict[str, object]]:
    listed = {"add": [], "skip": [one for one in decisions if one["verdict"] == "duplicate"], "tag": decisions}[mode]
    return [{name: part for name, part in one.items() if name != "verdict"} for one in listed]


@slow
@given(before=documents, given=documents, kills_at=kills, is_before=st.booleans())
@profiles
@stores
def test_added_documents_are_all_there_and_counted_once_for_an_id_whatever_is_killed(
    kind: str,
    profile: str,
    before: Documents,
    given: Documents,
    kills_at: list[int],
    is_before: bool,
    place: Callable[[], Path],
) -> None:
    folder, old, new = place(), dict(stored(before, profile)), dict(stored(given, profile))
    with filled(folder, before, kind, profile) as index:
        summary = load_with_kills(index, write(folder / "in.json", given), "add", kills_at, is_before=is_before)
        assert held(index) == {**old, **new}
        counts = summary.counts
        assert counts.added == sum(old.get(doc_id) != one for doc_id, one in new.items())
        assert counts.added + counts.unchanged == counts.documents == len(given)
        assert counts.replaced == len(given) - len(new)
        assert index.check().problems == 0
        assert not (summary.job / "runs").exists()


@slow
@given(given=documents, stops=st.lists(st.integers(0, 4), max_size=4))
@profiles
@pytest.mark.parametrize("mode", ["add", "skip", "tag"])
def test_a_stop_loses_nothing_and_doubles_nothing(
    mode: str, profile: str, given: Documents, stops: list[int], place: Callable[[], Path]
) -> None:
    folder = place()
    oracle = OneByOne({}, mode, profile=profile)
    expected = [oracle.take(*document) for document in stored(given, profile)]
    path = write(folder / "in.json", given)
    with filled(folder, [], profile=profile) as index:
        for number in stops:
            summary = load(index, path, mode, stopping_after(number))
            if summary.is_complete:
                break
            assert summary.done is None or 0 <= summary.done <= 1
        summary = load(index, path, mode)
        assert held(index) == oracle.held
        assert summary.counts.documents == len(given)
        assert lines_in(summary, "tags") == tags_of(expected, mode)


@given(
    before=documents,
    given=st.lists(st.tuples(ids, signatures), min_size=1, max_size=40),
    k=st.integers(0, 3),
    max_sketch=st.one_of(st.none(), st.integers(0, 64)),
)
@settings(deadline=None)
@pytest.mark.parametrize("mode", ["skip", "tag"])
def test_decide_is_the_oracle_for_any_distance(
    mode: str, before: Documents, given: Documents, k: int, max_sketch: int | None
) -> None:
    oracle = OneByOne(dict(before), mode, k, max_sketch)
    expected = [oracle.take(*document) for document in given]
    with HSimIndex.create(f"memory://decide-{next(_numbers)}", layout="4", distance=3, profile="auto-2") as index:
        index.add_many([one for _, one in before], [doc_id for doc_id, _ in before])
        decisions = decide(
            index,
            [doc_id for doc_id, _ in given],
            as_signatures([one for _, one in given]),
            DuplicateRule(k, max_sketch, leaves_out=mode == "skip"),
        )
    assert [json.loads(decision.to_line()) for decision in decisions] == expected
    kept = [replace(one, match=one.match and one.match._replace(first_seen=0)) for one in decisions]
    assert [Decision.from_line(decision.to_line().encode()) for decision in decisions] == kept


_numbers = itertools.count()


def test_a_decision_that_an_earlier_release_wrote_is_taken_up() -> None:
    match = b'{"id": "a", "distance": 1, "fingerprint": "0000000000000001"}'
    line = b'{"id": "b", "fingerprint": "0000000000000003", "match": %s, "verdict": "added"}' % match
    assert Decision.from_line(line) == Decision("b", Signature(3), Verdict.ADDED, Match(1, "a", 1, 0))


def test_many_equals_of_documents_that_moved_away_are_all_passed_over() -> None:
    """The batch replaces all of the index's first matches; the next one must still be found."""
    count = 50
    doc_ids = [f"{number:02}" for number in range(count)]
    with HSimIndex.create(f"memory://moved-{next(_numbers)}", layout="4", distance=3) as index:
        index.add_many([7] * count + [6], [*doc_ids, "last"])
        given = [*doc_ids, "new"]
        moved = Signatures.of([2**40 + number * 997 * 2**30 for number in range(count)] + [7])
        found = decide(index, given, moved, DuplicateRule(1, None, leaves_out=False))[-1].match
    assert found is not None
    assert (found.distance, found.doc_id) == (1, "last")


class Counting(MemoryStore):
    """Counts the documents that are read."""

    read = 0

    @contextmanager
    def view(self, *, timeout_s: float | None = None) -> Iterator[SimpleNamespace]:
        def documents(fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
            found = view.documents(fingerprints, limit)
            self.read += sum(map(len, found))
            return found

        with super().view(timeout_s=timeout_s) as view:
            yield SimpleNamespace(
                answers=False, finds_near=False, scan=view.scan, lookup=view.lookup, documents=documents
            )


@pytest.mark.parametrize("leaves_out", [False, True])
def test_documents_of_one_fingerprint_that_come_again_are_read_a_few_times_each(*, leaves_out: bool) -> None:
    count = 2_000
    doc_ids = [f"{number:04}" for number in range(count)]
    store = Counting.create(f"memory://again-{next(_numbers)}", Record(Layout.named("4"), PROFILE.to_json()))
    with HSimIndex(store, PROFILE) as index:
        index.add_many([7] * count, doc_ids)
        decisions = decide(
            index, doc_ids, Signatures.of([7] * count), DuplicateRule(3, MAX_SKETCH, leaves_out=leaves_out)
        )
        assert store.read < 10 * count
    nearest = [decision.match.doc_id if decision.match else "" for decision in decisions]
    assert nearest == ["0001", *["0000"] * (count - 1)]


# Two jobs at once.


def far_apart(prefix: str, count: int) -> Documents:
    values = np.random.default_rng(5).integers(0, 2**64, count, np.uint64)
    return [(f"{prefix}{number}", value) for number, value in enumerate(values.tolist())]


def test_two_skip_jobs_at_once_keep_no_duplicates_of_each_other(tmp_path: Path) -> None:
    count, start = 8_000, threading.Barrier(2)

    def run(name: str) -> Counts:
        path = write(tmp_path / f"{name}.tsv", far_apart(name, count))
        is_first = itertools.count()

        def wait_for_the_other(_: Progress) -> None:
            if next(is_first) == 0:
                start.wait()

        with HSimIndex.open(f"lmdb://{tmp_path / 'index'}") as index:
            return load(index, path, "skip", Observer(progress=wait_for_the_other)).counts

    with filled(tmp_path, []) as index, ThreadPoolExecutor(2) as pool:
        p, q = pool.map(run, "pq")
        assert index.count() == p.added + q.added == p.duplicates + q.duplicates == count


def test_what_a_skip_job_decided_before_a_kill_is_not_carried_out_beside_what_others_added_since(
    tmp_path: Path, place: Callable[[], Path]
) -> None:
    count, number = 10, 0
    p, q = (write(tmp_path / f"{name}.tsv", far_apart(name, count)) for name in "pq")
    while True:
        number += 1
        with filled(place(), []) as index:
            try:
                with killed_at(number, is_before=False):
                    load(index, p, "skip")
                break
            except KilledError:
                pass
            load(index, q, "skip")
            load(index, p, "skip")
            assert len(set(contents(index).values())) == index.count() == count
    assert number > 10


# Texts.


def test_texts_of_all_kinds_are_counted_and_listed(tmp_path: Path) -> None:
    profile = Profile.named("auto-1")
    long = " ".join(f"word{number}" for number in range(40))
    records = [
        json.dumps({"id": "long", "text": long}),
        '{"id": "short", "text": "ok"}',
        '{"id": "none", "text": " ."}',
        "?",
    ]
    (tmp_path / "pages.jsonl").write_text("\n".join(records))
    with filled(tmp_path, []) as index:
        summary = load(index, tmp_path / "pages.jsonl")
        assert contents(index) == {"long": profile.fingerprint(long), "short": profile.fingerprint("ok")}
    counts = summary.counts
    assert (counts.documents, counts.added, counts.short, counts.rejected, counts.exact) == (4, 2, 1, 1, 1)
    assert [(line["id"], line["line"], line["indexed"]) for line in lines_in(summary, "short")] == [
        ("short", 2, True),
        ("none", 3, False),
    ]
    (reject,) = lines_in(summary, "rejects")
    assert reject == {
        "file": str(tmp_path / "pages.jsonl"),
        "line": 4,
        "reason": "invalid JSON at character 0",
        "record": "?",
    }
    assert json.loads((summary.job / "summary.json").read_text()) == summary.to_json()


@pytest.mark.parametrize("workers", [1, 2])
def test_texts_and_fingerprints_may_come_in_turn(workers: int, tmp_path: Path) -> None:
    names = []
    for number in range(4):
        name = tmp_path / f"{number}.{'tsv' if number % 2 else 'jsonl'}"
        name.write_text(
            f"{number}\t{number:016x}\n" if number % 2 else f'{{"id": "{number}", "text": "text {number}"}}\n?'
        )
        names.append(str(name))
    with filled(tmp_path, []) as index:
        summary = ingest(index, find_inputs(names, InputOptions()), IngestOptions(workers=workers))
        assert sorted(contents(index)) == ["0", "1", "2", "3"]
        assert index.get("3").fingerprint == 3  # type: ignore[union-attr]
    assert summary.counts.rejected == 2


def test_first_seen_is_what_the_record_says_or_now(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": "a", "fp": 1, "first_seen": 5}\n{"id": "b", "fp": 2}')
    with filled(tmp_path, []) as index:
        load(index, tmp_path / "in.jsonl", reading=InputOptions(fingerprint_field="fp"))
        a, b = (found.first_seen for found in index.get_many(["a", "b"]))  # type: ignore[union-attr]
    assert a == 5
    assert b > 1_600_000_000_000


def test_a_damaged_input_is_named_at_once_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "bad.tsv.gz").write_text("nothing packed")
    (tmp_path / "good.tsv").write_text("a\ttext")
    said: list[str] = []
    with filled(tmp_path, []) as index:
        inputs = find_inputs([str(tmp_path / "bad.tsv.gz"), str(tmp_path / "good.tsv")], InputOptions("tsv"))
        summary = ingest(index, inputs, IngestOptions(workers=1), Observer(say=said.append))
        assert index.count() == 1
    assert summary.counts.rejected == 1
    assert len(said) == 1
    assert "bad.tsv.gz:1: damaged" in said[0]


def test_progress_goes_from_nothing_to_everything(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", [(str(number), number) for number in range(30_000)])
    told: list[Progress] = []
    with filled(tmp_path, []) as index:
        load(index, path, observer=Observer(progress=told.append))
    reads, merges = ([one for one in told if one.stage == stage] for stage in ("read", "merge"))
    for one in (reads, merges):
        assert [progress.done for progress in one] == sorted(progress.done for progress in one)
        assert one[-1].done == one[-1].total
    assert (reads[-1].total, reads[-1].documents) == (path.stat().st_size, 30_000)
    assert told[-1].stage == "merge"


# What the index remembers.


@pytest.fixture(params=["add", "skip", "tag"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@stores
def test_a_finished_job_of_an_index_that_was_dropped_begins_anew(kind: str, mode: str, tmp_path: Path) -> None:
    job = tmp_path / "job"
    path = write(tmp_path / "in.tsv", [("a", 0xFFFF), ("b", 0xFFFF << 40)])
    with filled(tmp_path, [], kind) as index:
        assert load(index, path, mode, job=job).counts.added == 2
    shutil.rmtree(tmp_path / "index", ignore_errors=True)
    with filled(tmp_path, [("other", 2**50)], kind) as index:
        said: list[str] = []
        summary = load(index, path, mode, Observer(say=said.append), job=job)
        assert (summary.is_repeated, summary.counts.added) == (False, 2)
        assert said == [FORGOTTEN]
        assert index.count() == 3
        assert load(index, path, mode, Observer(say=said.append), job=job).is_repeated
        assert said == [FORGOTTEN]


def test_a_finished_job_that_a_restored_backup_does_not_know_begins_anew(mode: str, tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", [("a", 0xFFFF), ("b", 0xFFFF << 40)])
    with filled(tmp_path, [("other", 2**50)]) as index:
        index.backup(tmp_path / "backup")
        job = load(index, path, mode).job
        index.backup(tmp_path / "later")
    restore(tmp_path / "backup", tmp_path / "index")
    with HSimIndex.open(f"lmdb://{tmp_path / 'index'}") as index:
        assert load(index, path, mode).counts.added == 2
        assert index.count() == 3
    restore(tmp_path / "later", tmp_path / "index")
    with HSimIndex.open(f"lmdb://{tmp_path / 'index'}") as index:
        summary = load(index, path, mode)
        assert summary.job == job
        assert not summary.is_repeated  # the index remembers the job's earlier run
        assert summary.counts.added == 0
        index.compact()
        assert load(index, path, mode).is_repeated


def restore(backup: Path, index: Path) -> None:
    """Replace the index's files with those of a backup, as a user would."""
    for path in index.glob("data*"):
        path.unlink()
    shutil.copytree(backup, index, symlinks=True, dirs_exist_ok=True)


def test_the_same_again_does_nothing_until_fresh_brings_back_what_was_removed(mode: str, tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", [("a", 0xFFFF), ("b", 0xFFFF << 40)])
    with filled(tmp_path, []) as index:
        first = load(index, path, mode)
        index.remove("a")
        again = load(index, path, mode)
        assert again.is_repeated
        assert again.to_json() == {**first.to_json(), "repeated": True}
        assert index.count() == 1
        (first.job / "notes.txt").write_text("mine")
        fresh = load(index, path, mode, fresh=True)
        assert (fresh.is_repeated, fresh.counts.added, index.count()) == (False, 1, 2)
        assert (first.job / "notes.txt").read_text() == "mine"  # not a file of the job


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_a_finished_job_of_an_earlier_release_counts_as_done_unless_the_index_is_empty(
    suffix: str, mode: str, tmp_path: Path
) -> None:
    path = write_as(suffix, tmp_path, 1)
    said: list[str] = []
    with filled(tmp_path, [("other", 2**50 - 1)]) as index:
        first = load(index, path, mode)
        make_earlier(first.job)
        index.remove("0")
        summary = load(index, path, mode, Observer(say=said.append))
        assert summary.to_json() == {**first.to_json(), "repeated": True}
        assert contents(index) == {"other": 2**50 - 1}
        assert not said
        index.remove("other")
        assert load(index, path, mode, Observer(say=said.append)).counts.added == 1
        assert said == [FORGOTTEN]


FORGOTTEN = "this job is finished, but its results are not in the index, so its inputs are ingested again"


def write_as(suffix: str, folder: Path, number: int) -> Path:
    """Write `number` documents: with fingerprints for .tsv, otherwise with texts."""
    if suffix == ".tsv":
        return write(folder / "in.tsv", MANY[:number])
    path = folder / f"in{suffix}"
    path.write_text(
        "".join(json.dumps({"id": str(one), "text": f"text {one} of many"}) + "\n" for one in range(number))
    )
    return path


def make_earlier(job: Path) -> None:
    """Turn a job into one of release 0.1.0, which did not write a token or the formats of fingerprints."""
    checkpoint = json.loads((job / "checkpoint.json").read_text())
    del checkpoint["token"], checkpoint["position"]["formats"]
    (job / "checkpoint.json").write_text(json.dumps(checkpoint))
    begun = json.loads((job / "job.json").read_text())
    begun["inputs"] = [[place, mark.replace("with hexadecimal ", "with ")] for place, mark in begun["inputs"]]
    (job / "job.json").write_text(json.dumps(begun))


def test_an_unfinished_job_of_an_earlier_release_is_refused(mode: str, tmp_path: Path) -> None:
    path = write_as(".jsonl", tmp_path, 40)
    with filled(tmp_path, [("before", 2**50)]) as index:
        interrupted(index, path, mode, job=tmp_path / "job")
        make_earlier(tmp_path / "job")
        with pytest.raises(HsimhashError, match="was started by an earlier release; pass fresh=True to start over"):
            load(index, path, mode, job=tmp_path / "job")
        load(index, path, mode, job=tmp_path / "job", fresh=True)
        assert load(index, path, mode, job=tmp_path / "job").is_repeated


def interrupted_merge(index: HSimIndex, path: Path) -> Summary:
    """Leave behind a job that was interrupted while it was merging."""
    told: list[str] = []
    observer = Observer(stop=lambda: told.count("merge") > 3, progress=lambda one: told.append(one.stage))
    summary = load(index, path, observer=observer)
    assert not summary.is_complete
    assert json.loads((summary.job / "checkpoint.json").read_text())["state"] == "merging"
    return summary


def test_an_unfinished_job_goes_on_only_where_the_index_remembers_all_that_it_wrote(mode: str, tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", MANY)
    with filled(tmp_path, [("before", 2**50)]) as index:
        index.backup(tmp_path / "backup")
        interrupted(index, path, mode, job=tmp_path / "job")
    restore(tmp_path / "backup", tmp_path / "index")
    with HSimIndex.open(f"lmdb://{tmp_path / 'index'}") as index:
        if mode == "add":  # nothing from this job was in the index
            assert load(index, path, mode, job=tmp_path / "job").counts.added == len(MANY)
        else:
            with pytest.raises(HsimhashError, match=r"the index lacks some of its results.*fresh=True"):
                load(index, path, mode, job=tmp_path / "job")
            load(index, path, mode, job=tmp_path / "job", fresh=True)
        assert load(index, path, mode, job=tmp_path / "job").is_repeated


def test_a_merge_that_a_restored_backup_does_not_know_is_done_again(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", MANY)
    with filled(tmp_path, [("before", 2**50)]) as index:
        index.backup(tmp_path / "backup")
        interrupted_merge(index, path)
    restore(tmp_path / "backup", tmp_path / "index")
    with HSimIndex.open(f"lmdb://{tmp_path / 'index'}") as index:
        assert load(index, path).counts.added == len(MANY)
        assert index.count() == len(MANY) + 1
        assert index.check().is_sound


@pytest.mark.parametrize("lost", ["runs/run-000002", "runs/run-000001", "runs", "job.json"])
def test_a_job_that_lost_files_is_not_continued(lost: str, tmp_path: Path) -> None:
    path, job = write(tmp_path / "in.tsv", MANY), tmp_path / "job"
    with filled(tmp_path, []) as index:
        interrupted(index, path, asks=4, job=job)
        assert sorted(found.name for found in (job / "runs").glob("run-*"))[1:] == ["run-000002"]
        shutil.rmtree(job / lost) if (job / lost).is_dir() else (job / lost).unlink()
        with pytest.raises(
            CorruptionError, match=r"(is missing: the job wrote 2 sorted runs|No such file.*job\.json).*fresh=True"
        ):
            load(index, path, job=job)
        assert load(index, path, job=job, fresh=True).counts.added == len(MANY)


@pytest.mark.parametrize("mode", ["skip", "tag"])
def test_decisions_are_deleted_when_the_job_is_done(mode: str, tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", [("a", 1), ("b", 0)])
    with filled(tmp_path, []) as index:
        job = load(index, path, mode).job
        assert not (job / "decisions.jsonl").exists()
        (job / "decisions.jsonl").write_text("what a kill left")
        assert load(index, path, mode).is_repeated
        assert not (job / "decisions.jsonl").exists()


# Resuming a job, or not.


def interrupted(index: HSimIndex, path: Path, mode: str = "add", asks: int = 2, **options: object) -> None:
    """Leave behind an unfinished job that has acknowledged something, stopped after `asks` checks whether to stop."""
    summary = load(index, path, mode, stopping_after(asks), **options)
    assert not summary.is_complete
    assert summary.counts.documents > 0


MANY = [(str(number), number * 997) for number in range(40)]


def test_a_job_that_has_not_processed_anything_may_be_started_with_other_settings(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", MANY)
    with filled(tmp_path, []) as index:
        assert load(index, path, observer=stopping_after(0)).counts.documents == 0
        assert load(index, path, "tag", stopping_after(0)).counts.documents == 0
        summary = load(index, path, "skip")
        assert summary.is_complete
        assert summary.counts.documents == len(MANY)


def test_an_index_with_an_unfinished_job_is_not_moved(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", MANY)
    move = ("relayout", "--store", f"lmdb://{tmp_path / 'index'}", "--to", f"lmdb://{tmp_path / 'new'}")
    with filled(tmp_path, [("before", 2**50)]) as index:
        interrupted(index, path)
        refused = run(*move)
        assert refused.exit_code == 1
        assert "has an unfinished job" in refused.stderr
        assert not (tmp_path / "new").exists()
        load(index, path)
    moved = run(*move, "--job", str(tmp_path / "job"))
    assert (moved.exit_code, f"has {len(MANY) + 1} documents" in moved.stderr) == (0, True), moved.stderr


def test_an_unfinished_job_is_not_continued_with_other_settings_or_inputs(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", MANY)
    with filled(tmp_path, [("before", 2**50)]) as index:
        interrupted(index, path)
        with pytest.raises(ValueError, match=r'on_duplicate was "add", is "skip".*fresh=True'):
            load(index, path, "skip")
        write(path, [("only", 0xFFFF)])
        with pytest.raises(ValueError, match=r"input 1 .*in\.tsv\) has changed since .*fresh=True"):
            load(index, path)
        load(index, path, "skip", fresh=True)
        assert contents(index) == {"before": 2**50, "only": 0xFFFF}


@pytest.mark.parametrize("fresh", [False, True], ids=["as it is", "fresh"])
@pytest.mark.parametrize(
    "names", [["checkpoint.json"], ["rejects.jsonl"], ["runs"], ["job.json", "lock", "runs/1"]], ids=" ".join
)
def test_files_that_are_no_jobs_are_left_alone(names: list[str], fresh: bool, tmp_path: Path) -> None:
    mine = {tmp_path / "job" / name: '{"schedule": "daily"}' for name in names}
    for path, text in mine.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with filled(tmp_path, []) as index, pytest.raises(ValueError, match=r"exists, but.*pass another job folder"):
        load(index, write(tmp_path / "in.tsv", [("a", 1)]), job=tmp_path / "job", fresh=fresh)
    assert {path: path.read_text() for path in (tmp_path / "job").rglob("*") if path.is_file()} == mine


def test_a_new_job_folder_is_durable_with_all_that_it_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[Path] = set()
    fsync = os.fsync

    def seen(fd: int) -> None:
        synced.add(Path(f"/proc/self/fd/{fd}").readlink())
        fsync(fd)

    job = tmp_path / "a" / "b" / "job"
    with filled(tmp_path, []) as index:
        monkeypatch.setattr(os, "fsync", seen)
        load(index, write(tmp_path / "in.tsv", [("a", 1)]), job=job)
    assert {tmp_path, job.parent.parent, job.parent, job, job / "runs"} <= synced


@pytest.mark.parametrize("before", ["no job", "no file of tags", "other.jsonl"])
def test_tags_elsewhere_write_over_nothing_that_an_earlier_job_did_not_write(before: str, tmp_path: Path) -> None:
    path, tags = tmp_path / "in.tsv", tmp_path / "tags.jsonl"
    with filled(tmp_path, []) as index:
        if before != "no job":
            load(index, write(path, [("a", 1)]), "tag", tags=tmp_path / before if before == "other.jsonl" else None)
        write(path, [("a", 1), ("b", 0)])
        tags.write_text("mine")
        with pytest.raises(ValueError, match=r"tags\.jsonl already exists"):
            load(index, path, "tag", tags=tags)
        assert tags.read_text() == "mine"
        assert load(index, path, "tag", tags=tags, fresh=True).to_json()["tags"] == str(tags)
        assert [json.loads(line)["id"] for line in tags.read_text().splitlines()] == ["a", "b"]
        write(path, [("c", 5)])  # other inputs restart a finished job
        assert load(index, path, "tag", tags=tags).counts.documents == 1
    assert [json.loads(line)["id"] for line in tags.read_text().splitlines()] == ["c"]


def test_tags_that_cannot_be_written_are_refused_before_anything_is(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with filled(tmp_path, []) as index:
        for tags in (tmp_path / "gone" / "tags.jsonl", tmp_path / "folder", tmp_path / "loop"):
            with pytest.raises(ValueError, match=f"tags {tags} cannot be written: "):
                load(index, write(tmp_path / "in.tsv", [("a", 1)]), "tag", tags=tags)
        assert index.count() == 0
        assert not (tmp_path / "index" / "jobs").exists()


@pytest.mark.parametrize(
    "name",
    ["in.tsv", "link.tsv", "hard.tsv", "texts/new.jsonl", "index/data.mdb", "index/data.mdb-lock", "index/writer.lock"],
)
def test_tags_are_written_into_no_input_and_no_file_of_the_index(name: str, tmp_path: Path) -> None:
    reason = "is a file in the index .* itself" if "index" in name else "it is also input .*choose another name"
    path = write(tmp_path / "in.tsv", MANY)
    (tmp_path / "link.tsv").symlink_to("in.tsv")
    (tmp_path / "hard.tsv").hardlink_to(path)
    (tmp_path / "texts").mkdir()
    before = path.read_text()
    options = IngestOptions("tag", tags=tmp_path / name, fresh=True)
    with filled(tmp_path, [("b", 2)]) as index:
        with pytest.raises(ValueError, match=reason):
            ingest(index, find_inputs([str(path), str(tmp_path / "texts")], InputOptions()), options)
        assert contents(index) == {"b": 2}
    assert path.read_text() == before
    assert list((tmp_path / "texts").iterdir()) == []


def test_a_list_of_the_job_is_no_input_of_the_job(tmp_path: Path) -> None:
    job = tmp_path / "job"
    with filled(tmp_path, []) as index:
        load(index, write(tmp_path / "in.tsv", [("a", 1)]), "tag", job=job)
        before, reading = (job / "tags.jsonl").read_bytes(), InputOptions(fingerprint_field="fingerprint")
        with pytest.raises(ValueError, match=r"tags\.jsonl is an output file of job .*pass another job folder"):
            load(index, job / "tags.jsonl", reading=reading, job=job)
        assert (job / "tags.jsonl").read_bytes() == before
        assert load(index, job / "tags.jsonl", reading=reading).counts.unchanged == 1


def test_the_job_stays_within_its_index_when_the_process_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "in.tsv", [("a", 1)])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with HSimIndex.create("lmdb://index") as index:
        first = load(index, path)
        monkeypatch.chdir(tmp_path / "elsewhere")
        again = load(index, path)
    assert first.job.absolute().parent == again.job.parent == tmp_path / "index" / "jobs"
    assert again.is_repeated
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("lose", "reason"), [(Path.unlink, "missing"), (lambda path: path.write_text(""), "shorter")], ids=["file", "lines"]
)
@pytest.mark.parametrize("name", [None, "tags.jsonl"])
@pytest.mark.parametrize("is_done", [False, True], ids=["interrupted", "done"])
def test_tags_that_vanished_are_named(
    is_done: bool, name: str | None, lose: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    path, job, tags = write(tmp_path / "in.tsv", MANY), tmp_path / "job", tmp_path / name if name else None
    with filled(tmp_path, []) as index:
        if is_done:
            load(index, path, "tag", job=job, tags=tags)
        else:
            interrupted(index, path, "tag", job=job, tags=tags)
        lost = tags or job / "tags.jsonl"
        lose(lost)
        for _ in range(2):
            with pytest.raises(CorruptionError, match=rf"{lost} is {reason}.*; pass fresh=True to start over"):
                load(index, path, "tag", job=job, tags=tags)
        assert load(index, path, "tag", job=job, tags=tags, fresh=True).counts.documents == len(MANY)
        assert lost.read_text().count("\n") == len(MANY)


@pytest.mark.parametrize("name", ["checkpoint.json", "job.json"])
@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"state": "no such"}'])
def test_an_unreadable_job_is_refused_until_it_starts_over(name: str, text: str, tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", [("a", 1)])
    with filled(tmp_path, []) as index:
        job = load(index, path).job
        (job / name).write_text(text)
        with pytest.raises(CorruptionError, match=r"cannot be read .* fresh=True"):
            load(index, path)
        assert load(index, path, fresh=True).counts.unchanged == 1


def test_a_deleted_lock_file_ends_a_job_that_goes_on_later(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", MANY)
    job = tmp_path / "job"
    asked = itertools.count(3, -1)

    def delete_lock() -> bool:
        if next(asked) == 0:
            (job / "lock").unlink()
        return False

    with filled(tmp_path, []) as index:
        with pytest.raises(StoreBusyError, match="was deleted"):
            load(index, path, observer=Observer(stop=delete_lock), job=job)
        assert load(index, path, job=job).counts.added == len(MANY)


def test_a_store_without_a_folder_needs_one_for_the_job(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", [("a", 1), ("b", 0)])
    with HSimIndex.create(f"memory://job-{next(_numbers)}") as index:
        with pytest.raises(ValueError, match="does not have a default job folder"):
            load(index, path, "tag")
        assert load(index, path, "skip", job=tmp_path / "job").counts.duplicates == 1


def test_an_unknown_way_with_duplicates_is_refused() -> None:
    with pytest.raises(ValueError, match="add, skip or tag"):
        IngestOptions("drop")  # type: ignore[arg-type]


# Streams.


def test_a_silent_stream_takes_no_memory() -> None:
    gathering = Gathering()
    (stream,) = find_inputs(["-"], InputOptions())
    held = []
    tracemalloc.start()
    for _ in range(2):  # the first round fills the interpreter's own caches
        for _ in range(3_000):
            gathering.take(stream, Batch(0, Records(), Position()), None)
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[1] - held[0] < 20_000
    assert [len(column) for column in gathering.columns()] == [0, 0]


def through_pipe(index: HSimIndex, given: Documents, mode: str, job: Path, observer: Observer = UNWATCHED) -> Summary:
    reading, writing = os.pipe()
    try:
        os.write(writing, "".join(f"{doc_id}\t{value:016x}\n" for doc_id, value in given).encode())
        os.close(writing)
        # The same name every time, as with stdin; otherwise the descriptor's number would differ.
        os.dup2(reading, 99)
        return load(index, Path("/dev/fd/99"), mode, observer, reading=InputOptions("fingerprints"), job=job)
    finally:
        os.close(reading)
        os.close(99)


@pytest.mark.parametrize("mode", ["add", "skip", "tag"])
def test_an_interrupted_stream_is_read_again_as_a_whole(mode: str, tmp_path: Path) -> None:
    oracle = OneByOne({}, mode)
    for document in MANY:
        oracle.take(*document)
    with filled(tmp_path, []) as index:
        first = through_pipe(index, MANY, mode, tmp_path / "job", stopping_after(3))
        assert 0 < first.counts.documents < len(MANY)
        again = through_pipe(index, MANY, mode, tmp_path / "job")
        assert again.counts.documents == len(MANY)
        assert held(index) == oracle.held
        assert not through_pipe(index, MANY, mode, tmp_path / "job").is_repeated


# Disks.


@pytest.mark.parametrize("mode", ["add", "skip", "tag"])
def test_a_full_disk_ends_a_job_that_goes_on_once_there_is_space(
    mode: str, tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    disk = small_disk("24m")
    rng = np.random.default_rng(2)
    given = [(f"https://example.org/{number}", int(value)) for number, value in enumerate(rng.integers(0, 2**63, 9000))]
    path = write(tmp_path / "in.tsv", given)
    with HSimIndex.create(f"lmdb://{disk / 'index'}", layout="4", distance=3) as index:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(24_000_000))
        with pytest.raises(StoreUnavailableError, match=r"(?i)space"):
            load(index, path, mode)
        ballast.unlink()
        counts = load(index, path, mode).counts
        assert counts.added + counts.duplicates == len(given)
        assert index.count() == counts.added
        assert index.check().problems == 0


def test_the_format_of_fingerprints_is_part_of_what_a_job_was_begun_with(tmp_path: Path) -> None:
    path = tmp_path / "in.tsv"
    path.write_text("".join(f"{number}\t{10**15 + number}\n" for number in range(100)))
    decimal, hexadecimal = (InputOptions("fingerprints", fingerprint_format=form) for form in ("decimal", "hex"))
    with filled(tmp_path, []) as index:
        interrupted(index, path, reading=decimal)
        with pytest.raises(ValueError, match=r"was .*decimal fingerprints.*, is .*hexadecimal fingerprints"):
            load(index, path, reading=hexadecimal)
        assert load(index, path, reading=decimal).counts.added == 100
        assert contents(index)["7"] == 10**15 + 7


@thorough
def test_a_job_of_add_goes_on_with_other_options_of_decisions_and_adds_up_its_seconds(tmp_path: Path) -> None:
    path = write(tmp_path / "in.json", [(str(number), Signature(number << 40, 1, 2)) for number in range(20)])
    with filled(tmp_path, [], profile="auto-2") as index:
        summary = load(index, path, observer=stopping_after(1), max_sketch=3)
        assert not summary.is_complete
        checkpoint = summary.job / "checkpoint.json"
        checkpoint.write_text(json.dumps({**json.loads(checkpoint.read_text()), "seconds": 1_000}))
        summary = load(index, path, max_sketch=4)
        assert (summary.is_complete, summary.counts.added) == (True, 20)
        assert 1_000 < summary.seconds < 1_900
        (summary.job / "runs").mkdir()  # as after a kill at the very end
        assert load(index, path).is_repeated
        assert not (summary.job / "runs").exists()
