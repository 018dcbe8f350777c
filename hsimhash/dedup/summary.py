"""What came of it: the numbers of `stats.json`, and what `report.html` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash.dedup.against import NONE_STORED, Stored
from hsimhash.dedup.documents import Collected
from hsimhash.dedup.grouping import Grouping, names_of
from hsimhash.dedup.report_data import (
    CLUSTERS_SHOWN,
    DIFFS_SHOWN,
    MEMBERS_LISTED,
    TEXT_CHARS,
    Member,
    Notice,
    ReportCluster,
    Totals,
    find_notices,
)
from hsimhash.fingerprint import EXACT, TOO_SHORT
from hsimhash.load.again import texts_at
from hsimhash.load.inputs import Input, InputOptions
from hsimhash.pairs import Pairs

INPUTS_NAMED = 3  # of those whose texts are missing


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that was found; `pairs` are numbered among the comparable documents."""

    documents: Collected
    pairs: Pairs
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

    def notices(self, largest: ReportCluster | None) -> tuple[Notice, ...]:
        """Return what deserves a warning."""
        sizes = np.bincount(self.pairs.groups, minlength=1)
        hottest = int(sizes.argmax())
        among = self.documents.comparable
        fingerprint = int(self.documents.fingerprints[among[hottest]]) if len(among) else 0
        return find_notices(self.totals, largest, (fingerprint, int(sizes[hottest])))

    def largest_clusters(self, texts: Texts) -> tuple[ReportCluster, ...]:
        """Return the largest clusters for the report."""
        return tuple(self._report_cluster(kept, any_one, texts) for kept, any_one in self._largest)

    @cached_property
    def _largest(self) -> list[tuple[int, int]]:
        kept, any_one = self._any_of_clusters
        order = np.lexsort((any_one, -self.grouping.size[any_one]))[:CLUSTERS_SHOWN]
        return list(zip(kept[order].tolist(), any_one[order].tolist(), strict=True))

    @cached_property
    def _listed(self) -> dict[int, list[int]]:
        """What is kept of each of the largest clusters → the dropped documents to list."""
        return {kept: self._farthest(kept) for kept, _ in self._largest}

    def _farthest(self, kept: int) -> list[int]:
        """Return dropped documents of a cluster, the farthest first."""
        grouping = self.grouping
        members = np.flatnonzero((grouping.kept == kept) & ~grouping.is_kept)
        order = np.argsort(-grouping.distance[members].astype(np.int64), kind="stable")
        listed: list[int] = members[order[:MEMBERS_LISTED]].tolist()
        return listed

    def _report_cluster(self, kept: int, any_one: int, texts: Texts) -> ReportCluster:
        grouping = self.grouping
        members = [
            Member(self.names[number], int(grouping.distance[number]), texts.get(number))
            for number in self._listed[kept]
        ]
        return ReportCluster(
            cluster=self.names[int(grouping.cluster[any_one])],
            size=int(grouping.size[any_one]),
            diameter=int(grouping.diameter[any_one]),
            kept_id=self.names[kept],
            members=tuple(members),
            kept_text=texts.get(kept),
        )

    @cached_property
    def shown_numbers(self) -> list[int]:
        """The documents whose texts the report compares."""
        count = len(self.documents.doc_ids)
        shown = [number for kept, _ in self._largest for number in (kept, *self._listed[kept][:DIFFS_SHOWN])]
        return sorted({number for number in shown if number < count})


Texts = Mapping[int, str]


def read_texts(outcome: Outcome, inputs: Sequence[Input], options: InputOptions) -> tuple[Texts, str]:
    """Read the texts for the report from the inputs again; return them by number, and why some are not at hand."""
    documents, texts = outcome.documents, {}
    missing = []
    for at, one in enumerate(inputs):
        if one.is_stream or one.has_fingerprints:
            missing.append(f"{one.name} {'can be read only once' if one.is_stream else 'holds fingerprints alone'}")
            continue
        shown = [number for number in outcome.shown_numbers if documents.inputs[number] == at]
        numbers = {int(documents.lines[number]): number for number in shown}
        try:
            for line, doc_id, text in texts_at(one, options, sorted(numbers)) if numbers else ():
                if documents.doc_ids[numbers[line]] == doc_id:
                    texts[numbers[line]] = text[:TEXT_CHARS]
        except OSError as error:
            missing.append(f"{one.name} cannot be read again: {error.strerror}")
    more = f"; and {len(missing) - INPUTS_NAMED:,} more" if len(missing) > INPUTS_NAMED else ""
    return texts, f"Texts are missing: {'; '.join(missing[:INPUTS_NAMED])}{more}." if missing else ""


def date_of(inputs: Sequence[Input]) -> str:
    """Return when the newest of the files among the inputs was changed; so the same files give the same report."""
    times = []
    for one in inputs:
        with suppress(FileNotFoundError):  # deleted since it was read
            times += [] if one.is_stream else [Path(one.name).stat().st_mtime]
    if not times:
        return "not known: the input was a stream"
    return datetime.fromtimestamp(max(times), UTC).strftime("inputs of %Y-%m-%d %H:%M UTC")
