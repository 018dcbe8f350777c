"""Find connected components of edges by alternating two distributed steps, and find stars within the components.

*Large star*: every vertex connects its greater neighbours to the least vertex among itself and its neighbours. *Small
star*: it connects itself and its smaller neighbours to that vertex. Both steps keep connected vertices connected. They
repeat until nothing changes; then each component is a star around its least vertex. Source: Kiveris, Lattanzi,
Mirrokni, Rastogi, Vassilvitskii, "Connected Components in MapReduce and Beyond", SoCC 2014.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.fingerprint.bits import sorted_distinct
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signatures
from hsimhash.pairs.clusters import forest, star_centres
from hsimhash.pairs.crowds import Crowd, NearRule, links, without_subsets
from hsimhash.spark.columns import SIGNATURE, gathered, grouped_evenly, materialized, unsigned

EDGES_AT_ONCE = 1 << 22  # maximum number of edges that one task joins, 16 bytes each
FEWER = 8  # factor by which to reduce the number of tasks if one task cannot hold the remaining edges
_MEMBER = ("crowd", "number", *SIGNATURE)


def component_roots(edges: DataFrame, at_once: int = EDGES_AT_ONCE) -> DataFrame:
    """Return the least vertex of each vertex's component, as `number` and `root`, from edges (`low` < `high`).

    Every task first drops edges between vertices that are already connected. If few enough edges remain, a single task
    finds the components; otherwise, the two steps described above find them.
    """
    joined = partial(_spanning, at_once)
    found = materialized(edges.select("low", "high").mapInArrow(joined, "low bigint, high bigint"))
    before, after = None, _summed(found)
    if after[0] > at_once:  # several tasks may have kept edges that join the same vertices
        fewer = found.coalesce(max(2, found.rdd.getNumPartitions() // FEWER))
        found = materialized(fewer.mapInArrow(joined, "low bigint, high bigint"))
        after = _summed(found)
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
    """Return the number of edges, and checksums that distinguish sets of edges."""
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
    """Yield a spanning forest: fewer edges that connect the same vertices; holds about `at_once` edges at a time."""
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


def crowd_links(crowds: DataFrame, rule: NearRule, keying: Keying) -> DataFrame:
    """Return edges (`low` < `high`) that connect the near members of each crowd, at most one edge per member.

    Each crowd is processed by one task, which needs about 100 bytes per member.
    """
    linked = partial(_linked, rule, keying)
    return grouped_evenly(crowds.select(*_MEMBER), "crowd").mapInArrow(linked, "low bigint, high bigint")


def _linked(rule: NearRule, keying: Keying, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for members in gathered(batches):
        for crowd in _crowds_in(members, rule, keying):
            for pair in links(crowd):
                yield pa.RecordBatch.from_arrays([np.minimum(*pair), np.maximum(*pair)], ["low", "high"])


def _crowds_in(rows: pa.Table, rule: NearRule, keying: Keying) -> list[Crowd]:
    """Return the crowds in the given rows, leaving out most of those that are subsets of another crowd."""
    named, members = (rows[name].to_numpy() for name in ("crowd", "number"))
    numbers, first, places = np.unique(members, return_index=True, return_inverse=True)
    columns = (unsigned(rows[name].combine_chunks())[first] for name in SIGNATURE)
    signatures = Signatures.of(*columns, keying=keying)
    order = np.lexsort((places, named))
    cuts = np.flatnonzero(named[order][1:] != named[order][:-1]) + 1
    kept, _ = without_subsets(np.split(places[order], cuts), len(numbers))
    return [Crowd(numbers[one], signatures[one], rule) for one in kept]


def stars(edges: DataFrame, crowds: DataFrame | None, roots: DataFrame, rule: NearRule, keying: Keying) -> DataFrame:
    """Return the kept vertex of each vertex's star, as `number` and `kept`, from edges and crowds.

    Each component is processed by one task, which needs about 100 bytes per edge and per crowd member.
    """
    roots = roots.select(F.col("number").alias("one"), "root")
    rows = edges.join(roots, F.col("low") == F.col("one"))
    if crowds is not None:
        none = F.lit(None).cast("bigint")
        rows = rows.select("root", "low", "high", *(none.alias(name) for name in _MEMBER))
        its = crowds.join(roots, F.col("number") == F.col("one"))
        rows = rows.unionByName(its.select("root", none.alias("low"), none.alias("high"), *_MEMBER))
    found = grouped_evenly(rows, "root", roots).drop("root", "one")
    return found.mapInArrow(partial(_starred, rule, keying), "number bigint, kept bigint")


def _starred(rule: NearRule, keying: Keying, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in gathered(batches):
        is_edge = pc.is_valid(rows["low"])
        low, high = (rows.filter(is_edge)[name].to_numpy() for name in ("low", "high"))
        crowds = []
        if "crowd" in rows.column_names and not pc.all(is_edge).as_py():
            crowds = _crowds_in(rows.filter(pc.invert(is_edge)), rule, keying)
        numbers = sorted_distinct(np.concatenate([low, high, *(crowd.members for crowd in crowds)]))
        low, high = np.searchsorted(numbers, low), np.searchsorted(numbers, high)
        placed = [Crowd(np.searchsorted(numbers, one.members), one.signatures, rule) for one in crowds]
        kept = numbers[star_centres(low, high, len(numbers), placed)]
        yield pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(kept)], ["number", "kept"])
