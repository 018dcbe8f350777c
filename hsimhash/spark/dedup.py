"""Deduplicate files beyond one machine: writes pairs, clusters and what to keep as folders of Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hsimhash.dedup.options import DedupOptions, Method
from hsimhash.dedup.report import Totals
from hsimhash.fingerprint.keys import Keying
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.spark.clusters import alone, cluster_rows, kept_pair_rows, kept_vertices
from hsimhash.spark.columns import by_key_part, check_place, observed, reached_path, write_mode
from hsimhash.spark.fitting import fitted_to_files
from hsimhash.spark.records import ReadDocuments, RecordOptions, rank_columns, read_documents
from hsimhash.spark.signatures import SHORT_KIND
from hsimhash.spark.single_task import CLUSTER_ROW, cluster_at_once
from hsimhash.spark.vertices import SparkDedupOptions, Vertices, pair_rows, vertices_of

TABLES = ("pairs", "clusters", "keep", "drop", "rejects", "short", "stats")  # in the order in which they are written

ALL_PAIRED = 1 << 12  # documents of which one task lists all pairs: n may have n² / 2
WRITERS = 2


def dedup_files(
    spark: SparkSession,
    inputs: Sequence[str],
    folder: str,
    records: RecordOptions,
    options: SparkDedupOptions,
    *,
    overwrite: bool = False,
    observer: Observer = UNWATCHED,
) -> Totals:
    """Find near-duplicates in files, and write what to keep.

    Args:
        spark: the session.
        inputs: files, folders, globs or URLs of Parquet or JSON lines.
        folder: a path or URL, where a folder of Parquet appears for each of `TABLES`; `stats` last. `pairs` and
            `clusters` have the columns of the functions `pairs` and `clusters`; `keep`, `drop` and `short` have ids;
            `rejects` has the records that are no documents, and why.
        records: how the files are read, and which document of a cluster is kept.
        options: see there.
        overwrite: replace results that are there.
        observer: is told which stage the job is in.

    Returns:
        the counts, which are in `stats` too.

    Raises:
        ValueError: a column is missing, or there are results already.
    """
    check_place(spark, folder, inputs, overwrite=overwrite)
    profile = fitted_to_files(spark, inputs, records, options.fit, observer)
    records, options = replace(records, profile=profile), replace(options, keying=profile.key_kind)
    results = _Results(spark, folder, write_mode(overwrite=overwrite))
    for name in ("stats", "pairs"):  # the one says that all is there, the other is not always written
        results.delete(name)
    observer.report("read")
    read = read_documents(spark, inputs, records)
    observer.report("find", documents=read.count)
    writes = _write_few if read.count <= _most_in_one_task(options) else _write_many
    totals = writes(results, read, records, options, observer)
    counts = [F.lit(int(value)).alias(name) for name, value in asdict(totals).items() if value is not None]
    results.write({"stats": spark.range(1).coalesce(1).select(*(one.cast("bigint") for one in counts))})
    return totals


def _most_in_one_task(options: SparkDedupOptions) -> int:
    return min(options.limits.single_task, ALL_PAIRED) if options.pairs == "all" else options.limits.single_task


def _write_few(
    results: _Results, read: ReadDocuments, records: RecordOptions, options: SparkDedupOptions, observer: Observer
) -> Totals:
    """Write the tables of documents that one task holds."""
    kind, rank = F.col("kind"), rank_columns(records)
    method = cast(Method, options.clusters)
    asked = DedupOptions(
        options.max_distance, options.max_sketch, method, options.max_cluster_size, pairs=options.pairs
    )
    is_document, is_pair = F.col("cluster").isNotNull(), F.col("cluster").isNull()
    if options.pairs == "kept":
        is_pair = ~F.col("kept")
    rows, counts = observed(
        cluster_at_once(read.documents, rank, asked, options.keying),
        dropped=F.count_if(~F.col("kept")),
        clusters=F.count_if(F.col("kept") & (F.col("size") > 1)),
        largest=F.max(F.when(F.col("size") > 1, F.col("size"))),
        equal=F.count_if("is_equal"),
        pairs=F.count_if(is_pair & (F.col("found_by") != "chain")),
        by_key=F.count_if(is_pair & (F.col("found_by") == "key")),
        split=F.max("split"),
    )
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
        pairs=counts["dropped"] if options.pairs == "none" else counts["pairs"],
        by_key=counts["by_key"] if read.signed and options.pairs != "none" else None,
        exact=read.exact,
        repeated=read.repeated,
        split=counts["split"] or 0,
    )


def _write_many(
    results: _Results, read: ReadDocuments, records: RecordOptions, options: SparkDedupOptions, observer: Observer
) -> Totals:
    """Write the tables of documents that many tasks compare and connect."""
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
    """Warn if more documents share a key than makes sense to compare with each other."""
    keys = documents.where("key <> 0").groupBy("key").agg(F.count("*").alias("sharing"))
    keys = keys.withColumn("pairs", F.expr("sharing * (sharing - 1) div 2"))
    # Documents with the same key are counted once; others for each part that they share.
    parts = (
        by_key_part(keys, keying).groupBy("part").agg(F.sum("sharing").alias("sharing"), F.sum("pairs").alias("same"))
    )
    others = parts.agg(F.sum(F.expr("sharing * (sharing - 1) div 2 - same"))).first()[0] or 0
    about = others + (keys.agg(F.sum("pairs")).first()[0] or 0)
    if about > count:
        observer.say(
            f"up to {about:,} pairs of documents share a key: each is compared, and listed if the sketches agree; "
            f"--pairs kept lists each dropped document with the one kept for it"
        )


def _pair_table(vertices: Vertices, kept: DataFrame, options: SparkDedupOptions) -> dict[str, DataFrame]:
    """Return the table of pairs by its name, if there is to be one."""
    if options.pairs == "none":
        return {}
    return {"pairs": pair_rows(vertices) if options.pairs == "all" else kept_pair_rows(vertices, kept, options)}


def _comparable(read: ReadDocuments) -> DataFrame:
    rows = read.documents.where(F.col("kind") != SHORT_KIND)
    return rows if read.signed else rows.drop("sketch", "key")


@dataclass(frozen=True)
class _Results:
    spark: SparkSession
    folder: str
    mode: str

    def write(self, tables: Mapping[str, DataFrame]) -> None:
        """Write tables, two at once: while tasks of one run, the driver plans the next."""
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
    clusters, pairs = results.read("clusters"), None if options.pairs == "none" else results.read("pairs")
    is_near = F.col("found_by") != "chain" if vertices.has_signatures else F.col("distance") <= options.max_distance
    of_clusters = clusters.agg(
        F.count("*").alias("documents"),
        F.count_if(~F.col("kept")).alias("dropped"),
        F.count_if(F.col("kept") & (F.col("size") > 1)).alias("clusters"),
        F.max("size").alias("largest"),
    ).first()
    is_signed = vertices.has_signatures
    equal = vertices.rows.agg(F.sum(F.col("size") - 1)).first()[0]
    return Totals(
        documents=of_clusters.documents,
        dropped=of_clusters.dropped,
        clusters=of_clusters.clusters,
        equal=equal or 0,
        short=read.short,
        rejected=read.rejected,
        largest_cluster=(of_clusters.largest or 0) if of_clusters.clusters else 0,
        pairs=of_clusters.dropped if pairs is None else pairs.where(is_near).count(),
        by_key=pairs.where("found_by = 'key'").count() if is_signed and pairs is not None else None,
        exact=read.exact,
        repeated=read.repeated,
        split=kept.where("cut is not null").select("cut").distinct().count(),
    )
