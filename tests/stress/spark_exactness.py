"""The same answers on Spark as on one machine: `python -m tests.stress.spark_exactness [--data DIR]`.

Compares pairs, clusters and lists of `hsimhash.spark.dedup_files` with those of `hsimhash.dedup`: on all labelled
texts, with keys of both kinds, by stars and by components; on random fingerprints, some near others; on fingerprints of
which 30 % have one of ten values; and on signatures, half of which share keys (of both kinds), in one task and in many.
Tables are compared row by row. The single machine reads texts from a pipe, so that it also decides by sketches alone.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from hsimhash import Profile
from hsimhash.dedup import DedupOptions, dedup
from hsimhash.dedup.options import METHODS, Method
from hsimhash.dedup.report import Totals
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.rarity import FIT_OFF
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.spark import RecordOptions, SparkDedupOptions, dedup_files
from hsimhash.spark.near_pairs import PAIR_LIMITS
from tests.support.fingerprint_sets import Numbers, crowded_signatures, near_and_equal, page_ids, write_signatures
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.spark_session import local_spark

SEED = 59
RANDOM, NEAR_SHARE = 1_000_000, 0.2
CROWD, CROWD_SHARE = 300_000, 0.3
KEYED = 60_000
MOST = 4  # distance between near ones, in bits
FIELD = "fingerprint"
PROFILES = {Keying.WHOLE: "auto-2", Keying.IN_PARTS: "auto-3"}


class Case(NamedTuple):
    """A file, the profile of its texts or signatures, and how they are clustered."""

    path: Path
    profile: str
    field: str | None = None  # the field with the fingerprints
    method: Method = METHODS[0]
    at_once: int = PAIR_LIMITS.single_task

    def __str__(self) -> str:
        return f"{self.path.name}, {self.profile}, {self.method}, up to {self.at_once:,} in one task"


def written(path: Path, values: Numbers) -> Path:
    """Write fingerprints as JSON lines, with ids in random order."""
    ids = page_ids(0, len(values))
    order = np.random.default_rng(SEED).permutation(len(values)).tolist()
    lines = (f'{{"id": "{ids[place]}", "fingerprint": "{int(values[place]):016x}"}}\n' for place in order)
    path.write_text("".join(lines))
    return path


def rows(path: Path) -> list[str]:
    """Return the rows of a table, sorted, with its columns in order of their names."""
    table = pq.read_table(path)
    columns = [table.column(name).to_pylist() for name in sorted(table.column_names)]
    return sorted(map(repr, zip(*columns, strict=True)))


@contextmanager
def piped(path: Path, pipe: Path) -> Iterator[Path]:
    """Yield a pipe that delivers the lines of a packed file."""
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.decompress(path.read_bytes())))
    writer.start()
    yield pipe
    writer.join()


def compared(spark: SparkSession, case: Case, folder: Path) -> Iterator[Outcome]:
    """Deduplicate a file both ways; yield whether the results agree."""
    profile = Profile.named(case.profile)
    reading = InputOptions("jsonl", fingerprint_field=case.field, has_signatures=profile.makes_signatures)
    one, many = folder / "one", folder / "many"
    asked = DedupOptions(clusters=case.method, reading=reading, table_format="parquet", fit=FIT_OFF)
    began = time.perf_counter()
    with piped(case.path, folder / "texts.jsonl") if case.field is None else nullcontext(case.path) as path:
        known = dedup(find_inputs([str(path)], reading), one, asked, against=profile).totals
    alone_s = time.perf_counter() - began
    records = RecordOptions(profile, "json", fingerprint_field=case.field)
    options = SparkDedupOptions(
        clusters=case.method, fit=FIT_OFF, limits=replace(PAIR_LIMITS, single_task=case.at_once)
    )
    began = time.perf_counter()
    dedup_files(spark, [str(case.path)], str(many), records, options)
    print(f"{case}: {alone_s:.1f} s on one machine, {time.perf_counter() - began:.1f} s on Spark")
    yield from same_results(one, many, known, str(case))


def same_results(one: Path, many: Path, known: Totals, what: str) -> Iterator[Outcome]:
    """Yield whether the tables, lists and counts of one machine and of Spark agree."""
    for name in ("pairs", "clusters"):
        left, right = rows(one / f"{name}.parquet"), rows(many / name)
        yield Outcome(left == right, f"{what}: {len(left):,} rows of {name}")
    for name in ("keep", "drop"):
        listed = sorted((one / f"{name}.txt").read_text(encoding="utf-8").splitlines())
        yield Outcome(listed == sorted(pq.read_table(many / name)["id"].to_pylist()), f"{len(listed):,} ids in {name}")
    (found,) = pq.read_table(many / "stats").to_pylist()
    counts = {name: count for name, count in asdict(known).items() if name != "unconfirmed" and count is not None}
    ours = {name: value for name, value in found.items() if name not in ("profile", "word_weights")}
    yield Outcome(counts == ours, f"counts {json.dumps(counts)}")


def cases(folder: Path, data: Path | None) -> Iterator[Case]:
    for path in sorted(data.glob("*/*docs.jsonl.gz")) if data is not None else ():
        for profile in PROFILES.values():
            yield from (Case(path, profile, method=method) for method in METHODS)
    rng = np.random.default_rng(SEED)
    crowd = written(folder / "crowd.jsonl", near_and_equal(rng, CROWD, near=NEAR_SHARE, equal=CROWD_SHARE, most=MOST))
    yield from (Case(crowd, "auto-1", FIELD, method) for method in METHODS)
    values = near_and_equal(rng, RANDOM, near=NEAR_SHARE, equal=0, most=MOST)
    yield Case(written(folder / "random.jsonl", values), "auto-1", FIELD)
    for keying, profile in PROFILES.items():
        path = folder / f"{keying.value}.jsonl"
        write_signatures(path, page_ids(0, KEYED), crowded_signatures(rng, KEYED, keying))
        for method in METHODS:
            yield from (Case(path, profile, FIELD, method, at_once) for at_once in (0, PAIR_LIMITS.single_task))


def outcomes(folder: Path, data: Path | None) -> Iterator[Outcome]:
    with local_spark(2, 8, **{"spark.driver.memory": "6g"}) as spark:
        for number, case in enumerate(cases(folder, data)):
            (folder / str(number)).mkdir()
            yield from compared(spark, case, folder / str(number))


def main() -> int:
    given = options(__doc__ or "", has_data=True)
    print_conditions("Spark and one machine", packages=("pyspark",), seed=SEED)
    with scratch_folder(given.scratch) as folder:
        return print_outcomes(outcomes(folder, given.data))


if __name__ == "__main__":
    sys.exit(main())
