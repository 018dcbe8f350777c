"""What report.html shows, and what deserves a warning. No name is cut here: `report` bounds what it prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hsimhash.dedup.word_diff import Comparison

CLUSTERS_SHOWN = 20  # the largest ones
MEMBERS_LISTED = 20  # of a cluster; the rest is counted
DIFFS_SHOWN = 2  # of a cluster: its first members
CLUSTERS_LISTED = 500  # the largest ones, a line each
PAIRS_SHOWN = 3  # of each distance

NOTICES_SHOWN = 3  # of a kind
GIANT_CLUSTER = 100  # documents, and
GIANT_CLUSTER_SHARE = 0.01  # of all documents, at least: one cluster that deserves a look
HOT_FINGERPRINT = 100  # equal documents, and
HOT_FINGERPRINT_SHARE = 0.01
MANY_SHORT = 10  # documents too short for a fingerprint, and
MANY_SHORT_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class ShownPair:
    """Two documents, and where their texts differ."""

    left: str  # its id; in a cluster the kept document's
    right: str
    distance: int  # bits
    comparison: Comparison | None = None  # None: a text is not at hand, or they are too long together


@dataclass(frozen=True, slots=True)
class ReportCluster:
    """A cluster of two documents or more; of the dropped ones MEMBERS_LISTED do as `members`, the farthest first."""

    kept_id: str
    size: int  # documents, the kept one included
    diameter: int  # the greatest distance between two of them, bits
    members: tuple[tuple[str, int], ...] = ()  # id, distance to the kept document
    pairs: tuple[ShownPair, ...] = ()  # the kept document and one of the first members
    first_line: str = ""  # of the kept document's text, where it is at hand


@dataclass(frozen=True, slots=True)
class Distance:
    """The pairs of one distance; of equal documents each counts once, with the first of them.

    Args:
        bits: the distance.
        pairs: how many there are.
        is_within: whether such a pair was searched for, and its documents are near.
        shown: some of them.
    """

    bits: int
    pairs: int
    is_within: bool = True
    shown: tuple[ShownPair, ...] = ()


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of documents, but for clusters and rejects (input records)."""

    documents: int  # read, rejects not included
    dropped: int
    clusters: int  # of two documents or more
    equal: int  # have the fingerprint of an earlier document
    short: int  # too short for a fingerprint; kept
    rejects: int
    matched: int | None = None  # have a match in the stored index; None: there was none to compare with

    @property
    def kept(self) -> int:
        """Documents that are not dropped."""
        return self.documents - self.dropped

    @property
    def reduction(self) -> float:
        """The dropped share of the documents, 0 to 1."""
        return _share(self.dropped, self.documents)


@dataclass(frozen=True, slots=True)
class Notice:
    """A warning: what is odd, and what to do about it."""

    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReportData:
    """All that the report shows."""

    inputs: tuple[str, ...]  # names, as given
    date: str  # as it is to be shown; the report reads no clock
    settings: tuple[tuple[str, str], ...]  # (name, value), such as ("layout", "10"), in the order to show
    totals: Totals
    cluster_sizes: Mapping[int, int]  # size (2 and up) → clusters
    distances: tuple[Distance, ...]  # from 0 bits on without a gap, also those just beyond the one searched for
    sampled: tuple[int, int]  # fingerprints from which pairs beyond that distance were counted, and all there are
    notices: tuple[Notice, ...]
    clusters: tuple[ReportCluster, ...]  # those to show, with members and pairs
    listed: tuple[ReportCluster, ...]  # CLUSTERS_LISTED of them do, the largest first
    clusters_file: str = "the clusters table"  # where the rest is
    texts_missing: str = ""  # why texts are not at hand, where they are not: a sentence


def giant_size(totals: Totals) -> float:
    """Return the least size of a cluster, not of equal documents alone, that deserves a look."""
    return _much(GIANT_CLUSTER, GIANT_CLUSTER_SHARE, totals)


def hot_size(totals: Totals) -> float:
    """Return the least number of documents that have one fingerprint which deserves a look."""
    return _much(HOT_FINGERPRINT, HOT_FINGERPRINT_SHARE, totals)


def find_notices(totals: Totals, giants: Sequence[ReportCluster], hot: Sequence[tuple[int, int]]) -> tuple[Notice, ...]:
    """Return what deserves a warning.

    Args:
        totals: the counts.
        giants: clusters of `giant_size` or more.
        hot: fingerprints of `hot_size` or more documents, and how many.
    """
    notices = [
        *(_giant(totals, cluster) for cluster in giants),
        *(_hot(totals, fingerprint, documents) for fingerprint, documents in hot),
    ]
    if totals.short >= _much(MANY_SHORT, MANY_SHORT_SHARE, totals):
        notices.append(_many_short(totals))
    return tuple(notices)


def _giant(totals: Totals, cluster: ReportCluster) -> Notice:
    return Notice(
        "Giant cluster",
        f"{_counted(cluster.size, totals)} are in the cluster of {cluster.kept_id!r:.200}, whose diameter is "
        f"{cluster.diameter} bits. Compare its texts in the report before you drop them: pages made from one template, "
        "or a chain of small changes, can fall together. A smaller --max-distance keeps more of them apart.",
    )


def _hot(totals: Totals, fingerprint: int, documents: int) -> Notice:
    return Notice(
        "Hot fingerprint",
        f"{_counted(documents, totals)} have the fingerprint {fingerprint:016x}: "
        "often an error page, a login page or an empty template that was stored under many ids.",
    )


def _many_short(totals: Totals) -> Notice:
    return Notice(
        "Many short texts",
        f"{_counted(totals.short, totals)} are too short for a fingerprint. They are kept, and none was compared: "
        "short.jsonl lists them. See that the text is read from the right field.",
    )


def _much(least: int, share: float, totals: Totals) -> float:
    return max(least, share * totals.documents)


def _counted(count: int, totals: Totals) -> str:
    return f"{count:,} of {totals.documents:,} documents ({_share(count, totals.documents):.1%})"


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
