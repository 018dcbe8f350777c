"""The data of report.html, the warnings, and the rendered page.

The page is one file without scripts or external resources. Its size does not grow with the documents. The template
engine escapes every value; characters that could disturb the text around them are shown by number. The data hold
whole names: the page shortens what it prints.
"""

from __future__ import annotations

import math
import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from hsimhash.dedup.word_diff import Comparison, IdPart, id_parts, shortened

if TYPE_CHECKING:
    from jinja2 import Environment
    from jinja2.bccache import Bucket

CLUSTERS_SHOWN = 20  # those with a warning, the largest ones, and the least alike
LARGEST_SHOWN = 5  # of them
MEMBERS_LISTED = 20  # of a cluster; the rest is counted
MEMBERS_OPEN = 6  # a longer list of members is folded
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
    """Two documents, and the differences of their texts."""

    left: str  # the id of one; in a cluster, of the kept document
    right: str
    distance: int  # bits
    comparison: Comparison | None = None  # None: a text is not at hand, or they are too long together

    @property
    def equal_words(self) -> float | None:
        """The share of equal words, to four places, rounded down: 1 only where all are equal."""
        return math.floor(self.comparison.equal_share * 10_000) / 10_000 if self.comparison else None

    def has_changes_of(self, other: ShownPair) -> bool:
        """Whether it shows exactly the same changed passages as another pair."""
        mine, others = self.comparison, other.comparison
        return mine is not None and others is not None and mine.passages == others.passages


@dataclass(frozen=True, slots=True)
class ReportCluster:
    """A cluster of two or more documents; `members` has MEMBERS_LISTED of the dropped ones, the least alike first."""

    kept_id: str
    size: int  # documents, the kept one included
    diameter: int  # the greatest distance between two of them, bits
    members: tuple[tuple[str, int], ...] = ()  # id, distance to the kept document
    pairs: tuple[ShownPair, ...] = ()  # the kept document and one of the first members, the least alike first
    first_line: str = ""  # of the kept document's text, where it is at hand

    @property
    def equal_words(self) -> float | None:
        """The smallest share of equal words among its pairs; None if no texts were compared."""
        return min((share for pair in self.pairs if (share := pair.equal_words) is not None), default=None)

    @property
    def share_by_id(self) -> dict[str, float]:
        """The share of equal words of each dropped document that was compared with the kept one."""
        return {pair.right: share for pair in self.pairs if (share := pair.equal_words) is not None}


@dataclass(frozen=True, slots=True)
class Distance:
    """The pairs of one distance that it found; of equal documents each counts once, with the first of them."""

    bits: int  # the distance
    pairs: int  # how many there are
    is_within: bool = True  # whether such a pair was searched for, and its documents are near
    shown: tuple[ShownPair, ...] = ()  # some of them


@dataclass(frozen=True, slots=True)
class Retry:
    """The same run with another distance."""

    bits: int
    command: str  # for a shell; empty: it cannot be pasted


@dataclass(frozen=True, slots=True)
class DedupCommands:
    """Commands that the reader of a report may want to run next."""

    more: Retry | None = None  # finds more; None: there is no greater distance
    fewer: Retry | None = None
    apply: str = ""  # writes the documents that are kept; empty: `apply` cannot copy such inputs
    has_short_url: bool = False  # whether the commands lack a part of a URL that may be secret


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of documents, except for clusters and pairs, and `rejected` and `repeated`, which count records."""

    documents: int  # read, rejects not included
    dropped: int
    clusters: int  # of two documents or more
    equal: int  # have the fingerprint of an earlier document, and its sketch and key
    short: int  # too short for a fingerprint; kept
    rejected: int
    matched: int | None = None  # have a match in the stored index; None: there was no index to compare with
    largest_cluster: int = 0
    pairs: int = 0
    by_key: int | None = None  # of these, found by their key alone; None: the profile makes fingerprints alone
    unconfirmed: int | None = None  # more pairs, which are not near because their sketches differ; None: not counted
    exact: int = 0  # so short that only equal texts match
    repeated: int = 0  # records that repeat an earlier one
    split: int = 0  # components that were larger than allowed, and were cut into stars

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if not self.documents:
            return "No documents were read"
        read = f"{_plural(self.documents, 'document')}:"
        if not self.dropped:
            return f"{read} no near-duplicates found"
        dropped = f"{_plural(self.dropped, 'near-duplicate')} dropped in {_plural(self.clusters, 'cluster')}"
        return f"{read} {self.kept:,} kept, {dropped}"

    @property
    def kept(self) -> int:
        """Documents that are not dropped."""
        return self.documents - self.dropped

    @property
    def by_distance(self) -> int | None:
        """The pairs within the distance; None if all pairs are."""
        return None if self.by_key is None else self.pairs - self.by_key

    @property
    def reduction(self) -> float:
        """The dropped share of the documents, 0 to 1."""
        return round(self.dropped / max(1, self.documents), 6)

    @property
    def large_size(self) -> float:
        """From how many documents on a cluster or a repeated fingerprint deserves a look."""
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
    """A warning: the problem, and what to do about it."""

    title: str
    detail: str


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the report shows."""

    inputs: tuple[str, ...]  # names, as given
    newest_input: str  # when the newest input file was changed; empty: not known. The report reads no clock
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
    commands: DedupCommands = DedupCommands()


