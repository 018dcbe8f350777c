"""Find connected components of edges by alternating steps that suit any cluster, and stars within them.

*Large star*: every vertex connects its greater neighbours to the least vertex it knows. *Small star*: it connects
itself and its smaller neighbours to that vertex. Both keep connected vertices connected. They repeat until nothing
changes; then every component is a star around its least vertex. Source: Kiveris, Lattanzi, Mirrokni, Rastogi,
Vassilvitskii, "Connected Components in MapReduce and Beyond", SoCC 2014.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.pairs.clusters import forest, star_centres
from hsimhash.spark.columns import gathered, materialized

EDGES_AT_ONCE = 1 << 22  # that one task joins, 16 bytes each


def component_roots(edges: DataFrame, at_once: int = EDGES_AT_ONCE) -> DataFrame:
    """Return the least vertex of the component of each vertex, from edges (`low` < `high`): `number` and `root`.

    Every task first leaves out the edges that join what is joined. Where so few are left that one task can, it does the
    rest: the steps between tasks are for more.
    """
    joined = partial(_spanning, at_once)
    found = materialized(edges.select("low", "high").mapInArrow(joined, "low bigint, high bigint"))
    before, after = None, _summed(found)
    if after[0] <= at_once:
        found = materialized(found.coalesce(1).mapInArrow(joined, "low bigint, high bigint"))
        before = after
    while after != before:
        found = materialized(_small_star(_large_star(found)))
        before, after = after, _summed(found)
    roots = found.select(F.col("low").alias("number")).distinct()
    members = found.select(F.col("high").alias("number"), F.col("low").alias("root"))
    return members.unionByName(roots.withColumn("root", F.col("number")))


def _summed(edges: DataFrame) -> tuple[int, int, int]:
    """Return how many edges there are, and sums that tell two sets of them apart."""
    both = F.xxhash64("low", "high")
    count, total, parity = edges.agg(F.count("*"), F.sum(both.cast("decimal(38,0)")), F.bit_xor(both)).first()
    return count, total, parity


def _large_star(edges: DataFrame) -> DataFrame:
    both = edges.select(F.col("high").alias("own"), F.col("low").alias("other"))
    both = both.unionByName(edges.select(F.col("low").alias("own"), F.col("high").alias("other")))
    least = both.groupBy("own").agg(F.min("other").alias("least"))
    tied = both.join(least, "own").where("other > own")
    return tied.select(F.least("least", "own").alias("low"), F.col("other").alias("high")).distinct()


def _small_star(edges: DataFrame) -> DataFrame:
    least = edges.groupBy("high").agg(F.min("low").alias("least"))
    tied = (
        edges.join(least, "high").where("low <> least").select(F.col("least").alias("low"), F.col("low").alias("high"))
    )
    return tied.unionByName(least.select(F.col("least").alias("low"), "high")).distinct()


def _spanning(at_once: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield fewer edges that join the same vertices: of so many at once no more than there are vertices."""
    held, count = list[pa.RecordBatch](), 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= at_once:
            held = [_joined(held)]
            count = 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    edges = pa.Table.from_batches(batches)
    low, high = forest(*(column.to_numpy() for column in edges.columns))
    return pa.RecordBatch.from_arrays([pa.array(low), pa.array(high)], ["low", "high"])


def stars(edges: DataFrame, roots: DataFrame) -> DataFrame:
    """Return the kept vertex of the star of each vertex of edges: `number` and `kept`.

    The edges of a component go into one task, which takes about 100 bytes for each.
    """
    low = F.col("low") == F.col("number")
    by_component = edges.select("low", "high").join(roots, low).select("low", "high", "root").repartition("root")
    return by_component.select("low", "high").mapInArrow(_starred, "number bigint, kept bigint")


def _starred(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for edges in gathered(batches):
        low, high = (column.to_numpy() for column in edges.columns)
        numbers, places = np.unique(np.concatenate([low, high]), return_inverse=True)
        kept = numbers[star_centres(places[: len(low)], places[len(low) :], len(numbers))]
        yield pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(kept)], ["number", "kept"])
