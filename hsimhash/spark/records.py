"""Read files into documents with signatures, each id once, as 'hsimhash dedup' does.

The first record with an id is the document. A later record with the same id only counts as a repeat if it has the same
signature and length; otherwise it is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from hsimhash.dedup.documents import FIELD_CHARACTERS
from hsimhash.extras import install_command
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.custom_features import parsed_features, weighted_hashes
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.stream import signed_texts
from hsimhash.inputs.extraction import PageTexts
from hsimhash.inputs.field_values import first_seen_of
from hsimhash.inputs.files import InputOptions
from hsimhash.inputs.lines import path_order, preview
from hsimhash.pairs.keep_policies import Policy, needed_fields
from hsimhash.processes import NoResult
from hsimhash.rowkey import check_doc_id
from hsimhash.spark.columns import SIGNATURE, bits_or_null, check_names, column_named, observed
from hsimhash.spark.executors import OnExecutors
from hsimhash.spark.json_lines import read_lines
from hsimhash.spark.signatures import SHORT_KIND, joined_texts, signature_arrays

SPARK_FORMATS = ("auto", "parquet", "json")
_JSON_ENDS = (".jsonl", ".ndjson", ".json")
_BROKEN, _RANK = "_corrupt_record", "_rank"
_SEEN = (*SIGNATURE, "kind", "length")
_OUT = (
    "id string, fingerprint bigint, sketch bigint, key bigint, kind string, length bigint, rank array<array<double>>, "
    "first_seen bigint, reason string, record string, "
    "place struct<input: int, path: string, start: bigint, row: bigint>"
)


TextWork = Callable[["RecordOptions", Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Options for reading files and their records."""

    profile: Profile = field(default_factory=lambda: Profile.named(DEFAULT_PROFILE))
    format: str = "auto"  # one of SPARK_FORMATS; `auto`: JSON lines or Parquet, depending on the suffix
    id_field: str = "id"
    text_field: str = "text"
    fingerprint_field: str | None = None  # read instead of a text, along with `sketch` and `key` if they exist
    keep: tuple[Policy, ...] = (Policy("first"),)
    first_seen_field: str | None = None  # ms since 1970 or an ISO 8601 time; None: see `seen_field`

    def __post_init__(self) -> None:
        if self.format not in SPARK_FORMATS:
            raise ValueError(f"unknown format {self.format!r}; use {', '.join(SPARK_FORMATS)}")
        if self.fingerprint_field and any(policy.kind == "longest" for policy in self.keep):
            raise ValueError("keep policy longest needs texts, but records are read as fingerprints; omit the policy")

    @property
    def text_fields(self) -> list[str]:
        """The fields with the text; more than one if the profile has several fields."""
        return list(self.profile.field_weights) or [self.text_field]

    @property
    def seen_field(self) -> str | None:
        """The field with the time a document was first seen; by default `first_seen` if fingerprints are read."""
        return self.first_seen_field or ("first_seen" if self.fingerprint_field else None)


@dataclass(frozen=True)
class ReadDocuments:
    """The documents in files, computed once.

    Attributes:
        documents: `id`, the signature (null if the text is too short), `kind`, `length` (characters), `place`, `rank`.
        rejects: `id`, `file`, `reason` and the beginning of the `record` for each rejected record.
        count: Number of documents.
        short: Number of documents without a fingerprint.
        exact: Number of documents that match only identical documents.
        signed: Number of documents with a sketch or a key.
        rejected: Number of records in `rejects`.
        repeated: Number of records that repeat an earlier record.
    """

    documents: DataFrame
    rejects: DataFrame
    count: int
    short: int
    exact: int
    signed: int
    rejected: int
    repeated: int


