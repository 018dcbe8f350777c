"""Cluster documents and choose the document to keep in each cluster, as 'hsimhash dedup' does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.dedup.options import METHODS
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.pairs.clusters import Clusters, diameters
from hsimhash.pairs.crowds import NearRule
from hsimhash.spark.columns import (
    SIGNATURE,
    check_free,
    column_named,
    distance_of,
    gathered,
    grouped_evenly,
    key_parts,
    materialized,
    signed_documents,
    unsigned,
)
from hsimhash.spark.components import component_roots, crowd_links, stars
from hsimhash.spark.near_pairs import PAIR_LIMITS, PairLimits
from hsimhash.spark.vertices import SparkDedupOptions, Vertices, agrees, keying_of, similarity_of, vertices_of


def clusters(
    documents: DataFrame,
    *,
    id: str = "id",
    max_distance: int = DEFAULT_DISTANCE,
    max_sketch: int | None = MAX_SKETCH,
    profile: Profile | str = DEFAULT_PROFILE,
    method: str = METHODS[0],
    max_cluster_size: int | None = None,
    position: str | None = None,
    limits: PairLimits = PAIR_LIMITS,
) -> DataFrame:
    """Return each document's cluster, like the table of clusters that 'hsimhash dedup' writes.

    The call runs Spark jobs.

    Example:
        clusters(fingerprints(pages, text="body"), id="url").where("kept")

    Args:
        documents: As for `pairs`. A document without a fingerprint is a cluster of its own; documents without an id are
            skipped.
        id: As for `pairs`.
        max_distance: As for `pairs`.
        max_sketch: As for `pairs`.
        profile: As for `pairs`.
        method: `star`: every document is near the kept document; `components`: documents are connected by a chain of
            near documents.
        max_cluster_size: Components with more documents are split into stars.
        position: Column by which to choose the kept document: the document with the least value or, among equal values,
            with the smallest id. Default: the document with the smallest id.
        limits: Memory limits for tasks. In addition, one task holds all near pairs within a component.

    Returns:
        The column of ids; `cluster`, the smallest id in its cluster; `kept`, whether the document is kept; `kept_id`,
        the id of the kept document; `distance`, its distance from the kept document in bits; `size`, the number of
        documents in the cluster; `diameter`, the greatest distance within the cluster.

    Raises:
        TypeError: `documents` is not a Spark DataFrame.
        ValueError: A column is missing or has the wrong type, there is no such profile, or a number is out of range.
    """
    given = signed_documents(documents, id, position)
    check_free(documents.select(column_named(id)), ["cluster", "kept", "kept_id", "distance", "size", "diameter"])
    keying = keying_of(profile)
    options = SparkDedupOptions(max_distance, max_sketch, method, max_cluster_size, limits=limits, keying=keying)
    return clustered(given, options).withColumnRenamed("id", id)


def clustered(documents: DataFrame, options: SparkDedupOptions) -> DataFrame:
    """Return the table of clusters; in each cluster, the document with the least (`position`, id) is kept."""
    vertices = vertices_of(documents, F.col("position"), options, rank=[F.col("position")])
    without = documents.where("fingerprint is null and id is not null").select("id")
    return cluster_rows(vertices, kept_vertices(vertices, options)).unionByName(alone(without))


def kept_vertices(vertices: Vertices, options: SparkDedupOptions) -> DataFrame:
    """Compute the kept vertex for each vertex that has a near vertex: `number`, `kept` and `cut`.

    `cut` is the least vertex of the component if the component was too large and was split into stars, else null.
    """
    return materialized(_kept_vertices(vertices, options))


def _kept_vertices(vertices: Vertices, options: SparkDedupOptions) -> DataFrame:
    edges, crowds = vertices.edges.select("low", "high"), vertices.crowds
    rule = NearRule(options.max_distance, options.max_sketch, is_plain=not vertices.has_signatures)
    joining = edges if crowds is None else edges.unionByName(crowd_links(crowds, rule, options.keying))
    roots = component_roots(joining)
    uncut = F.lit(None).cast("bigint").alias("cut")
    if options.clusters == "star":
        return stars(edges, crowds, roots, rule, options.keying).select("number", "kept", uncut)
    if options.max_cluster_size is None:
        return roots.select("number", F.col("root").alias("kept"), uncut)
    sizes = (
        roots.join(vertices.rows.select("number", "size"), "number").groupBy("root").agg(F.sum("size").alias("size"))
    )
    large = sizes.where(F.col("size") > options.max_cluster_size).select("root")
    whole, cut = roots.join(large, "root", "left_anti"), materialized(roots.join(large, "root"))
    inner = edges.join(cut.select("number"), F.col("low") == F.col("number"), "left_semi")
    within = None if crowds is None else crowds.join(cut.select("number"), "number", "left_semi")
    found = stars(inner, within, cut, rule, options.keying).join(cut, "number")
    found = found.select("number", "kept", F.col("root").alias("cut"))
    return whole.select("number", F.col("root").alias("kept"), uncut).unionByName(found)


def cluster_rows(vertices: Vertices, kept: DataFrame) -> DataFrame:
    """Return the table of clusters; `kept` is the result of `kept_vertices`."""
    own = vertices.rows.join(kept.select("number", "kept"), "number", "left")
    own = own.withColumn("kept", F.coalesce("kept", "number"))
    whole = own.groupBy("kept").agg(
        F.min("smallest").alias("cluster"), F.sum("size").alias("size"), F.count("*").alias("vertices")
    )
    whole = whole.join(_diameters(own, whole), "kept", "left")
    centres = vertices.rows.select(
        F.col("number").alias("kept"), F.col("fingerprint").alias("centre"), F.col("best.id").alias("kept_id")
    )
    found = own.select(*SIGNATURE, "kept").join(whole.join(centres, "kept"), "kept")
    rows = vertices.documents.select("id", *SIGNATURE).join(found, list(SIGNATURE))
    return rows.select(
        "id",
        "cluster",
        (F.col("id") == F.col("kept_id")).alias("kept"),
        "kept_id",
        distance_of(F.col("fingerprint"), F.col("centre")).cast("int").alias("distance"),
        "size",
        F.coalesce("diameter", F.lit(0)).alias("diameter"),
    ).unionByName(alone(vertices.others))


def kept_pair_rows(vertices: Vertices, kept: DataFrame, options: SparkDedupOptions) -> DataFrame:
    """Return a pair for each dropped document: the document kept in its place, as `left`, and the dropped one."""
    own = vertices.rows.join(kept.select("number", F.col("kept").alias("centre")), "number", "left")
    own = own.select(*SIGNATURE, F.coalesce("centre", "number").alias("centre"))
    centres = vertices.rows.select(
        F.col("number").alias("centre"),
        F.col("best.id").alias("left"),
        *(F.col(one).alias(f"its_{one}") for one in SIGNATURE),
    )
    rows = vertices.documents.select(F.col("id").alias("right"), *SIGNATURE).join(own, list(SIGNATURE))
    rows = rows.join(centres, "centre").where(F.col("left") != F.col("right"))
    distance = distance_of(F.col("fingerprint"), F.col("its_fingerprint")).cast("int").alias("distance")
    if not vertices.has_signatures:
        return rows.select("left", "right", distance)
    differing = distance_of(F.col("sketch"), F.col("its_sketch"))
    has_sketches = (F.col("sketch") != 0) & (F.col("its_sketch") != 0)
    similarity = F.when(has_sketches, similarity_of(differing))
    shares_key = F.arrays_overlap(*(key_parts(F.col(name), options.keying) for name in ("key", "its_key")))
    is_near = distance <= options.max_distance
    found_by = F.when(is_near, "distance").when(shares_key, "key").otherwise("chain")
    if options.max_sketch is not None:
        is_alike = ~has_sketches | agrees(differing, distance, options.max_sketch)
        found_by = F.when(is_alike, found_by).otherwise("chain")
    return rows.select("left", "right", distance, similarity.alias("similarity"), found_by.alias("found_by"))


def _diameters(own: DataFrame, whole: DataFrame) -> DataFrame:
    """Return the greatest distance in each cluster with several vertices; one task holds a cluster's fingerprints."""
    several = whole.where("vertices > 1").select("kept")
    members = own.select("kept", "fingerprint").join(several, "kept")
    return grouped_evenly(members, "kept").mapInArrow(_measured, "kept bigint, diameter int")


def _measured(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for members in gathered(batches):
        kept = members.column(0).to_numpy()
        _, first, places = np.unique(kept, return_index=True, return_inverse=True)
        values = unsigned(members.column(1))
        found = diameters(values, Clusters(first[places], np.zeros(len(values), np.uint8)))
        yield pa.RecordBatch.from_arrays(
            [pa.array(kept[found.kept]), pa.array(found.bits, pa.int32())], ["kept", "diameter"]
        )


def alone(ids: DataFrame) -> DataFrame:
    """Return rows for documents that cannot have near documents; `ids` has the column `id`."""
    return ids.select(
        "id",
        F.col("id").alias("cluster"),
        F.lit(True).alias("kept"),
        F.col("id").alias("kept_id"),
        F.lit(0).alias("distance"),
        F.lit(1).cast("bigint").alias("size"),
        F.lit(0).alias("diameter"),
    )
