"""What report.html shows, what deserves a warning, and the page.

It is one file without scripts or references, whose size does not grow with the documents. The engine of
report.html.jinja escapes whatever is put in; texts are shown without the controls that could disturb what is around
them. No name is cut in the data: the page bounds what it prints.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TextIO

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hsimhash.dedup.word_diff import Comparison

CLUSTERS_SHOWN = 20  # the largest ones
MEMBERS_LISTED = 20  # of a cluster; the rest is counted
DIFFS_SHOWN = 2  # of a cluster: its first members
CLUSTERS_LISTED = 500  # the largest ones, a line each
PAIRS_SHOWN = 3  # of each distance

NOTICES_SHOWN = 3  # of a kind
LARGE = 100  # documents, and
LARGE_SHARE = 0.01  # of all documents, at least: one cluster or fingerprint that deserves a look
MANY_SHORT = 10  # documents too short for a fingerprint, and
MANY_SHORT_SHARE = 0.05

INPUTS_NAMED = 3
ID_CHARS = 200  # of an id or a name; of a longer one the beginning and the end
LINK_CHARS = 500  # of an id that is a link

_SIZE_STEPS = (1, 2, 5)  # sizes are counted together from each of these times a power of ten on

# An id that is a link; what is to be shown by number is none.
_URL = re.compile('https?://[^\\s\\\\<>"]+', re.ASCII | re.IGNORECASE)
# Controls, what reverses or hides the text around it, and what UTF-8 cannot say; fixed here, as Unicode tables are not.
_HIDDEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f"
    "\\ud800-\\udfff\\ufeff\\ufff0-\\ufffb\\ufffe\\uffff\\U000e0000-\\U000e007f]+"
)
_LONE_MARK = re.compile(
    "^(?=[\\u0300-\\u036f\\u0483-\\u0489\\u0591-\\u05bd\\u064b-\\u065f\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u20d0-\\u20ff"
    "\\u3099\\u309a\\ufe00-\\ufe0f\\ufe20-\\ufe2f])"
)


@dataclass(frozen=True, slots=True)
class ShownPair:
    """Two documents, and where their texts differ."""

    left: str  # its id; in a cluster the kept document's
    right: str
    distance: int  # bits
    comparison: Comparison | None = None  # None: a text is not at hand, or they are too long together

    @property
    def equal_words(self) -> float | None:
        """The share of equal words, to four places, rounded down: 1 only where all are equal."""
        return math.floor(self.comparison.equal_share * 10_000) / 10_000 if self.comparison else None


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
    """The pairs of one distance that it found; of equal documents each counts once, with the first of them."""

    bits: int  # the distance
    pairs: int  # how many there are
    is_within: bool = True  # whether such a pair was searched for, and its documents are near
    shown: tuple[ShownPair, ...] = ()  # some of them


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of documents, but for clusters and pairs, and for `rejected` and `repeated`, which are of records."""

    documents: int  # read, rejects not included
    dropped: int
    clusters: int  # of two documents or more
    equal: int  # have the fingerprint of an earlier document, and its sketch and key
    short: int  # too short for a fingerprint; kept
    rejected: int
    matched: int | None = None  # have a match in the stored index; None: there was none to compare with
    largest_cluster: int = 0
    pairs: int = 0
    by_key: int | None = None  # of these, farther apart than searched for, with the same key; None: fingerprints alone
    unconfirmed: int | None = None  # further pairs, not near, for their sketches differ; None: likewise
    exact: int = 0  # too short for a vote
    repeated: int = 0  # say again what one before said
    split: int = 0  # components that were larger than allowed and were cut into stars

    @property
    def kept(self) -> int:
        """Documents that are not dropped."""
        return self.documents - self.dropped

    @property
    def by_distance(self) -> int | None:
        """The pairs within the distance; None where all are."""
        return None if self.by_key is None else self.pairs - self.by_key

    @property
    def reduction(self) -> float:
        """The dropped share of the documents, 0 to 1."""
        return round(self.dropped / max(1, self.documents), 6)

    @property
    def large_size(self) -> float:
        """The least number of documents, in a cluster or with one fingerprint, that deserves a look."""
        return max(LARGE, LARGE_SHARE * self.documents)

    def to_json(self) -> dict[str, object]:
        """Return the counts as `stats.json` has them."""
        shares = ("documents", "kept", "dropped", "reduction", "clusters", "largest_cluster", "pairs", "equal")
        names = (
            *shares,
            "by_distance",
            "by_key",
            "unconfirmed",
            "matched",
            "short",
            "exact",
            "rejected",
            "repeated",
            "split",
        )
        return {name: count for name in names if (count := getattr(self, name)) is not None}


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
    sampled: tuple[int, int]  # of how many the pairs beyond that distance were counted, and how many there are
    notices: tuple[Notice, ...]
    clusters: tuple[ReportCluster, ...]  # those to show, with members and pairs
    listed: tuple[ReportCluster, ...]  # CLUSTERS_LISTED of them do, the largest first
    clusters_file: str = "the clusters table"  # where the rest is
    keyed: tuple[ShownPair, ...] = ()  # some pairs found by their key
    texts_missing: str = ""  # why texts are not at hand, where they are not: a sentence


