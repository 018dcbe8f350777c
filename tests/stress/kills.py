"""`kill -9` at random moments: `python -m tests.stress.kills [--kills 200]`.

| victim | what it does | what must hold after every kill, and at the end |
|---|---|---|
| `bulk` | `ingest`, in runs that are merged | acknowledged runs are there; at the end all is as undisturbed |
| `skip`, `tag` | `ingest --on-duplicate …` | acknowledged decisions hold; at the end all is as undisturbed |
| `texts` | `ingest` of texts by two worker processes | as `bulk`; no worker outlives its parent |
| `writers` | two processes that add, move, remove, compact | all acknowledged calls hold, and at most one more |
| `compact` | compacts without end, beside readers | nothing is lost, the readers miss nothing, the next one cleans up |

"All" is the index, the counts and the lists. After every kill the index is opened and checked: no problems, and every
document of before is in it. The same command then goes on, and is killed again. The moments are drawn from a seed; what
they hit depends on the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from hsimhash import HsimhashError, HSimIndex
from hsimhash.load.job import Counts
from hsimhash.store.embedded import EmbeddedStore
from tests.bench.conditions import add_scratch_option, print_conditions, scratch_folder
from tests.bench.fingerprint_sets import flipped
from tests.stress.victims import READY, Documents, operation

ROOT = Path(__file__).parents[2]
SEED = 9
KILLS = 200
SHARES = {"bulk": 0.4, "skip": 0.15, "tag": 0.15, "texts": 0.05, "writers": 0.15, "compact": 0.1}  # of all kills
DOCUMENTS = 3_000  # of an ingest
TEXTS_SHARE = 4  # one so many of them, for texts take longer
BASE_DOCUMENTS = 500  # in the index before it
COMPACTED_DOCUMENTS = 3_000
READERS = 2  # beside what compacts
OPERATIONS = 600  # of each writer
ROUND_S = 0.3  # the longest time for which the writers are let run between two kills
LATEST_S = 120.0  # no victim may take so long
ORPHANS_S = 10.0  # how long a dead victim's children may live on
PLANTED_BEFORE = 10**9  # a first seen below this was given, not the time of the run

_ABSENT = -1  # instead of a fingerprint
_LISTS = ("rejects", "short", "decisions", "tags")
_COUNTS = tuple(count.name for count in dataclasses.fields(Counts))


@dataclass(slots=True)
class Tally:
    """What came of the kills."""

    phases: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lost: int = 0
    failed_opens: int = 0
    problems: int = 0
    ends: int = 0
    unequal_ends: int = 0
    stray_files: int = 0

    @property
    def kills(self) -> int:
        return self.phases.total()

    @property
    def is_sound(self) -> bool:
        return not (self.faults or self.lost or self.failed_opens or self.problems or self.unequal_ends)

    def kills_of(self, victim: str) -> int:
        return sum(count for (name, _), count in self.phases.items() if name == victim)

    def fault(self, text: str) -> None:
        self.faults.append(text)
        print(f"FAIL  {text}", flush=True)


@dataclass(frozen=True, slots=True)
class Victim:
    """A process at work; `log` is its stderr."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def kill_after(self, delay_s: float) -> bool:
        """Kill it after a delay; return whether it was still at work."""
        try:
            self.process.wait(delay_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait() == -signal.SIGKILL
        return False

    def output(self) -> bytes | None:
        """Return the rest of its output once it is dead; None, and end them, where children of it hold that open."""
        parts = []
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            deadline = time.monotonic() + ORPHANS_S
            while selector.select(max(0.0, deadline - time.monotonic())):
                part = os.read(self.process.stdout.fileno(), 1 << 16)
                if not part:
                    return b"".join(parts)
                parts.append(part)
        os.killpg(self.process.pid, signal.SIGKILL)  # its own session: nobody else is in it
        return None

    def last_words(self) -> str:
        """Return its exit code and the last line of its stderr."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").splitlines()
        return f"exit code {self.process.returncode}, {lines[-1:]}"


@contextmanager
def victim(*arguments: object) -> Iterator[Victim]:
    """Start a victim and wait until it is at work; it does not outlive the block."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HSIMHASH_")}
    command = [sys.executable, "-m", "tests.stress.victims", *map(str, arguments)]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
        ) as process,
    ):
        one = Victim(process, log)
        try:
            if process.stdout.readline() != READY:
                process.wait(LATEST_S)
                raise RuntimeError(f"{' '.join(command)} did not begin: {one.last_words()}")
            yield one
        finally:
            if process.poll() is None:
                process.kill()


