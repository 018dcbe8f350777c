"""Loading ids with fingerprints: `python -m tests.bench.bench_load [--large]`.

Compares `hsimhash ingest` of a file, as a whole command in a separate process; `add_many` of the same documents, all at
once and 1,000 at a time, each call durable on return; and faiss's `add`, in memory, without ids. Also measures `add`
from one thread and from many, and the two ways of `add_many`, one transaction and a merge, for several numbers of
documents, into an empty and a large index. They run in turns; rates are medians. For the command it also prints the
memory, the bytes written, and the size of the index.

Peak memory is the kernel's value for the process. It includes pages of mapped files, which the kernel can reclaim at
any time. So the peak of the process's own memory, read about every 50 ms, is printed as well.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from hsimhash.rowkey import check_documents
from hsimhash.store.lmdb.merge import merge_documents
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.registry import default_backend
from tests.support.fingerprint_sets import Numbers, page_ids, random_fingerprints
from tests.support.programs import (
    in_turns,
    median_ratio,
    options,
    pace,
    print_bar,
    print_conditions,
    scratch_folder,
    seconds,
)

MADE = {"layout": "10", "profile": "auto-1"}  # how the index is created
SEED = 5
DOCUMENTS, ROUNDS = 1_000_000, 3
SMALL_DOCUMENTS = 100_000  # 1,000 at a time: only a tenth, because it takes minutes, and is slower with more
WAYS_DOCUMENTS = (1_000, 3_000, 10_000, 30_000, 100_000)
LARGE = 10_000_000
THREADS, SINGLES, SINGLE_S = 16, 100_000, 3.0  # for documents added one by one
BATCH = 1_000
POLL_S = 0.05
WRITTEN_AT_ONCE = 100_000  # lines of the input
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Ingested:
    """The costs of one run of the command in seconds and bytes, and what `describe` prints about the index."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    own_bytes: int
    written_bytes: int
    index: dict[str, int]

    @property
    def rate(self) -> float:
        return self.index["documents"] / self.seconds


def write_input(path: Path, fingerprints: Numbers) -> None:
    """Write lines with an id and a fingerprint."""
    with path.open("w", encoding="ascii") as file:
        for start in range(0, len(fingerprints), WRITTEN_AT_ONCE):
            part = fingerprints[start : start + WRITTEN_AT_ONCE].tolist()
            ids = page_ids(start, len(part))
            file.writelines(f"{doc_id}\t{value:016x}\n" for doc_id, value in zip(ids, part, strict=True))


def ingest(source: Path, folder: Path) -> Ingested:
    """Run the command on a new index, then delete the index."""
    with scratch_folder(folder) as place:
        return ingested(source, place)


def ingested(source: Path, place: Path) -> Ingested:
    """Run the command on a new index named `index` in `place`."""
    url = f"lmdb://{place / 'index'}"
    command = [sys.executable, "-m", "hsimhash", "ingest", str(source), "--store", url, "--quiet"]
    command += [part for name, value in MADE.items() for part in (f"--{name}", value)]
    began = time.perf_counter()
    with (place / "output").open("wb") as output, (place / "errors").open("wb") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        own_bytes = max(_own_bytes_while_running(process.pid), default=0)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(place / 'errors').read_text()}")
    with HSimIndex.open(url) as index:
        facts = {name: value for name, value in index.describe().items() if isinstance(value, int)}
    if json.loads((place / "output").read_text())["added"] != facts["documents"]:
        raise RuntimeError(f"{source}: the summary and the index differ")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Ingested(seconds, cpu_seconds, usage.ru_maxrss << 10, own_bytes, usage.ru_oublock << 9, facts)


