"""Group documents into clusters: decide which document, from the inputs or from a stored index, is kept for each.

Documents are numbered in the order of the inputs. Stored documents that are kept instead of input documents are
numbered after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from hsimhash.dedup.documents import Collected
from hsimhash.dedup.ids import SpilledIds
from hsimhash.dedup.key_check import Looked
from hsimhash.dedup.options import DedupOptions
from hsimhash.dedup.tables import ColumnValues
from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, Uint64s, are_in
from hsimhash.fingerprint.signature import Signatures, are_alike
from hsimhash.index import HSimIndex
from hsimhash.matching import QUERY_BATCH
from hsimhash.pairs import Pairs, find_pairs, group_equal
from hsimhash.pairs.clusters import Clusters, KeyCheck, components, diameters, star
from hsimhash.pairs.crowds import CrowdedPairs
from hsimhash.pairs.keep_policies import Policy, needs_lengths, needs_places, rank
from hsimhash.pairs.pair_blocks import pair_words, sorted_block
from hsimhash.pairs.search import find_crowded
from hsimhash.store.base import Match

MATCHES_AT_ONCE = 4  # matches requested first if only the nearest document outside the batch is needed
ROWS_AT_ONCE = 1 << 16  # number of rows after which matches are written; checked after each document

MatchRows = Sequence[ColumnValues]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Stored documents that are nearest to documents in the batch."""

    nearest: Int64s  # for each document in the batch, the index of its nearest stored document; -1 if none is near
    doc_ids: Sequence[str]
    fingerprints: Uint64s
    same_ids: Int64s  # documents whose only match is a stored document with their own id, which is ignored


def none_stored(documents: Collected) -> Stored:
    """Return a result in which no stored document is near."""
    return Stored(np.full(len(documents.doc_ids), -1), (), np.empty(0, np.uint64), _NONE)


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """The clusters, as arrays of shape (n,) with one value for each document."""

    kept: Int64s  # number of the document kept for it; its own number if it is kept itself
    distance: Uint8s  # distance to the kept document
    cluster: Int64s  # number of the document with the smallest id in its cluster
    size: Int64s  # number of documents in its cluster, including a stored one
    diameter: Uint8s  # greatest distance between two documents in its cluster
    split: int  # number of components that were larger than allowed and were split into stars

    def is_kept(self, start: int, stop: int) -> Bools:
        """Return whether each of the documents [start, stop) is kept."""
        return np.equal(self.kept[start:stop], np.arange(start, stop))


def find_near(
    signatures: Signatures, options: DedupOptions, tell: Callable[[int, int], object] = lambda *_: None
) -> Pairs:
    """Return the near pairs; includes pairs within crowds only if all pairs are listed. `tell`: see `find_pairs`."""
    find = find_pairs if options.pairs == "all" else find_crowded
    return find(
        signatures,
        max_distance=options.max_distance,
        max_sketch=options.max_sketch,
        memory_bytes=options.memory_bytes,
        tell=tell,
    )


def cluster_near(
    fingerprints: Uint64s, pairs: Pairs, rank: Int64s, options: DedupOptions, check: KeyCheck | None = None
) -> Clusters:
    """Cluster documents; in each cluster, the document with the lowest rank is kept."""
    ranks = np.argsort(np.argsort(rank))  # the same order, as consecutive numbers from 0
    if options.clusters == "star":
        return star(fingerprints, pairs, ranks, check)
    return components(fingerprints, pairs, ranks, max_cluster_size=options.max_cluster_size, check=check)


def rank_documents(documents: Collected, pairs: Pairs, keep: Sequence[Policy]) -> Int64s:
    """Return each document's rank according to the policies; ranks of documents without near ones are arbitrary."""
    lengths = documents.rows.column("length") if needs_lengths(keep) else None
    values = {policy: column.columns() for policy, column in documents.values.items()}
    places = documents.doc_ids.places(_near_some(documents, pairs)) if needs_places(keep) else None
    return rank(keep, documents.doc_ids, lengths=lengths, values=values, places=places)


