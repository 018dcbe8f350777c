"""What report.html shows, and what deserves a warning. No text is cut here: `report` bounds what it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CLUSTERS_SHOWN = 20  # the largest ones
MEMBERS_LISTED = 20  # of a cluster; the rest is counted
DIFFS_SHOWN = 2  # of a cluster: its first members that have a text
TEXT_CHARS = 20_000  # of a text that are compared

GIANT_CLUSTER = 100  # documents, and
GIANT_CLUSTER_SHARE = 0.01  # of all documents, at least: one cluster that deserves a look
HOT_FINGERPRINT = 100  # equal documents, and
HOT_FINGERPRINT_SHARE = 0.01
MANY_SHORT = 10  # documents too short for a fingerprint, and
MANY_SHORT_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Member:
    """A dropped document of a cluster."""

    doc_id: str
    distance: int  # to the kept document, bits
    text: str | None = None  # None: not at hand


@dataclass(frozen=True, slots=True)
class ReportCluster:
    """A cluster of two documents or more; of the dropped ones MEMBERS_LISTED do as `members`, the farthest first.

    Texts of the kept document and of the first DIFFS_SHOWN members do, and of these the first TEXT_CHARS.
    """

    cluster: str
    size: int  # documents, the kept one included
    diameter: int  # the greatest distance between two of them, bits
    kept_id: str
    members: tuple[Member, ...]
    kept_text: str | None = None


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
    distances: Mapping[int, int]  # distance, bits → pairs
    notices: tuple[Notice, ...]
    clusters: tuple[ReportCluster, ...]  # the largest first; CLUSTERS_SHOWN of them do
    clusters_file: str = "the clusters table"  # where the rest is
    texts_missing: str = ""  # why texts are not at hand, where they are not: a sentence


def find_notices(totals: Totals, largest: ReportCluster | None, hottest: tuple[int, int]) -> tuple[Notice, ...]:
    """Return what deserves a warning; `hottest` is the most frequent fingerprint and its number of documents."""
    found = (_giant(totals, largest), _hot(totals, *hottest), _many_short(totals))
    return tuple(notice for notice in found if notice)


def _giant(totals: Totals, largest: ReportCluster | None) -> Notice | None:
    if largest is None or not largest.diameter:  # equal ones alone: a hot fingerprint
        return None
    if not _is_much(largest.size, GIANT_CLUSTER, GIANT_CLUSTER_SHARE, totals):
        return None
    return Notice(
        "Giant cluster",
        f"{_counted(largest.size, totals)} are in the largest cluster, whose diameter is {largest.diameter} bits. "
        "Compare its texts below before you drop them: pages made from one template, or a chain of small changes, "
        "can fall together. A smaller --max-distance keeps more of them apart.",
    )


def _hot(totals: Totals, fingerprint: int, documents: int) -> Notice | None:
    if not _is_much(documents, HOT_FINGERPRINT, HOT_FINGERPRINT_SHARE, totals):
        return None
    return Notice(
        "Hot fingerprint",
        f"{_counted(documents, totals)} have the fingerprint {fingerprint:016x}: "
        "often an error page, a login page or an empty template that was stored under many ids.",
    )


def _many_short(totals: Totals) -> Notice | None:
    if not _is_much(totals.short, MANY_SHORT, MANY_SHORT_SHARE, totals):
        return None
    return Notice(
        "Many short texts",
        f"{_counted(totals.short, totals)} are too short for a fingerprint. They are kept, and none was compared: "
        "short.jsonl lists them. See that the text is read from the right field.",
    )


def _is_much(count: int, least: int, share: float, totals: Totals) -> bool:
    return count >= least and count >= share * totals.documents


def _counted(count: int, totals: Totals) -> str:
    return f"{count:,} of {totals.documents:,} documents ({_share(count, totals.documents):.1%})"


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
