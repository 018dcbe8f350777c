"""Write report.html: one file without scripts or references, whose size does not grow with the documents.

Whatever comes from documents is escaped, cut, and shown without the controls that could disturb what is around it.
"""

from __future__ import annotations

import html
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from string import Template
from typing import TextIO

from hsimhash.dedup.report_data import (
    Distance,
    Notice,
    ReportCluster,
    ReportData,
    ShownPair,
    Totals,
)
from hsimhash.dedup.word_diff import Comparison

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
    template = Template((resources.files("hsimhash.dedup") / "report.html").read_text(encoding="utf-8"))
    file.write(template.substitute(title=_title(data), header=_header(data), main="\n".join(_main(data))))


def _main(data: ReportData) -> Iterator[str]:
    yield _totals(data.totals)
    yield _notices(data.notices)
    yield "<h2>How they spread</h2>"
    yield '<div class="charts">'
    yield _chart("Cluster sizes", ("documents in a cluster", "clusters", "documents"), _sizes(data.cluster_sizes))
    yield _chart("Distances", ("distance in bits", "pairs"), _bits(data.distances))
    yield "</div>"
    yield from _distances(data)
    yield from _clusters(data)
    yield from _list(data)


def _title(data: ReportData) -> str:
    names = ", ".join(_text(_cut(name)) for name in data.inputs[:INPUTS_NAMED])
    more = len(data.inputs) - INPUTS_NAMED
    return f"Near-duplicates in {names}" + (f" and {more:,} more" if more > 0 else "")


def _header(data: ReportData) -> str:
    settings = [("date", data.date), *data.settings]
    rows = "\n".join(
        f"<div><dt>{_text(_cut(name))}</dt><dd>{_text(_cut(value))}</dd></div>" for name, value in settings
    )
    return f'<h1>{_title(data)}</h1>\n<dl class="settings">\n{rows}\n</dl>'


def _totals(totals: Totals) -> str:
    tiles = [
        ("Documents", totals.documents, "read"),
        ("Kept", totals.kept, ""),
        ("Dropped", totals.dropped, f"{totals.reduction:.1%} fewer documents"),
        ("Clusters", totals.clusters, "of two or more"),
        ("Equal", totals.equal, "have an earlier one's fingerprint"),
        ("Too short", totals.short, "kept, not compared"),
        ("Rejected", totals.rejects, "records that are no documents"),
    ]
    if totals.matched is not None:
        tiles.insert(4, ("In the index", totals.matched, "match a stored document"))
    rows = "\n".join(
        f'<div class="card"><dt>{name}</dt><dd><strong>{count:,}</strong><span class="faint">{note}</span></dd></div>'
        for name, count, note in tiles
    )
    return f'<dl class="totals">\n{rows}\n</dl>'


def _notices(notices: Sequence[Notice]) -> str:
    if not notices:
        return ""
    cards = "\n".join(
        f'<div class="card notice"><h3>{_text(notice.title)}</h3><p>{_text(notice.detail)}</p></div>'
        for notice in notices
    )
    return f"<h2>Warnings</h2>\n{cards}"


@dataclass(frozen=True, slots=True)
class _Bars:
    """A row of a chart: what is counted, the counts, and whether they are to stand back."""

    label: str
    counts: tuple[int, ...]
    is_faint: bool = False


