"""`kill -9` of ingests; see `kills`."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from hsimhash import HSimIndex, IndexNotFoundError, Signatures
from hsimhash.fingerprint import Signature
from hsimhash.load.decisions import Decision, Verdict
from hsimhash.load.job import Counts
from hsimhash.store.hbase.files.load_tool import only_one
from hsimhash.store.lmdb.compaction import make_base
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.urls import with_options
from tests.stress.killing import (
    LATEST_S,
    Tally,
    check,
    check_keys,
    contents,
    crowded,
    delay,
    stray_files,
    url_in,
    victim,
)
from tests.stress.victims import Documents
from tests.support.fingerprint_sets import random_signatures

TEXTS_SHARE = 4  # ingests of texts get one kill in this many, because they take longer
ALONE_SHARE = 3  # one fingerprint in this many does not have a sketch and a key
BASE_DOCUMENTS = 500  # in the index before the ingest
_LISTS = ("rejects", "short", "tags")
_COUNTS = tuple(count.name for count in dataclasses.fields(Counts))


@dataclass(frozen=True, slots=True)
class Ingest:
    """A way to ingest, and its inputs."""

    name: str
    base: Path  # a folder with the base index, from before the ingest
    base_documents: Documents
    signatures: Mapping[str, set[Signature]]  # signatures that a document may have while the ingest is under way
    options: tuple[object, ...]
    command: str = "ingest"


@dataclass(frozen=True, slots=True)
class Trial:
    """An ingest into its own index with its own job folder, on any store."""

    ingest: Ingest
    url: str
    folder: Path

    def run(self, delay_s: float, tally: Tally, what: str) -> bool:
        """Run the ingest for at most `delay_s`; return whether it was killed before its end."""
        option = {"exclusive": "yes"} if self.ingest.name == "exclusive" else {}
        places = ("--store", with_options(self.url, option), "--job", self.folder / "job", "--quiet")
        if self.ingest.command == "bulk-load":
            places = (*places, "--stage", self.folder / "stage")
        with victim("program", self.ingest.command, *self.ingest.options, *places) as one:
            was_killed = one.kill_after(delay_s)
            if one.output() is None:
                tally.fault(f"{what}: workers outlived their parent")
            if not was_killed and one.process.returncode not in (0, 7):
                tally.fault(f"{what}: {one.last_words()}")
        if was_killed:
            tally.phases[self.ingest.name, phase_of(self)] += 1
        return was_killed


Begin = Callable[[Ingest, Path], AbstractContextManager[Trial]]  # makes an index with the base documents


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished ingest left, which must not depend on kills."""

    documents: Documents
    lists: Mapping[str, bytes]
    counts: Mapping[str, int]
    leftovers: int


