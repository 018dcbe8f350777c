"""Group documents into clusters: decide which document represents which, of the inputs and of a stored index.

Documents are numbered in the order of the inputs. Stored documents that are kept in their place have later numbers.
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

MATCHES_AT_ONCE = 4  # asked for first, where only the nearest stranger counts
ROWS_AT_ONCE = 1 << 16  # of matches, written together; a document adds all of its own

MatchRows = Sequence[ColumnValues]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Stored documents that are the nearest of some in a batch."""

    nearest: Int64s  # for each document of the batch which of these it is, -1 where none is near
    doc_ids: Sequence[str]
    fingerprints: Uint64s


def none_stored(documents: Collected) -> Stored:
    """Return an empty result: no stored documents are near."""
    return Stored(np.full(len(documents.doc_ids), -1), (), np.empty(0, np.uint64))


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Arrays of shape (n,), one value for each document."""

    kept: Int64s  # the number of the document that is kept in its place: its own where it is kept itself
    distance: Uint8s  # uint8, to that one
    cluster: Int64s  # the number of its cluster's document with the smallest id
    size: Int64s  # documents in its cluster, a stored one included
    diameter: Uint8s  # uint8, the greatest distance between two of them
    split: int  # components that were larger than allowed and were cut into stars

    def is_kept(self, start: int, stop: int) -> Bools:
        """Return whether each of the documents [start, stop) is kept."""
        return np.equal(self.kept[start:stop], np.arange(start, stop))


def find_near(
    signatures: Signatures, options: DedupOptions, tell: Callable[[int, int], object] = lambda *_: None
) -> Pairs:
    """Return the near pairs by the options, those of crowds only if all are listed; `tell`: as for `find_pairs`."""
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
    """Cluster documents by the options; of each cluster the one with the lowest rank is kept."""
    ranks = np.argsort(np.argsort(rank))  # in the same order, from 0 on without gaps
    if options.clusters == "star":
        return star(fingerprints, pairs, ranks, check)
    return components(fingerprints, pairs, ranks, max_cluster_size=options.max_cluster_size, check=check)


def rank_documents(documents: Collected, pairs: Pairs, keep: Sequence[Policy]) -> Int64s:
    """Return each document's rank by the policies; documents without near ones may have any rank."""
    lengths = documents.rows.column("length") if needs_lengths(keep) else None
    values = {policy: column.columns() for policy, column in documents.values.items()}
    places = documents.doc_ids.places(_near_some(documents, pairs)) if needs_places(keep) else None
    return rank(keep, documents.doc_ids, lengths=lengths, values=values, places=places)


def _near_some(documents: Collected, pairs: Pairs) -> Int64s:
    """Return the documents that are near another one, or equal it."""
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
    """Group documents.

    A document that has a match in a stored index gives way to the nearest one; the others are clustered among
    themselves. So a document is only dropped for one that is near it, or, in a component, for one that is kept.

    Args:
        documents: all of them.
        pairs: those of the comparable ones, by their number among these.
        options: how.
        stored: what `match_stored` found.
        refuses: as for `KeyCheck`.
    """
    count, rank = len(documents.doc_ids), rank_documents(documents, pairs, options.keep)
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
    """Return the documents that are dropped for another one, and that one; not those dropped for a stored document."""
    kept, count = grouping.kept, len(grouping.kept)
    dropped = np.flatnonzero((kept != np.arange(count)) & (kept < count))
    return dropped, kept[dropped]


def dropped_by_key(documents: Collected, grouping: Grouping, options: DedupOptions) -> tuple[Int64s, Int64s]:
    """Return what `dropped_pairs` does, of documents that only a key makes near."""
    if not documents.has_signatures:
        return _NONE, _NONE
    dropped, kept = dropped_pairs(grouping)
    chosen = pairs_found_by(documents, dropped, kept, options) == "key"
    return dropped[chosen], kept[chosen]


def kept_pairs(
    documents: Collected, grouping: Grouping, groups: Int64s, options: DedupOptions, looked: Looked
) -> Pairs:
    """Return each dropped document that is near the one kept for it, with that one; `groups` is `Pairs.groups`."""
    among, (dropped, kept) = documents.comparable, dropped_pairs(grouping)
    chosen = pairs_found_by(documents, dropped, kept, options, looked.refused) != "chain"
    words = pair_words(np.searchsorted(among, dropped[chosen]), np.searchsorted(among, kept[chosen]))
    return Pairs(*sorted_block([words], documents.fingerprints[among]), groups)


