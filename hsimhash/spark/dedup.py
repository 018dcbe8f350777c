"""Deduplicate files on many machines; write pairs, clusters and lists of what to keep as folders of Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from hsimhash.dedup.options import DedupOptions, Method
from hsimhash.dedup.report import Totals
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.rarity import Learnt, learnt_json
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.spark.clusters import alone, cluster_rows, kept_pair_rows, kept_vertices
from hsimhash.spark.columns import by_key_part, check_place, observed, reached_path, write_mode
from hsimhash.spark.fitting import fitted_to_files
from hsimhash.spark.records import ReadDocuments, RecordOptions, rank_columns, read_documents
from hsimhash.spark.signatures import SHORT_KIND
from hsimhash.spark.single_task import CLUSTER_ROW, cluster_at_once
from hsimhash.spark.vertices import SparkDedupOptions, Vertices, pair_rows, vertices_of

TABLES = ("pairs", "clusters", "keep", "drop", "rejects", "short", "stats")  # in the order in which they are written

ALL_PAIRED = 1 << 12  # maximum number of documents for which one task lists all pairs; there may be n² / 2
WRITERS = 2


class SparkDedupSummary(NamedTuple):
    """The result of a run: the counts, and what the word weights were learnt from, as in `DedupSummary`."""

    totals: Totals
    learnt: Learnt | None

    def to_json(self) -> dict[str, object]:
        """Return both as values for `json.dumps`."""
        return {**self.totals.to_json(), **learnt_json(self.learnt)}


def dedup_files(
    spark: SparkSession,
    inputs: Sequence[str],
    folder: str,
    records: RecordOptions,
    options: SparkDedupOptions,
    *,
    overwrite: bool = False,
    observer: Observer = UNWATCHED,
) -> SparkDedupSummary:
    """Find near-duplicates in files, and write which documents to keep.

    Args:
        spark: The session.
        inputs: Files, folders, globs or URLs of Parquet or JSON lines.
        folder: Path or URL under which a folder of Parquet files is written for each of `TABLES`, with `stats` last.
            `pairs` and `clusters` have the columns that the functions with these names return; `keep`, `drop` and
            `short` have ids; `rejects` has the invalid records and the reasons.
        records: How to read the files, and which document of a cluster to keep.
        options: How to compare and cluster documents.
        overwrite: Whether to replace existing results.
        observer: Receives the stage of the job, and warnings.

    Returns:
        The counts, and what the word weights were learnt from; the table `stats` has the same values.

    Raises:
        ValueError: A column is missing, or `folder` already has results.
    """
    check_place(spark, folder, inputs, overwrite=overwrite)
    profile = fitted_to_files(spark, inputs, records, options.fit, observer)
    records, options = replace(records, profile=profile), replace(options, keying=profile.key_kind)
    results = _Results(spark, folder, write_mode(overwrite=overwrite))
    for name in ("stats", "pairs"):  # `stats` marks complete results, and `pairs` is not always written
        results.delete(name)
    observer.report("read")
    read = read_documents(spark, inputs, records)
    observer.report("find", documents=read.count)
    writes = _write_few if read.count <= _most_in_one_task(options) else _write_many
    totals = writes(results, read, records, options, observer)
    results.write({"stats": _stats(spark, totals, profile)})
    return SparkDedupSummary(totals, profile.learnt)


def _stats(spark: SparkSession, totals: Totals, profile: Profile) -> DataFrame:
    """Return the row of `stats`; `word_weights` is null if nothing was learnt."""
    counts = {name: value for name, value in asdict(totals).items() if value is not None}
    columns = [F.lit(int(count)).cast("bigint").alias(name) for name, count in counts.items()]
    learnt = dict.fromkeys(Learnt._fields) if profile.learnt is None else profile.learnt._asdict()
    parts = F.struct(*(F.lit(value).cast("bigint").alias(name) for name, value in learnt.items()))
    weights = F.when(F.lit(profile.learnt is not None), parts).alias("word_weights")
    return spark.range(1).coalesce(1).select(*columns, F.lit(profile.name).alias("profile"), weights)


def _most_in_one_task(options: SparkDedupOptions) -> int:
    return min(options.limits.single_task, ALL_PAIRED) if options.pairs == "all" else options.limits.single_task


def _write_few(
    results: _Results, read: ReadDocuments, records: RecordOptions, options: SparkDedupOptions, observer: Observer
) -> Totals:
    """Write the tables if one task can hold all documents."""
    kind, rank = F.col("kind"), rank_columns(records)
    method = cast(Method, options.clusters)
    asked = DedupOptions(
        options.max_distance, options.max_sketch, method, options.max_cluster_size, pairs=options.pairs
    )
    is_document, is_pair = F.col("cluster").isNotNull(), F.col("cluster").isNull()
    is_counted = is_pair & ~F.col("is_equal")
    if options.pairs == "kept":
        is_pair = is_counted = ~F.col("kept")
    clustered = cluster_at_once(read.documents, rank, asked, options.keying)
    rows, counts = observed(clustered, **_few_counts(is_counted))
    observer.report("write")
    columns = ["distance", *(["similarity", "found_by"] if read.signed else [])]
    pairs = rows.where(is_pair).select(F.col("kept_id").alias("left"), F.col("id").alias("right"), *columns)
    clusters = rows.where(is_document).select(*CLUSTER_ROW)
    results.write(
        {
            **({} if options.pairs == "none" else {"pairs": pairs}),
            "clusters": clusters,
            "rejects": read.rejects,
            "short": read.documents.where(kind != "voted").select("id", "kind"),
            "keep": clusters.where("kept").select("id"),
            "drop": clusters.where("not kept").select("id"),
        }
    )
    return Totals(
        documents=read.count,
        dropped=counts["dropped"],
        clusters=counts["clusters"],
        equal=counts["equal"],
        short=read.short,
        rejected=read.rejected,
        largest_cluster=counts["largest"] or 0,
        pairs={"kept": counts["pairs"], "all": counts["pairs"] + counts["equal"], "none": counts["dropped"]}[
            options.pairs
        ],
        by_key=counts["by_key"] if read.signed and options.pairs != "none" else None,
        exact=read.exact,
        repeated=read.repeated,
        split=counts["split"] or 0,
    )


def _few_counts(is_counted: Column) -> dict[str, Column]:
    """Return counts over the rows of `cluster_at_once`; `is_counted` marks pairs, except pairs of equal documents."""
    return {
        "dropped": F.count_if(~F.col("kept")),
        "clusters": F.count_if(F.col("kept") & (F.col("size") > 1)),
        "largest": F.max(F.when(F.col("size") > 1, F.col("size"))),
        "equal": F.count_if(F.col("cluster").isNotNull() & F.col("is_equal")),
        "pairs": F.count_if(is_counted & (F.col("found_by") != "chain")),
        "by_key": F.count_if(is_counted & (F.col("found_by") == "key")),
        "split": F.max("split"),
    }


def _write_many(
    results: _Results, read: ReadDocuments, records: RecordOptions, options: SparkDedupOptions, observer: Observer
) -> Totals:
    """Write the tables if many tasks must compare and connect the documents."""
    comparable = _comparable(read)
    if options.pairs == "all" and read.signed:
        _warn_of_pairs(comparable, read.count, options.keying, observer)
    vertices = vertices_of(comparable, F.col("place"), options, rank_columns(records))
    observer.report("cluster")
    kept = kept_vertices(vertices, options)
    observer.report("write")
    without = read.documents.where(F.col("kind") == SHORT_KIND).select("id")
    results.write(
        {
            **_pair_table(vertices, kept, options),
            "clusters": cluster_rows(vertices, kept).unionByName(alone(without)),
            "rejects": read.rejects,
            "short": read.documents.where("kind <> 'voted'").select("id", "kind"),
        }
    )
    clusters = results.read("clusters")
    results.write({"keep": clusters.where("kept").select("id"), "drop": clusters.where("not kept").select("id")})
    return _totals(results, read, vertices, kept, options)


def _warn_of_pairs(documents: DataFrame, count: int, keying: Keying, observer: Observer) -> None:
    """Warn if so many documents share keys that comparing all of them is not sensible."""
    keys = documents.where("key <> 0").groupBy("key").agg(F.count("*").alias("sharing"))
    keys = keys.withColumn("pairs", F.expr("sharing * (sharing - 1) div 2"))
    # Pairs with the same key are counted once; all other pairs are counted once for each part that they share.
    parts = (
        by_key_part(keys, keying).groupBy("part").agg(F.sum("sharing").alias("sharing"), F.sum("pairs").alias("same"))
    )
    others = parts.agg(F.sum(F.expr("sharing * (sharing - 1) div 2 - same"))).first()[0] or 0
    about = others + (keys.agg(F.sum("pairs")).first()[0] or 0)
    if about > count:
        observer.say(
            f"up to {about:,} pairs of documents share a key; every pair is compared, and listed if the sketches "
            f"agree; to list only each dropped document and the one kept in its place, use --pairs kept"
        )


def _pair_table(vertices: Vertices, kept: DataFrame, options: SparkDedupOptions) -> dict[str, DataFrame]:
    """Return the table of pairs by its name, or nothing if pairs are not listed."""
    if options.pairs == "none":
        return {}
    rows = pair_rows(vertices, has_equal=True) if options.pairs == "all" else kept_pair_rows(vertices, kept, options)
    return {"pairs": rows}


def _comparable(read: ReadDocuments) -> DataFrame:
    rows = read.documents.where(F.col("kind") != SHORT_KIND)
    return rows if read.signed else rows.drop("sketch", "key")


@dataclass(frozen=True)
class _Results:
    spark: SparkSession
    folder: str
    mode: str

    def write(self, tables: Mapping[str, DataFrame]) -> None:
        """Write tables, two at a time, so that the driver plans one table while the tasks of the other run."""
        with ThreadPoolExecutor(WRITERS) as pool:
            for _ in pool.map(self._write, tables, tables.values()):
                pass

    def _write(self, name: str, rows: DataFrame) -> None:
        rows.write.mode(self.mode).parquet(f"{self.folder}/{name}")

    def delete(self, name: str) -> None:
        files, path = reached_path(self.spark, f"{self.folder}/{name}")
        files.delete(path, True)

    def read(self, name: str) -> DataFrame:
        return self.spark.read.parquet(f"{self.folder}/{name}")


def _totals(
    results: _Results, read: ReadDocuments, vertices: Vertices, kept: DataFrame, options: SparkDedupOptions
) -> Totals:
    of_clusters = (
        results.read("clusters")
        .agg(
            F.count("*").alias("documents"),
            F.count_if(~F.col("kept")).alias("dropped"),
            F.count_if(F.col("kept") & (F.col("size") > 1)).alias("clusters"),
            F.max("size").alias("largest"),
        )
        .first()
    )
    equal = vertices.rows.agg(F.sum(F.col("size") - 1)).first()[0] or 0
    pairs, by_key = of_clusters.dropped, None
    if options.pairs != "none":
        pairs, by_key = _pair_counts(results, vertices, options)
        pairs += equal if options.pairs == "all" else 0
    return Totals(
        documents=of_clusters.documents,
        dropped=of_clusters.dropped,
        clusters=of_clusters.clusters,
        equal=equal,
        short=read.short,
        rejected=read.rejected,
        largest_cluster=(of_clusters.largest or 0) if of_clusters.clusters else 0,
        pairs=pairs,
        by_key=by_key,
        exact=read.exact,
        repeated=read.repeated,
        split=kept.where("cut is not null").select("cut").distinct().count(),
    )


def _pair_counts(results: _Results, vertices: Vertices, options: SparkDedupOptions) -> tuple[int, int | None]:
    """Return the number of listed near pairs (unequal ones if all are listed), and how many were found by key."""
    pairs = vertices.edges if options.pairs == "all" else results.read("pairs")
    is_near = F.col("found_by") != "chain" if vertices.has_signatures else F.col("distance") <= options.max_distance
    near = pairs.where(is_near)
    return near.count(), near.where("found_by = 'key'").count() if vertices.has_signatures else None