def read_documents(spark: SparkSession, inputs: Sequence[str], options: RecordOptions) -> ReadDocuments:
    """Read files and fingerprint their texts, each id once.

    Args:
        spark: The session.
        inputs: Files, folders, globs or URLs that Spark can read; documents are in the order of the inputs.
        options: How to read them.

    Raises:
        ValueError: There is no input, or a column is missing.
    """
    records, rejected = _observed_records(spark, inputs, options)
    window = Window.partitionBy("id").orderBy("place")
    seen, own = F.first(F.struct(*_SEEN)).over(window), F.struct(*_SEEN)
    valid = records.where("reason is null").withColumn("number", F.row_number().over(window))
    valid = valid.withColumn("is_same", seen.eqNullSafe(own) & (F.col("kind") != SHORT_KIND))
    is_first, is_short = F.col("number") == 1, F.col("kind") == SHORT_KIND
    numbered, counts = observed(
        valid.withColumn("earlier", F.first("path").over(window)),
        count=F.count_if(is_first),
        short=F.count_if(is_first & is_short),
        exact=F.count_if(is_first & (F.col("kind") == "exact")),
        signed=F.count_if(is_first & ((F.col("sketch") != 0) | (F.col("key") != 0))),
        rejected=F.count_if(~is_first & ~F.col("is_same")),
        repeated=F.count_if(~is_first & F.col("is_same")),
    )
    counts["rejected"] += rejected
    again = numbered.where("number > 1")
    how = F.when(F.col("kind") == SHORT_KIND, ", and both texts may be too short to compare")
    how = how.otherwise(", with a different text or fingerprint")
    reason = F.concat(F.lit("id already used in "), "earlier", how, F.lit("; the first is kept"))
    rejects = records.where("reason is not null").unionByName(
        again.where("not is_same").withColumn("reason", reason).select(records.columns)
    )
    return ReadDocuments(
        numbered.where("number = 1").select("id", *_SEEN, "place", "rank"),
        rejects.select("id", F.col("path").alias("file"), "reason", "record"),
        **counts,
    )


def read_records(spark: SparkSession, inputs: Sequence[str], options: RecordOptions) -> DataFrame:
    """Read files and fingerprint their texts, once.

    Returns the columns of `ReadDocuments.documents` and `ReadDocuments.rejects`, `path`, and `first_seen`, which is
    null if the record does not have it. `reason` is null for valid records.
    """
    return _observed_records(spark, inputs, options)[0]


def _observed_records(spark: SparkSession, inputs: Sequence[str], options: RecordOptions) -> tuple[DataFrame, int]:
    """Return the result of `read_records`, and the number of invalid records."""
    found = read_texts(spark, inputs, options, _from_texts, _OUT)
    files = F.to_json(F.collect_set(F.struct("place.input", "place.path")))  # observations cannot be arrays
    records, seen = observed(found, rejected=F.count("reason"), files=files)
    ordered = sorted(json.loads(seen["files"]), key=lambda file: (file["input"], path_order(file["path"])))
    return _placed(records, [file["path"] for file in ordered]), seen["rejected"]


def read_texts(
    spark: SparkSession, inputs: Sequence[str], options: RecordOptions, work: TextWork, out: str
) -> DataFrame:
    """Read files, and return what `work` returns for records with texts; see `_from_texts`.

    Args:
        spark: The session.
        inputs: As for `read_documents`.
        options: How to read them.
        work: Called with batches of records; `texts_in` returns their texts.
        out: Columns that `work` returns.
    """
    if not inputs:
        raise ValueError("no inputs; pass at least one")
    parts = (_read(spark, number, name, options, work, out) for number, name in enumerate(inputs))
    return reduce(DataFrame.unionByName, parts)


def rank_columns(options: RecordOptions) -> list[Column]:
    """Return columns that sort documents by the keep policies, from `ReadDocuments.documents`."""
    place = [F.col(f"place.{name}") for name in ("input", "file", "start", "row")]
    by_place = {"first": F.struct(*place), "last": F.struct(*(-one for one in place))}
    found = [by_place.get(policy.kind, F.col("rank")[at]) for at, policy in enumerate(options.keep)]
    return [column.alias(f"{_RANK}{at}") for at, column in enumerate(found)]


def _placed(records: DataFrame, paths: Sequence[str]) -> DataFrame:
    """Return records whose `place` has only numbers, in the order of the inputs; `path` is the name of the file."""
    in_order = F.array(*map(F.lit, dict.fromkeys(paths))).cast("array<string>")
    known = records.sparkSession.range(1).select(F.posexplode(in_order).alias("file", "path"))
    found = records.withColumn("path", F.col("place.path")).join(F.broadcast(known), "path")
    place = F.struct("place.input", F.col("file"), F.col("place.start"), F.col("place.row"))
    return found.withColumn("place", place).drop("file")