def _near_some(documents: Collected, pairs: Pairs) -> Int64s:
    """Return the documents that are near another document or equal to it."""
    is_near = np.bincount(pairs.groups, minlength=1) > 1
    is_near[pairs.left] = is_near[pairs.right] = True
    for crowd in pairs.crowds if isinstance(pairs, CrowdedPairs) else ():
        is_near[crowd.members] = True
    return documents.comparable[is_near[pairs.groups]]


def group(
    documents: Collected,
    pairs: Pairs,
    options: DedupOptions,
    stored: Stored,
    refuses: Callable[[Int64s, Int64s], Bools],
) -> Grouping:
    """Group documents into clusters.

    If a document has a match in a stored index, it is dropped, and the nearest match is kept for it. All other
    documents are clustered among themselves; those that are already stored are kept rather than new ones. So the
    document kept for a dropped one is near it or is in the same component.

    Args:
        documents: All documents.
        pairs: Pairs of comparable documents, numbered among the comparable documents.
        options: How to cluster documents.
        stored: Result of `match_stored`.
        refuses: As for `KeyCheck`, but with numbers of documents.
    """
    count, rank = len(documents.doc_ids), rank_documents(documents, pairs, options.keep)
    if len(stored.same_ids):
        rank[stored.same_ids] -= count  # ranks are 0 to count - 1
    fingerprints = np.concatenate([documents.fingerprints, stored.fingerprints])
    kept = np.arange(len(fingerprints))
    among = documents.comparable
    has_match = stored.nearest >= 0
    if has_match.any():
        kept[:count][has_match] = count + stored.nearest[has_match]
        among = among[~has_match[among]]
        pairs = find_near(documents.signatures(among), options)
    check = None
    if documents.has_signatures:
        check = KeyCheck(options.max_distance, lambda some, others: refuses(among[some], among[others]))
    clusters = cluster_near(fingerprints[among], pairs, rank[among], options, check)
    kept[among] = among[clusters.kept]
    return _grouping(documents.doc_ids, stored, kept, fingerprints, clusters.split)


def dropped_pairs(grouping: Grouping) -> tuple[Int64s, Int64s]:
    """Return (dropped documents, documents kept for them), except where a stored document is kept."""
    kept, count = grouping.kept, len(grouping.kept)
    dropped = np.flatnonzero((kept != np.arange(count)) & (kept < count))
    return dropped, kept[dropped]


def dropped_by_key(documents: Collected, grouping: Grouping, options: DedupOptions) -> tuple[Int64s, Int64s]:
    """Return the `dropped_pairs` that are near only because they share a key."""
    if not documents.has_signatures:
        return _NONE, _NONE
    dropped, kept = dropped_pairs(grouping)
    chosen = pairs_found_by(documents, dropped, kept, options) == "key"
    return dropped[chosen], kept[chosen]


def kept_pairs(
    documents: Collected, grouping: Grouping, groups: Int64s, options: DedupOptions, looked: Looked
) -> Pairs:
    """Return each dropped document and the document kept for it, if the two are near; `groups` is `Pairs.groups`."""
    among, (dropped, kept) = documents.comparable, dropped_pairs(grouping)
    chosen = pairs_found_by(documents, dropped, kept, options, looked.refused) != "chain"
    words = pair_words(np.searchsorted(among, dropped[chosen]), np.searchsorted(among, kept[chosen]))
    return Pairs(*sorted_block([words], documents.fingerprints[among]), groups)


def pairs_found_by(
    documents: Collected, some: Int64s, others: Int64s, options: DedupOptions, refused: Int64s = _NONE
) -> NDArray[np.str_]:
    """Return what makes each pair of documents near, as `found_by` does, but `chain` for pairs in `refused`.

    If all pairs are listed, only signatures decide, because a pair does not mean that one of the documents is dropped.
    """
    found = found_by(documents.signatures(some), documents.signatures(others), options)
    return found if options.pairs == "all" else np.where(are_in(pair_words(some, others), refused), "chain", found)


