"""Deduplicate files beyond one machine: writes pairs, clusters and what to keep as folders of Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hsimhash.dedup.report import Totals
from hsimhash.spark.clusters import alone, cluster_rows, kept_pair_rows, kept_vertices
from hsimhash.spark.columns import check_place, reached_path, write_mode
from hsimhash.spark.records import ReadDocuments, RecordOptions, rank_columns, read_documents
from hsimhash.spark.signatures import SHORT_KIND
from hsimhash.spark.vertices import SparkDedupOptions, Vertices, pair_rows, vertices_of

TABLES = ("pairs", "clusters", "keep", "drop", "rejects", "short", "stats")  # in the order in which they are written


def dedup_files(
    spark: SparkSession,
    inputs: Sequence[str],
    folder: str,
    records: RecordOptions,
    options: SparkDedupOptions,
    *,
    overwrite: bool = False,
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

    Returns:
        the counts, which are in `stats` too.

    Raises:
        ValueError: a column is missing, or there are results already.
    """
    check_place(spark, folder, inputs, overwrite=overwrite)
    results = _Results(spark, folder, write_mode(overwrite=overwrite))
    for name in ("stats", "pairs"):  # the one says that all is there, the other is not always written
        results.delete(name)
    read = read_documents(spark, inputs, records)
    vertices = vertices_of(_comparable(read, records), F.col("place"), options, rank_columns(records))
    kept = kept_vertices(vertices, options)
    without = read.documents.where(F.col("kind") == SHORT_KIND).select("id")
    found = {
        **_pair_table(vertices, kept, options),
        "clusters": cluster_rows(vertices, kept).unionByName(alone(without)),
        "rejects": read.rejects,
        "short": read.documents.where("kind <> 'voted'").select("id", "kind"),
    }
    for name, rows in found.items():
        results.write(name, rows)
    clusters = results.read("clusters")
    results.write("keep", clusters.where("kept").select("id"))
    results.write("drop", clusters.where("not kept").select("id"))
    totals = _totals(results, read, vertices, kept, options)
    counts = {name: int(value) for name, value in asdict(totals).items() if value is not None}
    results.write("stats", spark.createDataFrame([counts]))
    return totals


def _pair_table(vertices: Vertices, kept: DataFrame, options: SparkDedupOptions) -> dict[str, DataFrame]:
    """Return the table of pairs by its name, if there is to be one."""
    if options.pairs == "none":
        return {}
    return {"pairs": pair_rows(vertices) if options.pairs == "all" else kept_pair_rows(vertices, kept, options)}


def _comparable(read: ReadDocuments, records: RecordOptions) -> DataFrame:
    rows = read.documents.where(F.col("kind") != SHORT_KIND)
    is_signed = records.profile.makes_signatures and rows.where("sketch <> 0 or key <> 0").limit(1).count()
    return rows if is_signed else rows.drop("sketch", "key")


@dataclass(frozen=True)
class _Results:
    spark: SparkSession
    folder: str
    mode: str

    def write(self, name: str, rows: DataFrame) -> None:
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
        short=read.documents.where(F.col("kind") == SHORT_KIND).count(),
        rejected=results.read("rejects").count(),
        largest_cluster=(of_clusters.largest or 0) if of_clusters.clusters else 0,
        pairs=of_clusters.dropped if pairs is None else pairs.where(is_near).count(),
        by_key=pairs.where("found_by = 'key'").count() if is_signed and pairs is not None else None,
        exact=read.documents.where("kind = 'exact'").count(),
        repeated=read.repeated,
        split=kept.where("cut is not null").select("cut").distinct().count(),
    )
