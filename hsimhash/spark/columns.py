"""Work with columns of DataFrames: fingerprints as columns, and steps that several jobs share.

Spark does not have unsigned numbers, so fingerprints, sketches and keys are signed `bigint` values with the same 64
bits; `hex(fingerprint)` shows the digits. A value of 0 or null means that a sketch or a key is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, IntegralType, LongType, StringType, TimestampType

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.keys import COUNT_SHIFT, PART_TAGS, PARTS, SHIFTS, TAG_BITS, TAG_MASK, Keying
from hsimhash.store.urls import holds_password, masked

SIGNATURE = ("fingerprint", "sketch", "key")
LEAST_ROWS = 1 << 16  # minimum number of rows that is worth a task
SIGN = 1 << 63
_HASH_SEED = 42  # seed of the hash by which Spark chooses a row's partition


def bits_of(rows: DataFrame, name: str) -> Column:
    """Return a column of 64-bit numbers as `bigint`; the job fails if a value is invalid.

    The column may be signed (`bigint`), unsigned (`decimal(20,0)`, as Spark reads Parquet's uint64), or 16 hexadecimal
    digits, as 'hsimhash export' writes them.

    Raises:
        ValueError: There is no such column, or it has the wrong type.
    """
    bits, given = bits_or_null(rows, name), column_named(name)
    wrong = F.concat(
        F.lit(f"column {name}: expected 16 hexadecimal digits, or a number below 2**64, got "),
        F.substring(given.cast("string"), 1, 80),
    )
    is_wrong = given.isNotNull() & bits.isNull()
    return F.when(is_wrong, F.raise_error(wrong).cast("bigint")).otherwise(bits)


def bits_or_null(rows: DataFrame, name: str) -> Column:
    """Return the same column as `bits_of`, but with null for invalid values."""
    check_names(rows, [name])
    kind, value = rows.schema[name].dataType, column_named(name)
    if isinstance(kind, LongType):
        return value
    if isinstance(kind, DecimalType) and kind.scale == 0:
        sign, limit = (F.lit(str(one)).cast("decimal(20,0)") for one in (SIGN, 2 * SIGN))
        bits = F.when(value < sign, value).otherwise(value - limit).cast("bigint")
        return F.when((value >= 0) & (value < limit), bits)
    if isinstance(kind, StringType):
        return F.when(value.rlike(r"^[0-9a-fA-F]{16}\z"), F.conv(value, 16, -10).cast("bigint"))
    raise ValueError(
        f"column {name!r} is {kind.simpleString()}: expected bigint, decimal(20,0), or 16 hexadecimal digits"
    )


def has_signatures(documents: DataFrame) -> bool:
    """Whether there are columns for sketches or keys."""
    return bool({"sketch", "key"} & set(documents.columns))


def signature_columns(documents: DataFrame) -> list[Column]:
    """Return the columns fingerprint, sketch and key as `bigint`; a missing sketch or key is 0."""
    found = [bits_of(documents, "fingerprint").alias("fingerprint")]
    for name in SIGNATURE[1:]:
        there = name in documents.columns
        value = F.coalesce(bits_of(documents, name), F.lit(0)) if there else F.lit(0)
        found.append(value.cast("bigint").alias(name))
    return found


def first_seen_in(documents: DataFrame) -> Column:
    """Return the column `first_seen` in ms since 1970, with null for missing values.

    Raises:
        ValueError: The column has the wrong type.
    """
    if "first_seen" not in documents.columns:
        return F.lit(None).cast("bigint")
    given, kind = F.col("first_seen"), documents.schema["first_seen"].dataType
    if isinstance(kind, TimestampType):
        return F.unix_millis(given)
    if not isinstance(kind, IntegralType):
        raise ValueError(
            f"column 'first_seen' is {kind.simpleString()}: expected a timestamp or bigint (ms since 1970)"
        )
    return given.cast("bigint")


def distance_of(some: Column, others: Column) -> Column:
    """Return the Hamming distance of two columns."""
    return F.bit_count(some.bitwiseXOR(others))


def key_parts(key: Column, keying: Keying) -> Column:
    """Return the parts of each key as an array, like `Keying.parts` but without mixing bits: only equality matters."""
    if keying is Keying.WHOLE:
        return F.array_remove(F.array(key), 0)
    tags = [F.shiftright(key, shift).bitwiseAND(F.lit(TAG_MASK)) for shift in SHIFTS]
    count = F.shiftrightunsigned(key, COUNT_SHIFT)
    parts = []
    for number, places in enumerate(PARTS):
        some = [tags[place] for place in places]
        low, high = F.least(*some), F.greatest(*some)
        middle = some[0] + some[1] + some[2] - low - high
        packed = F.least(count, F.lit(PART_TAGS))
        for tag in (low, middle, high):
            packed = F.shiftleft(packed, TAG_BITS).bitwiseOR(tag)
        parts.append(F.when(count > places[-1] if number else key != 0, packed))
    return F.array_distinct(F.array_compact(F.array(*parts)))


def by_key_part(rows: DataFrame, keying: Keying) -> DataFrame:
    """Return each row once for every part of its `key`, in the column `part`; rows without a key are dropped."""
    return rows.where("key <> 0").withColumn("part", F.explode(key_parts(F.col("key"), keying)))


def materialized(rows: DataFrame) -> DataFrame:
    """Compute the rows now and only once; readers do not compute them again.

    If the session has a checkpoint folder (`setCheckpointDir`), the rows are written to it and survive lost executors.
    Otherwise, executors keep the rows, and the job fails if an executor with rows is lost.
    """
    has_folder = rows.sparkSession.sparkContext._jsc.sc().getCheckpointDir().isDefined()
    return rows.checkpoint() if has_folder else rows.localCheckpoint()


def observed(rows: DataFrame, **what: Column) -> tuple[DataFrame, dict[str, Any]]:
    """Return the materialized rows, and aggregates over them by name, without running another job."""
    observation = Observation()
    named = [value.alias(name) for name, value in what.items()]
    return materialized(rows.observe(observation, *named)), observation.get


def reached_path(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system for a path or URL, and the path in it."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(place)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path


def absolute_place(place: str) -> str:
    """Return an absolute path, so that it does not depend on the working folder; a URL is returned unchanged."""
    return place if "://" in place else str(Path(place).absolute())


def check_place(spark: SparkSession, place: str, inputs: Sequence[str], *, overwrite: bool) -> None:
    """Raise `ValueError` if results at a path or URL would overwrite inputs or existing results.

    Args:
        spark: The session.
        place: Path or URL of the results.
        inputs: Paths or URLs of the inputs.
        overwrite: Whether existing results may be replaced.
    """
    for name in (place, *inputs):
        if holds_password(name):
            raise ValueError(f"{masked(name)} contains a password; move it to Spark's configuration")
    files, path = reached_path(spark, place)
    own = f"{files.makeQualified(path)}/"
    for name in inputs:
        its_files, its_path = reached_path(spark, name)
        other = f"{its_files.makeQualified(its_path)}/"
        if own.startswith(other) or other.startswith(own):
            raise ValueError(f"{place} is the input {name}, or one is inside the other; choose another location")
    if not overwrite and files.exists(path):
        raise ValueError(f"{place} already has results or other files; choose another location, or overwrite them")


def write_mode(*, overwrite: bool) -> str:
    """Return Spark's write mode for results."""
    return "overwrite" if overwrite else "error"


def unsigned(column: pa.Array) -> Uint64s:
    """Return a column of an Arrow batch as an array of unsigned numbers."""
    values: Uint64s = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False).view(np.uint64)
    return values


