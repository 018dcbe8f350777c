"""Define the data of report.html and the warnings, and render the page.

The page is a single file without scripts or external resources. Its size does not grow with the number of documents.
The template engine escapes every value; characters that could disturb the surrounding text are shown as their code
points. The data contains full names, which the page shortens.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TextIO

from hsimhash.dedup.word_diff import Comparison, IdPart, id_parts, shortened
from hsimhash.errors import plural

if TYPE_CHECKING:
    from jinja2 import Environment

CLUSTERS_SHOWN = 20  # clusters with a warning, the largest clusters, and the least similar clusters
LARGEST_SHOWN = 5  # how many of these clusters are shown for their size
MEMBERS_LISTED = 20  # members listed per cluster; more members are only counted
MEMBERS_OPEN = 6  # shorter lists of members are open; all other lists are folded
DIFFS_SHOWN = 2  # members per cluster whose differences are shown
CLUSTERS_LISTED = 500  # largest clusters, listed on one line each
PAIRS_SHOWN = 3  # pairs per distance

NOTICES_SHOWN = 3  # warnings of each kind
# A cluster or a fingerprint gets a warning if it has at least this many documents, and this share of all documents.
LARGE = 100
LARGE_SHARE = 0.01
# There is a warning if at least this many documents, and this share of all documents, are too short.
MANY_SHORT = 10
MANY_SHORT_SHARE = 0.05

INPUTS_NAMED = 3
ID_CHARS = 200  # characters shown of an id or a name; longer ones are cut in the middle
LINK_CHARS = 500  # maximum length of an id that becomes a link

_SIZE_STEPS = (1, 2, 5)  # the bars in the size chart begin at these numbers times powers of ten

# An id that becomes a link. Ids with characters that are shown as code points do not become links.
_URL = re.compile('https?://[^\\s\\\\<>"]+', re.ASCII | re.IGNORECASE)
# Control characters, characters that reverse or hide the surrounding text, and characters that UTF-8 cannot encode.
# They are listed here because Unicode tables change.
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
    """Two documents, and the differences between their texts."""

    left: str  # id of one document; in a cluster, of the kept document
    right: str
    distance: int  # bits
    comparison: Comparison | None = None  # None if a text is not available, or the texts are too long to compare

    @property
    def equal_words(self) -> float | None:
        """The share of equal words, rounded down to four decimal places, so that it is 1 only if all are equal."""
        return math.floor(self.comparison.equal_share * 10_000) / 10_000 if self.comparison else None

    def has_changes_of(self, other: ShownPair) -> bool:
        """Whether this pair has exactly the same changed passages as another pair."""
        mine, others = self.comparison, other.comparison
        return mine is not None and others is not None and mine.passages == others.passages


def telling_pairs(pairs: Sequence[ShownPair]) -> tuple[ShownPair, ...]:
    """Return the pairs of a cluster that show something new, least similar first.

    Equal texts are shown only if the cluster has no other pair. The same change in two documents is shown once.
    """
    told: list[ShownPair] = []
    for pair in sorted(pairs, key=lambda one: 1.0 if one.equal_words is None else one.equal_words):
        is_equal = pair.equal_words == 1
        if not told or not (is_equal or any(pair.has_changes_of(one) for one in told)):
            told.append(pair)
    return tuple(told)


@dataclass(frozen=True, slots=True)
class ReportCluster:
    """A cluster of two or more documents; `members` are up to MEMBERS_LISTED dropped documents, least similar first."""

    kept_id: str
    size: int  # number of documents, including the kept one
    diameter: int  # greatest distance between two of them, in bits
    members: tuple[tuple[str, int], ...] = ()  # (id, distance to the kept document)
    pairs: tuple[ShownPair, ...] = ()  # the kept document with each of the first members
    first_line: str = ""  # first line of the kept document's text, if available

    @property
    def equal_words(self) -> float | None:
        """The smallest share of equal words among the pairs; None if no texts were compared."""
        return min((share for pair in self.pairs if (share := pair.equal_words) is not None), default=None)

    @property
    def telling_pairs(self) -> tuple[ShownPair, ...]:
        """The pairs that show something new; see `telling_pairs`."""
        return telling_pairs(self.pairs)

    @property
    def share_by_id(self) -> dict[str, float]:
        """The share of equal words for each dropped document that was compared with the kept document."""
        return {pair.right: share for pair in self.pairs if (share := pair.equal_words) is not None}


@dataclass(frozen=True, slots=True)
class Distance:
    """The pairs at one distance. Equal documents count once each, paired with the first of them."""

    bits: int  # the distance
    pairs: int  # number of pairs
    is_within: bool = True  # whether the distance is within the limit, so that the documents are near
    shown: tuple[ShownPair, ...] = ()  # some of the pairs


@dataclass(frozen=True, slots=True)
class Retry:
    """The same run with a different distance, or without keys."""

    bits: int
    command: str  # shell command; empty if it cannot be pasted
    change: str  # the options that differ


@dataclass(frozen=True, slots=True)
class DedupCommands:
    """Commands that the reader of a report may want to run next."""

    more: Retry | None = None  # finds more pairs; None if there is no greater distance
    fewer: Retry | None = None
    without_keys: Retry | None = None  # None if the profile cannot be changed, or does not make keys
    apply: str = ""  # writes the kept documents; empty if `apply` cannot copy these inputs
    dropped: str = ""  # lists the dropped files; empty if the inputs are not files with one text each
    has_short_url: bool = False  # whether the commands omit part of a URL because it may be secret


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of documents, except that `rejected` and `repeated` count records, and others count clusters or pairs."""

    documents: int  # documents read, not counting rejects
    dropped: int
    clusters: int  # clusters of two or more documents
    equal: int  # documents with the same fingerprint, sketch and key as an earlier document
    short: int  # documents too short for a fingerprint; they are kept
    rejected: int
    matched: int | None = None  # documents with a match in the stored index; None if there is no index
    largest_cluster: int = 0
    pairs: int = 0
    by_key: int | None = None  # pairs found by key alone; None if the profile makes only fingerprints
    unconfirmed: int | None = None  # further pairs that are not near because their sketches differ; None: unknown
    exact: int = 0  # documents so short that only identical texts match
    repeated: int = 0  # records that repeat an earlier record
    split: int = 0  # components that were larger than allowed and were split into stars

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if not self.documents:
            return "No documents were read"
        read = f"{plural(self.documents, 'document')}:"
        if not self.dropped:
            return f"{read} no near-duplicates found"
        dropped = f"{plural(self.dropped, 'near-duplicate')} dropped in {plural(self.clusters, 'cluster')}"
        return f"{read} {self.kept:,} kept, {dropped}"

    @property
    def kept(self) -> int:
        """The number of documents that are not dropped."""
        return self.documents - self.dropped

    @property
    def by_distance(self) -> int | None:
        """The number of pairs within the distance; None if the profile makes only fingerprints."""
        return None if self.by_key is None else self.pairs - self.by_key

    @property
    def reduction(self) -> float:
        """The dropped share of the documents, 0 to 1."""
        return round(self.dropped / max(1, self.documents), 6)

    @property
    def large_size(self) -> float:
        """The smallest number of documents for which a cluster or a repeated fingerprint gets a warning."""
        return max(LARGE, LARGE_SHARE * self.documents)

    def to_json(self) -> dict[str, object]:
        """Return the counts as in `stats.json`."""
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
    """A warning: the problem, and what to do about it."""

    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the report shows."""

    inputs: tuple[str, ...]  # names, as given
    newest_input: str  # when the newest input file was modified; empty if unknown. The current time is never used
    settings: tuple[tuple[str, str], ...]  # (name, value), such as ("layout", "10"), in the order to show
    totals: Totals
    cluster_sizes: Mapping[int, int]  # size (2 and up) → number of clusters
    distances: tuple[Distance, ...]  # every distance from 0 bits to just beyond the limit
    sampled: tuple[int, int]  # number of signatures sampled to count pairs beyond the limit, and the total
    notices: tuple[Notice, ...]
    clusters: tuple[ReportCluster, ...]  # clusters to show, with members and pairs
    listed: tuple[ReportCluster, ...]  # clusters to list, at most CLUSTERS_LISTED, largest first
    clusters_file: str = "the clusters table"  # file with all clusters
    keyed: tuple[ShownPair, ...] = ()  # some pairs found by their key
    rejected: tuple[str, ...] = ()  # where the first rejected records are
    left_out: int = 0  # number of pairs that the smaller distance in `commands` would leave out
    texts_missing: str = ""  # why some texts are not available, in sentences; empty if all are available
    commands: DedupCommands = DedupCommands()


def find_notices(
    totals: Totals,
    giants: Sequence[ReportCluster],
    hot: Sequence[tuple[int, int]],
    unseen: int = 0,
    reasons: Sequence[str] = (),
) -> tuple[Notice, ...]:
    """Return a run's warnings.

    Args:
        totals: The counts.
        giants: Clusters of `large_size` or more documents that are not all equal.
        hot: Fingerprints of `large_size` or more documents, with the number of documents.
        unseen: Number of documents dropped only by key whose texts could not be compared.
        reasons: Why these texts could not be compared.
    """

    def counted(count: int) -> str:
        return f"{count:,} of {totals.documents:,} documents ({count / totals.documents:.1%})"

    remedy = "A smaller --distance keeps more of them apart."
    if totals.by_key is not None and 2 * totals.by_key > totals.pairs:
        remedy = (
            "Most pairs share a key, whatever their distance: a smaller --max-sketch, or a profile with key=off, keeps "
            "more of them apart."
        )
    notices = [
        Notice(
            "Giant cluster",
            f"{counted(one.size)} are in the cluster of {one.kept_id!r:.200}; some are {plural(one.diameter, 'bit')} "
            "apart. Read the texts below before you drop these documents: pages made from one template, or a chain of "
            f"small changes, can end up in one cluster. {remedy}",
        )
        for one in giants
    ]
    notices += [
        Notice(
            "Hot fingerprint",
            f"{counted(documents)} have the fingerprint {fingerprint:016x}. This is often an error page, a login page "
            "or an empty template stored under many ids.",
        )
        for fingerprint, documents in hot
    ]
    if totals.short >= max(MANY_SHORT, MANY_SHORT_SHARE * totals.documents):
        detail = (
            f"{counted(totals.short)} are too short for a fingerprint. They were kept but not compared; "
            "short.jsonl lists them. Check that hsimhash reads the text from the right field (--text-field)."
        )
        notices.append(Notice("Many short texts", detail))
    if unseen:
        more = [f"{len(reasons) - INPUTS_NAMED:,} more inputs"] if len(reasons) > INPUTS_NAMED else []
        detail = (
            f"{counted(unseen)} were dropped by their key, but their texts could not be compared with the kept texts: "
            f"{'; '.join([*reasons[:INPUTS_NAMED], *more])}. Their sketches were compared instead, which are only "
            "estimates: some of these documents may share less than half of their text with the document kept."
        )
        notices.append(Notice("Texts not compared", detail))
    return tuple(notices)


def write_report(file: TextIO, data: ReportData) -> None:
    """Write the report to a file opened as UTF-8; the same data always yields the same bytes."""
    page = page_environment("dedup").get_template("report.html.jinja")
    file.write(
        page.render(
            data=data,
            totals=data.totals,
            sizes=_sizes(data.cluster_sizes),
            greatest=max((distance.pairs for distance in data.distances), default=0),
            inputs_named=INPUTS_NAMED,
            members_open=MEMBERS_OPEN,
        )
    )


@cache
def page_environment(part: str) -> Environment:
    """Return the template environment for the pages of a subpackage; it also includes the report's templates."""
    # Imported here because the import takes 20 ms and most tasks do not need it.
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    from hsimhash.dedup.template_cache import template_cache

    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hsimhash", folder) for folder in dict.fromkeys((part, "dedup"))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
        bytecode_cache=template_cache(),
    )
    environment.filters.update(
        cut=_cut, greatest=_greatest, marked=_marked, percent=_percent, plural=plural, shares=_shares
    )
    environment.tests["link"] = _is_link
    return environment


