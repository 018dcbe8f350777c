"""Bulk loads into a real HBase: `python -m tests.bench.bench_bulk_load`.

Compares the commands `bulk-load` and `spark bulk-load` with `add_many` of an exclusive writer, as `ingest` with
`exclusive=yes` uses it, and with happybase `batch()`, which puts the same rows. Each command is timed in a separate
process, from a file of ids and fingerprints to the last register in the table, including Spark's start. The other two
add only the first documents, in batches of 10,000. All load into tables of ten regions on the same server, in turns;
rates are medians. For `bulk-load` it also prints the memory of all its processes except HBase's own, the bytes per row,
and the time of a query before and after a major compaction.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hsimhash import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store.urls import with_options
from tests.bench.bench_hbase import Peer, made, p50_ms
from tests.support.command_line import PROGRAM
from tests.support.fingerprint_sets import Numbers, page_ids, random_fingerprints
from tests.support.hbase_server import HBaseServer, serving
from tests.support.hbase_tables import table_url
from tests.support.programs import (
    in_turns,
    median_ratio,
    options,
    print_bar,
    print_conditions,
    scratch_folder,
    seconds,
)

SEED = 41
SIZE = 1_000_000  # with fewer documents, starting the programs takes most of the time
ROUNDS = 3
SLOW_DOCUMENTS = 20_000  # per round, for the other two
BATCH = 10_000
QUERIES = 500
KIB, MIB = 1 << 10, 1 << 20
LOOK_S = 0.1  # interval for reading the memory


def write_lines(path: Path, fingerprints: Numbers) -> None:
    """Write ids and fingerprints."""
    pairs = zip(page_ids(0, len(fingerprints)), fingerprints.tolist(), strict=True)
    path.write_text("".join(f"{doc_id}\t{value:016x}\n" for doc_id, value in pairs))


def write_parquet(path: Path, fingerprints: Numbers) -> None:
    """Write ids and fingerprints, in several row groups."""
    table = pa.table({"id": page_ids(0, len(fingerprints)), "fingerprint": fingerprints.view(np.int64)})
    pq.write_table(table, path, row_group_size=len(fingerprints) // 8 + 1)


class Command:
    """A command and its costs: peak memory, and the bytes per cell in the files of drawer rows."""

    def __init__(self, server: HBaseServer, folder: Path, *words: object) -> None:
        self.server, self.folder, self.words = server, folder, words
        self.peak_bytes = 0
        self.row_bytes = 0.0

    def load(self, url: str, number: int) -> None:
        """Load the file."""
        stage = self.folder / f"stage-{number}"
        command = (*self.words, "--store", url, "--stage", stage, "--hbase-command", self.server.program())
        if "spark" not in command:
            command = (*command, "--job", self.folder / f"job-{number}", "--quiet")
        with subprocess.Popen(
            [*PROGRAM, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while process.poll() is None:
                self.peak_bytes = max(self.peak_bytes, sum(map(_own_bytes, _family(process.pid))))
                self._look_at(stage / "manifest.json")
                time.sleep(LOOK_S)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {process.returncode}")

    def _look_at(self, manifest: Path) -> None:
        """Note the bytes per row once the files exist; the command deletes them at the end."""
        files = json.loads(manifest.read_text()).get("files", []) if manifest.exists() and not self.row_bytes else []
        drawers = [file for file in files if "/f/" in file["name"]]
        if drawers:
            self.row_bytes = sum(file["size"] for file in drawers) / sum(file["cells"] for file in drawers)


def _family(pid: int) -> list[int]:
    """Return the pids of a process and its descendants, except Java's."""
    try:
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            return []
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in _family(int(child)))]