def prepare(
    name: str, folder: Path, documents: int, rng: np.random.Generator, options: Sequence[object] = ()
) -> Ingest:
    """Make an index with a few documents, and the inputs of an ingest, with `options`, that moves some of them."""
    folder.mkdir()
    if name == "fitted":  # it creates its index and fits the profile
        inputs = [_texts(folder, rng, documents // TEXTS_SHARE)]
        return Ingest(name, folder, {}, {}, (*inputs, "--profile", "auto-3", "--workers", 2))
    is_text = name == "texts"
    base_ids = [f"base/{number}" for number in range(BASE_DOCUMENTS)]
    signatures = random_signatures(rng, crowded(rng, BASE_DOCUMENTS + documents))
    with HSimIndex.create(url_in(folder)) as index:
        index.add_many(signatures[:BASE_DOCUMENTS], base_ids, first_seen=range(BASE_DOCUMENTS))
        if not is_text:
            make_base(cast(LmdbStore, index.store).session)
    base = contents(url_in(folder))
    allowed = {doc_id: {signature} for doc_id, (signature, _) in base.items()}
    if is_text:
        inputs = [_texts(folder, rng, documents // TEXTS_SHARE)]
    else:
        ids = [_any_id(rng, base_ids, number) for number in range(documents)]
        given = _partly_kept(base, ids, signatures[BASE_DOCUMENTS:], rng)
        inputs = _fingerprint_files(folder, ids, given, rng)
        for doc_id, signature in zip(ids, given, strict=True):
            allowed.setdefault(doc_id, set()).add(signature)
    reading = ("--workers", 2) if is_text else ("--fingerprint-field", "fingerprint")
    special = {"skip": ("--on-duplicate", "skip"), "tag": ("--on-duplicate", "tag")}
    if name == "staged":
        return Ingest(name, folder, base, allowed, (*inputs, *reading, *options), "bulk-load")
    return Ingest(name, folder, base, allowed, (*inputs, *reading, *special.get(name, ())))


def _any_id(rng: np.random.Generator, base_ids: Sequence[str], number: int) -> str:
    draw = rng.random()
    if draw < 0.05:
        return base_ids[int(rng.integers(len(base_ids)))]  # moves
    if draw < 0.15:
        return f"页/{int(rng.integers(number + 1))}"  # an id that was used before
    return f"页/{number}" + "/long" * 120 * (draw > 0.99)


def _partly_kept(
    base: Documents, ids: Sequence[str], signatures: Signatures, rng: np.random.Generator
) -> list[Signature]:
    """Return the documents' signatures: the first are only fingerprints; half of the repeated ids keep theirs."""
    given: list[Signature] = []
    last = {doc_id: signature.fingerprint for doc_id, (signature, _) in base.items()}
    for doc_id, one in zip(ids, signatures, strict=True):
        fingerprint = last[doc_id] if doc_id in last and rng.random() < 0.5 else one.fingerprint
        last[doc_id] = fingerprint
        is_alone = len(given) < len(ids) // ALONE_SHARE
        given.append(Signature(fingerprint) if is_alone else one._replace(fingerprint=fingerprint))
    return given


def _fingerprint_files(
    folder: Path, ids: Sequence[str], signatures: Sequence[Signature], rng: np.random.Generator
) -> list[Path]:
    """Write signatures of only a fingerprint as lines, the rest as packed JSON, both with some bad records."""
    cut = len(ids) // ALONE_SHARE
    lines = [f"{doc_id}\t{one.fingerprint:016x}" for doc_id, one in zip(ids[:cut], signatures[:cut], strict=True)]
    records = [
        json.dumps({"id": doc_id, **one.to_json(), "first_seen": number})
        for number, (doc_id, one) in enumerate(zip(ids[cut:], signatures[cut:], strict=True))
    ]
    for place in rng.integers(20, cut // 2, 12).tolist():  # after the records that determine the format
        lines.insert(place, "no fingerprint\there")
        records.insert(place, '{"id": ')
    (folder / "first.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with gzip.open(folder / "second.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{record}\n" for record in records)
    return [folder / "first.tsv", folder / "second.jsonl.gz"]


def _texts(folder: Path, rng: np.random.Generator, count: int) -> Path:
    path = folder / "texts.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            words = rng.integers(0, 5_000, 0 if number % 50 == 0 else 300).tolist()
            file.write(json.dumps({"id": str(number), "text": " ".join(f"word{word}" for word in words)}) + "\n")
    return path


def result_of(trial: Trial) -> Result:
    """Return what a finished ingest left."""
    job, leftovers = trial.folder / "job", 0
    lists = {name: path.read_bytes() for name in _LISTS if (path := job / f"{name}.jsonl").exists()}
    summary = json.loads(path.read_text()) if (path := job / "summary.json").exists() else {}
    if trial.url.startswith("lmdb:"):  # on HBase a kill may leave some leftovers
        with HSimIndex.open(trial.url) as index:
            index.compact()  # until then the base has old rows of moved documents, and kills change how many
            leftovers = index.check().leftovers
    return Result(contents(trial.url), lists, {name: summary.get(name, -1) for name in _COUNTS}, leftovers)


def undisturbed(ingest: Ingest, folder: Path, begin: Begin) -> tuple[Result, float]:
    """Run an ingest to its end; return what it left, and how many seconds it took."""
    tally = Tally()
    with begin(ingest, folder) as trial:
        began = time.monotonic()
        if trial.run(LATEST_S, tally, "undisturbed") or tally.faults:
            raise RuntimeError(f"{ingest.name} undisturbed did not end: {tally.faults}")
        return result_of(trial), time.monotonic() - began


@contextmanager
def embedded(ingest: Ingest, folder: Path) -> Iterator[Trial]:
    """Yield a trial on a copy of the base index."""
    shutil.copytree(ingest.base, folder, symlinks=True)
    yield Trial(ingest, url_in(folder), folder)
    shutil.rmtree(folder)


def kill_ingests(ingest: Ingest, kills: int, tally: Tally, rng: np.random.Generator, begin: Begin = embedded) -> None:
    """Kill an ingest repeatedly until it is done, then the next one, until the number of kills is reached."""
    name, number = ingest.name, 0
    expected, whole_s = undisturbed(ingest, ingest.base.with_name(f"{name}-undisturbed"), begin)
    while tally.kills_of(name) < kills:
        number += 1
        what = f"{name}, index {number}"
        with begin(ingest, ingest.base.with_name(f"{name}-{number}")) as trial:
            while trial.run(delay(rng, whole_s) if tally.kills_of(name) < kills else LATEST_S, tally, what):
                if name == "fitted" and not _has_index(trial.url):
                    continue
                if not check(trial.url, tally, f"{what}, kill {tally.kills_of(name)}"):
                    return
                tally.lost += lost_documents(trial, tally, what)
            check(trial.url, tally, f"{what}, at its end")
            found = result_of(trial)
            check_keys(trial.url, found.documents, tally, f"{what}, at its end")
            tally.ends += 1
            tally.unequal_ends += found.documents != expected.documents
            if differing := differences(expected, found):
                tally.fault(f"{what}, resumed to its end, differs from an undisturbed run in {'; '.join(differing)}")
            tally.stray_files += stray_files(trial.folder)


def _has_index(url: str) -> bool:
    with suppress(IndexNotFoundError), HSimIndex.open(url):
        return True
    return False


def differences(expected: Result, found: Result) -> list[str]:
    """Return the differences between two finished ingests."""
    differing = []
    for doc_id in sorted(expected.documents.keys() | found.documents.keys()):
        one, other = expected.documents.get(doc_id), found.documents.get(doc_id)
        if one != other:
            differing.append(f"document {doc_id:.40}: {one} became {other}")
    differing += [name for name in _LISTS if expected.lists.get(name) != found.lists.get(name)]
    differing += [
        f"{name} {count:,} became {found.counts[name]:,}"
        for name, count in expected.counts.items()
        if count != found.counts[name]
    ]
    if expected.leftovers != found.leftovers:
        differing.append(f"{expected.leftovers} leftovers became {found.leftovers}")
    return differing[:5]


def lost_documents(trial: Trial, tally: Tally, what: str) -> int:
    """Return how many base documents or acknowledged ones are not as they must be."""
    ingest, job = trial.ingest, trial.folder / "job"
    if ingest.command == "bulk-load" and job.exists():
        with only_one(job, job, None):  # wait for the program that loads files: it moves documents
            pass
    found = contents(trial.url)
    check_keys(trial.url, found, tally, what)
    lost = [doc_id for doc_id in ingest.base_documents if doc_id not in found]
    lost += [doc_id for doc_id, (value, _) in found.items() if value not in ingest.signatures.get(doc_id, {value})]
    checkpoint = checkpoint_of(trial.folder)
    if checkpoint is not None and checkpoint["state"] in ("running", "merging"):
        lost += [f"run {number}" for number in range(_runs(job), int(checkpoint["runs"]))]
    if checkpoint is not None and ingest.name in ("skip", "tag") and checkpoint["state"] == "running":
        lost += _undone(ingest, found, job, int(checkpoint["sizes"].get("decisions", 0)))
    if lost:
        tally.fault(f"{what}: lost {lost[:3]}")
    return len(lost)


def _runs(job: Path) -> int:
    return sum(1 for path in job.glob("runs/run-*") if path.suffix != ".tmp")


def _undone(ingest: Ingest, found: Documents, job: Path, acknowledged: int) -> list[str]:
    """Return the ids for which neither the last acknowledged decision nor a later one has been carried out."""
    path, offset = job / "decisions.jsonl", 0
    allowed: dict[str, set[Signature | None]] = {
        doc_id: {value} for doc_id, (value, _) in ingest.base_documents.items()
    }
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if not line.endswith(b"\n"):
            break
        decision = Decision.from_line(line)
        if decision.verdict is not Verdict.DUPLICATE:
            before = allowed.get(decision.doc_id, {None}) if offset >= acknowledged else set()
            allowed[decision.doc_id] = before | {decision.signature}
        offset += len(line)
    return [doc_id for doc_id, values in allowed.items() if found.get(doc_id, (None, 0))[0] not in values]


def checkpoint_of(folder: Path) -> dict[str, object] | None:
    path = folder / "job" / "checkpoint.json"
    return json.loads(path.read_text()) if path.exists() else None


def phase_of(trial: Trial) -> str:
    """Return the phase that a killed ingest was in, from what it left."""
    checkpoint, job = checkpoint_of(trial.folder), trial.folder / "job"
    if checkpoint is None:
        return "before the job"
    decisions = job / "decisions.jsonl"
    if checkpoint["state"] == "running":
        if list(job.glob("runs/run-*.tmp")):
            return "writing a run"
        if _runs(job) > int(checkpoint["runs"]):
            return "run written, not acknowledged"
        if decisions.exists() and decisions.stat().st_size > int(checkpoint["sizes"].get("decisions", 0)):
            return "decided, not acknowledged"
        return "reading"
    if checkpoint["state"] == "merging":
        return f"merging: {merge_stage(trial)}"
    return "deleting runs" if (job / "runs").exists() else "done, at its end"


def merge_stage(trial: Trial) -> str:
    """Return the last stage that a merge has committed; on HBase, where it was in its slices."""
    if trial.url.startswith("lmdb:"):
        with LmdbStore(trial.url, trial.folder / "index") as store, store.view() as view:
            for key, value in view.transaction.cursor(view.databases["record"]):
                if key.startswith(b"load:"):
                    return str(json.loads(value)["stage"])
        return "before its first commit, or after its last"
    staged = trial.folder / "job" / "runs" / "staged.json"
    if trial.ingest.command == "bulk-load":
        return str(json.loads(staged.read_text())["stage"]) if staged.exists() else "before its beginning"
    path = trial.folder / "job" / "runs" / "merged.json"
    is_between = not path.exists() or json.loads(path.read_text())["pending"] is None
    return "between two slices" if is_between else "writing a slice"
