"""Deduplicate the rows of a DataFrame, as 'hsimhash dedup' does for files."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.dedup.options import METHODS
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.spark.clusters import clustered
from hsimhash.spark.columns import check_free, column_named, id_of, materialized, position_of
from hsimhash.spark.near_pairs import PAIR_LIMITS, PairLimits
from hsimhash.spark.signatures import signed_rows
from hsimhash.spark.vertices import SparkDedupOptions, keying_of

_ID = "hsimhash id"  # column by which results are joined; a name that documents are unlikely to use


def dedup(
    documents: DataFrame,
    *,
    text: str = "text",
    id: str = "id",
    profile: Profile | str = DEFAULT_PROFILE,
    max_distance: int = DEFAULT_DISTANCE,
    max_sketch: int | None = MAX_SKETCH,
    method: str = METHODS[0],
    max_cluster_size: int | None = None,
    position: str | None = None,
    limits: PairLimits = PAIR_LIMITS,
) -> DataFrame:
    """Return documents with the cluster of each document and whether to keep it, as 'hsimhash spark dedup' decides.

    The call runs Spark jobs. It fingerprints the texts only once and keeps the signatures; see `materialized`.

    Example:
        dedup(pages, text="body", id="url").where("keep").drop("cluster", "keep")

    Args:
        documents: DataFrame with one row per document. It is read several times and must return the same rows each
            time, so cache it if it is costly to compute or may change. A document whose text is null or too short is
            kept as a cluster of its own.
        text: As for `fingerprints`.
        id: Column of ids: strings or whole numbers, unique and never null.
        profile: As for `fingerprints`.
        max_distance: As for `pairs`.
        max_sketch: As for `pairs`.
        method: As for `clusters`.
        max_cluster_size: As for `clusters`.
        position: As for `clusters`.
        limits: As for `clusters`.

    Returns:
        The columns of `documents`, unchanged; `cluster`, the smallest id in the document's cluster; and `keep`.

    Raises:
        TypeError: `documents` is not a Spark DataFrame.
        ValueError: A column is missing, has the wrong type or the name of a result column, a number is out of
            range, or an id is null or repeated.
    """
    kept = [id_of(documents, id), position_of(documents, position).alias("position")]
    check_free(documents, ["cluster", "keep"])
    made = Profile.named(profile) if isinstance(profile, str) else profile
    keying = keying_of(made)
    options = SparkDedupOptions(max_distance, max_sketch, method, max_cluster_size, limits=limits, keying=keying)
    signed = _signed(signed_rows(documents, kept, text, made), id, made)
    found = clustered(signed, options).select(F.col("id").alias(_ID), "cluster", F.col("kept").alias("keep"))
    joined = documents.join(found, column_named(id) == F.col(_ID), "left")
    return joined.drop(_ID)


def _signed(rows: DataFrame, id: str, profile: Profile) -> DataFrame:
    """Compute the signatures and check the ids of documents; `id` is the name of the column with the ids."""
    rows = materialized(rows)
    _check_ids(rows, id)
    return rows if profile.makes_signatures else rows.drop("sketch", "key")


def _check_ids(documents: DataFrame, id: str) -> None:
    """Raise `ValueError` if an id is null or repeated."""
    counts = documents.groupBy("id").agg(F.count("*").alias("documents"))
    wrong = counts.where("id is null or documents > 1").sort("id").first()
    if wrong is None:
        return
    if wrong.id is None:
        raise ValueError(
            f"column {id!r} is null in {wrong.documents:,} of the rows: every document needs an id; "
            f"drop those rows with dropna(subset=[{id!r}])"
        )
    raise ValueError(
        f"column {id!r} has the value {wrong.id!r} in {wrong.documents:,} of the rows: every document needs its "
        f"own id; keep one row per id with dropDuplicates([{id!r}])"
    )