def _read(spark: SparkSession, number: int, name: str, options: RecordOptions, work: TextWork, out: str) -> DataFrame:
    """Return what `work` returns for the records of an input; records with fingerprints do not need `work`."""
    fields = needed_fields(options.keep)
    is_json = options.format == "json" or (options.format == "auto" and _is_json(name))
    place = F.struct(
        F.lit(number).alias("input"),
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_block_start").alias("start"),
        F.monotonically_increasing_id().alias("row"),
    ).alias("place")
    if is_json and options.fingerprint_field is None:
        lines = spark.read.text(name).select(F.col("value").cast("binary").alias("line"), place)
        return lines.mapInArrow(OnExecutors(partial(_from_lines, work, options)), out)
    rows = spark.read.schema(_json_schema(options, fields)).json(name) if is_json else spark.read.parquet(name)
    content, seen_field = options.fingerprint_field or options.text_field, options.seen_field
    check_names(rows, [options.id_field, *_content_fields(options), *filter(None, [options.first_seen_field]), *fields])
    line = F.col(_BROKEN) if is_json else F.lit(None).cast("string")
    doc_id = column_named(options.id_field).cast("string")
    columns = [doc_id.alias("id"), line.alias("line"), place]
    columns.append(F.when(line.isNotNull(), "not a JSON object").alias("wrong"))
    columns += [column_named(one).cast("string").alias(f"field_{at}") for at, one in enumerate(fields)]
    seen = column_named(str(seen_field)) if seen_field in rows.columns else F.lit(None)
    columns.append(seen.cast("string").alias("first_seen"))
    if options.fingerprint_field is None:
        several = options.profile.fields
        text = joined_texts(rows, options.text_fields) if several else column_named(content).cast("string")
        columns.append(text.alias("text"))
        return rows.select(*columns).mapInArrow(OnExecutors(partial(work, options)), out)
    is_signed = options.profile.makes_signatures and "sketch" in rows.columns
    sketch = bits_or_null(rows, "sketch") if is_signed else F.lit(None)
    key = F.when(sketch.isNotNull(), bits_or_null(rows, "key")) if is_signed and "key" in rows.columns else F.lit(None)
    bits = (bits_or_null(rows, content), sketch, key)
    columns += [one.cast("bigint").alias(name) for one, name in zip(bits, SIGNATURE, strict=True)]
    columns.append(column_named(content).cast("string").alias("digits"))
    return rows.select(*columns).mapInArrow(OnExecutors(partial(_from_fingerprints, options)), _OUT)


def _is_json(name: str) -> bool:
    path = name.rstrip("/").lower()
    return any(path.removesuffix(packed).endswith(_JSON_ENDS) for packed in ("", ".gz", ".bz2", ".zst"))


def _content_fields(options: RecordOptions) -> list[str]:
    """Return the field with a record's fingerprint, or the fields with its text, which depend on the profile."""
    return [options.fingerprint_field] if options.fingerprint_field else options.text_fields


def _json_schema(options: RecordOptions, fields: Sequence[str]) -> StructType:
    """Return the columns to read from JSON lines with fingerprints."""
    content = [options.fingerprint_field, "sketch", "key", options.seen_field]
    names = dict.fromkeys([options.id_field, *content, *fields, _BROKEN])
    return StructType([StructField(name, StringType()) for name in names if name])


def _no_text(text: str | None, options: RecordOptions) -> str:
    """Return why a record cannot be fingerprinted; empty if it can be."""
    if text is None:
        return f"no {' or '.join(map(json.dumps, options.text_fields))}"
    try:
        if options.profile.tokens == "features":
            weighted_hashes(options.profile, parsed_features(text))
    except ValueError as error:
        return f'"{options.text_field}": {error}'
    return ""