def find_notices(
    totals: Totals,
    giants: Sequence[ReportCluster],
    hot: Sequence[tuple[int, int]],
    unseen: int = 0,
    reasons: Sequence[str] = (),
) -> tuple[Notice, ...]:
    """Return the warnings of a run.

    Args:
        totals: the counts.
        giants: clusters of `large_size` or more, not of equal documents alone.
        hot: fingerprints of `large_size` or more documents, and how many.
        unseen: documents that are dropped by key alone, although the texts could not be compared.
        reasons: why not.
    """

    def counted(count: int) -> str:
        return f"{count:,} of {totals.documents:,} documents ({count / totals.documents:.1%})"

    notices = [
        Notice(
            "Giant cluster",
            f"{counted(one.size)} are in the cluster of {one.kept_id!r:.200}; some are {plural_bits(one.diameter)} "
            "apart. Read its texts below before you drop them: pages made from one template, or a chain of small "
            "changes, can end up in one cluster. A smaller --distance keeps more of them apart.",
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
            f"{counted(totals.short)} are too short for a fingerprint. They were kept without a comparison; "
            "short.jsonl lists them. Check that hsimhash reads the text from the right field (--text-field)."
        )
        notices.append(Notice("Many short texts", detail))
    if unseen:
        more = [f"{len(reasons) - INPUTS_NAMED:,} more inputs"] if len(reasons) > INPUTS_NAMED else []
        detail = (
            f"{counted(unseen)} were dropped by their key, and their texts could not be compared with those kept: "
            f"{'; '.join([*reasons[:INPUTS_NAMED], *more])}. Sketches decided, which are estimates: some of these "
            "documents may share less than half of their text with the one kept."
        )
        notices.append(Notice("Texts not compared", detail))
    return tuple(notices)


def write_report(file: TextIO, data: ReportData) -> None:
    """Write the report to a file opened as UTF-8; the same data give the same bytes."""
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
    """Return the template environment for pages of a part of the package; it has the report's templates too."""
    # Only here, because the import takes 20 ms and most tasks do not need it.
    from jinja2 import ChoiceLoader, Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined

    class CompiledTemplates(FileSystemBytecodeCache):
        """Compiled templates beside the compiled modules: compiling takes 60 ms each time."""

        def dump_bytecode(self, bucket: Bucket) -> None:
            if not sys.dont_write_bytecode:
                with suppress(OSError):  # an installation that this user cannot write to
                    super().dump_bytecode(bucket)

    environment = Environment(
        bytecode_cache=CompiledTemplates(str(Path(__file__).with_name("__pycache__"))),
        loader=ChoiceLoader([PackageLoader("hsimhash", folder) for folder in dict.fromkeys((part, "dedup"))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters.update(
        bits=plural_bits, cut=_cut, greatest=_greatest, marked=_marked, percent=_percent, plural=_plural, shares=_shares
    )
    environment.tests["link"] = _is_link
    return environment


class _Bars(NamedTuple):
    """A row of a chart."""

    label: str
    counts: tuple[int, ...]


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


def _marked(doc_id: str, other: str | None = None) -> list[IdPart]:
    """Return an id in pieces, marked where it differs from another one; a long id is shortened."""
    parts = [shortened(part) for part in id_parts(doc_id, doc_id if other is None else other)]
    if len(parts) == 1 or sum(len(part.text) for part in parts) > 2 * ID_CHARS:
        return [IdPart(_cut(doc_id), False)]
    return parts


def plural_bits(distance: int) -> str:
    """Return a distance as text: `1 bit`, `3 bits`."""
    return _plural(distance, "bit")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _percent(share: float) -> str:
    """Return a share with one decimal, rounded down: 100% only where all is equal."""
    return "100%" if share == 1 else f"{math.floor(1000 * share) / 10:.1f}%"


def _shares(pairs: Sequence[ShownPair]) -> str:
    """Return the range of the shares of equal words of pairs; nothing if no texts were compared."""
    found = sorted(share for pair in pairs if (share := pair.equal_words) is not None)
    return "–".join(dict.fromkeys(map(_percent, (found[0], found[-1])))) if found else ""
