"""Cluster near documents, and choose the document to keep in each cluster, in vectorised rounds over the pairs.

In a *star*, every member is near the kept document. In a *component*, every member is connected to every other by a
chain of near documents, so the ends of a chain may be far apart; `diameters` measures how far.

Equal fingerprints (or signatures) have the same neighbours, so one vertex represents all of their documents. Vertices
are numbered in the order of their most preferred documents: of two vertices, the one with the lower number is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import (
    AnyFingerprints,
    Bools,
    Int64s,
    Uint8s,
    Uint64s,
    are_in,
    sorted_distinct,
    spans,
    whole_number,
)
from hsimhash.layout import FINGERPRINT_BITS
from hsimhash.pairs.crowds import Crowd, CrowdedPairs, CrowdQueues, links
from hsimhash.pairs.pair_blocks import PAIRS_AT_ONCE, PairBlock, Pairs, pair_words

FEW_MEMBERS = 64  # clusters of up to this size are compared together, larger clusters individually
ROUNDS = 4  # maximum rounds of clustering after failed checks; each round may read all inputs once more
_NONE = np.empty(0, np.int64)
ROWS_AT_ONCE, COLUMNS_AT_ONCE = 1 << 6, 1 << 12  # block size of an all-against-all comparison


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """The kept document that represents each document."""

    kept: Int64s  # shape (n,), index of the kept document in each document's cluster; its own index if it is alone
    distance: Uint8s  # shape (n,), in bits, between the fingerprints of each document and the kept document
    split: int = 0  # number of components that exceeded the limit and were split into stars


class Diameters(NamedTuple):
    """The greatest distance between two members of each cluster of two or more documents, in order of `kept`."""

    kept: Int64s
    bits: Uint8s


@dataclass(frozen=True, slots=True, eq=False)
class KeyCheck:
    """Decides which documents that share a key, but are farther apart than the distance, are not a pair after all."""

    max_distance: int
    refuses: Callable[[Int64s, Int64s], Bools]  # called with documents, and the document that would be kept for each
    rounds: int = ROUNDS  # a document that fails again after these rounds is kept in a cluster by itself


def star(fingerprints: AnyFingerprints, pairs: Pairs, rank: Int64s, check: KeyCheck | None = None) -> Clusters:
    """Keep the most preferred document, let its undecided neighbours join it, and repeat with the remaining documents.

    Args:
        fingerprints: Fingerprints that `pairs` were found in, or those of the signatures; shape (n,).
        pairs: All near pairs; pairs within crowds do not need to be listed.
        rank: A permutation of 0 to n - 1, shape (n,); the document of rank 0 is kept first.
        check: Rejects some of the pairs; the clusters are formed from the remaining pairs.
    """
    graph = _Graph.of(pairs, rank, fingerprints)
    return graph.clusters(_checked(graph, _starred, check).label)


def components(
    fingerprints: AnyFingerprints,
    pairs: Pairs,
    rank: Int64s,
    *,
    max_cluster_size: int | None = None,
    check: KeyCheck | None = None,
) -> Clusters:
    """Join connected documents into clusters, and keep the most preferred document of each.

    Args:
        fingerprints: As for `star`.
        pairs: As for `star`.
        rank: As for `star`.
        max_cluster_size: A component with more documents than this is split into stars.
        check: As for `star`.
    """
    if max_cluster_size is not None and whole_number(max_cluster_size, "max_cluster_size") < 1:
        raise ValueError(f"max_cluster_size must be at least 1, got {max_cluster_size}")
    graph = _Graph.of(pairs, rank, fingerprints)
    found = _checked(graph, partial(_connected, None if check is None else check.max_distance), check)
    if max_cluster_size is None:
        return graph.clusters(found.label)
    documents = np.bincount(pairs.groups, minlength=len(rank))[graph.vertices]
    is_large = np.bincount(found.label, documents, len(found.label)) > max_cluster_size
    is_cut = is_large[found.label]
    stars = _checked(found.graph.of_vertices(is_cut), _starred, check)
    return graph.clusters(np.where(is_cut, stars.label, found.label), split=int(is_large.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """The fingerprints or signatures that are in a pair, with their pairs."""

    values: Uint64s  # fingerprints of the documents
    groups: Int64s  # as in `Pairs`
    best: Int64s  # shape (n,), at the index of a vertex's first document: the vertex's most preferred document
    vertices: Int64s  # the first document of each vertex
    low: Int64s  # lower vertex of each pair
    high: Int64s  # higher vertex of each pair
    crowds: Sequence[Crowd]  # crowds of vertices, with further pairs
    refused: Int64s  # ascending `pair_words` of edges that were removed

    @classmethod
    def of(cls, pairs: Pairs, rank: Int64s, fingerprints: AnyFingerprints) -> _Graph:
        values, count = np.asarray(fingerprints, np.uint64), len(pairs.groups)
        if len(values) != count:
            raise ValueError(f"expected the {count} fingerprints in which the pairs were found, got {len(values)}")
        by_rank = _inverse(rank, count)
        best_rank = np.full(count, count, np.int64)
        np.minimum.at(best_rank, pairs.groups, rank)
        best = by_rank[np.minimum(best_rank, count - 1)]
        is_vertex = np.zeros(count, np.bool_)
        is_vertex[pairs.left] = is_vertex[pairs.right] = True
        crowds = pairs.crowds if isinstance(pairs, CrowdedPairs) else ()
        for crowd in crowds:
            is_vertex[crowd.members] = True
        vertices = np.flatnonzero(is_vertex)
        vertices = vertices[np.argsort(best_rank[vertices])]
        number = np.empty(count, np.uint32)  # uint32 halves the memory, which is two numbers per pair
        number[vertices] = np.arange(len(vertices))
        left, right = number[pairs.left], number[pairs.right]
        sides, unlisted = [(np.minimum(left, right), np.maximum(left, right))], list[Crowd]()
        for crowd in (crowd.renumbered(number) for crowd in crowds):
            if (listed := crowd.listed()) is None:
                unlisted.append(crowd)
            else:  # takes a fraction of the time of an unlisted crowd, even if no pair is needed later
                sides.append((listed[0].astype(np.uint32), listed[1].astype(np.uint32)))
        low, high = map(np.concatenate, zip(*sides, strict=True))
        return cls(values, pairs.groups, best, vertices, low, high, unlisted, _NONE)

    def clusters(self, kept: Int64s, *, split: int = 0) -> Clusters:
        """Return the documents' clusters; `kept` is the kept vertex of each vertex."""
        first = np.arange(len(self.values))
        first[self.vertices] = self.vertices[kept]
        kept_document = self.best[first[self.groups]]
        return Clusters(kept_document, np.bitwise_count(self.values ^ self.values[kept_document]), split)

    def distances(self, some: Int64s, others: Int64s) -> Uint8s:
        """Return the distance of each pair of vertices."""
        values, found = self.values[self.vertices], np.empty(len(some), np.uint8)
        for start in range(0, len(found), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            found[part] = np.bitwise_count(values[some[part]] ^ values[others[part]])
        return found

    def of_vertices(self, is_wanted: Bools) -> _Graph:
        """Return the graph without edges at unwanted vertices."""
        chosen = is_wanted[self.low] & is_wanted[self.high]
        crowds = [some for crowd in self.crowds if len(some := crowd.at(is_wanted[crowd.members]))]
        return replace(self, low=self.low[chosen], high=self.high[chosen], crowds=crowds)

    def without(self, words: Int64s) -> _Graph:
        """Return the graph without the given edges (`pair_words`)."""
        refused = np.sort(np.concatenate([self.refused, words]))
        is_left = ~are_in(pair_words(self.low.astype(np.int64), self.high.astype(np.int64)), refused)
        crowds = [replace(crowd, refused=refused) for crowd in self.crowds]
        return replace(self, low=self.low[is_left], high=self.high[is_left], crowds=crowds, refused=refused)

    def refused_by(self, check: KeyCheck, low: Int64s, high: Int64s) -> Bools:
        """Return which edges a check rejects for at least one document of the higher vertex."""
        refused = np.zeros(len(low), np.bool_)
        at = np.flatnonzero(self.distances(low, high) > check.max_distance)
        if not len(at):
            return refused
        members = np.argsort(self.groups, kind="stable")
        starts = np.searchsorted(self.groups[members], self.vertices[high[at]])
        sizes = np.bincount(self.groups)[self.vertices[high[at]]]
        edge = np.repeat(at, sizes)
        fails = check.refuses(members[spans(starts, sizes)], self.best[self.vertices[low[edge]]])
        refused[edge[fails]] = True
        return refused


class _Labelled(NamedTuple):
    """Clusters of vertices: the kept vertex for each vertex, and the edges (lower, higher) that connect clusters."""

    graph: _Graph
    label: Int64s
    low: Int64s
    high: Int64s


def _checked(graph: _Graph, cluster: Callable[[_Graph], _Labelled], check: KeyCheck | None) -> _Labelled:
    """Cluster until the check accepts all edges that hold the clusters together.

    The result is the same as if all edges were checked and only the accepted edges were clustered, because edges that
    are not checked do not change it. After `check.rounds`, vertices that fail again lose all their edges.
    """
    looked_at, rounds = _NONE, 0
    while True:
        found = cluster(graph)
        if check is None:
            return found
        words = pair_words(found.low, found.high)
        is_new = ~are_in(words, looked_at)
        low, high, words = found.low[is_new], found.high[is_new], words[is_new]
        fails = graph.refused_by(check, low, high)
        if not fails.any():
            return found
        looked_at, rounds = np.sort(np.concatenate([looked_at, words])), rounds + 1
        graph = graph.without(words[fails])
        if rounds > check.rounds:
            is_left = np.ones(len(graph.vertices), np.bool_)
            is_left[high[fails]] = False
            graph = graph.of_vertices(is_left)


def _starred(graph: _Graph) -> _Labelled:
    kept = star_centres(graph.low, graph.high, len(graph.vertices), graph.crowds)
    joined = np.flatnonzero(kept != np.arange(len(kept)))
    return _Labelled(graph, kept, kept[joined], joined)


def _connected(max_distance: int | None, graph: _Graph) -> _Labelled:
    """Return the components, with only as many far edges as are needed to connect what near edges do not connect."""
    label = np.arange(len(graph.vertices))  # the lowest vertex in each vertex's component
    far = [(_NONE, _NONE)]
    for some, others in chain([(graph.low, graph.high)], *map(links, graph.crowds)):
        if max_distance is None:
            _join(label, some, others)
            continue
        is_far = graph.distances(some, others) > max_distance
        _join(label, some[~is_far], others[~is_far])
        far.append((some[is_far], others[is_far]))
    ends = [np.concatenate(side).astype(np.int64) for side in zip(*far, strict=True)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    at = _bridges(label, low, high)
    return _Labelled(graph, label, low[at], high[at])


def _bridges(root: Int64s, some: Int64s, others: Int64s) -> Int64s:
    """Join like `_join`; return the indices of the joining edges, one fewer than the number of components joined."""
    open_at, found = np.arange(len(some)), [_NONE]
    while True:
        ends = root[some[open_at]], root[others[open_at]]
        is_open = ends[0] != ends[1]
        if not is_open.any():
            return np.concatenate(found)
        low, high, open_at = np.minimum(*ends)[is_open], np.maximum(*ends)[is_open], open_at[is_open]
        order = np.lexsort((low, high))
        # One edge for each higher root, to its lowest neighbour.
        hooking = order[np.append(True, np.diff(high[order]) != 0)]
        found.append(open_at[hooking])
        root[high[hooking]] = low[hooking]
        while ((next_root := root[root]) != root).any():
            root[:] = next_root


def _inverse(rank: Int64s, count: int) -> Int64s:
    """Return the document of each rank."""
    by_rank = np.full(count, -1, np.int64)
    if len(rank) == count and (not count or (rank.min() == 0 and rank.max() == count - 1)):
        by_rank[rank] = np.arange(count)
    if (by_rank < 0).any() or len(rank) != count:
        raise ValueError(f"rank must contain each number from 0 to {count - 1} once, one for each of {count} documents")
    return by_rank


def star_centres(low: Int64s, high: Int64s, count: int, crowds: Sequence[Crowd] = ()) -> Int64s:
    """Return the kept vertex of each of `count` vertices, as a plain loop in numeric order would.

    A vertex is kept once every lower neighbour has joined a star, and every lower member of its crowds is decided. Each
    edge is visited once or twice in total.

    Args:
        low: Lower vertex of each edge, 0 to `count` - 1; shape (m,).
        high: Higher vertex of each edge; shape (m,).
        count: Number of vertices.
        crowds: Crowds of vertices, with further edges.
    """
    above, sizes = high[np.argsort(low, kind="stable")], np.bincount(low, minlength=count)
    ends, queues = np.cumsum(sizes), CrowdQueues(crowds, count)
    waits_for = np.bincount(high, minlength=count) + queues.waits_for()  # undecided lower neighbours

    def neighbours(vertices: Int64s) -> Int64s:
        found: Int64s = above[spans(ends[vertices] - sizes[vertices], sizes[vertices])]
        return found

    kept = np.full(count, count)  # for a decided vertex, its lowest kept neighbour so far, or the vertex itself
    fresh = np.flatnonzero(waits_for == 0)
    while len(fresh):
        kept[fresh] = fresh
        met, centres = queues.neighbours(fresh)
        met = np.concatenate([met, neighbours(fresh)])
        joined = sorted_distinct(met[kept[met] == count])
        np.minimum.at(kept, met, np.concatenate([centres, np.repeat(fresh, sizes[fresh])]))
        touched = np.concatenate([neighbours(joined), queues.advance(np.concatenate([fresh, joined]), kept)])
        touched = touched[kept[touched] == count]
        np.subtract.at(waits_for, touched, 1)
        fresh = sorted_distinct(touched[waits_for[touched] == 0])
    return kept


def linked(blocks: Iterable[PairBlock], count: int) -> Int64s:
    """For each of `count` positions, return the lowest position in its component, given pairs in any order.

    Memory is bounded, while the memory of `find_pairs` and `components` grows with the number of pairs.
    """
    root = np.arange(count)
    held: list[PairBlock] = []
    for block in blocks:
        held.append(block)
        if sum(len(one.left) for one in held) >= PAIRS_AT_ONCE:
            _join(root, *(np.concatenate(side) for side in list(zip(*held, strict=True))[:2]))
            held = []
    if held:
        _join(root, *(np.concatenate(side) for side in list(zip(*held, strict=True))[:2]))
    return root


def forest(low: Int64s, high: Int64s) -> tuple[Int64s, Int64s]:
    """Reduce edges: connect the lowest vertex of each component to every other vertex in it."""
    vertices, places = np.unique(np.concatenate([low, high]), return_inverse=True)
    root = np.arange(len(vertices))
    _join(root, places[: len(low)], places[len(low) :])
    others = np.flatnonzero(root != np.arange(len(root)))
    return vertices[root[others]], vertices[others]


def _join(root: Int64s, some: Int64s, others: Int64s) -> None:
    """Join the components at the ends of each edge: attach roots to lower roots until both ends share a root."""
    while True:
        ends = root[some], root[others]
        is_open = ends[0] != ends[1]
        if not is_open.any():
            return
        some, others = np.minimum(*ends)[is_open], np.maximum(*ends)[is_open]
        np.minimum.at(root, others, some)
        while ((next_root := root[root]) != root).any():
            root[:] = next_root


def diameters(fingerprints: AnyFingerprints, clusters: Clusters) -> Diameters:
    """Return each cluster's exact diameter, over all pairs of members, not only the pairs found.

    Memory is bounded. A cluster of m fingerprints may take time proportional to m squared if they look random.
    """
    documents = np.flatnonzero(np.bincount(clusters.kept, minlength=len(clusters.kept))[clusters.kept] > 1)
    kept = clusters.kept[documents]
    values = np.asarray(fingerprints, np.uint64)[documents]
    order = np.lexsort((values, kept))
    kept, values = kept[order], values[order]
    is_new = np.ones(len(values), np.bool_)
    is_new[1:] = (kept[1:] != kept[:-1]) | (values[1:] != values[:-1])
    kept, values = kept[is_new], values[is_new]
    names, starts, sizes = np.unique(kept, return_index=True, return_counts=True)
    bits = _small_diameters(values, starts, sizes)
    for at in np.flatnonzero(sizes > FEW_MEMBERS).tolist():
        bits[at] = _diameter(values[starts[at] : starts[at] + sizes[at]])
    return Diameters(names, bits)


def _small_diameters(values: Uint64s, starts: Int64s, sizes: Int64s) -> Uint8s:
    """Return the diameters of clusters with few members, and 0 for other clusters; compare members lag by lag."""
    bits = np.zeros(len(sizes), np.uint8)
    few = np.where(sizes <= FEW_MEMBERS, sizes, 0)
    cluster = np.repeat(np.arange(len(sizes)), few)
    within = spans(0, few)
    at = starts[cluster] + within
    for lag in range(1, int(few.max(initial=0))):
        has_other = within + lag < few[cluster]
        cluster, within, at = cluster[has_other], within[has_other], at[has_other]
        np.maximum.at(bits, cluster, np.bitwise_count(values[at] ^ values[at + lag]))
    return bits


def _diameter(values: Uint64s) -> int:
    """Return the greatest distance between any two of many fingerprints.

    Two fingerprints at distances r and s from a centre are at most r + s apart. So two shells around the centre are
    compared only if their fingerprints may be farther apart than the greatest distance so far, outermost shells first.
    """
    radius = np.bitwise_count(values ^ _centre(values))
    shells = {r: values[radius == r] for r in sorted_distinct(radius).tolist()}
    greatest = 0
    for r, s in sorted(((r, s) for r in shells for s in shells if r >= s), key=sum, reverse=True):
        if r + s <= greatest:
            break
        greatest = max(greatest, _greatest_distance(shells[r], shells[s], r + s))
    return greatest


def _centre(values: Uint64s) -> np.uint64:
    """Return the bitwise majority of the fingerprints."""
    ones = [int(np.count_nonzero(values & np.uint64(1 << bit))) for bit in range(FINGERPRINT_BITS)]
    return np.uint64(sum(1 << bit for bit, count in enumerate(ones) if 2 * count > len(values)))


def _greatest_distance(some: Uint64s, others: Uint64s, bound: int) -> int:
    """Return the greatest distance between two fingerprints, one from each array; it is at most `bound`."""
    greatest = 0
    for row in range(0, len(some), ROWS_AT_ONCE):
        rows = some[row : row + ROWS_AT_ONCE, None]
        for column in range(0, len(others), COLUMNS_AT_ONCE):
            greatest = max(greatest, int(np.bitwise_count(rows ^ others[column : column + COLUMNS_AT_ONCE]).max()))
            if greatest == bound:
                return greatest
    return greatest