def _from_lines(work: TextWork, options: RecordOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    inputs = InputOptions(id_field=options.id_field, text_field=options.text_field).for_profile(options.profile)
    fields = [options.first_seen_field, *needed_fields(options.keep)]
    return work(options, (read_lines(batch, inputs, fields) for batch in batches))


def _from_texts(options: RecordOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    options.profile.verify()
    for one in texts_in(options, batches):
        made = signed_texts(options.profile, one.texts)
        reasons = [reason or made.refused.get(at, "") for at, reason in enumerate(one.reasons)]
        lengths = list(map(len, one.texts))
        yield _records(options, one.batch, signature_arrays(made.signatures), lengths, reasons, one.given)


class BatchTexts(NamedTuple):
    """The texts of a batch of records, read as other commands read them; `batch` has the other columns.

    A record without a text has an empty text and a reason.
    """

    batch: pa.RecordBatch
    texts: list[str]
    reasons: list[str]
    given: list[str | None]

    def of_documents(self) -> list[tuple[str, str]]:
        """Return (given value, text) for each valid record."""
        ids, wrong = (self.batch.column(name).to_pylist() for name in ("id", "wrong"))
        why = map(_reason, ids, wrong, self.reasons, [None] * len(ids))
        rows = zip(self.given, self.texts, why, strict=True)
        return [(given or "", text) for given, text, reason in rows if reason is None]


def texts_in(options: RecordOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[BatchTexts]:
    """Yield the texts of each batch of records."""
    with PageTexts(InputOptions().for_profile(options.profile)) as pages:
        for batch in batches:
            given = batch.column("text").to_pylist()
            reasons = [_no_text(text, options) for text in given]
            values = [(text or "") if not reason else "" for text, reason in zip(given, reasons, strict=True)]
            found = values if options.profile.tokens == "features" else _texts_of(pages, values)
            texts = ["" if isinstance(one, NoResult) else one for one in found]
            why = [one.why if isinstance(one, NoResult) else "" for one in found]
            reasons = [
                (one and f"main text not found {one}") or reason for one, reason in zip(why, reasons, strict=True)
            ]
            yield BatchTexts(batch, texts, reasons, given)


def _texts_of(pages: PageTexts, values: Sequence[str]) -> Sequence[str | NoResult]:
    """Return the texts of values, read as other commands read them; `NoResult` for pages if the library is missing."""
    try:
        return pages.texts_of(values)
    except ValueError:
        if len(values) > 1:
            return [_texts_of(pages, [value])[0] for value in values]
        return [NoResult(f"because trafilatura is missing: {install_command('html')} on every worker")]


def _from_fingerprints(options: RecordOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        given = batch.column("digits").to_pylist()
        is_there = batch.column("fingerprint").is_valid().to_pylist()
        reasons = [
            "" if there else f'"{options.fingerprint_field}" must be 16 hexadecimal digits, got {digits!r:.80}'
            for there, digits in zip(is_there, given, strict=True)
        ]
        kinds = pa.array(["voted"] * batch.num_rows, pa.string())
        made = [*(batch.column(name) for name in SIGNATURE), kinds]
        yield _records(options, batch, made, [0] * batch.num_rows, reasons, given)


def _records(
    options: RecordOptions,
    batch: pa.RecordBatch,
    made: Sequence[pa.Array],
    lengths: Sequence[int],
    reasons: Sequence[str],
    contents: Sequence[str | None],
) -> pa.RecordBatch:
    ids, lines, wrong = (batch.column(name).to_pylist() for name in ("id", "line", "wrong"))
    seen = [_first_seen(one, options.seen_field) for one in batch.column("first_seen").to_pylist()]
    why = [_reason(*row) for row in zip(ids, wrong, reasons, seen, strict=True)]
    kept = [batch.column(name).to_pylist() for name in batch.schema.names if name.startswith("field_")]
    fields = dict(zip(needed_fields(options.keep), kept, strict=True))
    ranks = [
        [_order(policy, place, ids, lengths, fields) for policy in options.keep] if reason is None else None
        for place, reason in enumerate(why)
    ]
    shown = [
        preview((line or f"{doc_id}\t{content}").encode(errors="replace")) if reason else None
        for doc_id, content, line, reason in zip(ids, contents, lines, why, strict=True)
    ]
    columns = [
        batch.column("id"),
        *made,
        pa.array(lengths, pa.int64()),
        pa.array(ranks, pa.list_(pa.list_(pa.float64()))),
        pa.array([one if isinstance(one, int) else None for one in seen], pa.int64()),
        pa.array(why, pa.string()),
        pa.array(shown, pa.string()),
        batch.column("place"),
    ]
    names = ["id", *_SEEN, "rank", "first_seen", "reason", "record", "place"]
    return pa.RecordBatch.from_arrays(columns, names)


def _first_seen(text: str | None, field: str | None) -> int | str | None:
    """Return a field's time in ms since 1970, None if it is missing, or why it is invalid."""
    try:
        return None if text is None else first_seen_of(int(text) if text.isdecimal() else text, str(field))
    except ValueError as error:
        return str(error)


def _reason(doc_id: str | None, wrong: str | None, reason: str, seen: int | str | None) -> str | None:
    """Return why a record is invalid, or None if it is valid."""
    if wrong is not None:
        return wrong
    if doc_id is None:
        return "no id"
    try:
        check_doc_id(doc_id)
    except ValueError as error:
        return str(error)
    return reason or (seen if isinstance(seen, str) else None)


def _order(
    policy: Policy, place: int, ids: Sequence[str], lengths: Sequence[int], fields: dict[str, list[Any]]
) -> list[float]:
    """Return the values by which a policy sorts documents; lower values come first, and NaN (missing) comes last."""
    match policy.kind:
        case "longest":
            return [float(-lengths[place])]
        case "shortest-id":
            return [float(len(ids[place]))]
        case "https":
            return [float(ids[place][:8].lower() != "https://")]
        case "newest" | "highest":
            value = fields[policy.field][place]
            is_long = value is not None and len(value) > FIELD_CHARACTERS
            return [-part for part in policy.parts_of("" if is_long else value)]
    return []  # policies that compare places
