"""Find all near pairs of distinct fingerprints: cut each sorted drawer into parts that a task searches in memory.

The parts are planned from a sample, so that each part has about the same number of values and no bucket is split. A
bucket that is too large for a part is divided into finer drawers by the bits that vary in it. Each pair is found once,
in the first drawer where its values share a bucket. The search in `pairs.neighbours` runs on each part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count as numbers_from
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.fingerprint.bits import Int64s, Uint64s, are_in, sorted_distinct
from hsimhash.pairs.distinct import is_first
from hsimhash.pairs.neighbours import Search, finer_searches, searches
from hsimhash.pairs.search import fastest_layout
from hsimhash.spark.columns import gathered, partition_keys, signed, unsigned
from hsimhash.spark.executors import OnExecutors

ROW_NS = 60.0  # cost per value in ns, in addition to the search: sorting, writing, sending and reading it


@dataclass(frozen=True, slots=True)
class PairLimits:
    """Limits on the memory of tasks and executors, and on the sample from which parts are planned."""

    part: int = 1 << 20  # values in a part
    spread: int = 1 << 20  # values that are sorted and sent together
    sample: int = 1 << 17  # values in the sample from which the driver plans parts
    depth: int = 3  # how many times a large bucket is divided
    tables: int = 256  # tables in a plan; with more tables, buckets are divided fewer times
    given_fingerprints: int = 1 << 21  # fingerprints broadcast to every executor; more need a shuffle of all documents
    single_task: int = 1 << 17  # documents that one task clusters by itself, up to 1.5 KB each
    given_ids: int = 1 << 19  # documents with near documents that one task can hold: 50 MB with ids of 40 bytes


PAIR_LIMITS = PairLimits()
LEAST_SAMPLE = 1 << 9  # minimum number of values that each task samples, if it has that many


@dataclass(frozen=True)
class PartTable:
    """The permuted, sorted values of a drawer, or of one bucket in a drawer, in parts.

    Attributes:
        search: The search for pairs of these values.
        within: For each drawer above this one, the search and the bucket that contains the values.
        left_out: First permuted values of the buckets that have tables of their own, ascending.
        cuts: First permuted value of every part except the first part, ascending.
    """

    search: Search
    within: tuple[tuple[Search, int], ...]
    left_out: Uint64s
    cuts: Uint64s

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self.cuts) + 1

    def split(self, values: Uint64s) -> Iterator[tuple[int, Uint64s]]:
        """Yield (number, permuted and sorted values) for each part that contains any of the values."""
        for search, head in self.within:
            values = values[_heads(search, search.drawer.permute(values)) == np.uint64(head)]
        ordered = self.search.ordered(values)
        if len(self.left_out):
            ordered = ordered[~are_in(_heads(self.search, ordered), self.left_out)]
        edges = [0, *np.searchsorted(ordered, self.cuts).tolist(), len(ordered)]
        for number, (start, stop) in enumerate(pairwise(edges)):
            if start < stop:
                yield number, ordered[start:stop]


def _heads(search: Search, permuted: Uint64s) -> Uint64s:
    """Return the first permuted value of each value's bucket."""
    return permuted & ~(search.bucket_size - np.uint64(1))


@dataclass(frozen=True)
class PartPlan:
    """The tables of a search for all pairs; parts are numbered across all of them."""

    tables: tuple[PartTable, ...]

    @cached_property
    def starts(self) -> Int64s:
        """The number of each table's first part, followed by the total number of parts."""
        return np.cumsum([0, *(table.parts for table in self.tables)])

    @cached_property
    def keys(self) -> list[int]:
        """The key of each part, which moves the part to its own partition."""
        return partition_keys(int(self.starts[-1]))

    @classmethod
    def of(cls, drawers: Sequence[Search], sample: Uint64s, count: int, limits: PairLimits) -> PartPlan:
        """Return the plan for `count` fingerprints, given a sample of them.

        Args:
            drawers: Searches of all drawers.
            sample: Some or all of the fingerprints.
            count: Number of fingerprints.
            limits: Limits; with depth 0, no bucket gets a table of its own.
        """
        scale = max(1.0, count / max(1, len(sample)))
        values = sorted_distinct(sample)  # most repeated values are dropped early
        tables = list[PartTable]()
        for depth in range(limits.depth, -1, -1):
            tables = [
                table
                for search in drawers
                for table in _tables(search, (), values, scale, replace(limits, depth=depth))
            ]
            if len(tables) <= limits.tables:
                break
        return cls(tuple(tables))

    def place_of(self, part: int) -> tuple[PartTable, int]:
        """Return the table of a part, and the part's number in it."""
        at = int(np.searchsorted(self.starts, part, "right")) - 1
        return self.tables[at], part - int(self.starts[at])


def _tables(
    search: Search, within: tuple[tuple[Search, int], ...], sample: Uint64s, scale: float, limits: PairLimits
) -> list[PartTable]:
    """Return the tables for a search and its large buckets; each value in the sample stands for `scale` values."""
    ordered = search.ordered(sample)
    heads, counts = np.unique(_heads(search, ordered), return_counts=True)
    inner, left_out = list[PartTable](), list[int]()
    for head in heads[counts * scale > limits.part].tolist() if len(within) < limits.depth else ():
        members = search.drawer.restore(ordered[_heads(search, ordered) == np.uint64(head)])
        varying = int(np.bitwise_or.reduce(members ^ members[0]))
        finer = finer_searches(varying, int(len(members) * scale), search.max_distance, has_crowds=search.has_crowds)
        for one in finer:
            inner += _tables(_beneath(one, search), (*within, (search, head)), members, scale, limits)
        left_out += [head] if finer else []
    hot = np.array(left_out, np.uint64)
    rest = ordered[~are_in(_heads(search, ordered), hot)] if len(hot) else ordered
    step = max(1, int(limits.part / scale))
    return [PartTable(search, within, hot, sorted_distinct(_heads(search, rest[step::step]))), *inner]


