"""Near-duplicate texts by hsimhash and by peers: `python -m tests.bench.bench_spark_peers [--large]`.

From texts in Parquet to pairs, compares `hsimhash.spark.pairs` of `fingerprints`; MLlib's MinHashLSH in the same
session, in its usual form; and datatrove's MinHash with its defaults, in its own processes. NeMo Curator needs GPUs.
The texts have the words of Python's manual, with the same frequencies. One in five is a copy of another text with up to
ten of 200 words replaced. Recall is the share of copies that are found with their originals; precision is the share of
found pairs that consist of a copy and its original.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.ml import Pipeline
from pyspark.ml.feature import HashingTF, MinHashLSH, NGram, Tokenizer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.spark import fingerprints, pairs
from tests.support.programs import options, print_conditions, scratch_folder
from tests.support.spark_session import local_spark

SEED = 67
SIZE, LARGE, SMALL = 100_000, 1_000_000, 2_000
WORDS, COPIES, REPLACED = 200, 0.2, 10
SHINGLE, FEATURES, TABLES = 3, 1 << 20, 5
DISTANCES = (0.2, 0.3)  # Jaccard distances; copies are within .26
OWN_LIMITS = ((DEFAULT_DISTANCE, MAX_SKETCH), (8, 20), (10, 18), (12, 20))  # in bits: for fingerprints, for sketches
ROUNDS = 3
DATATROVE = Path(sys.prefix, "datatrove", "bin", "python")  # in a separate environment


@dataclass(frozen=True, slots=True)
class Score:
    """The time of a job, and the quality of its pairs."""

    seconds: float
    recall: float
    precision: float

    def __str__(self) -> str:
        return f"{self.seconds:8.1f} s   recall {self.recall:.3f}   precision {self.precision:.3f}"


def write_texts(path: Path, count: int) -> None:
    """Write texts, with their numbers as ids; the last ones are copies of the first."""
    rng, copies = np.random.default_rng(SEED), int(count * COPIES)
    manual = np.array(re.findall("[a-z]+", " ".join(topics.values()).lower()), object)
    texts = rng.integers(0, len(manual), (count, WORDS), np.int32)
    for copy in range(copies):
        places = rng.integers(0, WORDS, rng.integers(1, REPLACED + 1))
        texts[count - copies + copy] = texts[copy]
        texts[count - copies + copy, places] = rng.integers(0, len(manual), len(places))
    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, count, 1 << 16):
            rows = [" ".join(one) for one in manual[texts[start : start + (1 << 16)]].tolist()]
            ids = [f"{number:07}" for number in range(start, start + len(rows))]
            writer.write_table(pa.table([ids, rows], schema=schema))


def by_hsimhash(distance: int, sketch: int) -> Callable[[DataFrame], DataFrame]:
    """Return a job that finds pairs within these distances of fingerprints and sketches."""
    return lambda texts: pairs(fingerprints(texts), max_distance=distance, max_sketch=sketch).select("left", "right")


def by_minhash_lsh(distance: float) -> Callable[[DataFrame], DataFrame]:
    """Return the job of a typical MLlib user: shingles, hashed to features, joined by small Jaccard distance."""

    def found(texts: DataFrame) -> DataFrame:
        shingles = [
            Tokenizer(inputCol="text", outputCol="words"),
            NGram(n=SHINGLE, inputCol="words", outputCol="shingles"),
            HashingTF(numFeatures=FEATURES, binary=True, inputCol="shingles", outputCol="features"),
        ]
        rows = Pipeline(stages=shingles).fit(texts).transform(texts).select("id", "features")
        model = MinHashLSH(inputCol="features", outputCol="hashes", numHashTables=TABLES, seed=SEED).fit(rows)
        joined = model.approxSimilarityJoin(rows, rows, distance)
        ids = F.col("datasetA.id").alias("left"), F.col("datasetB.id").alias("right")
        return joined.select(*ids).where("left < right")

    return found


def scored(job: Callable[[DataFrame], DataFrame], texts: DataFrame, out: Path, copies: int) -> Score:
    """Run a job until its pairs are written; return its score."""
    began = time.perf_counter()
    job(texts).write.mode("overwrite").parquet(str(out))
    took_s = time.perf_counter() - began
    return Score(took_s, *quality(pq.read_table(out), texts.count(), copies))


def by_datatrove(texts: Path, work: Path, count: int, copies: int) -> Score:
    """Run datatrove on a folder of texts, in its own environment."""
    script = Path(__file__).with_name("datatrove_minhash.py")
    done = subprocess.run([DATATROVE, script, texts, work], check=True, capture_output=True, text=True)
    return Score(float(done.stdout.split()[-1]), *quality(csv.read_csv(work / "pairs.csv"), count, copies))


def quality(found: pa.Table, count: int, copies: int) -> tuple[float, float]:
    """Return recall and precision of pairs of ids."""
    sides = [np.array([int(one) for one in found[name].to_pylist()], np.int64) for name in ("left", "right")]
    low, high = np.minimum(*sides), np.maximum(*sides)
    right = int(np.count_nonzero((low < copies) & (high == low + count - copies)))
    return right / copies, right / max(1, len(low))


def main() -> None:
    given = options(__doc__ or "", large=(False, f"{LARGE:,} texts instead of {SIZE:,}"))
    size, rounds = (LARGE, 1) if given.large else (SIZE, ROUNDS)
    print_conditions("near texts on Spark", packages=("pyspark",), seed=SEED, texts=size, rounds=rounds)
    contest = {f"hsimhash, {distance}": by_hsimhash(distance, sketch) for distance, sketch in OWN_LIMITS}
    contest |= {f"MinHashLSH, {one}": by_minhash_lsh(one) for one in DISTANCES}
    with scratch_folder(given.scratch) as folder:
        for name, count in (("texts", size), ("small", SMALL)):
            (folder / name).mkdir()
            write_texts(folder / name / "part.parquet", count)
        copies = int(size * COPIES)
        with local_spark(2, 8, **{"spark.driver.memory": "8g"}) as spark:
            texts, small = (spark.read.parquet(str(folder / name)) for name in ("texts", "small"))
            for job in contest.values():  # warm up, because Java compiles what it runs
                scored(job, small, folder / "found", int(SMALL * COPIES))
            for _ in range(rounds):
                for name, job in contest.items():
                    print(f"{name:16} {scored(job, texts, folder / 'found', copies)}", flush=True)
        print(f"{'datatrove':16} {by_datatrove(folder / 'texts', folder / 'work', size, copies)}")


if __name__ == "__main__":
    sys.exit(main())