def signed(values: Uint64s) -> pa.Array:
    """Return unsigned numbers as a signed column for an Arrow batch."""
    return pa.array(values.view(np.int64))


def gathered(batches: Iterable[pa.RecordBatch], rows: int = sys.maxsize) -> Iterator[pa.Table]:
    """Join batches until they have enough rows; by default, join all batches of a task, if there are any."""
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
    """Return one key per partition; `repartition(count, key)` moves rows with a key to its partition."""
    found: dict[int, int] = {}
    key = 0
    while len(found) < count:
        place = mmh3.hash(key.to_bytes(4, "little"), _HASH_SEED) % count
        found.setdefault(place, key)
        key += 1
    return [found[place] for place in range(count)]


def grouped_evenly(rows: DataFrame, name: str, counted: DataFrame | None = None) -> DataFrame:
    """Put all rows with the same value in a column into one task, and about the same number of rows into each task.

    Spark places groups by their hashes, so one task may get several large groups while most tasks get hardly any rows.
    Here, large groups are placed one after another, each in the task with the fewest rows; only small groups are placed
    by their hashes. No task is planned for less than half of the largest group, or for so few rows that starting the
    task takes longer than processing them.

    Args:
        rows: Rows to place.
        name: Name of the column, a `bigint`.
        counted: Rows by which to measure group sizes, if that is cheaper than with `rows`; must also have the column.
    """
    tasks = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions"))
    counts, seen = observed(
        (rows if counted is None else counted).groupBy(name).agg(F.count("*").alias("rows")), total=F.sum("rows")
    )
    largest, total = counts.sort(F.desc("rows")).limit(4 * tasks).collect(), seen["total"] or 0
    unit = max(LEAST_ROWS, total // tasks, largest[0].rows // 2 if largest else 0)
    large = [row for row in largest if 4 * row.rows > unit]
    in_large = sum(row.rows for row in large)
    loads = [0] * -(-in_large // max(unit, largest[0].rows)) if large else []
    others = max(1, -(-(total - in_large) // unit))
    keys = partition_keys(len(loads) + others)
    entries = list[Column]()
    for row in large:
        place = loads.index(min(loads))
        loads[place] += row.rows
        entries += F.lit(row[name]).cast("bigint"), F.lit(keys[others + place])
    by_hash = F.element_at(F.array(*map(F.lit, keys[:others])), F.pmod(F.xxhash64(name), F.lit(others)).cast("int") + 1)
    own = F.element_at(F.create_map(*entries), F.col(name)) if entries else F.lit(None)
    return rows.repartition(len(keys), F.coalesce(own.cast("int"), by_hash))


def column_named(name: str) -> Column:
    """Return a column by its name, which may contain any characters."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


def named_column(documents: DataFrame, name: str, argument: str, wanted: str, *kinds: type[DataType]) -> Column:
    """Return a column whose name the caller passed.

    Args:
        documents: DataFrame with the column.
        name: Name of the column.
        argument: Keyword argument with which the name was passed, for messages.
        wanted: Description of the values, for messages.
        kinds: Types that the column may have.

    Raises:
        TypeError: `documents` is not a DataFrame of a Spark session that this process drives.
        ValueError: There is no such column, there are several such columns, or it has the wrong type.
    """
    check_frame(documents)
    if name not in documents.columns:
        raise ValueError(
            f"there is no column {name!r}; pass the column of {wanted} with {argument}=; "
            f"the columns are {columns_of(documents)}"
        )
    if documents.columns.count(name) > 1:
        raise ValueError(f"there are several columns {name!r}; drop or rename all but one")
    kind = documents.schema[name].dataType
    if not isinstance(kind, kinds):
        raise ValueError(
            f"column {name!r} is {kind.simpleString()}: expected {wanted}; cast it, or pass another column with "
            f"{argument}=; the columns are {columns_of(documents)}"
        )
    return column_named(name)


def columns_of(documents: DataFrame) -> str:
    """Return the names and types of columns, for messages."""
    return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in documents.schema.fields)


def check_frame(documents: DataFrame) -> None:
    """Raise `TypeError` if `documents` is not a Spark DataFrame, or if it belongs to Spark Connect."""
    kind = f"{type(documents).__module__}.{type(documents).__qualname__}"
    if not hasattr(documents, "sparkSession"):
        raise TypeError(f"expected a Spark DataFrame, got {kind}; create one with spark.createDataFrame(…)")
    if not hasattr(documents, "_jdf"):
        raise TypeError(
            f"got {kind}: Spark Connect is not supported; use a session from SparkSession.builder.master(…)"
        )


def check_free(documents: DataFrame, names: Iterable[str], *, besides: Iterable[str] = ()) -> None:
    """Raise `ValueError` if documents already have a column that a result adds; Spark ignores the case of names."""
    added, given = {name.lower() for name in names}, [name for name in documents.columns if name not in besides]
    if taken := [name for name in given if name.lower() in added]:
        shown = ", ".join(map(repr, taken))
        raise ValueError(f"columns that the result adds already exist: {shown}; drop or rename them")


def id_of(documents: DataFrame, name: str) -> Column:
    """Return the column of ids as `id`; see `named_column`."""
    return named_column(documents, name, "id", "ids (strings or whole numbers)", StringType, IntegralType).alias("id")


def id_and_signature(documents: DataFrame, id: str) -> tuple[Column, list[Column]]:
    """Return the column of ids, and the columns that `signature_columns` returns.

    Raises:
        TypeError: See `check_frame`.
        ValueError: A column is missing or has the wrong type.
    """
    doc_id = id_of(documents, id)
    if "fingerprint" not in documents.columns:
        raise ValueError(
            f"there is no column 'fingerprint'; add it with fingerprints(); the columns are {columns_of(documents)}"
        )
    return doc_id, signature_columns(documents)


def signed_documents(documents: DataFrame, id: str, position: str | None) -> DataFrame:
    """Return `id`, `fingerprint`, `position`, and `sketch` and `key` if either exists; see `id_and_signature`."""
    doc_id, signature = id_and_signature(documents, id)
    there = signature if has_signatures(documents) else signature[:1]
    return documents.select(doc_id, *there, position_of(documents, position).alias("position"))


def position_of(documents: DataFrame, name: str | None) -> Column:
    """Return a column that orders documents, nulls last; without a name, it is constant, so that only ids decide."""
    if name is None:
        return F.lit(0)
    own = named_column(documents, name, "position", "values in order", DataType)
    return F.struct(own.isNull(), own)


def given_rows(documents: DataFrame, id: str, position: str | None, *, has_signatures: bool) -> DataFrame:
    """Return `id`, the signature as an index stores it, `first_seen` (null means now) and `place`.

    Rows without an id or a fingerprint are dropped.
    """
    doc_id, signature = id_and_signature(documents, id)
    if not has_signatures:
        signature[1:] = [F.lit(0).cast("bigint").alias(name) for name in SIGNATURE[1:]]
    place = position_of(documents, position).alias("place")
    rows = documents.select(
        doc_id.cast("string").alias("id"), *signature, first_seen_in(documents).alias("first_seen"), place
    )
    return rows.where("id is not null and fingerprint is not null")


def last_rows(given: DataFrame, now_ms: int) -> DataFrame:
    """Return `id`, signature and `first_seen` of the last row with each id; `given` is the result of `given_rows`."""
    last = F.max(F.struct("place", "first_seen", *SIGNATURE)).alias("last")
    first_seen = F.coalesce("last.first_seen", F.lit(now_ms)).alias("first_seen")
    return given.groupBy("id").agg(last).select("id", *(f"last.{name}" for name in SIGNATURE), first_seen)


def check_names(documents: DataFrame, names: Sequence[str]) -> None:
    """Raise `ValueError` if columns are missing."""
    missing = [name for name in names if name not in documents.columns]
    if missing:
        raise ValueError(
            f"there is no column {', '.join(map(repr, missing))}; the columns are {', '.join(documents.columns)}"
        )