def _beneath(finer: Search, outer: Search) -> Search:
    """Return a search within a bucket of `outer`; like `outer`, it skips pairs that earlier drawers find."""
    masks = np.array(outer.earlier, np.uint64)
    above = finer.drawer.permute(outer.drawer.restore(masks)).tolist()
    return Search(finer.drawer, finer.max_distance, (*finer.earlier, *above), finer.has_crowds)


def near_fingerprints(
    values: DataFrame, max_distance: int, limits: PairLimits = PAIR_LIMITS, *, has_crowds: bool = False
) -> DataFrame:
    """Return all pairs of near fingerprints, each once, as `left` and `right` in either order.

    A repeated fingerprint forms a pair with itself.

    Args:
        values: One column of fingerprints, `bigint`; read two or three times.
        max_distance: Maximum distance in bits.
        limits: Memory limits.
        has_crowds: Whether to return the members of a crowd as `left`, and its number as `crowd`, instead of the pairs
            within it.
    """
    count = values.count()
    sample = sample_of(values, limits.sample)[0] if count > limits.part else np.empty(0, np.uint64)
    layout = fastest_layout(count, max_distance, ROW_NS)
    plan = PartPlan.of(searches(layout.drawers, max_distance, has_crowds=has_crowds), sample, count, limits)
    parts = spread_to_parts(values, plan, limits)
    found = parts.mapInArrow(partial(_searched, plan), "left bigint, right bigint, crowd bigint")
    return found.repartition("left", "right", "crowd")  # the first drawers find most pairs


def spread_to_parts(values: DataFrame, plan: PartPlan, limits: PairLimits) -> DataFrame:
    """Distribute values to the parts of a plan, each in its own partition, as blocks; see `parts_in`."""
    count = len(plan.keys)  # computed on the driver, so that tasks do not have to compute the keys
    spread = values.mapInArrow(OnExecutors(partial(_spread, plan, limits.spread)), "part int, key int, block binary")
    return spread.repartition(count, F.col("key"))


def sample_of(values: DataFrame, size: int) -> tuple[Uint64s, int]:
    """Return a sample of about `size` numbers from a column, or all of them, and the total number of rows."""
    most = max(LEAST_SAMPLE, 4 * size // max(1, values.rdd.getNumPartitions()))
    found = values.mapInArrow(OnExecutors(partial(_sampled, most)), "rows bigint, block binary").collect()
    count = sum(row.rows for row in found)
    blocks = [np.frombuffer(row.block, np.uint64) for row in found]
    # Take the same share of each task's rows.
    share = min([1.0, size / max(1, count), *(len(block) / row.rows for block, row in zip(blocks, found, strict=True))])
    some = [
        block[np.linspace(0, len(block) - 1, max(1, int(row.rows * share))).astype(np.int64)]
        for block, row in zip(blocks, found, strict=True)
    ]
    return np.concatenate([np.empty(0, np.uint64), *some]), count


def _sampled(size: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the number of a task's rows, and an evenly spaced sample of them."""
    held, step, rows = np.empty(0, np.uint64), 1, 0
    for batch in batches:
        held = np.append(held, unsigned(batch.column(0))[-rows % step :: step])
        rows += batch.num_rows
        while len(held) > size:
            held, step = held[::2], 2 * step
    if rows:
        yield pa.RecordBatch.from_pydict({"rows": [rows], "block": [held.tobytes()]})


def _spread(plan: PartPlan, rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a block of values for each part that contains any of the values."""
    for table in gathered(batches, rows):
        values = np.sort(unsigned(table.column(0)))
        is_sent = np.ones(len(values), np.bool_)
        is_sent[2:] = values[2:] != values[:-2]  # two copies suffice to mark repeated values
        values = values[is_sent]
        for one, start in zip(plan.tables, plan.starts.tolist(), strict=False):
            found = [(start + number, block.tobytes()) for number, block in one.split(values)]
            parts = [part for part, _ in found]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(parts, pa.int32()),
                    pa.array([plan.keys[part] for part in parts], pa.int32()),
                    pa.array([block for _, block in found], pa.binary()),
                ],
                ["part", "key", "block"],
            )


def parts_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Uint64s]]:
    """Yield the parts of a task in order, with their values sorted; values may repeat."""
    held: dict[int, list[Uint64s]] = {}
    for batch in batches:
        for part, block in zip(batch.column(0).to_pylist(), batch.column(2), strict=True):
            held.setdefault(part, []).append(np.frombuffer(block.as_buffer(), np.uint64))
    for part in sorted(held):
        values = np.concatenate(held.pop(part))
        values.sort()
        yield part, values


def _searched(plan: PartPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the pairs and the crowds of each part."""
    for part, values in parts_in(batches):
        search, is_new = plan.place_of(part)[0].search, is_first(values)
        crowds = numbers_from(part << 32)
        if not search.earlier:  # each value is in one part of the first drawer
            equal = search.drawer.restore(sorted_distinct(values[~is_new]))
            yield _rows(equal, equal)
        for found in search.near_values(values[is_new]):
            yield _rows(*found) if isinstance(found, tuple) else _rows(found, None, next(crowds))


def _rows(left: Uint64s, right: Uint64s | None, crowd: int | None = None) -> pa.RecordBatch:
    none = pa.nulls(len(left), pa.int64())
    numbers = none if crowd is None else pa.array(np.full(len(left), crowd, np.int64))
    columns = [signed(left), none if right is None else signed(right), numbers]
    return pa.RecordBatch.from_arrays(columns, ["left", "right", "crowd"])
