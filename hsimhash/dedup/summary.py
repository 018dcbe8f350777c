"""What came of it: the numbers of `stats.json`, and what `report.html` shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hsimhash.dedup.against import NONE_STORED, Stored
from hsimhash.dedup.documents import Collected
from hsimhash.dedup.grouping import Grouping, names_of
from hsimhash.dedup.report_data import (
    CLUSTERS_LISTED,
    CLUSTERS_SHOWN,
    DIFFS_SHOWN,
    MEMBERS_LISTED,
    NOTICES_SHOWN,
    PAIRS_SHOWN,
    Distance,
    Notice,
    ReportCluster,
    ShownPair,
    Totals,
    find_notices,
    giant_size,
    hot_size,
)
from hsimhash.dedup.samples import Beyond, find_beyond, some_beyond, some_within
from hsimhash.dedup.texts import Texts
from hsimhash.fingerprint import EXACT, TOO_SHORT
from hsimhash.pairs import Pairs


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that was found; `pairs`, within `max_distance` bits, are numbered among the comparable documents."""

    documents: Collected
    pairs: Pairs
    max_distance: int
    grouping: Grouping
    stored: Stored

    @cached_property
    def names(self) -> Sequence[str]:
        """The ids by number, those of stored documents behind the others."""
        return names_of(self.documents.doc_ids, self.stored)

    @cached_property
    def totals(self) -> Totals:
        """The counts."""
        documents, grouping = self.documents, self.grouping
        return Totals(
            documents=len(documents.doc_ids),
            dropped=int(np.count_nonzero(~grouping.is_kept)),
            clusters=len(self._kept_of_clusters),
            equal=int(np.count_nonzero(self._is_equal)),
            short=int(np.count_nonzero(documents.kinds == TOO_SHORT)),
            rejects=documents.rejected,
            matched=int(np.count_nonzero(self.stored.nearest >= 0)) if self.is_against_stored else None,
        )

    @property
    def is_against_stored(self) -> bool:
        """Whether documents were compared with a stored index."""
        return self.stored is not NONE_STORED

    @cached_property
    def _is_equal(self) -> NDArray[np.bool_]:
        """Which comparable documents have the fingerprint of an earlier one."""
        return np.not_equal(self.pairs.groups, np.arange(len(self.pairs.groups)))

    @cached_property
    def _members(self) -> NDArray[np.int64]:
        """The documents in clusters of two or more."""
        return np.flatnonzero(self.grouping.size > 1)

    @cached_property
    def _kept_of_clusters(self) -> NDArray[np.int64]:
        """What is kept of each cluster of two or more, in order."""
        return self._any_of_clusters[0]

    @cached_property
    def _any_of_clusters(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What is kept of each cluster, and one document of it."""
        kept, first = np.unique(self.grouping.kept[self._members], return_index=True)
        return kept, self._members[first]

    @cached_property
    def cluster_sizes(self) -> dict[int, int]:
        """Size, from 2 on, → clusters."""
        sizes, counts = np.unique(self.grouping.size[self._any_of_clusters[1]], return_counts=True)
        return dict(zip(sizes.tolist(), counts.tolist(), strict=True))

    @cached_property
    def distances(self) -> dict[int, int]:
        """Distance → pairs; of equal documents each counts once, with the first of them."""
        counts = np.bincount(self.pairs.distance, minlength=1)
        counts[0] = self.totals.equal
        return {distance: count for distance, count in enumerate(counts.tolist()) if count}

    @property
    def counts(self) -> dict[str, object]:
        """The counts as JSON values."""
        totals = self.totals
        matched = {} if totals.matched is None else {"matched": totals.matched}
        return {
            "documents": totals.documents,
            "kept": totals.kept,
            "dropped": totals.dropped,
            "reduction": round(totals.reduction, 6),
            "clusters": totals.clusters,
            "largest_cluster": max(self.cluster_sizes, default=0),
            "pairs": sum(self.distances.values()),
            "equal": totals.equal,
            **matched,
            "short": totals.short,
            "exact": int(np.count_nonzero(self.documents.kinds == EXACT)),
            "rejected": totals.rejects,
            "repeated": self.documents.repeated,
            "split": self.grouping.split,
        }

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        """What deserves a warning."""
        sizes = np.bincount(self.pairs.groups, minlength=1)
        hottest = np.argsort(-sizes, kind="stable")[:NOTICES_SHOWN]
        hottest = hottest[sizes[hottest] >= hot_size(self.totals)]
        fingerprints = self.documents.fingerprints[self.documents.comparable[hottest]]
        hot = list(zip(fingerprints.tolist(), sizes[hottest].tolist(), strict=True))
        return find_notices(self.totals, [self._cluster(at) for at in self._giants], hot)

    @cached_property
    def _giants(self) -> list[int]:
        """The clusters to warn of, as places in `_any_of_clusters`, the widest first."""
        _, any_one = self._any_of_clusters
        size, diameter = self.grouping.size[any_one], self.grouping.diameter[any_one].astype(np.int64)
        giants = np.flatnonzero((size >= giant_size(self.totals)) & (diameter > 0))
        order = np.lexsort((any_one[giants], -size[giants], -diameter[giants]))
        numbers: list[int] = giants[order][:NOTICES_SHOWN].tolist()
        return numbers

    @cached_property
    def _listed(self) -> list[int]:
        """The clusters to list, the largest first."""
        _, any_one = self._any_of_clusters
        order: list[int] = np.lexsort((any_one, -self.grouping.size[any_one]))[:CLUSTERS_LISTED].tolist()
        return order

    @cached_property
    def _shown(self) -> dict[int, list[int]]:
        """The clusters to show → dropped documents of each: those to warn of, and the largest."""
        largest = [at for at in self._listed if at not in self._giants]
        shown = [*self._giants, *largest[: CLUSTERS_SHOWN - len(self._giants)]]
        return {at: self._farthest(at) for at in shown}

    def _farthest(self, at: int) -> list[int]:
        """Return dropped documents of a cluster, the farthest first."""
        grouping = self.grouping
        members = np.flatnonzero((grouping.kept == self._kept_of_clusters[at]) & ~grouping.is_kept)
        order = np.argsort(-grouping.distance[members].astype(np.int64), kind="stable")
        farthest: list[int] = members[order[:MEMBERS_LISTED]].tolist()
        return farthest

    def _cluster(self, at: int, texts: Texts | None = None) -> ReportCluster:
        """Return a cluster without its members."""
        kept, any_one = (int(numbers[at]) for numbers in self._any_of_clusters)
        return ReportCluster(
            self.names[kept],
            int(self.grouping.size[any_one]),
            int(self.grouping.diameter[any_one]),
            first_line=texts.first_lines.get(kept, "") if texts else "",
        )

    def shown_clusters(self, texts: Texts) -> tuple[ReportCluster, ...]:
        """Return the clusters to show, with some members and how their texts differ."""
        return tuple(self._with_members(at, members, texts) for at, members in self._shown.items())

    def _with_members(self, at: int, members: Sequence[int], texts: Texts) -> ReportCluster:
        kept = int(self._kept_of_clusters[at])
        distances = self.grouping.distance[members].tolist()
        pairs = zip(members[:DIFFS_SHOWN], distances, strict=False)
        return replace(
            self._cluster(at, texts),
            members=tuple((self.names[number], bits) for number, bits in zip(members, distances, strict=True)),
            pairs=tuple(self._pair(kept, number, bits, texts) for number, bits in pairs),
        )

    def listed_clusters(self, texts: Texts) -> tuple[ReportCluster, ...]:
        """Return the clusters to list."""
        return tuple(self._cluster(at, texts) for at in self._listed)

    @cached_property
    def beyond(self) -> Beyond:
        """The pairs just beyond the distance searched for."""
        fingerprints = self.documents.fingerprints[self.documents.comparable]
        return find_beyond(fingerprints, self.pairs.groups, self.max_distance)

    @cached_property
    def _samples(self) -> dict[int, list[tuple[int, int]]]:
        """Distance → some pairs of documents."""
        within = {bits: some_within(self.pairs, bits, PAIRS_SHOWN) for bits in range(self.max_distance + 1)}
        beyond = {bits: some_beyond(self.beyond, bits, PAIRS_SHOWN) for bits in self.beyond.pairs}
        among = self.documents.comparable
        return {
            bits: [(int(among[left]), int(among[right])) for left, right in couples]
            for bits, couples in {**within, **beyond}.items()
        }

    def sampled_distances(self, texts: Texts) -> tuple[Distance, ...]:
        """Return each distance with its count, and some pairs."""
        counts = {**self.distances, **self.beyond.pairs}
        return tuple(
            Distance(
                bits,
                counts.get(bits, 0),
                bits <= self.max_distance,
                tuple(self._pair(left, right, bits, texts) for left, right in couples),
            )
            for bits, couples in self._samples.items()
        )

    def _pair(self, left: int, right: int, bits: int, texts: Texts) -> ShownPair:
        return texts.pair((left, self.names[left]), (right, self.names[right]), bits)

    @property
    def compared_numbers(self) -> set[int]:
        """The documents whose texts the report compares."""
        kept = self._kept_of_clusters
        shown = {number for at, members in self._shown.items() for number in (int(kept[at]), *members[:DIFFS_SHOWN])}
        shown |= {number for couples in self._samples.values() for couple in couples for number in couple}
        return self._of_inputs(shown)

    @property
    def listed_numbers(self) -> set[int]:
        """The documents whose first lines the report lists."""
        return self._of_inputs(self._kept_of_clusters[self._listed].tolist())

    def _of_inputs(self, numbers: Iterable[int]) -> set[int]:
        count = len(self.documents.doc_ids)
        return {number for number in numbers if number < count}