def found_by(some: Signatures, others: Signatures, options: DedupOptions) -> NDArray[np.str_]:
    """Return what makes each pair near: `distance`, `key`, or `chain` if only other documents connect them."""
    distances = np.bitwise_count(some.fingerprints ^ others.fingerprints)
    is_near = distances <= options.max_distance
    alike = are_alike(some.sketches, others.sketches, options.max_sketch, distances)
    has_same_key = some.keying.shared(some.keys, others.keys)
    return np.select([~alike, is_near, has_same_key], ["chain", "distance", "key"], "chain")


def about_pairs(signatures: Signatures, options: DedupOptions) -> int:
    """Estimate the number of near pairs, not counting pairs of equal documents."""
    distance, sketch = options.max_distance, options.max_sketch
    found = find_crowded(signatures, max_distance=distance, max_sketch=sketch, memory_bytes=options.memory_bytes)
    return found.estimate()


def _grouping(doc_ids: SpilledIds, stored: Stored, kept: Int64s, fingerprints: Uint64s, split: int) -> Grouping:
    count = len(doc_ids)
    distance = np.bitwise_count(fingerprints ^ fingerprints[kept])
    size = np.bincount(kept, minlength=len(kept))[kept]
    cluster = kept.copy()
    members = np.flatnonzero(size > 1)
    cluster[members] = _smallest_ids(doc_ids, stored, kept, members)[kept[members]]
    found = diameters(fingerprints, Clusters(kept, distance))
    diameter = np.zeros(len(kept), np.uint8)
    diameter[found.kept] = found.bits
    return Grouping(kept[:count], distance[:count], cluster[:count], size[:count], diameter[kept][:count], split)


def _smallest_ids(doc_ids: SpilledIds, stored: Stored, kept: Int64s, members: Int64s) -> Int64s:
    """Return, at each kept document's index, the number of the document with the smallest id in its cluster."""
    smallest = np.arange(len(kept))
    members = members[np.argsort(kept[members], kind="stable")]  # members of a cluster are adjacent
    cluster, least = -1, ""
    for start in range(0, len(members), ROWS_AT_ONCE):
        part = members[start : start + ROWS_AT_ONCE]
        found: dict[int, int] = {}
        names = doc_ids.at(part, stored.doc_ids)
        for number, its, name in zip(part.tolist(), kept[part].tolist(), names, strict=True):
            if its != cluster or name < least:
                cluster, least = its, name
                found[its] = number
        smallest[list(found)] = list(found.values())
    return smallest


def match_stored(
    index: HSimIndex,
    documents: Collected,
    options: DedupOptions,
    write: Callable[[MatchRows], object],
    progress: Callable[[int, int], object],
) -> Stored:
    """Query an index for every signature; ignores matches that are documents in the batch.

    Documents in the batch are only compared with each other, in their current state. Otherwise, two of them that are
    already stored would each be dropped because of the other. Unless all pairs are listed, only the nearest match is
    written, because a document near a crowd has as many matches as the crowd has documents.

    Args:
        index: Index to query; it is only read.
        documents: The batch.
        options: Decides which documents match.
        write: Called with the columns document, stored document, distance, first seen and, if there are signatures,
            similarity and found by. Rows are ordered by signature (in the order of their first documents), then by
            document, then nearest first.
        progress: Called with the number of signatures done and their total number.
    """
    found = _StoredMatches(documents, write, has_all=options.pairs == "all")
    order, starts = _by_signature(documents, options.memory_bytes)
    for start in range(0, len(starts) - 1, QUERY_BATCH):
        batch = range(start, min(start + QUERY_BATCH, len(starts) - 1))
        groups = [order[starts[at] : starts[at + 1]].tolist() for at in batch]
        queries = documents.signatures(order[starts[batch.start : batch.stop]])
        found.take(groups, _asked(index, queries, options, found))
        progress(batch.stop, len(starts) - 1)
    fingerprints = np.array([fingerprint for _, fingerprint in found.known.values()], np.uint64)
    return Stored(found.nearest, list(found.known), fingerprints, np.array(found.same_ids, np.int64))