def delay(rng: np.random.Generator, whole_s: float) -> float:
    """Return a moment of a run of `whole_s` seconds, more often an early one: its later parts come in resumed runs."""
    return float(rng.uniform(0, whole_s * rng.choice([0.3, 1.0])))


def contents(url: str) -> Documents:
    """Return the documents of an index; those that got the time of their run have no first seen."""
    with HSimIndex.open(url) as index:
        return {
            document.doc_id: (document.fingerprint, document.first_seen if document.first_seen < PLANTED_BEFORE else -1)
            for document in index.documents()
        }


def check(url: str, tally: Tally, what: str) -> bool:
    """Open an index and check it; return whether it opened."""
    try:
        with HSimIndex.open(url) as index:
            report = index.check()
    except HsimhashError as error:
        tally.failed_opens += 1
        tally.fault(f"{what}: {error}")
        return False
    if not report.is_sound:
        tally.problems += report.problems
        tally.fault(f"{what}: {report.problems} problems: {report.examples[:3]}")
    return True


# Ingests.


@dataclass(frozen=True, slots=True)
class Ingest:
    """A way to ingest, its inputs, and what came of it undisturbed."""

    name: str
    base: Path
    base_documents: Documents
    fingerprints: Mapping[str, set[int]]  # that a document may have while the ingest is under way
    options: tuple[object, ...]

    def arguments(self, folder: Path) -> tuple[object, ...]:
        """Return the command for the index in a folder."""
        places = ("--store", url_in(folder), "--job", folder / "job")
        return ("program", "ingest", *self.options, *places, "--lock-timeout", 60, "--quiet")


@dataclass(frozen=True, slots=True)
class Result:
    """What a finished ingest left: it must not depend on kills."""

    documents: Documents
    lists: Mapping[str, bytes]
    counts: Mapping[str, int]
    leftovers: int


def url_in(folder: Path) -> str:
    return f"lmdb://{folder / 'index'}"