def _chart(caption: str, axes: tuple[str, ...], rows: Sequence[_Bars]) -> str:
    """Return a table: for each row its counts, and bars whose lengths are in proportion to the greatest of each."""
    if not rows:
        return f'<div class="card"><strong>{caption}</strong><p class="faint">There are none.</p></div>'
    most = [max(counts) for counts in zip(*(row.counts for row in rows), strict=True)]
    body = "\n".join(
        f'<tr class="{"beyond" if row.is_faint else ""}"><th scope="row" class="number">{row.label}</th>'
        + "".join(map(_count, row.counts, most))
        + "</tr>"
        for row in rows
    )
    label, *counted = axes
    heads = f'<th scope="col" class="number">{label}</th>'
    heads += "".join(f'<th scope="col" class="number">{axis}</th><td></td>' for axis in counted)
    return (
        f'<div class="card chart"><table><caption>{caption}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _count(count: int, most: int) -> str:
    bar = f'<span class="bar" style="width:{100 * count / most:.2f}%"></span>' if count else ""
    return f'<td class="number">{count:,}</td><td class="bars">{bar}</td>'


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


def _distances(data: ReportData) -> Iterator[str]:
    """Yield some pairs of each distance."""
    if not any(distance.shown for distance in data.distances):
        return
    yield "<h2>Some pairs at each distance</h2>"
    beyond = [distance for distance in data.distances if not distance.is_within]
    if beyond:
        yield f"<p>{_what_more_would_add(beyond, *data.sampled)}</p>"
    for distance in data.distances:
        yield from _distance(distance)


def _what_more_would_add(beyond: Sequence[Distance], sampled: int, distinct: int) -> str:
    counts = ", ".join(f"{distance.pairs:,} at {_in_bits(distance.bits)}" for distance in beyond)
    how = "all were counted" if sampled == distinct else f"estimated from {sampled:,} of {distinct:,} fingerprints"
    return (
        f"A greater --max-distance would add these pairs of different fingerprints: {counts} ({how}). "
        "Open a distance to see whether its pairs are what you would call duplicates."
    )


def _distance(distance: Distance) -> Iterator[str]:
    if not distance.shown:
        return
    pairs = "1 pair" if distance.pairs == 1 else f"{distance.pairs:,} pairs"
    beyond = "" if distance.is_within else ", beyond --max-distance"
    yield '<details class="card">'
    yield (
        f'<summary><b>{_in_bits(distance.bits)}</b> <span class="faint">· {pairs}{beyond}'
        f"{_shares(distance.shown)}</span></summary>"
    )
    for pair in distance.shown:
        yield from _pair(pair, ("one", "other"))
    yield "</details>"


def _shares(pairs: Sequence[ShownPair]) -> str:
    """Return the share of equal words in pairs, from the least to the greatest."""
    shares = sorted(pair.comparison.equal_share for pair in pairs if pair.comparison is not None)
    if not shares:
        return ""
    least, most = _percent(shares[0]), _percent(shares[-1])
    return f" · {least if least == most else f'{least} to {most}'} of the words equal in those below"


def _clusters(data: ReportData) -> Iterator[str]:
    if not data.clusters:
        return
    yield "<h2>The largest clusters</h2>"
    if data.texts_missing:
        yield f'<p class="faint">{_text(data.texts_missing)}</p>'
    for number, cluster in enumerate(data.clusters):
        yield from _cluster(cluster, data, is_open=number == 0)


def _cluster(cluster: ReportCluster, data: ReportData, *, is_open: bool) -> Iterator[str]:
    yield f'<details class="card"{" open" if is_open else ""}>'
    yield (
        f'<summary><bdi>{_text(_cut(cluster.kept_id))}</bdi> <span class="faint">· {cluster.size:,} documents · '
        f"diameter {_in_bits(cluster.diameter)}</span></summary>"
    )
    yield _members(cluster, data.clusters_file)
    compared = [pair for pair in cluster.pairs if pair.comparison is not None]
    for pair in compared:
        yield from _pair(pair, ("kept", "dropped"))
    if not compared and not data.texts_missing:
        yield '<p class="faint">The texts of a kept and a dropped document are not at hand, or they are too long.</p>'
    yield "</details>"


def _members(cluster: ReportCluster, file: str) -> str:
    rows = [
        f'<tr class="kept"><td class="label">kept</td><td>{_id(cluster.kept_id)}</td><td class="number">–</td></tr>'
    ]
    rows += [
        f'<tr class="dropped"><td class="label">dropped</td><td>{_id(doc_id)}</td>'
        f'<td class="number">{_in_bits(distance)}</td></tr>'
        for doc_id, distance in cluster.members
    ]
    more = cluster.size - 1 - len(cluster.members)
    return (
        '<table class="members"><thead><tr><th scope="col"></th><th scope="col">document</th>'
        '<th scope="col" class="number">distance</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table>"
        + (f'\n<p class="faint">{more:,} more are in {_text(file)}.</p>' if more > 0 else "")
    )


def _pair(pair: ShownPair, names: tuple[str, str]) -> Iterator[str]:
    """Yield two texts side by side: a row for each passage in which they differ."""
    comparison = pair.comparison
    share = f", {_percent(comparison.equal_share)} of the words equal" if comparison else ""
    yield f"<h3>{names[0].capitalize()} and {names[1]}, {_in_bits(pair.distance)} apart{share}</h3>"
    yield '<div class="pair">'
    for name, doc_id in zip(names, (pair.left, pair.right), strict=True):
        yield f'<p class="{name}"><span class="label">{name}</span> {_id(doc_id)}</p>'
    yield "</div>"
    if comparison:
        yield from _differences(comparison, names)


def _differences(comparison: Comparison, names: tuple[str, str]) -> Iterator[str]:
    left, right = names
    for passage in comparison.passages.shown:
        yield '<div class="pair">'
        yield _side(left, ((part.is_equal, part.left) for part in passage))
        yield _side(right, ((part.is_equal, part.right) for part in passage))
        yield "</div>"
    if comparison.equal_share == 1:
        yield "<p>Both have the same words:</p>"
        yield f'<p class="text faint" lang="" dir="auto">{_text(comparison.opening)}</p>'
    if comparison.passages.hidden:
        yield f'<p class="faint">{comparison.passages.hidden:,} more changes are not shown.</p>'


def _side(name: str, parts: Iterable[tuple[bool, str]]) -> str:
    text = "".join(_text(text) if is_equal else _marked(text) for is_equal, text in parts)
    return f'<p class="text {name}" lang="" dir="auto">{text}</p>'


def _marked(text: str) -> str:
    words = text.strip()
    before, after = text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]
    return f"{before}<mark>{_text(words)}</mark>{after}" if words else text


