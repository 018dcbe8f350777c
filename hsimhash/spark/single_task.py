"""Cluster documents in one task, with the functions of `hsimhash dedup`.

If there are few documents, this takes one job instead of about a hundred that find and connect pairs across tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from hsimhash.dedup.grouping import cluster_near, find_near, found_by
from hsimhash.dedup.options import DedupOptions
from hsimhash.dedup.tables import ColumnValues
from hsimhash.fingerprint.bits import Floats, Int64s
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signatures, similarities
from hsimhash.pairs import Pairs
from hsimhash.pairs.clusters import Clusters, diameters
from hsimhash.spark.columns import SIGNATURE, gathered, unsigned
from hsimhash.spark.executors import OnExecutors

CLUSTER_ROW = ("id", "cluster", "kept", "kept_id", "distance", "size", "diameter")
# Rows with a null cluster are pairs of `kept_id` and `id`. `is_equal`: whether the document, or one of the pair, equals
# an earlier document. `split`: number of components split into stars; the same in every row with a cluster.
_OUT_DDL = (
    "id string, cluster string, kept boolean, kept_id string, distance int, size bigint, diameter int, "
    "similarity double, found_by string, is_equal boolean, split int"
)
_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
}
_BATCH = 1 << 16  # rows in a batch
_OUT = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, _OUT_DDL.split(", "))])


def cluster_at_once(documents: DataFrame, rank: Sequence[Column], options: DedupOptions, keying: Keying) -> DataFrame:
    """Return a row for each document: its row in the table of clusters, and how near it is to the kept document.

    If all pairs are listed, each pair is an additional row with a null `cluster`.

    Args:
        documents: Columns `id`, the signature (null if missing) and `place`, the order. One task holds all rows.
        rank: Columns that decide which of two documents to keep, ahead of the id; as in `vertices_of`.
        options: How to compare and cluster documents.
        keying: Decides when two documents share a key.
    """
    order = F.row_number().over(Window.orderBy(*rank, "id")).alias("rank")
    rows = documents.select("id", *SIGNATURE, "place", order).sortWithinPartitions("place", "id")
    work = OnExecutors(partial(_clustered, options, keying))
    return rows.select("id", *SIGNATURE, "rank").mapInArrow(work, _OUT_DDL)


def _clustered(options: DedupOptions, keying: Keying, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in gathered(batches):
        group = _Group.of(rows, options, keying)
        yield from group.cluster_rows()
        if options.pairs == "all":
            yield from group.pair_rows()


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Documents by number. Signatures, pairs and clusters refer to `among`, the documents with a fingerprint."""

    ids: pa.LargeStringArray
    among: Int64s
    signatures: Signatures
    pairs: Pairs
    clusters: Clusters
    options: DedupOptions

    @classmethod
    def of(cls, rows: pa.Table, options: DedupOptions, keying: Keying) -> _Group:
        among = np.flatnonzero(rows["fingerprint"].is_valid().to_numpy())
        columns = [unsigned(rows[name].combine_chunks().fill_null(0))[among] for name in SIGNATURE]
        signatures = Signatures.of(*columns, keying=keying)
        pairs = find_near(signatures, options)
        clusters = cluster_near(signatures.fingerprints, pairs, rows["rank"].to_numpy()[among], options)
        return cls(rows["id"].cast(pa.large_string()).combine_chunks(), among, signatures, pairs, clusters, options)

    def cluster_rows(self) -> Iterator[pa.RecordBatch]:
        count, among = len(self.ids), self.among
        kept, distance, diameter = np.arange(count), np.zeros(count, np.int32), np.zeros(count, np.int32)
        kept[among], distance[among] = among[self.clusters.kept], self.clusters.distance
        found = diameters(self.signatures.fingerprints, self.clusters)
        diameter[among[found.kept]] = found.bits
        is_equal = np.zeros(count, np.bool_)
        is_equal[among[self.pairs.repeats]] = True
        size = np.bincount(kept, minlength=count)
        smallest = self._smallest_ids(kept, np.flatnonzero(size[kept] > 1))
        number = np.full(count, -1)  # index in the signatures
        number[among] = np.arange(len(among))
        for rows in _batches(count):
            own, signed = kept[rows], number[rows] >= 0
            similarity, how = np.full(len(rows), np.nan), np.full(len(rows), None, object)
            similarity[signed], how[signed] = self._measured(number[rows[signed]], number[own[signed]])
            yield _batch(
                id=self._named(rows),
                cluster=self._named(smallest[own]),
                kept=own == rows,
                kept_id=self._named(own),
                distance=distance[rows],
                size=size[own],
                diameter=diameter[own],
                similarity=similarity,
                found_by=how,
                is_equal=is_equal[rows],
                split=np.full(len(rows), self.clusters.split, np.int32),
            )

    def pair_rows(self) -> Iterator[pa.RecordBatch]:
        is_repeat = np.zeros(len(self.among), np.bool_)
        is_repeat[self.pairs.repeats] = True
        for block in self.pairs.expand():
            for rows in _batches(len(block.left)):
                left, right = block.left[rows], block.right[rows]
                similarity, how = self._measured(left, right)
                yield _batch(
                    kept_id=self._named(self.among[left]),
                    id=self._named(self.among[right]),
                    distance=block.distance[rows],
                    similarity=similarity,
                    found_by=how,
                    is_equal=is_repeat[left] | is_repeat[right],
                )

    def _smallest_ids(self, kept: Int64s, members: Int64s) -> Int64s:
        """Return, for each kept document, the document with the smallest id in its cluster.

        `members` are the documents in clusters with several documents.
        """
        found = np.arange(len(kept))
        members = members[pc.sort_indices(self.ids.take(members)).to_numpy()]
        roots, first = np.unique(kept[members], return_index=True)
        found[roots] = members[first]
        return found

    def _named(self, documents: Int64s) -> pa.StringArray:
        return self.ids.take(documents).cast(pa.string())

    def _measured(self, left: Int64s, right: Int64s) -> tuple[Floats, NDArray[np.object_]]:
        """Return the similarity of each pair (NaN if a sketch is missing) and how the pair was found."""
        some, others = self.signatures[left], self.signatures[right]
        return similarities(some.sketches, others.sketches), found_by(some, others, self.options).astype(object)


def _batches(count: int) -> Iterator[Int64s]:
    """Yield the row numbers of each batch."""
    for start in range(0, count, _BATCH):
        yield np.arange(start, min(start + _BATCH, count))


def _batch(**columns: ColumnValues | pa.Array) -> pa.RecordBatch:
    """Return a batch with the schema `_OUT`; columns that are not given are null."""
    count = len(columns["id"])
    arrays = [_array(columns[one.name], one.type) if one.name in columns else pa.nulls(count, one.type) for one in _OUT]
    return pa.RecordBatch.from_arrays(arrays, schema=_OUT)


def _array(values: ColumnValues | pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values as a column; NaN becomes null."""
    return values if isinstance(values, pa.Array) else pa.array(values, kind, from_pandas=True)
