"""Skewed documents on Spark: `python -m tests.stress.spark_skew [--large] [--cluster]`.

Runs `hsimhash spark dedup` on 150,000 texts, half of them in ten clusters; also on empty texts, one of 10 MB, and
invalid records. The results must be those of `hsimhash dedup`. Prints the ratio of a stage's longest task to its median
task, and of the job's time to that for the same number of unrelated texts. With `--large` there are 1,000,000 texts.
With `--cluster` the tasks run in a separate executor, so that many tasks cluster the texts instead of one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hsimhash.cli.exit_codes import ExitCode
from hsimhash.dedup import DedupOptions, dedup
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.inputs import InputOptions, find_inputs
from tests.bench.bench_crowds import write_documents
from tests.stress.spark_exactness import same_results
from tests.support.command_line import PROGRAM
from tests.support.programs import Outcome, options, print_bar, print_conditions, print_outcomes, scratch_folder
from tests.support.spark_session import event_log, longest_to_median, task_times

SEED = 61
SIZE, LARGE = 150_000, 1_000_000  # more than a single task clusters
CLUSTERS, SHARE, EMPTY_SHARE, LONG_BYTES = 10, 0.5, 0.02, 10 << 20
LONG_TASK_MS = 1_000
CLUSTER = "local-cluster[1,2,4096]"


def write_skewed(path: Path, count: int) -> None:
    """Write texts, half of them in ten clusters; then empty ones, invalid records, and a very long text."""
    write_documents(path, count, CLUSTERS, SHARE)
    text = "w1 w2 w3 " * 40
    wrong = [{"text": text}, {"id": None, "text": text}, {"id": "x"}, {"id": "x", "text": None}, {"id": "", "text": ""}]
    wrong += [{"id": "x", "text": value} for value in (7, True, ["w1"], {"w": 1})]
    words = np.random.default_rng(SEED).integers(0, 1 << 20, LONG_BYTES // 8)
    with path.open("a", encoding="ascii") as file:
        for number in range(int(count * EMPTY_SHARE)):
            file.write(json.dumps({"id": f"empty{number}", "text": " " * (number % 2)}) + "\n")
        file.writelines(json.dumps(record) + "\n" for record in wrong)
        file.write("{broken\n" + json.dumps({"id": "long", "text": " ".join(f"w{word}" for word in words)}) + "\n")


def spark_dedup(path: Path, out: Path, events: Path, master: str) -> float:
    """Run the command with Spark's defaults; return how many seconds it takes."""
    conf = out.with_suffix(".conf")
    conf.mkdir()
    lines = (f"{name} {value}\n" for name, value in event_log(events).items())
    (conf / "spark-defaults.conf").write_text("".join(lines))
    began = time.monotonic()
    command = [*PROGRAM, "spark", "dedup", str(path), "--out", str(out), "--master", master, "--quiet"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"SPARK_CONF_DIR": str(conf)}
    )
    if done.returncode not in (ExitCode.DONE, ExitCode.REJECTED_RECORDS):
        raise RuntimeError(done.stderr)
    took_s = time.monotonic() - began
    print(f"{path.name}: {took_s:.1f} s", flush=True)
    return took_s


def outcomes(folder: Path, count: int, master: str) -> Iterator[Outcome]:
    """Compare the results, and print how evenly the work is spread."""
    unrelated, skewed = folder / "unrelated.jsonl", folder / "skewed.jsonl"
    write_documents(unrelated, count, 0)
    write_skewed(skewed, count)
    one, many, events = folder / "one", folder / "many", folder / "events"
    took_s = spark_dedup(skewed, many, events, master)
    print_bar(
        "skewed / unrelated, seconds",
        took_s / spark_dedup(unrelated, folder / "apart", folder / "apart.events", master),
        at_most=1.5,
    )
    worst = longest_to_median(task_times(events).values(), long_ms=LONG_TASK_MS)
    print_bar(f"longest task / median of its stage, where it takes {LONG_TASK_MS} ms", worst, at_most=5)
    reading = InputOptions(id_field="id")  # on Spark a record without an id is rejected
    options = DedupOptions(reading=reading, table_format="parquet")
    known = dedup(find_inputs([str(skewed)], reading), one, options, against=Profile.named(DEFAULT_PROFILE)).totals
    yield from same_results(one, many, known, "skewed")


def main() -> int:
    given = options(
        __doc__ or "",
        large=(False, f"{LARGE:,} texts instead of {SIZE:,}"),
        cluster=(False, f"run on {CLUSTER} instead of local[*]"),
    )
    size = LARGE if given.large else SIZE
    print_conditions("skewed documents on Spark", packages=("pyspark",), seed=SEED, documents=size)
    with scratch_folder(given.scratch) as folder:
        return print_outcomes(outcomes(folder, size, CLUSTER if given.cluster else "local[*]"))


if __name__ == "__main__":
    sys.exit(main())