def find_notices(totals: Totals, giants: Sequence[ReportCluster], hot: Sequence[tuple[int, int]]) -> tuple[Notice, ...]:
    """Return what deserves a warning.

    Args:
        totals: the counts.
        giants: clusters of `large_size` or more, not of equal documents alone.
        hot: fingerprints of `large_size` or more documents, and how many.
    """

    def counted(count: int) -> str:
        return f"{count:,} of {totals.documents:,} documents ({count / totals.documents:.1%})"

    notices = [
        Notice(
            "Giant cluster",
            f"{counted(one.size)} are in the cluster of {one.kept_id!r:.200}, whose diameter is {one.diameter} bits. "
            "Compare its texts in the report before you drop them: pages made from one template, or a chain of small "
            "changes, can fall together. A smaller --max-distance keeps more of them apart.",
        )
        for one in giants
    ]
    notices += [
        Notice(
            "Hot fingerprint",
            f"{counted(documents)} have the fingerprint {fingerprint:016x}: often an error page, a login page or an "
            "empty template that was stored under many ids.",
        )
        for fingerprint, documents in hot
    ]
    if totals.short >= max(MANY_SHORT, MANY_SHORT_SHARE * totals.documents):
        detail = (
            f"{counted(totals.short)} are too short for a fingerprint. They are kept, and none was compared: "
            "short.jsonl lists them. Check that the text is read from the right field."
        )
        notices.append(Notice("Many short texts", detail))
    return tuple(notices)


def write_report(file: TextIO, data: ReportData) -> None:
    """Write the report to a file opened as UTF-8; the same data give the same bytes."""
    page = page_environment("dedup").get_template("report.html.jinja")
    file.write(
        page.render(
            data=data,
            totals=data.totals,
            sizes=_sizes(data.cluster_sizes),
            bits=_bits(data.distances),
            inputs_named=INPUTS_NAMED,
        )
    )


def page_environment(part: str) -> Environment:
    """Return what makes the pages of a part of the package, of templates there and of the report's."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hsimhash", folder) for folder in dict.fromkeys((part, "dedup"))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters.update(bits=_in_bits, cut=_cut, greatest=_greatest, percent=_percent)
    environment.tests["link"] = _is_link
    return environment


class _Bars(NamedTuple):
    """A row of a chart: what is counted, the counts, and whether they are to stand back."""

    label: str
    counts: tuple[int, ...]
    is_faint: bool = False


def _greatest(rows: Sequence[_Bars]) -> list[int]:
    """Return the greatest count of each column; bars are in proportion to it."""
    return [max(counts) for counts in zip(*(row.counts for row in rows), strict=True)]


def _sizes(clusters: Mapping[int, int]) -> list[_Bars]:
    """Return clusters and their documents by size, up to the greatest: 2, 3, 4, 5–9, 10–19, 20–49, …."""
    if not clusters:
        return []
    starts = [2, 3, 4, 5]
    while starts[-1] <= max(clusters):
        starts += [step * 10 ** (len(starts) // 3) for step in _SIZE_STEPS]
    counts: Counter[int] = Counter()
    documents: Counter[int] = Counter()
    for size, count in clusters.items():
        step = bisect_right(starts, size) - 1
        counts[step] += count
        documents[step] += count * size
    return [
        _Bars(
            str(start) if stop == start + 1 else f"{start:,}–{stop - 1:,}",
            (counts[step], documents[step]),
        )
        for step, (start, stop) in enumerate(pairwise(starts))
        if step <= max(counts)
    ]


def _bits(distances: Sequence[Distance]) -> list[_Bars]:
    if not any(distance.pairs for distance in distances):
        return []
    return [_Bars(str(distance.bits), (distance.pairs,), not distance.is_within) for distance in distances]


def _shown(value: object) -> object:
    """Return a value as the page shows it: a number with commas, a run of hidden characters as the number of the first.

    Text is not escaped here; what is HTML already stays as it is.
    """
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    shown = _HIDDEN.sub(lambda run: f"‹U+{ord(run[0][0]):04X}{'…' if len(run[0]) > 1 else ''}›", value)
    return _LONE_MARK.sub("◌", shown)


def _is_link(doc_id: str) -> bool:
    return len(doc_id) <= LINK_CHARS and not _HIDDEN.search(doc_id) and bool(_URL.fullmatch(doc_id))


def _cut(name: str) -> str:
    half = ID_CHARS // 2
    return name if len(name) <= ID_CHARS else f"{name[:half]} … {name[-half:]}"


def _in_bits(distance: int) -> str:
    return f"{distance} bit" if distance == 1 else f"{distance} bits"


def _percent(share: float) -> str:
    """Return a share with one decimal, rounded down: 100.0% only where all is equal."""
    return f"{math.floor(1000 * share) / 10:.1f}%"
