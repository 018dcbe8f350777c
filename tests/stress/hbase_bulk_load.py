"""Bulk loads against an ingest of the same documents, cell by cell: `python -m tests.stress.hbase_bulk_load`.

For each layout, tables get the same documents by `ingest`, by `bulk-load` and from Spark: some ids twice, one
fingerprint many times, two in five near another, half with sketch and key. All cells must be equal except for their
timestamps. Queries must agree with brute force, and `check` must not find anything: at once, after a flush and a major
compaction, and after a restart. HBase's own program verifies the files, and its counters show that queries use the
files' Bloom filters.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from hsimhash import HSimIndex, Profile
from hsimhash.fingerprint import DEFAULT_PROFILE, Signature
from hsimhash.spark import RecordOptions, bulk_load_files
from hsimhash.spark.bulk_loading import TASK_BYTES
from hsimhash.store import StageOptions
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.upkeep.audit import pages
from tests.stress.killing import crowded
from tests.support.command_line import run
from tests.support.fingerprint_sets import random_fingerprints, random_signatures
from tests.support.hbase_server import HBaseServer, free_ports, serving
from tests.support.hbase_tables import new_table, table_url
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.spark_session import local_spark

SEED = 31
DOCUMENTS, QUERIES = 200_000, 2_000
LAYOUTS = ("4", "10", "20")
HFILE = "org.apache.hadoop.hbase.io.hfile.HFile"
EQUAL_SHARE = 50  # one document in this many has the same fingerprint
AGAIN_SHARE = 20  # one id in this many is repeated
COUNTERS = "Hadoop:service=HBase,name=RegionServer,sub=Server"
COUNTED_S = 60.0  # limit for the counters to change; HBase updates them every few seconds
MOST_FILES = 12  # files that HBase's program verifies, which takes seconds each

Load = Callable[[Path, str, Path, bool], None]  # loads a file into a table through a stage, or only into the stage


def write_documents(path: Path, count: int, seed: int) -> dict[str, Signature]:
    """Write records; return the signature of the last one of each id."""
    rng = np.random.default_rng(seed)
    signatures = random_signatures(rng, crowded(rng, count))
    documents: dict[str, Signature] = {}
    with path.open("w", encoding="utf-8") as file:
        for number, signature in enumerate(signatures):
            doc_id = f"https://例.org/{number - number % AGAIN_SHARE if number % AGAIN_SHARE == 1 else number}"
            one = signature if number % EQUAL_SHARE else signature._replace(fingerprint=5)
            one = one if number % 2 else Signature(one.fingerprint)
            documents[doc_id] = one
            file.write(json.dumps({"id": doc_id, **one.to_json(), "first_seen": 1_000 + number}) + "\n")
    return documents


def table_cells(url: str) -> Iterator[tuple[bytes, bytes, bytes, bytes]]:
    """Yield family, row, qualifier and value of all cells of drawers and documents, in order."""
    with HSimIndex.open(url) as index:
        assert isinstance(index.store, HBaseStore)
        for family in (DRAWER_FAMILY, DOCUMENT_FAMILY):
            for page in pages(index.store.gateway, family):
                yield from ((family, cell.row, cell.qualifier, cell.value) for cell in page)


def by_program(server: HBaseServer) -> Load:
    """Return a function that loads with the command."""

    def load(path: Path, url: str, stage: Path, is_told: bool) -> None:
        words = ("--store", url, "--fingerprint-field", "fingerprint", "--stage", stage, "--job", f"{stage}-job")
        tool = ("--hbase-command", server.program(), *(["--print-commands"] if is_told else []))
        _command("bulk-load", path, *words, *tool)

    return load


def by_spark(server: HBaseServer, spark: SparkSession, part_bytes: int = TASK_BYTES) -> Load:
    """Return a function that loads from Spark."""

    def load(path: Path, url: str, stage: Path, is_told: bool) -> None:
        records = RecordOptions(Profile.named(DEFAULT_PROFILE), "json", fingerprint_field="fingerprint")
        tell = list[str]().extend if is_told else None
        options = StageOptions(str(stage), shlex.split(server.program()), tell_commands=tell, part_bytes=part_bytes)
        bulk_load_files(spark, [str(path)], url, records, options)

    return load


def check_layout(
    server: HBaseServer,
    layout: str,
    folder: Path,
    *,
    documents: int,
    queries: int,
    restarts: bool = False,
    loads: Mapping[str, Load] | None = None,
) -> Iterator[Outcome]:
    """Compare tables of a layout: one from an ingest, and one from each load, by default that of the command."""
    path = folder / f"given-{layout}.jsonl"
    expected = write_documents(path, documents, SEED)
    with new_table(server) as one:
        ingested = _made(server, one, layout)
        reading = ("--fingerprint-field", "fingerprint")
        _command("ingest", path, "--store", f"{ingested}&exclusive=yes", *reading, "--job", folder / f"ingest-{layout}")
        for name, load in (loads or {"bulk-load": by_program(server)}).items():
            what, stage = f"layout {layout}, {name}", folder / f"{name}-{layout}"
            with new_table(server) as other:
                url = _made(server, other, layout)
                load(path, url, stage, True)
                yield _files(server, stage, what)
                load(path, url, stage, False)
                yield _same_cells([ingested, url], what)
                yield from _answers(url, expected, what, queries)
                if server.shell(f"flush '{other}'\nmajor_compact '{other}'\n") != 0:
                    raise RuntimeError("hbase shell failed")
                yield from _answers(url, expected, f"{what}, compacted", queries)
                if restarts:
                    server.stop()
                    server.start()
                    yield from _answers(url, expected, f"{what}, restarted", queries)


def _made(server: HBaseServer, name: str, layout: str) -> str:
    """Create an index; return its URL."""
    url = table_url(server, name)
    _command("create-table", "--store", url, "--layout", layout, "--regions", "3")
    return url


def _command(*words: object) -> None:
    result = run(*map(str, words))
    if result.exit_code != 0:
        raise RuntimeError(f"{words[0]} failed: {result.stderr}")


def _files(server: HBaseServer, stage: Path, what: str) -> Outcome:
    """Let HBase verify the files, or some of them if there are very many."""
    files = json.loads((stage / "manifest.json").read_text())["files"]
    files, wrong = files[:: -(-len(files) // MOST_FILES)], []
    for file in files:
        printed = server.java(HFILE, "-m", "-v", "-k", "-f", f"file://{stage / file['name']}")
        if f"Scanned kv count -> {file['cells']}\n" not in printed + "\n" or "WARN" in printed.replace(
            "WARN  [main]", ""
        ):
            wrong.append(file["name"])
    count = len(files)
    return Outcome(not wrong and count > 0, f"{what}: HBase reads {count - len(wrong)} of {count} files {wrong[:3]}")


def _same_cells(urls: list[str], what: str) -> Outcome:
    expected, found = (list(table_cells(url)) for url in urls)
    differing = len(set(expected) ^ set(found))
    return Outcome(
        expected == found, f"{what}: of {len(expected):,} cells {differing:,} differ from those of an ingest"
    )


def _answers(url: str, documents: dict[str, Signature], what: str, queries: int) -> Iterator[Outcome]:
    rng = np.random.default_rng(SEED)
    ids = list(documents)
    values = np.array([one.fingerprint for one in documents.values()], np.uint64)
    asked = values[rng.integers(0, len(values), queries)] ^ (
        np.uint64(1) << rng.integers(0, 64, queries).astype(np.uint64)
    )
    asked = asked[(asked ^ np.uint64(5)).view(np.uint64) > 8]  # except near the one that very many documents share
    with HSimIndex.open(url) as index:
        wrong = 0
        for value, matches in zip(asked.tolist(), index.query_many(asked, max_distance=3), strict=True):
            near = np.flatnonzero(np.bitwise_count(values ^ np.uint64(value)) <= 3)
            wrong += {ids[place] for place in near.tolist()} != {match.doc_id for match in matches}
        yield Outcome(wrong == 0, f"{what}: {wrong} of {len(asked):,} queries differ from brute force")
        report = index.check()
        found = (report.documents, report.problems, report.leftovers)
        yield Outcome(
            found == (len(documents), 0, 0),
            f"{what}: check finds {found[0]:,} documents, {found[1]} problems, {found[2]} leftovers",
        )


def check_bloom(server: HBaseServer, port: int, folder: Path, *, documents: int, queries: int) -> Outcome:
    """Report the server's Bloom filter counters while fingerprints without near ones are queried one by one.

    Args:
        server: the server to load into.
        port: the port of the server's counters.
        folder: for the files to load.
        documents: how many to load.
        queries: how many to run.
    """
    path = folder / "bloom.jsonl"
    write_documents(path, documents, SEED)
    with new_table(server) as name:
        url = _made(server, name, LAYOUTS[1])
        by_program(server)(path, url, folder / "bloom", False)
        requests, negative = _bloom_counts(port)
        with HSimIndex.open(url) as index:
            wanted = queries * len(index.layout.drawers)
            for value in random_fingerprints(np.random.default_rng(SEED + 1), queries).tolist():
                index.query(value)
        end_s = time.monotonic() + COUNTED_S
        while (now := _bloom_counts(port))[0] - requests < wanted and time.monotonic() < end_s:
            time.sleep(1)
    asked, spared = now[0] - requests, now[1] - negative
    text = f"{queries:,} queries: Bloom filters were asked {asked:,} times and spared {spared:,} reads of a file"
    return Outcome(asked >= wanted and spared > asked / 2, text)


def _bloom_counts(port: int) -> tuple[int, int]:
    """Return how often Bloom filters were consulted, and how often they excluded a file."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/jmx?qry={COUNTERS}") as reply:
        bean = json.load(reply)["beans"][0]
    return bean["bloomFilterRequestsCount"], bean["bloomFilterNegativeResultsCount"]


def main() -> int:
    given = options(__doc__, documents=(DOCUMENTS, "in each table"))
    print_conditions(
        "bulk loads against ingest", packages=("pyspark",), seed=SEED, documents=given.documents, queries=QUERIES
    )
    outcomes, port = [], free_ports(1)[0]
    counters = {"hbase.master.info.port": str(port)}  # of the process that also runs the region server
    with (
        scratch_folder(given.scratch) as folder,
        serving(folder / "hbase", settings=counters) as server,
        local_spark() as spark,
    ):
        outcomes.append(check_bloom(server, port, folder, documents=given.documents, queries=QUERIES))
        print(f"    {outcomes[0]}", flush=True)
        loads = {"bulk-load": by_program(server), "Spark": by_spark(server, spark)}
        for layout in LAYOUTS:
            for outcome in check_layout(
                server, layout, folder, documents=given.documents, queries=QUERIES, restarts=True, loads=loads
            ):
                print(f"    {outcome}", flush=True)
                outcomes.append(outcome)
    return print_outcomes(outcomes)


if __name__ == "__main__":
    sys.exit(main())