class _Bars(NamedTuple):
    """A row of a chart."""

    label: str
    counts: tuple[int, ...]


def _greatest(rows: Sequence[_Bars]) -> list[int]:
    """Return the greatest count in each column, which the longest bar represents."""
    return [max(counts) for counts in zip(*(row.counts for row in rows), strict=True)]


def _sizes(clusters: Mapping[int, int]) -> list[_Bars]:
    """Return the number of clusters and of their documents for each range of sizes: 2, 3, 4, 5–9, 10–19, 20–49, …."""
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


def _shown(value: object) -> object:
    """Return a value as the page shows it: numbers with commas, and runs of hidden characters as the first code point.

    Text is not escaped here, and values that are already HTML are not changed.
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


def _marked(doc_id: str, other: str | None = None) -> list[IdPart]:
    """Return an id in parts, marked where it differs from another id; a long id is shortened."""
    parts = [shortened(part) for part in id_parts(doc_id, doc_id if other is None else other)]
    if len(parts) == 1 or sum(len(part.text) for part in parts) > 2 * ID_CHARS:
        return [IdPart(_cut(doc_id), False)]
    return parts


def _percent(share: float) -> str:
    """Return a share with one decimal place, rounded down, so that it is 100% only if everything is equal."""
    return "100%" if share == 1 else f"{math.floor(1000 * share) / 10:.1f}%"


def _shares(pairs: Sequence[ShownPair]) -> str:
    """Return the range of the pairs' shares of equal words; empty if no texts were compared."""
    found = sorted(share for pair in pairs if (share := pair.equal_words) is not None)
    return "–".join(dict.fromkeys(map(_percent, (found[0], found[-1])))) if found else ""