def _own_bytes(pid: int) -> int:
    """Return the memory of a process; shared memory counts proportionally."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * KIB for line in lines if line.startswith("Pss:"))


def add_in_batches(add_many: Callable[[Numbers, list[str]], object], fingerprints: Numbers) -> None:
    """Add the first documents."""
    for start in range(0, SLOW_DOCUMENTS, BATCH):
        add_many(fingerprints[start : start + BATCH], page_ids(start, BATCH))


def race(server: HBaseServer, folder: Path) -> None:
    """Measure and print all four."""
    layout, fingerprints = Layout.parse("10"), random_fingerprints(np.random.default_rng(SEED), SIZE)
    write_lines(folder / "given.tsv", fingerprints)
    write_parquet(folder / "given.parquet", fingerprints)
    command = Command(server, folder, "bulk-load", folder / "given.tsv", "--format", "fingerprints")
    reading = ("--fingerprint-field", "fingerprint", "--master", "local[2]")
    from_spark = Command(server, folder, "spark", "bulk-load", folder / "given.parquet", *reading)
    numbers = iter(range(1_000))

    def bulk(command: Command) -> float:
        with made(server.gateways, layout) as table:
            return SIZE / seconds(partial(command.load, table_url(server.gateways, table), next(numbers)))

    def exclusive() -> float:
        with made(server.gateways, layout) as table:
            url = table_url(server.gateways, table)
            with HSimIndex.open(with_options(url, {"exclusive": "yes"})) as index:
                return SLOW_DOCUMENTS / seconds(partial(add_in_batches, index.add_many, fingerprints))

    def batch() -> float:
        with made(server.gateways, layout) as table:
            peer = Peer(server.gateways, table, layout)
            rate = SLOW_DOCUMENTS / seconds(partial(add_in_batches, peer.add_many, fingerprints))
            peer.connection.close()
            return rate

    contestants = {
        "bulk-load": partial(bulk, command),
        "spark bulk-load": partial(bulk, from_spark),
        "ingest, exclusive=yes": exclusive,
        "happybase batch()": batch,
    }
    rates = in_turns(contestants, ROUNDS)
    print(f"{'':24}{'documents/s':>12}{'bulk-load /':>14}")
    for name, its in rates.items():
        ratio = median_ratio(rates["bulk-load"], its)
        print(f"{name:24}{statistics.median(its):12,.0f}{ratio:14.2f}", flush=True)
    print_bar(
        "bulk-load / ingest, exclusive=yes",
        median_ratio(rates["bulk-load"], rates["ingest, exclusive=yes"]),
        at_least=5,
    )
    print_bar(
        "bulk-load / happybase batch()", median_ratio(rates["bulk-load"], rates["happybase batch()"]), at_least=10
    )
    print_bar("peak memory of bulk-load, MiB", command.peak_bytes / MIB, at_most=1024)
    print_bar("bytes a row of family f", command.row_bytes, at_most=17)
    queries(server, command, fingerprints, 1_000)


def queries(server: HBaseServer, command: Command, fingerprints: Numbers, number: int) -> None:
    """Print the time of a query right after a load, and after a major compaction."""
    asked = random_fingerprints(np.random.default_rng(SEED + 1), QUERIES)
    with made(server.gateways, Layout.parse("10")) as table:
        command.load(table_url(server.gateways, table), number)
        with HSimIndex.open(table_url(server.gateways, table)) as index:
            found = []
            for what in ("right after the load", "after a major compaction"):
                p50_ms(index.query, asked)
                found.append(p50_ms(index.query, asked))
                print(f"a query {what}: {found[-1]:.2f} ms", flush=True)
                if len(found) == 1 and server.shell(f"major_compact '{table}'\nsleep 30\n") != 0:
                    raise RuntimeError("hbase shell failed")
            matches = index.query_many(fingerprints[:QUERIES], max_distance=0)
            if not all(matches):
                raise RuntimeError("documents are missing")


def main() -> int:
    given = options(__doc__)
    print_conditions("Bulk loads into HBase", packages=("happybase", "thriftpy2"), seed=SEED, documents=SIZE)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase", jvm="") as server:
        race(server, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