def _asked(
    index: HSimIndex, queries: Signatures, options: DedupOptions, found: _StoredMatches
) -> Sequence[Sequence[Match]]:
    """Return the matches of each query, nearest first: all, or enough to include any match outside the batch."""
    ask = partial(index.query_many, max_distance=options.max_distance, max_sketch=options.max_sketch)
    if options.pairs == "all":
        return ask(queries)
    limit = MATCHES_AT_ONCE
    near = ask(queries, limit=limit)
    again = list(range(len(near)))
    while again := [at for at in again if len(near[at]) == limit and not found.strangers_in(near[at])]:
        limit *= 16
        for at, matches in zip(again, ask(queries[again], limit=limit), strict=True):
            near[at] = matches
    return near


def _by_signature(documents: Collected, memory_bytes: int) -> tuple[Int64s, Int64s]:
    """Return the comparable documents grouped by signature, by first document, and where each group begins."""
    among = documents.comparable
    place = group_equal(documents.signatures(among), memory_bytes=memory_bytes)
    order = np.argsort(place, kind="stable")
    is_start = np.append(True, np.diff(place[order]) != 0)[: len(order)]
    return among[order], np.append(np.flatnonzero(is_start), len(order))


class _StoredMatches:
    def __init__(self, documents: Collected, write: Callable[[MatchRows], object], *, has_all: bool) -> None:
        self._has_all = has_all
        self.nearest = np.full(len(documents.doc_ids), -1, np.int64)
        self.known: dict[str, tuple[int, int]] = {}  # id → number, fingerprint: the nearest stored documents
        self.same_ids: list[int] = []
        self._doc_ids = documents.doc_ids
        self._has_signatures = documents.has_signatures
        self._write = write
        self._rows: list[tuple[int, Match]] = []

    def take(self, groups: Sequence[Sequence[int]], near: Sequence[Sequence[Match]]) -> None:
        """Record the matches of groups of equal documents; each group's matches are given nearest first."""
        strangers = self.strangers_in(match for matches in near for match in matches)
        for numbers, matches in zip(groups, near, strict=True):
            others = [match for match in matches if match.doc_id in strangers]
            if others:
                self._take_group(numbers, others)
            elif matches:
                self._take_same_ids(numbers, matches)
        self.write_rows()

    def strangers_in(self, matches: Iterable[Match]) -> frozenset[str]:
        """Return the ids of matches that are not documents in the batch."""
        met = list(dict.fromkeys(match.doc_id for match in matches))
        return frozenset(compress(met, (self._doc_ids.find(met) < 0).tolist())) if met else frozenset()

    def _take_same_ids(self, numbers: Sequence[int], matches: Sequence[Match]) -> None:
        stored = {match.doc_id for match in matches}
        names = self._doc_ids.at(np.array(numbers, np.int64))
        self.same_ids += [number for number, name in zip(numbers, names, strict=True) if name in stored]

    def _take_group(self, numbers: Sequence[int], others: Sequence[Match]) -> None:
        nearest = others[0]
        self.nearest[numbers], _ = self.known.setdefault(nearest.doc_id, (len(self.known), nearest.fingerprint))
        for number in numbers:
            self._rows += [(number, match) for match in (others if self._has_all else others[:1])]
            if len(self._rows) >= ROWS_AT_ONCE:
                self.write_rows()

    def write_rows(self) -> None:
        """Write the matches recorded since the last call."""
        rows, self._rows = self._rows, []
        matches = [match for _, match in rows]
        columns: list[ColumnValues] = [
            self._doc_ids.at(np.array([number for number, _ in rows], np.int64)),
            [match.doc_id for match in matches],
            np.array([match.distance for match in matches], np.uint8),
            np.array([match.first_seen for match in matches], np.int64),
        ]
        if self._has_signatures:
            similarity = np.array([match.similarity for match in matches], np.float64)  # None becomes NaN
            columns += [similarity, [match.found_by for match in matches]]
        self._write(columns)