def prepare(name: str, folder: Path, documents: int, rng: np.random.Generator) -> Ingest:
    """Make an index with a few documents, and the inputs of an ingest that moves some of them."""
    folder.mkdir()
    is_text = name == "texts"
    base_ids = [f"base/{number}" for number in range(BASE_DOCUMENTS)]
    values = _crowded(rng, BASE_DOCUMENTS + documents)
    with HSimIndex.create(url_in(folder), profile="words-1" if is_text else "auto-1") as index:
        index.add_many(values[:BASE_DOCUMENTS], base_ids, first_seen=range(BASE_DOCUMENTS))
    base = contents(url_in(folder))
    ids = [_any_id(rng, base_ids, number) for number in range(documents)]
    allowed = {doc_id: {fingerprint} for doc_id, (fingerprint, _) in base.items()}
    if is_text:
        inputs = [_texts(folder, rng, documents // TEXTS_SHARE)]
    else:
        inputs = _fingerprint_files(folder, ids, values[BASE_DOCUMENTS:].tolist(), rng)
        for doc_id, value in zip(ids, values[BASE_DOCUMENTS:].tolist(), strict=True):
            allowed.setdefault(doc_id, set()).add(value)
    options = {
        "bulk": ("--fingerprint-field", "fingerprint"),
        "skip": ("--fingerprint-field", "fingerprint", "--on-duplicate", "skip"),
        "tag": ("--fingerprint-field", "fingerprint", "--on-duplicate", "tag"),
        "texts": ("--workers", 2),
    }
    return Ingest(name, folder, base, allowed, (*inputs, *options[name]))


def _crowded(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return fingerprints, two in five of them 0 to 4 bits from one before."""
    values = rng.integers(0, 2**64, count, np.uint64)
    near = np.flatnonzero(rng.random(count) < 0.4)[1:]
    values[near] = flipped(rng, values[rng.integers(0, near)], rng.integers(0, 5, len(near)))
    return values


def _any_id(rng: np.random.Generator, base_ids: Sequence[str], number: int) -> str:
    draw = rng.random()
    if draw < 0.05:
        return base_ids[int(rng.integers(len(base_ids)))]  # moves
    if draw < 0.15:
        return f"页/{int(rng.integers(number + 1))}"  # comes again
    return f"页/{number}" + "/long" * 120 * (draw > 0.99)


def _fingerprint_files(folder: Path, ids: Sequence[str], values: Sequence[int], rng: np.random.Generator) -> list[Path]:
    """Write two thirds of the documents as lines of id and fingerprint, one as packed JSON; bad records among them."""
    cut = 2 * len(ids) // 3
    lines = [f"{doc_id}\t{value:016x}" for doc_id, value in zip(ids[:cut], values[:cut], strict=True)]
    records = [
        json.dumps({"id": doc_id, "fingerprint": f"{value:016x}", "first_seen": number})
        for number, (doc_id, value) in enumerate(zip(ids[cut:], values[cut:], strict=True))
    ]
    for place in rng.integers(20, cut // 2, 12).tolist():  # behind what tells the format
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


def result_of(folder: Path) -> Result:
    """Return what a finished ingest left in a folder."""
    job = folder / "job"
    lists = {name: path.read_bytes() for name in _LISTS if (path := job / f"{name}.jsonl").exists()}
    summary = json.loads(path.read_text()) if (path := job / "summary.json").exists() else {}
    with HSimIndex.open(url_in(folder)) as index:
        leftovers = index.check().leftovers
    return Result(contents(url_in(folder)), lists, {name: summary.get(name, -1) for name in _COUNTS}, leftovers)


def undisturbed(ingest: Ingest, folder: Path) -> tuple[Result, float]:
    """Run an ingest to its end; return what it left, and its seconds of work."""
    shutil.copytree(ingest.base, folder, symlinks=True)
    with victim(*ingest.arguments(folder)) as one:
        began = time.monotonic()
        one.process.wait(LATEST_S)
        seconds = time.monotonic() - began
        if one.process.returncode not in (0, 7):
            raise RuntimeError(f"{ingest.name} undisturbed: {one.last_words()}")
    return result_of(folder), seconds


def kill_ingests(name: str, kills: int, tally: Tally, folder: Path, documents: int, rng: np.random.Generator) -> None:
    """Kill an ingest again and again until it is done, then the next one, until there were so many kills."""
    ingest = prepare(name, folder / f"{name}-base", documents, rng)
    expected, whole_s = undisturbed(ingest, folder / f"{name}-undisturbed")
    number = 0
    while tally.kills_of(name) < kills:
        number += 1
        trial = folder / f"{name}-{number}"
        shutil.copytree(ingest.base, trial, symlinks=True)
        what = f"{name}, index {number}"
        while not _is_done_before_kill(ingest, trial, _next_delay(rng, whole_s, kills, tally, name), tally, what):
            if not check(url_in(trial), tally, f"{what}, kill {tally.kills_of(name)}"):
                return
            tally.lost += lost_documents(ingest, trial, tally, what)
        tally.ends += 1
        found = result_of(trial)
        tally.unequal_ends += found.documents != expected.documents
        if differing := differences(expected, found):
            tally.fault(f"{what}, resumed to its end, differs from an undisturbed run in {'; '.join(differing)}")
        tally.stray_files += stray_files(trial)
        shutil.rmtree(trial)


def _next_delay(rng: np.random.Generator, whole_s: float, kills: int, tally: Tally, name: str) -> float:
    return delay(rng, whole_s) if tally.kills_of(name) < kills else LATEST_S


def _is_done_before_kill(ingest: Ingest, trial: Path, delay_s: float, tally: Tally, what: str) -> bool:
    with victim(*ingest.arguments(trial)) as one:
        was_killed = one.kill_after(delay_s)
        if one.output() is None:
            tally.fault(f"{what}: workers outlived their parent")
        if not was_killed and one.process.returncode not in (0, 7):
            tally.fault(f"{what}: {one.last_words()}")
    if was_killed:
        tally.phases[ingest.name, phase_of(trial)] += 1
    return not was_killed


def differences(expected: Result, found: Result) -> list[str]:
    """Return in what two finished ingests differ."""
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


def lost_documents(ingest: Ingest, trial: Path, tally: Tally, what: str) -> int:
    """Return how many documents of before, or acknowledged since, are not where they may be."""
    found = contents(url_in(trial))
    lost = [doc_id for doc_id in ingest.base_documents if doc_id not in found]
    lost += [doc_id for doc_id, (value, _) in found.items() if value not in ingest.fingerprints.get(doc_id, {value})]
    checkpoint, job = checkpoint_of(trial), trial / "job"
    if checkpoint is not None and checkpoint["state"] in ("running", "merging"):
        lost += [f"run {number}" for number in range(_runs(job), int(checkpoint["runs"]))]
    if checkpoint is not None and ingest.name in ("skip", "tag"):
        lost += _undone(ingest, found, job, int(checkpoint["sizes"].get("decisions", 0)))
    if lost:
        tally.fault(f"{what}: lost {lost[:3]}")
    return len(lost)


def _runs(job: Path) -> int:
    return sum(1 for path in job.glob("runs/run-*") if path.suffix != ".tmp")


def _undone(ingest: Ingest, found: Documents, job: Path, acknowledged: int) -> list[str]:
    """Return the ids whose last acknowledged decision is not carried out, nor one that follows it."""
    path, offset = job / "decisions.jsonl", 0
    allowed: dict[str, set[int]] = {doc_id: {value} for doc_id, (value, _) in ingest.base_documents.items()}
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if not line.endswith(b"\n"):
            break
        decision = json.loads(line)
        if decision["verdict"] != "duplicate":
            before = allowed.get(decision["id"], {_ABSENT}) if offset >= acknowledged else set()
            allowed[decision["id"]] = before | {int(decision["fingerprint"], 16)}
        offset += len(line)
    return [doc_id for doc_id, values in allowed.items() if found.get(doc_id, (_ABSENT, 0))[0] not in values]


def checkpoint_of(trial: Path) -> dict[str, object] | None:
    path = trial / "job" / "checkpoint.json"
    return json.loads(path.read_text()) if path.exists() else None


def phase_of(trial: Path) -> str:
    """Tell from what a killed ingest left where it was."""
    checkpoint, job = checkpoint_of(trial), trial / "job"
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
        stage = merge_stage(trial)
        return f"merging: {stage}" if stage else "merging: before its first commit, or behind its last"
    return "deleting runs" if (job / "runs").exists() else "done, at its end"


def merge_stage(trial: Path) -> str | None:
    """Return the stage that a merge has committed to last."""
    with EmbeddedStore(url_in(trial), trial / "index") as store, store.environment.read() as transaction:
        for key, value in transaction.cursor(store.environment.databases["record"]):
            if key.startswith(b"load:"):
                return str(json.loads(value)["stage"])
    return None


def stray_files(trial: Path) -> int:
    """Return how many data and lock files lie in an index's folder beside those in force."""
    in_force = (trial / "index" / "data.mdb").resolve().name
    return sum(1 for path in (trial / "index").glob("data-*") if not path.name.startswith(in_force))


# Writers.


@dataclass(slots=True)
class Writer:
    """A writer as far as its acknowledgements tell: `documents` is what the operations before `next` leave."""

    number: int
    seed: int
    next: int = 0
    documents: Documents = field(default_factory=dict)

    def acknowledge(self, count: int) -> None:
        """Go behind the next `count` operations."""
        for _ in range(count):
            operation(self.seed, self.number, self.next).apply(self.documents)
            self.next += 1

    def arguments(self, url: str) -> tuple[object, ...]:
        return ("writer", url, self.seed, self.number, self.next, OPERATIONS)

    def phase(self, found: Documents) -> str | None:
        """Return what the operation that was under way had done; None where the index is in no state it may be in."""
        mine = {doc_id: value for doc_id, value in found.items() if doc_id.startswith(f"writer-{self.number}/")}
        following = operation(self.seed, self.number, self.next)
        further = dict(self.documents)
        following.apply(further)
        if mine == self.documents:
            return f"{following.kind}, not committed" if further != mine else f"{following.kind} without a change"
        return f"{following.kind}, committed, not acknowledged" if mine == further else None


def kill_writers(kills: int, tally: Tally, folder: Path, rng: np.random.Generator) -> None:
    """Let two writers write at once, and kill one after the other, again and again."""
    number = 0
    while tally.kills_of("writers") < kills:
        number += 1
        trial = folder / f"writers-{number}"
        HSimIndex.create(url_in(trial)).close()
        writers = [Writer(one, SEED + number) for one in range(2)]
        while tally.kills_of("writers") < kills and all(one.next < OPERATIONS for one in writers):
            what = f"writers, index {number}, operations {[one.next for one in writers]}"
            delays = [delay(rng, ROUND_S), delay(rng, ROUND_S)]
            if not _round(writers, url_in(trial), delays, tally, what):
                return
        _round(writers, url_in(trial), [LATEST_S, LATEST_S], tally, f"writers, index {number}, to the end")
        tally.ends += 1
        if any(one.next < OPERATIONS for one in writers):
            tally.unequal_ends += 1
            tally.fault(f"writers, index {number}: ended at operations {[one.next for one in writers]}")
        tally.stray_files += stray_files(trial)
        shutil.rmtree(trial)


def _round(writers: Sequence[Writer], url: str, delays: Sequence[float], tally: Tally, what: str) -> bool:
    """Run both writers, kill each after its delay, and compare the index with what they acknowledged."""
    with victim(*writers[0].arguments(url)) as first, victim(*writers[1].arguments(url)) as second:
        killed = []
        for writer, one, delay_s in zip(writers, (first, second), delays, strict=True):
            killed.append(one.kill_after(delay_s))
            if not check(url, tally, f"{what}, writer {writer.number} killed, the other at work"):
                return False
            if not killed[-1] and one.process.returncode != 0:
                tally.fault(f"{what}: writer {writer.number}: {one.last_words()}")
        for writer, one in zip(writers, (first, second), strict=True):
            writer.acknowledge((one.output() or b"").count(b"\n"))
    if not check(url, tally, f"{what}, both killed"):
        return False
    found = contents(url)
    for one, was_killed in zip(writers, killed, strict=True):
        phase = one.phase(found)
        if phase is None:
            tally.lost += 1
            tally.fault(
                f"{what}: writer {one.number} has acknowledged {one.next} operations, the index tells otherwise"
            )
        if was_killed:
            tally.phases["writers", phase or "lost"] += 1
    return True


# Compactions.


def kill_compactions(kills: int, tally: Tally, folder: Path, rng: np.random.Generator) -> None:
    """Kill what compacts an index, again and again, while others read; then let one compaction end."""
    trial = folder / "compact"
    with HSimIndex.create(url_in(trial)) as index:
        index.add_many(_crowded(rng, COMPACTED_DOCUMENTS), [f"页/{number}" for number in range(COMPACTED_DOCUMENTS)])
    expected = contents(url_in(trial))
    with ExitStack() as stack:
        readers = [stack.enter_context(victim("reader", url_in(trial))) for _ in range(READERS)]
        while tally.kills_of("compact") < kills:
            if not _killed_compaction(trial, expected, float(rng.uniform(0, ROUND_S)), tally):
                return
        HSimIndex.open(url_in(trial)).compact()
        for one in readers:
            one.process.terminate()
            if not int(one.output() or 0) or one.process.wait(LATEST_S) != 0:
                tally.fault(f"compact: a reader beside it: {one.last_words()}")
    tally.ends += 1
    if contents(url_in(trial)) != expected or stray_files(trial):
        tally.unequal_ends += 1
        tally.fault(f"compact, to its end: {stray_files(trial)} stray files, or other documents than before")


def _killed_compaction(trial: Path, expected: Documents, delay_s: float, tally: Tally) -> bool:
    """Kill what compacts after a delay; return whether the index opens."""
    what = f"compact, kill {tally.kills_of('compact') + 1}"
    with victim("compact", url_in(trial), sys.maxsize) as one:
        if not one.kill_after(delay_s):
            tally.fault(f"{what}: {one.last_words()}")
    tally.phases["compact", compact_phase(trial)] += 1
    if not check(url_in(trial), tally, what):
        return False
    if contents(url_in(trial)) != expected:
        tally.lost += 1
        tally.fault(f"{what}: other documents than before")
    return True


def compact_phase(trial: Path) -> str:
    """Tell from the files that a killed compaction left where it was."""
    index = trial / "index"
    if (index / "data.mdb.new").is_symlink():
        return "about to switch the link"
    newest = max(index.glob("data-*.mdb"), key=lambda path: int(path.stem.rpartition("-")[2], 16))
    if newest != (index / "data.mdb").resolve():
        return "copying"
    return "deleting the old files" if stray_files(trial) else "between two"


def run(shares: Mapping[str, int], folder: Path, *, documents: int = DOCUMENTS, seed: int = SEED) -> Tally:
    """Kill each victim as often as `shares` says; return what came of it."""
    tally = Tally()
    for number, (name, kills) in enumerate(shares.items()):
        rng = np.random.default_rng([seed, number])
        if name == "writers":
            kill_writers(kills, tally, folder, rng)
        elif name == "compact":
            kill_compactions(kills, tally, folder, rng)
        else:
            kill_ingests(name, kills, tally, folder, documents, rng)
    return tally


def print_tally(tally: Tally, shares: Mapping[str, int]) -> None:
    for name in shares:
        print(f"{name}: {tally.kills_of(name)} kills")
        for (victim_name, phase), count in sorted(tally.phases.items()):
            if victim_name == name:
                print(f"    {count:4} {phase}")
    print(f"stray files left by kills while `compact` ran beside writers: {tally.stray_files}")
    print(
        f"{'PASS' if tally.is_sound else 'FAIL'}  {tally.kills} kills: {tally.lost} acknowledged documents lost, "
        f"{tally.failed_opens} failed opens, {tally.problems} problems found by check, "
        f"{tally.unequal_ends} of {tally.ends} resumed to another index than an undisturbed run's, "
        f"{len(tally.faults)} faults in all"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=KILLS, help="how often to kill, in all")
    parser.add_argument("--seed", type=int, default=SEED, help="of the inputs and the moments")
    parser.add_argument("--only", choices=SHARES, help="kill only this victim")
    add_scratch_option(parser)
    arguments = parser.parse_args()
    given = {arguments.only: 1.0} if arguments.only else SHARES
    shares = {name: max(1, round(share * arguments.kills)) for name, share in given.items()}
    print_conditions("kill -9", seed=arguments.seed, kills=sum(shares.values()), documents=DOCUMENTS)
    with scratch_folder(arguments.scratch) as folder:
        tally = run(shares, folder, seed=arguments.seed)
    print_tally(tally, shares)
    return 0 if tally.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
