"""Cluster documents in one task, by the functions of `hsimhash dedup`.

Few documents take one job this way, instead of the hundred that find and connect pairs across tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from hsimhash.dedup.grouping import cluster_near, find_near, found_by
from hsimhash.dedup.options import DedupOptions
from hsimhash.dedup.tables import ColumnValues
from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signatures, similarities
from hsimhash.pairs import Pairs
from hsimhash.pairs.clusters import Clusters, diameters
from hsimhash.spark.columns import SIGNATURE, gathered, unsigned
from hsimhash.spark.executors import OnExecutors

CLUSTER_ROW = ("id", "cluster", "kept", "kept_id", "distance", "size", "diameter")
# In a row of a pair, of `kept_id` and `id`, the cluster is null. `is_equal`: to an earlier document; `split`, in every
# row of a cluster: components that were cut into stars.
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
_OUT = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, _OUT_DDL.split(", "))])


def cluster_at_once(documents: DataFrame, rank: Sequence[Column], options: DedupOptions) -> DataFrame:
    """Return a row for each document: its row in the table of clusters, and how it is near the kept one.

    If all pairs are listed, they are further rows, where `cluster` is null.

    Args:
        documents: `id`, the signature, null where there is none, and `place`, their order. One task holds all of them.
        rank: what tells which of two documents to keep, then the id; as in `vertices_of`.
        options: how.
    """
    order = F.row_number().over(Window.orderBy(*rank, "id")).alias("rank")
    rows = documents.select("id", *SIGNATURE, "place", order).sortWithinPartitions("place", "id")
    return rows.select("id", *SIGNATURE, "rank").mapInArrow(OnExecutors(partial(_clustered, options)), _OUT_DDL)


def _clustered(options: DedupOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in gathered(batches):
        group = _Group.of(rows, options)
        yield group.cluster_rows()
        if options.pairs == "all":
            yield group.pair_rows()


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Documents by number; pairs and clusters are of those that are `among` them, which have a fingerprint."""

    ids: list[str]
    among: Int64s
    signatures: Signatures
    pairs: Pairs
    clusters: Clusters
    options: DedupOptions

    @classmethod
    def of(cls, rows: pa.Table, options: DedupOptions) -> _Group:
        among = np.flatnonzero(rows["fingerprint"].is_valid().to_numpy())
        columns = [unsigned(rows[name].combine_chunks().fill_null(0))[among] for name in SIGNATURE]
        signatures = Signatures.of(*columns)
        pairs = find_near(signatures, options)
        clusters = cluster_near(signatures.fingerprints, pairs, rows["rank"].to_numpy()[among], options)
        return cls(rows["id"].to_pylist(), among, signatures, pairs, clusters, options)

    def cluster_rows(self) -> pa.RecordBatch:
        count, ids, among = len(self.ids), np.array(self.ids, object), self.among
        kept, distance, diameter = np.arange(count), np.zeros(count, np.int32), np.zeros(count, np.int32)
        kept[among], distance[among] = among[self.clusters.kept], self.clusters.distance
        found = diameters(self.signatures.fingerprints, self.clusters)
        diameter[among[found.kept]] = found.bits
        is_equal = np.zeros(count, np.bool_)
        is_equal[among[self.pairs.repeats]] = True
        by_id = np.argsort(ids)
        least = np.full(count, count)
        np.minimum.at(least, kept[by_id], np.arange(count))
        similarity, how = np.full(count, np.nan), np.full(count, None, object)
        similarity[among], how[among] = self._measured(np.arange(len(among)), self.clusters.kept)
        return _batch(
            id=self.ids,
            cluster=ids[by_id[least[kept]]],
            kept=kept == np.arange(count),
            kept_id=ids[kept],
            distance=distance,
            size=np.bincount(kept, minlength=count)[kept],
            diameter=diameter[kept],
            similarity=similarity,
            found_by=how,
            is_equal=is_equal,
            split=np.full(count, self.clusters.split, np.int32),
        )

    def pair_rows(self) -> pa.RecordBatch:
        left, right, distance = self.pairs.brief()
        ids = np.array(self.ids, object)[self.among]
        similarity, how = self._measured(left, right)
        return _batch(id=ids[right], kept_id=ids[left], distance=distance, similarity=similarity, found_by=how)

    def _measured(self, left: Int64s, right: Int64s) -> tuple[np.ndarray, np.ndarray]:
        """Return the similarity, NaN where a sketch is missing, and by what each pair was found."""
        some, others = self.signatures[left], self.signatures[right]
        return similarities(some.sketches, others.sketches), found_by(some, others, self.options).astype(object)


def _batch(**columns: ColumnValues) -> pa.RecordBatch:
    """Return a batch of `_OUT`; a column that is not given is null."""
    count = len(columns["id"])
    arrays = [
        pa.array(columns[field.name], field.type, from_pandas=True)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in _OUT
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_OUT)
