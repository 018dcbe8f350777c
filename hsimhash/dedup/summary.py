"""Compute the numbers in `stats.json` and the data for `report.html` from the outcome of a run.

To estimate what a greater distance would add, a sample of fingerprints is compared with all fingerprints. The sample
has `ROWS` fingerprints, or as many as `CELLS` comparisons allow if that is more, so it includes every fingerprint in a
small set. If there are crowds, fewer fingerprints suffice, so the comparison ends after `HITS` pairs. This takes a few
microseconds per document, for any distance and distribution of fingerprints.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hsimhash.dedup.documents import Collected
from hsimhash.dedup.grouping import Grouping, Stored
from hsimhash.dedup.key_check import Looked
from hsimhash.dedup.options import DedupOptions
from hsimhash.dedup.report import (
    CLUSTERS_LISTED,
    CLUSTERS_SHOWN,
    DIFFS_SHOWN,
    LARGEST_SHOWN,
    MEMBERS_LISTED,
    NOTICES_SHOWN,
    PAIRS_SHOWN,
    Distance,
    Notice,
    ReportCluster,
    ShownPair,
    Totals,
    find_notices,
)
from hsimhash.dedup.report_texts import Texts
from hsimhash.fingerprint import EXACT, TOO_SHORT, Signatures
from hsimhash.fingerprint.bits import Bools, Int64s, Uint64s, sorted_distinct
from hsimhash.fingerprint.signature import are_alike
from hsimhash.layout import FINGERPRINT_BITS
from hsimhash.pairs import PairBlock, Pairs, group_equal
from hsimhash.pairs.pair_blocks import PAIRS_AT_ONCE
from hsimhash.pairs.search import in_order

BEYOND_BITS = 3
ROWS = 2_000  # minimum number of fingerprints to sample
CELLS = 100_000_000  # number of comparisons up to which more fingerprints are sampled
ROWS_AT_ONCE, COLUMNS_AT_ONCE = 16, 1 << 14  # size of a tile, which fits into the cache of a core
ROWS_TOGETHER = 128  # rows that a thread compares with all values
HITS = 2_000_000  # number of pairs after which sampling stops; a fingerprint in a crowd has many pairs
FEW_HITS = 1 << 14  # number of pairs that hardly affects the time
HELD = 1_000  # maximum number of pairs to keep per distance; the report shows some of them

Couples = list[tuple[int, int]]


class _Clusters(NamedTuple):
    """The clusters of two or more documents, in order of `kept`, as arrays of the same length."""

    kept: Int64s  # number of the kept document
    first: Int64s  # number of the cluster's first document in the inputs
    size: Int64s
    diameter: Int64s


@dataclass(frozen=True, eq=False)
class Outcome:
    """Everything that a run found."""

    documents: Collected  # the documents read
    pairs: Pairs  # near pairs, numbered among the comparable documents
    options: DedupOptions
    grouping: Grouping  # the clusters
    stored: Stored | None  # stored documents near these documents; None if there is no index
    looked: Looked  # result of comparing texts

    def names(self, numbers: Int64s) -> list[str]:
        """Return the ids of documents; stored documents are numbered after those of the inputs."""
        return self.documents.doc_ids.at(numbers, self.stored.doc_ids if self.stored else ())

    @cached_property
    def _clusters(self) -> _Clusters:
        grouping = self.grouping
        members = np.flatnonzero(grouping.size > 1)
        kept, places = np.unique(grouping.kept[members], return_index=True)
        first = members[places]
        return _Clusters(kept, first, grouping.size[first], grouping.diameter[first].astype(np.int64))

    @cached_property
    def totals(self) -> Totals:
        """The counts."""
        documents, kinds, clusters = self.documents, self.documents.kinds, self._clusters
        return Totals(
            documents=len(documents.doc_ids),
            dropped=int(np.count_nonzero(self.grouping.kept != np.arange(len(self.grouping.kept)))),
            clusters=len(clusters.kept),
            equal=int(np.count_nonzero(_is_equal(self.pairs))),
            short=int(np.count_nonzero(kinds == TOO_SHORT)),
            rejected=documents.rejected,
            matched=int(np.count_nonzero(self.stored.nearest >= 0)) if self.stored else None,
            largest_cluster=int(clusters.size.max(initial=0)),
            pairs=sum(self.distances.values()) + sum(self.key_distances.values()),
            by_key=sum(self.key_distances.values()) if documents.has_signatures else None,
            unconfirmed=self.pairs.unconfirmed if documents.has_signatures and self.options.pairs == "all" else None,
            exact=int(np.count_nonzero(kinds == EXACT)),
            repeated=documents.repeated,
            split=self.grouping.split,
        )

    @property
    def cluster_sizes(self) -> dict[int, int]:
        """The number of clusters by size; sizes start at 2."""
        sizes, counts = np.unique(self._clusters.size, return_counts=True)
        return dict(zip(sizes.tolist(), counts.tolist(), strict=True))

    @cached_property
    def _listed_pairs(self) -> Pairs:
        """The pairs to count and show; unless all are listed, they include each equal document with the kept one."""
        if self.options.pairs == "all":
            return self.pairs
        return replace(self.pairs, groups=np.arange(len(self.pairs.groups)))

    @cached_property
    def distances(self) -> dict[int, int]:
        """The number of pairs by distance; if all pairs are listed, each equal document counts once."""
        counts = self._counts[: self.options.max_distance + 1].copy()
        counts[0] += np.count_nonzero(_is_equal(self._listed_pairs))
        return {distance: count for distance, count in enumerate(counts.tolist()) if count}

    @property
    def key_distances(self) -> dict[int, int]:
        """The number of pairs beyond the maximum distance that share a key, by distance."""
        beyond = self.options.max_distance + 1
        return {bits: count for bits, count in enumerate(self._counts[beyond:].tolist(), beyond) if count}

    @cached_property
    def _counts(self) -> Int64s:
        """The number of pairs of unequal documents, by distance."""
        return np.bincount(self.pairs.distance, minlength=FINGERPRINT_BITS + 1)

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """Warnings for the report."""
        groups = self.pairs.groups
        if self.documents.has_signatures:  # documents with a hot fingerprint may have different sketches
            fingerprints = self.documents.fingerprints[self.documents.comparable]
            groups = group_equal(fingerprints, memory_bytes=self.options.memory_bytes)
        sizes = np.bincount(groups, minlength=1)
        hottest = np.argsort(-sizes, kind="stable")[:NOTICES_SHOWN]
        hottest = hottest[sizes[hottest] >= self.totals.large_size]
        fingerprints = self.documents.fingerprints[self.documents.comparable[hottest]]
        hot = list(zip(fingerprints.tolist(), sizes[hottest].tolist(), strict=True))
        return find_notices(self.totals, self._clusters_at(self._giants), hot, self.looked.unseen, self.looked.reasons)

    @cached_property
    def _giants(self) -> list[int]:
        """The clusters that get a warning, as indices in `_clusters`, widest first."""
        clusters = self._clusters
        giants = np.flatnonzero((clusters.size >= self.totals.large_size) & (clusters.diameter > 0))
        order = np.lexsort((clusters.first[giants], -clusters.size[giants], -clusters.diameter[giants]))
        numbers: list[int] = giants[order][:NOTICES_SHOWN].tolist()
        return numbers

    @cached_property
    def _listed(self) -> list[int]:
        """The clusters to list, as indices in `_clusters`, largest first."""
        order: list[int] = np.lexsort((self._clusters.first, -self._clusters.size))[:CLUSTERS_LISTED].tolist()
        return order

    @cached_property
    def _unlikeness(self) -> Int64s:
        """For each document, the number of bits, out of 64, in which it differs from the document kept for it.

        Sketches are used instead of fingerprints if both exist, because they estimate the share of equal shingles.
        """
        documents, kept = self.documents, self.grouping.kept
        bits = self.grouping.distance.astype(np.int64)
        if documents.has_signatures:
            own = np.flatnonzero((kept < len(kept)) & (kept != np.arange(len(kept))))
            mine, others = documents.sketches[own], documents.sketches[kept[own]]
            has_sketches = (mine != 0) & (others != 0)
            bits[own[has_sketches]] = np.bitwise_count(mine ^ others)[has_sketches]
        return bits

    @cached_property
    def _doubtful(self) -> list[int]:
        """The clusters to check first, as indices in `_clusters`: those with the least similar documents."""
        clusters, dropped = self._clusters, np.flatnonzero(self.grouping.kept != np.arange(len(self.grouping.kept)))
        greatest = np.zeros(len(clusters.kept), np.int64)
        np.maximum.at(greatest, np.searchsorted(clusters.kept, self.grouping.kept[dropped]), self._unlikeness[dropped])
        order: list[int] = np.lexsort((clusters.first, -clusters.size, -clusters.diameter, -greatest))[
            :CLUSTERS_SHOWN
        ].tolist()
        return order

    @cached_property
    def _shown(self) -> dict[int, list[int]]:
        """Index of each cluster to show → some of its dropped documents, least similar first."""
        grouping, shown = self.grouping, {}
        chosen = [*self._giants, *self._listed[:LARGEST_SHOWN], *self._doubtful]
        for at in list(dict.fromkeys(chosen))[:CLUSTERS_SHOWN]:
            kept = self._clusters.kept[at]
            members = np.flatnonzero(grouping.kept == kept)
            members = members[members != kept]
            bits = grouping.distance[members].astype(np.int64)
            shown[at] = members[np.lexsort((-bits, -self._unlikeness[members]))][:MEMBERS_LISTED].tolist()
        return shown

    def _clusters_at(self, places: Sequence[int], texts: Texts | None = None) -> list[ReportCluster]:
        """Return clusters without their members."""
        kept, _, *columns = (column[list(places)] for column in self._clusters)
        lines = [texts.first_lines.get(number, "") if texts else "" for number in kept.tolist()]
        rows = zip(self.names(kept), *(column.tolist() for column in columns), lines, strict=True)
        return [ReportCluster(name, size, diameter, first_line=line) for name, size, diameter, line in rows]

    def shown_clusters(self, texts: Texts) -> tuple[ReportCluster, ...]:
        """Return the clusters to show, least similar first, with some members and how their texts differ."""
        found = []
        for (at, members), cluster in zip(self._shown.items(), self._clusters_at([*self._shown], texts), strict=True):
            bits = self.grouping.distance[members].tolist()
            kept = int(self._clusters.kept[at])
            pairs = [self._pair(kept, *one, texts) for one in zip(members[:DIFFS_SHOWN], bits, strict=False)]
            named = tuple(zip(self.names(np.array(members, np.int64)), bits, strict=True))
            found.append(replace(cluster, members=named, pairs=tuple(pairs)))
        return tuple(sorted(found, key=_alikeness))

    def listed_clusters(self, texts: Texts) -> tuple[ReportCluster, ...]:
        """Return the clusters to list."""
        return tuple(self._clusters_at(self._listed, texts))

    @cached_property
    def beyond(self) -> Beyond:
        """The pairs just beyond the distance limit."""
        documents = self.documents
        return find_beyond(documents.signatures(documents.comparable), self.pairs.groups, self.options)

    @property
    def left_out(self) -> int:
        """How many pairs a smaller distance would leave out; pairs that share a key would remain."""
        limit = self.options.max_distance
        at = np.flatnonzero((self.pairs.distance > smaller_distance(limit)) & (self.pairs.distance <= limit))
        among, count = self.documents.comparable, 0
        for start in range(0, len(at), PAIRS_AT_ONCE):
            part = at[start : start + PAIRS_AT_ONCE]
            some, others = (
                self.documents.signatures(among[side[part]]) for side in (self.pairs.left, self.pairs.right)
            )
            count += int(np.count_nonzero(~some.keying.shared(some.keys, others.keys)))
        return count

    @cached_property
    def _samples(self) -> dict[int, Couples]:
        """Distance → some pairs of documents."""
        found = {
            bits: some_within(self._listed_pairs, bits, PAIRS_SHOWN) for bits in range(self.options.max_distance + 1)
        }
        found |= {bits: some_beyond(self.beyond, bits, PAIRS_SHOWN) for bits in self.beyond.pairs}
        return {bits: self._numbered(some) for bits, some in found.items()}

    @cached_property
    def _keyed(self) -> Couples:
        """Some pairs of documents found by their key."""
        at = _spread(np.flatnonzero(self.pairs.distance > self.options.max_distance), PAIRS_SHOWN)
        return self._numbered(_couples(self.pairs.left[at], self.pairs.right[at]))

    def _numbered(self, couples: Couples) -> Couples:
        among = self.documents.comparable
        return [(int(among[left]), int(among[right])) for left, right in couples]

    def sampled_distances(self, texts: Texts) -> tuple[Distance, ...]:
        """Return each distance with its number of pairs and some of these pairs."""
        counts = {**self.distances, **self.beyond.pairs}
        found = []
        for bits, couples in self._samples.items():
            shown = tuple(self._pair(left, right, bits, texts) for left, right in couples)
            found.append(Distance(bits, counts.get(bits, 0), bits <= self.options.max_distance, shown))
        return tuple(found)

    def sampled_keyed(self, texts: Texts) -> tuple[ShownPair, ...]:
        """Return some of the pairs that were found by their key."""
        values = self.documents.fingerprints
        distances = [int(np.bitwise_count(values[left] ^ values[right])) for left, right in self._keyed]
        return tuple(self._pair(*pair, bits, texts) for pair, bits in zip(self._keyed, distances, strict=True))

    def _pair(self, left: int, right: int, bits: int, texts: Texts) -> ShownPair:
        mine, other = self.names(np.array([left, right]))
        return texts.pair((left, mine), (right, other), bits)

    @property
    def compared_numbers(self) -> set[int]:
        """The documents whose texts the report compares."""
        couples = [*self._keyed, *(couple for some in self._samples.values() for couple in some)]
        shown = {number for couple in couples for number in couple}
        for at, members in self._shown.items():
            shown |= {int(self._clusters.kept[at]), *members[:DIFFS_SHOWN]}
        return self._of_inputs(shown)

    @property
    def listed_numbers(self) -> set[int]:
        """The documents whose first lines the report lists."""
        return self._of_inputs(self._clusters.kept[self._listed].tolist())

    def _of_inputs(self, numbers: Iterable[int]) -> set[int]:
        return {number for number in numbers if number < len(self.documents.doc_ids)}


def _alikeness(cluster: ReportCluster) -> tuple[bool, bool, float]:
    """Return a sort key for clusters: exact copies come last, after clusters whose texts were not compared."""
    share = cluster.equal_words
    return share == 1, share is None, share or 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Beyond:
    """Pairs of distinct fingerprints or signatures just beyond the distance limit."""

    pairs: Mapping[int, int]  # distance → number of pairs; an estimate if not all were compared
    held: Mapping[int, Couples]  # distance → at most HELD pairs; each document is the first with its signature
    sampled: int  # number of signatures that were compared with all signatures
    distinct: int  # number of distinct signatures


def smaller_distance(bits: int) -> int:
    """Return the smaller distance that the report suggests."""
    return bits // 2


def find_beyond(signatures: Signatures, groups: Int64s, options: DedupOptions) -> Beyond:
    """Count the pairs that raising `max_distance` by up to BEYOND_BITS would add; `groups` is `Pairs.groups`."""
    first, max_distance = np.flatnonzero(np.equal(groups, np.arange(len(groups)))), options.max_distance
    values = signatures.fingerprints[first]
    sampled = min(len(values), max(ROWS, CELLS // max(1, len(values))))
    # Sample from the sorted fingerprints, because the order of the inputs may be periodic.
    rows = np.argsort(values)[np.arange(sampled) * len(values) // max(1, sampled)]
    last = min(max_distance + BEYOND_BITS, FINGERPRINT_BITS)
    met = dict.fromkeys(range(max_distance + 1, last + 1), 0)
    held: dict[int, Couples] = {bits: [] for bits in met}
    rows = np.random.default_rng(len(rows)).permutation(rows)  # any prefix is then also a sample
    hits = compared = 0
    together = ROWS_AT_ONCE
    while compared < sampled and hits < HITS:
        mine, before = rows[compared : compared + together], hits
        for block in _near(values, mine, max_distance, last):
            hits += len(block.left)
            is_added = _is_added(signatures[first[block.left]], signatures[first[block.right]], options.max_sketch)
            for bits in sorted_distinct(block.distance).tolist():
                is_such = is_added & (block.distance == bits)
                met[bits] += int(np.count_nonzero(is_such))
                some = slice(0, HELD - len(held[bits]))
                held[bits] += _couples(first[block.left[is_such][some]], first[block.right[is_such][some]])
        compared += len(mine)
        if hits - before < FEW_HITS:  # each block has a fixed cost, even with few pairs
            together *= 2
    sampled = compared
    # A pair is found twice if both of its fingerprints are among the rows.
    pairs = {bits: round(count * len(values) / (2 * sampled)) if sampled else 0 for bits, count in met.items()}
    return Beyond(pairs, {bits: sorted(set(ones)) for bits, ones in held.items()}, sampled, len(values))


def _near(values: Uint64s, rows: Int64s, least: int, most: int) -> Iterator[PairBlock]:
    """Yield pairs of a row and any value whose distance is in (least, most], in blocks, in the order of the rows."""
    parts = np.array_split(rows, -(-len(rows) // ROWS_TOGETHER))
    return in_order((_near_part(values, part, least, most) for part in parts), min(os.cpu_count() or 1, len(parts)))


def _near_part(values: Uint64s, rows: Int64s, least: int, most: int) -> Iterator[PairBlock]:
    """Yield what `_near` yields, in blocks of at least `FEW_HITS` pairs."""
    met, count = list[PairBlock](), 0
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        for column in range(0, len(values), COLUMNS_AT_ONCE):
            bits = np.bitwise_count(values[some, None] ^ values[column : column + COLUMNS_AT_ONCE])
            is_near = bits - np.uint8(least + 1) < most - least  # below `least` it wraps around
            if is_near.any():
                left, right = np.nonzero(is_near)
                met.append(PairBlock(some[left], right + column, bits[left, right]))
                count += len(left)
            if count >= FEW_HITS:
                yield PairBlock(*map(np.concatenate, zip(*met, strict=True)))
                met, count = [], 0
    if met:
        yield PairBlock(*map(np.concatenate, zip(*met, strict=True)))


def _is_added(some: Signatures, others: Signatures, max_sketch: int | None) -> Bools:
    """Return which distant pairs a greater limit would make near; pairs that share a key are already near."""
    distances = np.bitwise_count(some.fingerprints ^ others.fingerprints)
    alike = are_alike(some.sketches, others.sketches, max_sketch, distances)
    added: Bools = alike & ~some.keying.shared(some.keys, others.keys)
    return added


def _couples(left: Int64s, right: Int64s) -> Couples:
    return list(zip(np.minimum(left, right).tolist(), np.maximum(left, right).tolist(), strict=True))


def some_within(pairs: Pairs, bits: int, count: int) -> Couples:
    """Return some pairs at one distance, evenly spread; each equal document is paired with the first of its group."""
    at = np.flatnonzero(pairs.distance == bits)
    equal = np.flatnonzero(_is_equal(pairs)) if bits == 0 else at[:0]
    left, right = np.append(pairs.groups[equal], pairs.left[at]), np.append(equal, pairs.right[at])
    chosen = _spread(np.arange(len(left)), count)
    return _couples(left[chosen], right[chosen])


def some_beyond(beyond: Beyond, bits: int, count: int) -> Couples:
    """Return some pairs at one distance beyond the limit, evenly spread."""
    held = beyond.held[bits]
    return [held[at] for at in _spread(np.arange(len(held)), count).tolist()]


def _spread(numbers: Int64s, count: int) -> Int64s:
    """Return up to `count` of the numbers, evenly spread."""
    count = min(count, len(numbers))
    chosen: Int64s = numbers[(2 * np.arange(count) + 1) * len(numbers) // max(1, 2 * count)]
    return chosen


def _is_equal(pairs: Pairs) -> Bools:
    """Return which documents equal an earlier document."""
    return np.not_equal(pairs.groups, np.arange(len(pairs.groups)))
