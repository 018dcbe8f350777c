"""Calls that tests interrupt, by name: each returns whether its result equals that of an undisturbed call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.load import IngestLimits, IngestOptions, Summary, ingest
from hsimhash.load.relayout import relayout

Call = Callable[[HSimIndex, Path], bool]  # takes an index that holds `a` with fingerprint 5, and an empty folder
FAR = np.random.default_rng(1).integers(0, 2**64, 10, np.uint64).tolist()  # they are not near each other, nor near `a`
SMALL = IngestLimits(gathered_documents=4, decided_at_once=3, step_documents=3)


def loaded(index: HSimIndex, folder: Path, **options: object) -> Summary:
    """Ingest ten documents, two of them near `a`."""
    path = folder / "documents.tsv"
    if not path.exists():
        path.write_text("".join(f"{n}\t{4 if n < 2 else FAR[n]:016x}\n" for n in range(10)))
    reading = InputOptions(format="fingerprints")
    given = IngestOptions(reading=reading, job=folder / "job", workers=1, limits=SMALL, **options)  # type: ignore[arg-type]
    return ingest(index, find_inputs([str(path)], reading), given)


def added_in_bulk(index: HSimIndex, folder: Path) -> bool:
    return loaded(index, folder).counts.added == 10 and index.count() == 11


def decided(index: HSimIndex, folder: Path) -> bool:
    counts = loaded(index, folder, on_duplicate="skip").counts
    return (counts.added, counts.duplicates, index.count()) == (8, 2, 9)


def tagged(index: HSimIndex, folder: Path) -> bool:
    counts = loaded(index, folder, on_duplicate="tag").counts
    tags = (folder / "job" / "tags.jsonl").read_text().splitlines()
    return (counts.added, len(tags), index.count()) == (10, 10, 11)


def laid_out_anew(index: HSimIndex, folder: Path) -> bool:
    url, is_new = f"lmdb://{folder / 'old'}", not (folder / "old").exists()
    with HSimIndex.create(url, layout="4", profile="zh-1") if is_new else HSimIndex.open(url) as old:
        old.add_many(FAR, [str(n) for n in range(10)])
        return relayout(old, index, folder / "job") == 10 and index.count() == 11


def claimed(index: HSimIndex, _: Path) -> bool:
    claims = index.claim_many([FAR[0], FAR[0] ^ 1, FAR[1], 4], ["b", "c", "d", "e"])
    return [one.is_new for one in claims] == [True, False, True, False] and index.count() == 3


def added(index: HSimIndex, _: Path) -> bool:
    index.add_many(FAR[:2], ["b", "a"])
    return sorted((one.doc_id, one.fingerprint) for one in index.documents()) == [("a", FAR[1]), ("b", FAR[0])]


READS: dict[str, Call] = {
    "query": lambda index, _: [match.doc_id for match in index.query(4)] == ["a"],
    "query of many": lambda index, _: (
        [[one.doc_id for one in each] for each in index.query_many([4, FAR[0]])] == [["a"], []]
    ),
    "get": lambda index, _: index.get("a") is not None,
    "count": lambda index, _: index.count() == 1,
    "export": lambda index, _: [document.doc_id for document in index.documents()] == ["a"],
    "check": lambda index, _: index.check().is_sound,
}
WRITES: dict[str, Call] = {
    "add": added,
    "remove": lambda index, _: index.remove(["a", "none"]) is not None and index.get("a") is None,
    "claim": claimed,
    "ingest": added_in_bulk,
    "ingest skip": decided,
    "ingest tag": tagged,
    "relayout": laid_out_anew,
}
CALLS = READS | WRITES


@contextmanager
def begun(call: Call, index: HSimIndex, folder: Path) -> Iterator[Future[bool]]:
    """Run a call in a thread during the block; at the end, wait until it returns."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(call, index, folder)
        yield done
        assert done.result()
    assert index.check().is_sound


@contextmanager
def all_begun(calls: Mapping[str, Call], indexes: Mapping[str, HSimIndex], folder: Path) -> Iterator[None]:
    """Run all calls at once, each on its own index, during the block; at the end, wait until they return."""
    with ThreadPoolExecutor(len(calls)) as threads:
        done = {name: threads.submit(call, indexes[name], made(folder / name)) for name, call in calls.items()}
        yield
        told = {name: one.exception() or one.result() for name, one in done.items()}
    assert told == dict.fromkeys(calls, True), told
    assert [name for name in calls.keys() & WRITES.keys() if not indexes[name].check().is_sound] == []


def made(folder: Path) -> Path:
    """Make a folder unless it exists; return it."""
    folder.mkdir(exist_ok=True)
    return folder
