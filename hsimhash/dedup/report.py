"""Write report.html: one file without scripts or references, whose size does not grow with the documents.

The page is report.html.jinja, and its engine escapes whatever is put in. Texts are shown without the controls that
could disturb what is around them.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TextIO

from jinja2 import Environment, PackageLoader, StrictUndefined

from hsimhash.dedup.report_data import Distance, ReportData

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


def write_report(file: TextIO, data: ReportData) -> None:
    """Write the report to a file opened as UTF-8; the same data give the same bytes."""
    page = _environment().get_template("report.html.jinja")
    file.write(
        page.render(
            data=data,
            totals=data.totals,
            sizes=_sizes(data.cluster_sizes),
            bits=_bits(data.distances),
            inputs_named=INPUTS_NAMED,
        )
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hsimhash", "dedup"),
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
