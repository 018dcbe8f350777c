"""`spark bulk-load` of many documents, killed and resumed: `python -m tests.stress.spark_load [--documents 10000000]`.

The job and its JVM are killed by `kill -9` while tasks write files, and again while HBase takes the files; the same
command must resume. Then the table must have every document, `check` must not find a problem in a sample, and queries
must find their documents. Prints how long each step takes, how large the stage gets, and what that means for
1,000,000,000 documents.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from hsimhash.layout import Layout
from tests.bench.bench_bulk_load import write_parquet
from tests.bench.bench_hbase import made
from tests.support.command_line import PROGRAM, run
from tests.support.fingerprint_sets import page_ids, random_fingerprints
from tests.support.hbase_server import HBaseServer, serving
from tests.support.hbase_tables import table_url
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

SEED = 71
DOCUMENTS, QUERIES, SAMPLE = 1_000_000, 2_000, 10_000
BILLION = 1_000_000_000
KILLED_IN = ("writing files", "loading rows")
INTO_S = 3.0  # seconds after the beginning of a step


@dataclass
class Steps:
    """How long the steps of a command take, by the lines that it prints when they begin; and how large its stage gets.

    A step's time is that of the first run that completes it, because resumed runs do less.
    """

    taken_s: dict[str, float] = field(default_factory=dict)
    stage_bytes: int = 0

    def run(self, words: list[object], stage: Path, killed_in: str | None) -> bool:
        """Run the command, or kill it soon after a step begins; return whether it ended on its own."""
        process = subprocess.Popen(
            [*PROGRAM, *map(str, words)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stderr is not None
        step, began_s, said = "reading, and comparing with the table", time.monotonic(), list[str]()
        for line in process.stderr:
            said.append(line)
            text = line.strip().removeprefix("hsimhash: ")
            if text.startswith(("writing files", "loading ")):
                self.taken_s.setdefault(step, time.monotonic() - began_s)
                step, began_s = text, time.monotonic()
                self.stage_bytes = max(
                    self.stage_bytes, sum(one.stat().st_size for one in stage.rglob("*") if one.is_file())
                )
            if killed_in is not None and text.startswith(killed_in):
                time.sleep(INTO_S)
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return False
        if process.wait() != 0:
            raise RuntimeError("".join(said[-20:]))
        self.taken_s.setdefault(step, time.monotonic() - began_s)
        return True

    def print_costs(self, documents: int) -> None:
        """Print the time and size of each step, here and for a billion documents."""
        for step, taken_s in self.taken_s.items():
            hours = taken_s / documents * BILLION * (os.cpu_count() or 1) / 3_600
            print(f"    {step}: {taken_s:.1f} s; a billion: {hours:,.1f} hours of one core, HBase's share included")
        size = self.stage_bytes / documents
        print(f"    the stage: {self.stage_bytes / 1e9:.2f} GB, {size:.0f} bytes a document", flush=True)


def outcomes(server: HBaseServer, folder: Path, documents: int) -> Iterator[Outcome]:
    """Load with two kills, and compare the results."""
    fingerprints = random_fingerprints(np.random.default_rng(SEED), documents)
    given, steps, layout = folder / "given.parquet", Steps(), Layout.parse("10")
    write_parquet(given, fingerprints)
    with made(server.gateways, layout) as table:
        url, stage = table_url(server.gateways, table), folder / "stage"
        words = ["spark", "bulk-load", given, "--store", url, "--stage", stage, "--fingerprint-field", "fingerprint"]
        words += ["--hbase-command", server.program()]
        ends = [steps.run(words, stage, killed_in) for killed_in in (*KILLED_IN, None)]
        yield Outcome(ends == [False, False, True], f"killed in {KILLED_IN}, resumed: {ends}")
        steps.print_costs(documents)
        sampled = run("check", "--store", url, "--sample", str(SAMPLE), "--json")
        report = json.loads(sampled.stdout)
        yield Outcome(report["problems"] == 0, f"of {SAMPLE:,} documents {report['problems']} have problems")
        with HSimIndex.open(url) as index:
            counted = index.count()
            some = np.random.default_rng(SEED).integers(0, documents, QUERIES)
            found = index.query_many(fingerprints[some], max_distance=0)
        ids = page_ids(0, documents)
        missing = sum(
            ids[at] not in {match.doc_id for match in near} for at, near in zip(some.tolist(), found, strict=True)
        )
        yield Outcome(missing == 0, f"{missing} of {QUERIES:,} documents are missing; the table counts {counted:,}")


def main() -> int:
    given = options(__doc__ or "", documents=(DOCUMENTS, "to load"))
    print_conditions("spark bulk-load", packages=("pyspark",), seed=SEED, documents=given.documents)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase", jvm="") as server:
        return print_outcomes(outcomes(server, folder, given.documents))


if __name__ == "__main__":
    sys.exit(main())