def _own_bytes_while_running(pid: int) -> Iterator[int]:
    """Yield now and then how much memory a process has, not counting mapped files."""
    status = Path(f"/proc/{pid}/status")
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        lines = status.read_text().splitlines() if status.exists() else []
        yield from (int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
        time.sleep(POLL_S)


def add_many(fingerprints: Numbers, folder: Path, batch: int) -> tuple[float, int]:
    """Return how many seconds `add_many` takes, `batch` documents at a time, and the bytes of the index's file."""
    with scratch_folder(folder) as place, HSimIndex.create(f"lmdb://{place / 'index'}", **MADE) as index:
        ids = page_ids(0, len(fingerprints))
        began = time.perf_counter()
        for start in range(0, len(fingerprints), batch):
            index.add_many(fingerprints[start : start + batch], ids[start : start + batch])
        return time.perf_counter() - began, index.describe()["file_bytes"]


def faiss_s(fingerprints: Numbers) -> float:
    """Return how many seconds faiss takes."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexBinaryMultiHash(64, 4, 16)
    return seconds(lambda: index.add(fingerprints.view(np.uint8).reshape(-1, 8)))


def print_ingested(one: Ingested, source: Path) -> None:
    """Print a run's costs other than its time."""
    index = one.index
    file_bytes = index["file_bytes"]
    print(f"    {one.seconds:,.1f} s, {one.cpu_seconds:,.1f} s of them on a core; the rest waits for disk and others")
    print(f"    memory: peak {one.peak_bytes / MIB:,.0f} MiB, of it {one.own_bytes / MIB:,.0f} MiB the process's own")
    print(
        f"    input {source.stat().st_size / MIB:,.0f} MiB, index {file_bytes / MIB:,.0f} MiB "
        f"({file_bytes / index['documents']:,.0f} bytes a document), written {one.written_bytes / MIB:,.0f} MiB"
    )


def print_bars(one: Ingested, rate: float, at_least: float, title: str) -> None:
    """Print the bars of a load."""
    index = one.index
    print_bar(f"{title}: documents/s, end to end", rate, at_least=at_least)
    print_bar(f"{title}: peak memory, MiB", one.peak_bytes / MIB, at_most=1024)
    print_bar(f"{title}: bytes written / the index's file", one.written_bytes / index["file_bytes"], at_most=5)
    print_bar(f"{title}: bytes a document", index["file_bytes"] / index["documents"], at_most=200)


def usual(folder: Path) -> None:
    """Load a million documents in every way, in turns."""
    fingerprints = random_fingerprints(np.random.default_rng(SEED), DOCUMENTS)
    source = folder / "documents.tsv"
    write_input(source, fingerprints)
    runs: list[Ingested] = []

    def ingest_rate() -> float:
        runs.append(ingest(source, folder))
        return runs[-1].rate

    file_bytes: list[int] = []

    def add_many_rate() -> float:
        seconds, size = add_many(fingerprints, folder, DOCUMENTS)
        file_bytes.append(size)
        return DOCUMENTS / seconds

    taken = in_turns(
        {
            "hsimhash ingest": ingest_rate,
            "add_many at once": add_many_rate,
            "add_many, 1,000": lambda: SMALL_DOCUMENTS / add_many(fingerprints[:SMALL_DOCUMENTS], folder, BATCH)[0],
            "faiss add": lambda: DOCUMENTS / faiss_s(fingerprints),
        },
        ROUNDS,
    )
    print(f"\n## {DOCUMENTS:,} documents (add_many, {BATCH:,} at a time: {SMALL_DOCUMENTS:,})")
    for name, rates in taken.items():
        print(f"{name:20}{statistics.median(rates):12,.0f} documents/s  ({min(rates):,.0f} to {max(rates):,.0f})")
    print_ingested(runs[-1], source)
    print_bars(runs[-1], statistics.median(one.rate for one in runs), 40_000, "1e6")
    slower = median_ratio(taken["hsimhash ingest"], taken["add_many at once"])
    print_bar("1e6: time of add_many / of ingest", slower, at_most=1.2)
    print_bar("1e6: file of add_many / of ingest", file_bytes[-1] / runs[-1].index["file_bytes"], at_most=1.2)


def ways(folder: Path) -> None:
    """Add documents to an empty and to a large index, in one transaction and by a merge."""
    rng = np.random.default_rng(SEED)
    for held in (0, DOCUMENTS):
        print(f"\n## add_many into {held:,} documents: one transaction, a merge; ms, and the file's MiB afterwards")
        with scratch_folder(folder) as place:
            with HSimIndex.create(f"lmdb://{place / 'index'}", **MADE) as index:
                if held:
                    index.add_many(random_fingerprints(rng, held), page_ids(0, held))
            for count in WAYS_DOCUMENTS:
                one_way(place, held, random_fingerprints(rng, count))


def one_way(place: Path, held: int, fingerprints: Numbers) -> None:
    """Add documents to copies of the index in a folder, both ways."""
    documents = check_documents(fingerprints, page_ids(held, len(fingerprints)), 1)
    signatures, ids, first_seen = documents
    file_bytes: dict[str, int] = {}

    def added(name: str, add: Callable[[LmdbStore], int]) -> float:
        with scratch_folder(place) as copied:
            copy = shutil.copytree(place / "index", copied / "index")
            os.sync()
            with LmdbStore(f"lmdb://{copy}", copy) as store:
                took = seconds(lambda: add(store))
                file_bytes[name] = store.session.file_bytes()
        return took

    def merge(store: LmdbStore) -> int:
        return merge_documents(store.session, ids, signatures, first_seen)

    taken = in_turns(
        {
            "insert": lambda: added("insert", lambda store: store.insert(ids, signatures, first_seen)),
            "merge": lambda: added("merge", merge),
        },
        ROUNDS,
    )
    shown = [f"{1_000 * statistics.median(times):8,.0f} {file_bytes[name] >> 20:6,}" for name, times in taken.items()]
    print(f"{len(ids):9,} documents{'   '.join(shown)}   insert / merge {median_ratio(*taken.values()):.2f}")


def single(folder: Path) -> None:
    """Add documents one by one, each durable on return, from one thread and from many threads, which share commits."""
    for layout in (default_backend().layout, MADE["layout"]):
        print(f"\n## add, each durable on return, layout {layout}")
        single_in(layout, folder)


def single_in(layout: str, folder: Path) -> None:
    """Add to an index with a layout."""
    rng = np.random.default_rng(SEED)
    profile = MADE["profile"]
    with (
        scratch_folder(folder) as place,
        HSimIndex.create(f"lmdb://{place / 'index'}", layout=layout, profile=profile) as index,
    ):
        numbers = itertools.count()

        def rate(threads: int) -> float:
            fingerprints = random_fingerprints(rng, SINGLES).tolist()
            return pace(lambda n: index.add(fingerprints[n % SINGLES], f"p{next(numbers)}"), threads, SINGLE_S).rate

        taken = in_turns({str(count): functools.partial(rate, count) for count in (1, THREADS)}, 2 * ROUNDS)
    for name, rates in taken.items():
        print(
            f"{name:>4} threads{statistics.median(rates):12,.0f} documents/s  ({min(rates):,.0f} to {max(rates):,.0f})"
        )
    ratio = median_ratio(taken[str(THREADS)], taken["1"])
    print(f"     from {THREADS} threads / from one: {ratio:.2f}")
    if layout == default_backend().layout:
        print_bar(f"layout {layout}: add from {THREADS} threads / from one", ratio, at_least=6)


def large(folder: Path) -> None:
    """Load ten million documents, once."""
    source = folder / "documents.tsv"
    write_input(source, random_fingerprints(np.random.default_rng(SEED), LARGE))
    one = ingest(source, folder)
    print(f"\n## {LARGE:,} documents: {one.seconds:,.0f} s")
    print_ingested(one, source)
    print_bars(one, one.rate, 20_000, "1e7")


def main() -> None:
    given = options(__doc__, large=(False, "also 10 million documents: minutes, and 6 GB of disk"))
    print_conditions("load", packages=("faiss-cpu",), seed=SEED, **MADE, rounds=ROUNDS, rows=DOCUMENTS)
    for measure in (single, usual, ways, large) if given.large else (single, usual, ways):
        with scratch_folder(given.scratch) as folder:
            measure(folder)


if __name__ == "__main__":
    main()
