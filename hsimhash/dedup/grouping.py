"""Documents → clusters: which document stands for which, among those of the inputs and those stored already.

Documents have numbers in the order of the inputs; stored ones that are kept in place of others follow behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hsimhash.dedup.against import NONE_STORED, Stored
from hsimhash.dedup.documents import Collected
from hsimhash.pairs import Pairs, find_pairs
from hsimhash.pairs.clusters import Clusters, components, diameters, star

Method = Literal["star", "components"]
METHODS: tuple[Method, ...] = ("star", "components")
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rule:
    """How documents are grouped.

    Args:
        max_distance: of near documents, bits.
        method: of clustering.
        max_cluster_size: of components; larger ones are cut into stars.
        memory_bytes: what finding pairs may take.
    """

    max_distance: int
    method: Method
    max_cluster_size: int | None
    memory_bytes: int

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"there are no clusters {self.method!r}; there are: {', '.join(METHODS)}")
        if self.max_cluster_size is not None and self.method != "components":
            raise ValueError("max_cluster_size bounds components; stars need no bound: leave it out")
        if self.max_cluster_size is not None and self.max_cluster_size < 1:
            raise ValueError(f"max_cluster_size {self.max_cluster_size} must be at least 1")
        if self.memory_bytes < 1:
            raise ValueError(f"memory_bytes {self.memory_bytes} must be at least 1")


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Shape (n,) each, one for each document.

    Args:
        kept: the number of the document that is kept in its place: its own where it is kept itself.
        distance: uint8, to that one.
        cluster: the number of its cluster's document with the smallest id.
        size: documents in its cluster, a stored one included.
        diameter: uint8, the greatest distance between two of them.
        split: components that were larger than allowed and were cut into stars.
    """

    kept: Numbers
    distance: NDArray[np.uint8]
    cluster: Numbers
    size: Numbers
    diameter: NDArray[np.uint8]
    split: int

    @property
    def is_kept(self) -> NDArray[np.bool_]:
        """Whether a document is kept."""
        return np.equal(self.kept, np.arange(len(self.kept)))


def find_near(documents: Collected, rule: Rule) -> Pairs:
    """Return the pairs of the comparable documents, by their number among those."""
    return find_pairs(
        documents.fingerprints[documents.comparable], max_distance=rule.max_distance, memory_bytes=rule.memory_bytes
    )


def group(documents: Collected, pairs: Pairs, rank: Numbers, rule: Rule, stored: Stored = NONE_STORED) -> Grouping:
    """Group documents.

    A document that has a match in a stored index gives way to the nearest one; the others are clustered among
    themselves. So a document is only dropped for one that is near it, or, in a component, for one that is kept.

    Args:
        documents: all of them.
        pairs: what `find_near` found.
        rank: shape (n,), a permutation; the document of the lowest rank in a cluster is the one to keep.
        rule: how.
        stored: what `match_stored` found.
    """
    count = len(documents.doc_ids)
    fingerprints = np.concatenate([documents.fingerprints, stored.fingerprints])
    kept = np.arange(len(fingerprints))
    has_match = np.zeros(count, np.bool_)
    if len(stored.fingerprints):
        has_match = stored.nearest >= 0
        kept[:count][has_match] = count + stored.nearest[has_match]
    among = documents.comparable
    if has_match.any():
        among = among[~has_match[among]]
        pairs = find_pairs(fingerprints[among], max_distance=rule.max_distance, memory_bytes=rule.memory_bytes)
    clusters = _clusters(fingerprints[among], pairs, _dense(rank[among]), rule)
    kept[among] = among[clusters.kept]
    return _grouping(documents.doc_ids, stored, kept, fingerprints, clusters.split)


def _clusters(fingerprints: NDArray[np.uint64], pairs: Pairs, rank: Numbers, rule: Rule) -> Clusters:
    if rule.method == "star":
        return star(fingerprints, pairs, rank)
    return components(fingerprints, pairs, rank, max_cluster_size=rule.max_cluster_size)


def _dense(rank: Numbers) -> Numbers:
    """Return ranks in the same order, from 0 on without gaps."""
    dense = np.empty(len(rank), np.int64)
    dense[np.argsort(rank)] = np.arange(len(rank))
    return dense


def _grouping(
    doc_ids: Sequence[str], stored: Stored, kept: Numbers, fingerprints: NDArray[np.uint64], split: int
) -> Grouping:
    count = len(doc_ids)
    distance = np.bitwise_count(fingerprints ^ fingerprints[kept])
    size = np.bincount(kept, minlength=len(kept))[kept]
    cluster = kept.copy()
    smallest = _smallest_ids(names_of(doc_ids, stored), kept, np.flatnonzero(size > 1))
    cluster[size > 1] = smallest[kept[size > 1]]
    found = diameters(fingerprints, Clusters(kept, distance))
    diameter = np.zeros(len(kept), np.uint8)
    diameter[found.kept] = found.bits
    return Grouping(kept[:count], distance[:count], cluster[:count], size[:count], diameter[kept][:count], split)


def names_of(doc_ids: Sequence[str], stored: Stored) -> Sequence[str]:
    """Return the ids by number, those of stored documents behind the others."""
    return [*doc_ids, *stored.doc_ids] if stored.doc_ids else doc_ids


def _smallest_ids(names: Sequence[str], kept: Numbers, members: Numbers) -> Numbers:
    """Return, at the number of each cluster's kept document, the number of the one with the smallest id."""
    smallest: dict[int, int] = {}  # where it is not the kept one
    for number, its in zip(members.tolist(), kept[members].tolist(), strict=True):
        if number != its and names[number] < names[smallest.get(its, its)]:
            smallest[its] = number
    best = np.arange(len(kept))
    best[list(smallest)] = list(smallest.values())
    return best
