"""Jobs on Spark: `python -m tests.bench.bench_spark [--large]`.

Finds all pairs of fingerprints with `hsimhash.spark.pairs`, with `find_pairs` on the same machine, and with the
self-join on drawers that a user would write in twenty lines, on one core and on two; answers are compared. Then
clusters documents, 30 % of which share ten fingerprints, and compares the longest task of a stage with the median one.
Finally writes tables.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hsimhash import HSimIndex
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.pairs import find_pairs
from hsimhash.spark import clusters, pairs, write_tables
from tests.support.fingerprint_sets import Numbers, near_and_equal, page_ids
from tests.support.programs import Outcome, options, print_bar, print_conditions, print_outcomes, scratch_folder
from tests.support.spark_session import event_log, local_spark, longest_to_median, task_times

SEED = 53
SIZE, LARGE, SMALL = 1_000_000, 10_000_000, 20_000
ROUNDS = 5  # the first ones are slower because Java compiles what it runs
NEAR_SHARE = 0.2
CROWD, CROWD_SHARE = 300_000, 0.3
K = 3  # bits: the most for which a join on four drawers finds all pairs
LONG_STAGE_MS = 100  # for the longest task; shorter ones are not meaningful


def written(spark: SparkSession, path: Path, values: Numbers) -> DataFrame:
    """Return a DataFrame of fingerprints in a file."""
    table = pa.table({"id": page_ids(0, len(values)), "fingerprint": values.view(np.int64)})
    pq.write_table(table, path, row_group_size=len(values) // 8 + 1)
    return spark.read.parquet(str(path))


def self_join(documents: DataFrame) -> DataFrame:
    """Find pairs as a user would: four drawers of 16 bits, a join on them, the distance, each pair once."""
    drawers = F.array(
        *(
            F.struct(F.lit(n).alias("drawer"), F.shiftright("fingerprint", 16 * n).bitwiseAND(0xFFFF).alias("segment"))
            for n in range(4)
        )
    )
    rows = documents.select("id", "fingerprint", F.explode(drawers).alias("filed"))
    a, b = rows.alias("a"), rows.alias("b")
    distance = F.bit_count(F.col("a.fingerprint").bitwiseXOR(F.col("b.fingerprint")))
    met = a.join(b, (F.col("a.filed") == F.col("b.filed")) & (F.col("a.id") < F.col("b.id")))
    ids = F.col("a.id").alias("left"), F.col("b.id").alias("right")
    return met.where(distance <= K).select(*ids, distance.alias("distance")).distinct()


def timed(job: Callable[[DataFrame], DataFrame], given: DataFrame, out: Path) -> float:
    """Return how many seconds a job takes to write its rows."""
    began = time.perf_counter()
    job(given).write.mode("overwrite").parquet(str(out))
    return time.perf_counter() - began


def measure_pairs(folder: Path, values: Numbers, *, has_naive: bool) -> list[Outcome]:
    """Print the times of all ways to find pairs; return whether they agree."""
    by_cores = {}
    for cores in (1, 2):
        with local_spark(cores, 8) as spark:
            given, small = written(spark, folder / "given", values), written(spark, folder / "small", values[:SMALL])
            contest: dict[str, Callable[[DataFrame], DataFrame]] = {"pairs": partial(pairs, max_distance=K)}
            if has_naive and cores == 2:
                contest["self-join"] = self_join
            for job in contest.values():
                timed(job, small, folder / "small pairs")
            took: dict[str, list[float]] = {name: [] for name in contest}
            for _ in range(ROUNDS):
                for name, job in contest.items():
                    took[name].append(timed(job, given, folder / f"{name}.parquet"))
            for name, all_of_them in took.items():
                print(f"{name}, {cores} cores: {', '.join(f'{one:.1f}' for one in all_of_them)} s", flush=True)
            by_cores[cores] = statistics.median(took["pairs"])
            if len(contest) > 1:
                ratios = [naive / ours for naive, ours in zip(took["self-join"], took["pairs"], strict=True)]
                print_bar("self-join / pairs, seconds", statistics.median(ratios), at_least=3)
            if cores == 2:
                took_s = statistics.median(timed(pairs, given, folder / "far") for _ in range(ROUNDS))
                print(f"pairs within {DEFAULT_DISTANCE} bits, 2 cores: {took_s:.1f} s", flush=True)
    print(f"two cores, times one: {by_cores[1] / by_cores[2]:.2f}")
    began = time.perf_counter()
    known = find_pairs(values, max_distance=K)
    print(f"find_pairs: {time.perf_counter() - began:.1f} s", flush=True)
    return [same_pairs(folder / f"{name}.parquet", known.left, known.right) for name in contest]


def same_pairs(found: Path, left: np.ndarray, right: np.ndarray) -> Outcome:  # type: ignore[type-arg]
    """Judge whether a table of pairs of ids has exactly these pairs of positions."""
    table = pq.read_table(found)
    sides = [np.array([int(one[-9:]) for one in table.column(name).to_pylist()]) for name in ("left", "right")]
    own = np.unique(np.minimum(*sides) << 32 | np.maximum(*sides))
    is_equal = len(own) == table.num_rows and np.array_equal(own, np.sort(left << 32 | right))
    return Outcome(is_equal, f"{found.stem}: {table.num_rows:,} pairs, those of find_pairs")


def measure_crowd(folder: Path, rng: np.random.Generator) -> None:
    """Print the ratio of a stage's longest task to its median task.

    Spark does not merge small tasks, so each has about an eighth of the work; the Python workers are already running.
    The ratio is the median of several runs, because Java may collect garbage during one of them.
    """
    values = near_and_equal(rng, CROWD, near=NEAR_SHARE, equal=CROWD_SHARE, most=K)
    settings = event_log(folder / "events")
    settings["spark.sql.adaptive.coalescePartitions.enabled"] = "false"
    settings["spark.sql.files.maxPartitionBytes"] = "512k"
    began_s = list[float]()
    with local_spark(2, 8, **settings) as spark:
        given = written(spark, folder / "crowd", values)
        job = partial(clusters, max_distance=K)
        timed(job, given, folder / "clusters")
        for _ in range(ROUNDS):
            began_s.append(time.time())
            print(f"clusters of {CROWD:,}, 30 % equal: {timed(job, given, folder / 'clusters'):.1f} s", flush=True)
    runs = [task_times(folder / "events", *one) for one in pairwise([*began_s, math.inf])]
    worst = [longest_to_median(run.values(), long_ms=LONG_STAGE_MS) for run in runs]
    print(f"longest task / median of its stage: {', '.join(f'{one:.1f}' for one in worst)}")
    print_bar(
        f"the same, median of {ROUNDS} runs, stages of over {LONG_STAGE_MS} ms", statistics.median(worst), at_most=5
    )


def measure_tables(folder: Path, values: Numbers) -> None:
    """Print how fast tables are written, and their size."""
    with local_spark(2, 8) as spark:
        given = written(spark, folder / "stored", values)
        began = time.perf_counter()
        write_tables(given, str(folder / "tables"), layout="10", profile="auto-1", compress=True)
        print(f"tables written: {len(values) / (time.perf_counter() - began):,.0f} documents/s", flush=True)
    with HSimIndex.open(f"tables://{folder}/tables") as tables:
        facts = tables.store.describe()
    size = int(facts["rows_bytes"]) / int(facts["drawer_rows"])
    print_bar("bytes a row", size, at_most=6.5 if len(values) < LARGE // 2 else 6)


def main() -> int:
    given = options(__doc__ or "", large=(False, "10,000,000 documents instead of 1,000,000"))
    size = LARGE if given.large else SIZE
    print_conditions("Spark", packages=("pyspark", "pyarrow"), seed=SEED, documents=size, rounds=ROUNDS)
    rng = np.random.default_rng(SEED)
    values = np.unique(near_and_equal(rng, size, near=NEAR_SHARE, equal=0, most=K))
    rng.shuffle(values)
    with scratch_folder(given.scratch) as folder:
        outcomes = measure_pairs(folder, values, has_naive=not given.large)
        measure_crowd(folder, rng)
        measure_tables(folder, values)
    return print_outcomes(outcomes)


if __name__ == "__main__":
    sys.exit(main())
