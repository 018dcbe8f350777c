"""`bulk-load` against an ingest of the same documents, cell by cell: `python -m tests.stress.hbase_bulk_load`.

For each layout two tables get the same documents, some ids twice, one fingerprint many times, two in five near another,
half with sketch and key. Every cell but for its timestamp must be the same; queries must be those of brute force, and
check find nothing: at once, after a flush and a major compaction, and after a restart. HBase's own program looks at
every file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from hsimhash.fingerprint import Signature
from hsimhash.store.hbase.audit import pages
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, DRAWER_FAMILY
from hsimhash.store.hbase.store import HBaseStore
from tests.stress.killing import crowded
from tests.support.command_line import run
from tests.support.fingerprint_sets import random_signatures
from tests.support.hbase_server import HBaseServer, serving
from tests.support.hbase_tables import new_table, table_url
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

SEED = 31
DOCUMENTS, QUERIES = 200_000, 2_000
LAYOUTS = ("4", "10", "20")
HFILE = "org.apache.hadoop.hbase.io.hfile.HFile"
EQUAL_SHARE = 50  # one fingerprint in so many is the same one
AGAIN_SHARE = 20  # one id in so many comes again


def write_documents(path: Path, count: int, seed: int) -> dict[str, Signature]:
    """Write records; return what the last one of each id says."""
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


def check_layout(
    server: HBaseServer, layout: str, folder: Path, *, documents: int, queries: int, restarts: bool = False
) -> Iterator[Outcome]:
    """Compare two tables of a layout."""
    path, stage = folder / f"given-{layout}.jsonl", folder / f"stage-{layout}"
    expected = write_documents(path, documents, SEED)
    with new_table(server) as one, new_table(server) as other:
        urls = [table_url(server, name) for name in (one, other)]
        for url in urls:
            _command("create-table", "--store", url, "--layout", layout, "--regions", "3")
        reading = ("--fingerprint-field", "fingerprint")
        _command("ingest", path, "--store", urls[0], *reading, "--exclusive", "--job", folder / f"ingest-{layout}")
        load = ("bulk-load", path, "--store", urls[1], *reading, "--stage", stage, "--job", folder / f"load-{layout}")
        _command(*load, "--hbase-command", server.program(), "--print-commands")
        yield _files(server, stage, layout)
        _command(*load, "--hbase-command", server.program())
        yield _same_cells(urls, layout)
        yield from _answers(urls[1], expected, f"layout {layout}", queries)
        if server.shell(f"flush '{other}'\nmajor_compact '{other}'\n") != 0:
            raise RuntimeError("hbase shell failed")
        yield from _answers(urls[1], expected, f"layout {layout}, compacted", queries)
        if restarts:
            server.stop()
            server.start()
            yield from _answers(urls[1], expected, f"layout {layout}, restarted", queries)


def _command(*words: object) -> None:
    result = run(*map(str, words))
    if result.exit_code != 0:
        raise RuntimeError(f"{words[0]} failed: {result.stderr}")


def _files(server: HBaseServer, stage: Path, layout: str) -> Outcome:
    """Let HBase look at all files."""
    manifest = json.loads((stage / "manifest.json").read_text())
    wrong = []
    for file in manifest["files"]:
        printed = server.java(HFILE, "-m", "-v", "-k", "-f", f"file://{stage / file['name']}")
        if f"Scanned kv count -> {file['cells']}\n" not in printed + "\n" or "WARN" in printed.replace(
            "WARN  [main]", ""
        ):
            wrong.append(file["name"])
    count = len(manifest["files"])
    return Outcome(
        not wrong and count > 0, f"layout {layout}: HBase reads {count - len(wrong)} of {count} files {wrong[:3]}"
    )


def _same_cells(urls: list[str], layout: str) -> Outcome:
    expected, found = (list(table_cells(url)) for url in urls)
    differing = len(set(expected) ^ set(found))
    return Outcome(
        expected == found, f"layout {layout}: of {len(expected):,} cells {differing:,} differ from those of an ingest"
    )


def _answers(url: str, documents: dict[str, Signature], what: str, queries: int) -> Iterator[Outcome]:
    rng = np.random.default_rng(SEED)
    ids = list(documents)
    values = np.array([one.fingerprint for one in documents.values()], np.uint64)
    asked = values[rng.integers(0, len(values), queries)] ^ (
        np.uint64(1) << rng.integers(0, 64, queries).astype(np.uint64)
    )
    asked = asked[(asked ^ np.uint64(5)).view(np.uint64) > 8]  # but for the one that very many have
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


def main() -> int:
    given = options(__doc__, documents=(DOCUMENTS, "in each table"))
    print_conditions("bulk-load against ingest", seed=SEED, documents=given.documents, queries=QUERIES)
    outcomes = []
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        for layout in LAYOUTS:
            for outcome in check_layout(
                server, layout, folder, documents=given.documents, queries=QUERIES, restarts=True
            ):
                print(f"    {outcome}", flush=True)
                outcomes.append(outcome)
    return print_outcomes(outcomes)


if __name__ == "__main__":
    sys.exit(main())