def _list(data: ReportData) -> Iterator[str]:
    """Yield the clusters, a row each."""
    if not data.listed:
        return
    more = data.totals.clusters - len(data.listed)
    yield "<h2>All clusters</h2>" if more <= 0 else f"<h2>The {len(data.listed):,} largest clusters by name</h2>"
    yield '<details class="card"><summary>Kept documents and their first lines</summary>'
    heads = "".join(f'<th scope="col" class="number">{name}</th>' for name in ("documents", "diameter"))
    yield f'<table class="members list"><thead><tr><th scope="col">kept document</th>{heads}</tr></thead>\n<tbody>'
    for cluster in data.listed:
        line = f'<br><span class="faint" lang="" dir="auto">{_text(cluster.first_line)}</span>'
        yield (
            f"<tr><td>{_id(cluster.kept_id)}{line if cluster.first_line else ''}</td>"
            f'<td class="number">{cluster.size:,}</td><td class="number">{_in_bits(cluster.diameter)}</td></tr>'
        )
    yield "</tbody></table>"
    if more > 0:
        yield f'<p class="faint">{more:,} more clusters are in {_text(data.clusters_file)}.</p>'
    yield "</details>"


def _id(doc_id: str) -> str:
    shown = f"<bdi>{_text(_cut(doc_id))}</bdi>"
    if len(doc_id) > LINK_CHARS or _HIDDEN.search(doc_id) or not _URL.fullmatch(doc_id):
        return shown
    return f'<a href="{html.escape(doc_id)}" rel="noreferrer">{shown}</a>'


def _cut(name: str) -> str:
    half = ID_CHARS // 2
    return name if len(name) <= ID_CHARS else f"{name[:half]} … {name[-half:]}"


def _text(text: str) -> str:
    """Return text as HTML, a run of hidden characters as the number of the first."""
    shown = _HIDDEN.sub(lambda run: f"‹U+{ord(run[0][0]):04X}{'…' if len(run[0]) > 1 else ''}›", text)
    return html.escape(_LONE_MARK.sub("◌", shown))


def _in_bits(distance: int) -> str:
    return f"{distance} bit" if distance == 1 else f"{distance} bits"


def _percent(share: float) -> str:
    """Return a share with one decimal, rounded down: 100.0% only where all is equal."""
    return f"{math.floor(1000 * share) / 10:.1f}%"
