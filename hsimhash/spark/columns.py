"""Columns of DataFrames: fingerprints as columns, and steps that several jobs share.

Spark does not have unsigned numbers, so a fingerprint, a sketch or a key is a signed `bigint` with the same 64 bits;
`hex(fingerprint)` shows their digits. A sketch or a key of 0, or null, means that there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegralType, LongType, StringType, TimestampType

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.store.urls import holds_password, masked

SIGNATURE = ("fingerprint", "sketch", "key")
_SIGN = 1 << 63
_HASH_SEED = 42  # of Spark's own hash, by which it chooses a row's partition


def bits_of(rows: DataFrame, name: str) -> Column:
    """Return a column of 64-bit numbers as `bigint`; the job fails if a value is invalid.

    They may be signed (`bigint`), unsigned (`decimal(20,0)`, as Spark reads Parquet's uint64), or 16 hexadecimal
    digits, as 'hsimhash export' writes them.

    Raises:
        ValueError: there is no such column, or it has another type.
    """
    bits, given = bits_or_null(rows, name), F.col(f"`{name}`")
    wrong = F.concat(
        F.lit(f"column {name}: neither 16 hexadecimal digits nor below 2**64: "),
        F.substring(given.cast("string"), 1, 80),
    )
    is_wrong = given.isNotNull() & bits.isNull()
    return F.when(is_wrong, F.raise_error(wrong).cast("bigint")).otherwise(bits)


def bits_or_null(rows: DataFrame, name: str) -> Column:
    """Return a column like `bits_of`, with null for invalid values."""
    check_names(rows, [name])
    kind, value = rows.schema[name].dataType, F.col(f"`{name}`")
    if isinstance(kind, LongType):
        return value
    if isinstance(kind, DecimalType) and kind.scale == 0:
        sign, limit = (F.lit(str(one)).cast("decimal(20,0)") for one in (_SIGN, 2 * _SIGN))
        bits = F.when(value < sign, value).otherwise(value - limit).cast("bigint")
        return F.when((value >= 0) & (value < limit), bits)
    if isinstance(kind, StringType):
        return F.when(value.rlike(r"^[0-9a-fA-F]{16}\z"), F.conv(value, 16, -10).cast("bigint"))
    raise ValueError(
        f"column {name!r} is {kind.simpleString()}; fingerprints are bigint, decimal(20,0), or 16 hexadecimal digits"
    )


def has_signatures(documents: DataFrame) -> bool:
    """Whether there are sketches or keys as well as fingerprints."""
    return bool({"sketch", "key"} & set(documents.columns))


def signature_columns(documents: DataFrame) -> list[Column]:
    """Return fingerprint, sketch and key as `bigint`; 0 if a document does not have a sketch or a key."""
    found = [bits_of(documents, "fingerprint").alias("fingerprint")]
    for name in SIGNATURE[1:]:
        there = name in documents.columns
        value = F.coalesce(bits_of(documents, name), F.lit(0)) if there else F.lit(0)
        found.append(value.cast("bigint").alias(name))
    return found


def first_seen_in(documents: DataFrame) -> Column:
    """Return the column `first_seen` in ms since 1970, with null for missing values.

    Raises:
        ValueError: it has another type.
    """
    if "first_seen" not in documents.columns:
        return F.lit(None).cast("bigint")
    given, kind = F.col("first_seen"), documents.schema["first_seen"].dataType
    if isinstance(kind, TimestampType):
        return F.unix_millis(given)
    if not isinstance(kind, IntegralType):
        raise ValueError(f"column 'first_seen' is {kind.simpleString()}; it is a timestamp, or bigint, ms since 1970")
    return given.cast("bigint")


def distance_of(some: Column, others: Column) -> Column:
    """Return the Hamming distance of two columns."""
    return F.bit_count(some.bitwiseXOR(others))


def materialized(rows: DataFrame) -> DataFrame:
    """Compute the rows now and only once; readers do not compute them again.

    They go to the session's checkpoint folder (`setCheckpointDir`) where there is one, and then last; else are kept
    by the executors, and the job fails with one that is lost.
    """
    has_folder = rows.sparkSession.sparkContext._jsc.sc().getCheckpointDir().isDefined()
    return rows.checkpoint() if has_folder else rows.localCheckpoint()


def observed(rows: DataFrame, **what: Column) -> tuple[DataFrame, dict[str, int]]:
    """Return the rows `materialized`, and aggregates of them by name, without another job."""
    observation = Observation()
    named = [value.alias(name) for name, value in what.items()]
    return materialized(rows.observe(observation, *named)), observation.get


def reached_path(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a path or URL, and the path there."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def check_place(spark: SparkSession, place: str, inputs: Sequence[str], *, overwrite: bool) -> None:
    """Raise `ValueError` if results at a path or URL would overwrite inputs or existing results.

    Args:
        spark: the session.
        place: of the results.
        inputs: what is read.
        overwrite: whether other results may be replaced.
    """
    for name in (place, *inputs):
        if holds_password(name):
            raise ValueError(f"{masked(name)} holds a password; leave it out, and put it into Spark's configuration")
    files, path = reached_path(spark, place)
    own = f"{files.makeQualified(path)}/"
    for name in inputs:
        its_files, its_path = reached_path(spark, name)
        other = f"{its_files.makeQualified(its_path)}/"
        if own.startswith(other) or other.startswith(own):
            raise ValueError(f"{place} and {name}, which is read, lie one within the other; choose another place")
    if not overwrite and files.exists(path):
        raise ValueError(
            f"there are results in {place}, or other files; choose another place, or replace them (overwrite)"
        )


def write_mode(*, overwrite: bool) -> str:
    """Return Spark's write mode for results."""
    return "overwrite" if overwrite else "error"


def unsigned(column: pa.Array) -> Uint64s:
    """Return a column of an Arrow batch as unsigned numbers in numpy."""
    values: Uint64s = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)
    return values


def signed(values: Uint64s) -> pa.Array:
    """Return numbers as a column of an Arrow batch."""
    return pa.array(values.view(np.int64))


def gathered(batches: Iterable[pa.RecordBatch], rows: int = sys.maxsize) -> Iterator[pa.Table]:
    """Join batches until they have enough rows; by default all batches of a task, if there are any."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if count:
        yield pa.Table.from_batches(held)


def partition_keys(count: int) -> list[int]:
    """Return one number per partition; `repartition(count, key)` moves the rows with it there."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < count:
        place = mmh3.hash(key.to_bytes(4, "little"), _HASH_SEED) % count
        found.setdefault(place, key)
        key += 1
    return [found[place] for place in range(count)]


def check_names(documents: DataFrame, names: Sequence[str]) -> None:
    """Raise `ValueError` if columns are missing."""
    missing = [name for name in names if name not in documents.columns]
    if missing:
        raise ValueError(
            f"there is no column {', '.join(map(repr, missing))}; the columns are {', '.join(documents.columns)}"
        )