def pairs_found_by(
    documents: Collected, some: Int64s, others: Int64s, options: DedupOptions, refused: Int64s = _NONE
) -> NDArray[np.str_]:
    """Return what makes each pair of documents near, see `found_by`; `chain` for pairs that were `refused`.

    If all pairs are listed, signatures decide: neither of two near documents need be dropped for the other.
    """
    found = found_by(documents.signatures(some), documents.signatures(others), options)
    return found if options.pairs == "all" else np.where(are_in(pair_words(some, others), refused), "chain", found)


def found_by(some: Signatures, others: Signatures, options: DedupOptions) -> NDArray[np.str_]:
    """Return what makes each pair near: `distance` or `key`; or `chain`, if only others connect the two."""
    distances = np.bitwise_count(some.fingerprints ^ others.fingerprints)
    is_near = distances <= options.max_distance
    alike = are_alike(some.sketches, others.sketches, options.max_sketch, distances)
    has_same_key = some.keying.shared(some.keys, others.keys)
    return np.select([~alike, is_near, has_same_key], ["chain", "distance", "key"], "chain")


def about_pairs(signatures: Signatures, options: DedupOptions) -> int:
    """Estimate how many near pairs there are by the options, without those of equal documents."""
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
    """Return, at the number of each cluster's kept document, the number of the one with the smallest id."""
    smallest = np.arange(len(kept))
    members = members[np.argsort(kept[members], kind="stable")]  # so that a cluster's stand together
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
    """Query an index for every signature; omits matches with the batch's own documents.

    Those are compared within the batch, as they are now; two that are stored already must not drop each other. Unless
    all pairs are listed, only the nearest match is: a document near a crowd has as many as that has documents.

    Args:
        index: only read.
        documents: the batch.
        options: what matches.
        write: told columns of document, stored document, distance, first seen, and, where there are signatures,
            similarity and what it was found by: by signature in the order of its first document, then by document,
            nearest first.
        progress: told (done, total) signatures.
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
    return Stored(found.nearest, list(found.known), fingerprints)


def _asked(
    index: HSimIndex, queries: Signatures, options: DedupOptions, found: _StoredMatches
) -> Sequence[Sequence[Match]]:
    """Return matches of each query, nearest first: all, or so many that a stranger is among them if there is one."""
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
    """Return the comparable documents, equal ones together, in order of each group's first; and where groups begin."""
    among = documents.comparable
    place = group_equal(documents.signatures(among), memory_bytes=memory_bytes)
    order = np.argsort(place, kind="stable")
    is_start = np.append(True, np.diff(place[order]) != 0)[: len(order)]
    return among[order], np.append(np.flatnonzero(is_start), len(order))


class _StoredMatches:
    def __init__(self, documents: Collected, write: Callable[[MatchRows], object], *, has_all: bool) -> None:
        self._has_all = has_all
        self.nearest = np.full(len(documents.doc_ids), -1, np.int64)
        self.known: dict[str, tuple[int, int]] = {}  # id → number, fingerprint: stored ones that are nearest to some
        self._doc_ids = documents.doc_ids
        self._has_signatures = documents.has_signatures
        self._write = write
        self._rows: list[tuple[int, Match]] = []

    def take(self, groups: Sequence[Sequence[int]], near: Sequence[Sequence[Match]]) -> None:
        """Record the matches, nearest first, of groups of equal documents."""
        strangers = self.strangers_in(match for matches in near for match in matches)
        for numbers, matches in zip(groups, near, strict=True):
            self._take_group(numbers, [match for match in matches if match.doc_id in strangers])
        self.write_rows()

    def strangers_in(self, matches: Iterable[Match]) -> frozenset[str]:
        """Return the ids that are not the batch's."""
        met = list(dict.fromkeys(match.doc_id for match in matches))
        return frozenset(compress(met, (self._doc_ids.find(met) < 0).tolist())) if met else frozenset()

    def _take_group(self, numbers: Sequence[int], others: Sequence[Match]) -> None:
        if not others:
            return
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
