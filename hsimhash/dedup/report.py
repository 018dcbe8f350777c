"""Write report.html: one file without scripts or references, whose size does not grow with the documents.

Whatever comes from documents is escaped, cut, and shown without the controls that could disturb what is around it.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from itertools import pairwise
from string import Template
from typing import TextIO

from hsimhash.dedup.report_data import (
    CLUSTERS_SHOWN,
    DIFFS_SHOWN,
    MEMBERS_LISTED,
    TEXT_CHARS,
    Member,
    Notice,
    ReportCluster,
    ReportData,
    Totals,
)
from hsimhash.dedup.word_diff import passages, stretches

INPUTS_NAMED = 3
ID_CHARS = 200  # of an id or a name; of a longer one the beginning and the end
OPENING_CHARS = 300  # shown of two texts that have the same words

_SIZE_STEPS = (1, 2, 5)  # sizes are counted together from each of these times a power of ten on

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
    yield _chart("Cluster sizes", ("documents in a cluster", "clusters"), _sizes(data.cluster_sizes))
    yield _chart("Distances", ("distance in bits", "pairs"), _bits(data.distances))
    yield "</div>"
    yield from _clusters(data)


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


def _chart(caption: str, axes: tuple[str, str], bars: Sequence[tuple[str, int]]) -> str:
    """Return a table of bars: a row for each, its count and its length in proportion to the greatest."""
    if not bars:
        return f'<div class="card"><strong>{caption}</strong><p class="faint">There are none.</p></div>'
    most = max(count for _, count in bars)
    rows = "\n".join(
        f'<tr><th scope="row" class="number">{label}</th><td class="number">{count:,}</td>'
        f"<td>{_bar(count, most)}</td></tr>"
        for label, count in bars
    )
    heads = "".join(f'<th scope="col" class="number">{axis}</th>' for axis in axes)
    return (
        f'<div class="card chart"><table><caption>{caption}</caption>\n'
        f"<thead><tr>{heads}<td></td></tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _bar(count: int, most: int) -> str:
    return f'<span class="bar" style="width:{100 * count / most:.2f}%"></span>' if count else ""


def _sizes(clusters: Mapping[int, int]) -> list[tuple[str, int]]:
    """Return (sizes, clusters) up to the greatest size: 2, 3, 4, 5–9, 10–19, 20–49, …."""
    if not clusters:
        return []
    starts = [2, 3, 4, 5]
    while starts[-1] <= max(clusters):
        starts += [step * 10 ** (len(starts) // 3) for step in _SIZE_STEPS]
    counts: Counter[int] = Counter()
    for size, count in clusters.items():
        counts[bisect_right(starts, size) - 1] += count
    return [
        (str(start) if stop == start + 1 else f"{start:,}–{stop - 1:,}", counts[number])
        for number, (start, stop) in enumerate(pairwise(starts))
        if number <= max(counts)
    ]


def _bits(pairs: Mapping[int, int]) -> list[tuple[str, int]]:
    return [(str(bits), pairs.get(bits, 0)) for bits in range(max(pairs) + 1)] if pairs else []


def _clusters(data: ReportData) -> Iterator[str]:
    shown = data.clusters[:CLUSTERS_SHOWN]
    if not shown:
        return
    yield "<h2>The largest clusters</h2>"
    if data.texts_missing:
        yield f'<p class="faint">{_text(data.texts_missing)}</p>'
    for number, cluster in enumerate(shown):
        yield from _cluster(cluster, data, is_open=number == 0)
    more = data.totals.clusters - len(shown)
    if more > 0:
        yield f'<p class="faint">{more:,} more clusters are in {_text(data.clusters_file)}.</p>'


def _cluster(cluster: ReportCluster, data: ReportData, *, is_open: bool) -> Iterator[str]:
    yield f'<details class="card"{" open" if is_open else ""}>'
    yield (
        f'<summary>{_id(cluster.cluster)} <span class="faint">· {cluster.size:,} documents · '
        f"diameter {_in_bits(cluster.diameter)}</span></summary>"
    )
    yield _members(cluster, data.clusters_file)
    pairs = [(cluster.kept_text, member, member.text) for member in cluster.members]
    readable = [(kept, member, dropped) for kept, member, dropped in pairs if kept is not None and dropped is not None]
    for kept, member, dropped in readable[:DIFFS_SHOWN]:
        yield from _pair(cluster.kept_id, member, kept, dropped)
    if not readable and not data.texts_missing:
        yield '<p class="faint">The input does not hold the texts of both a kept and a dropped document.</p>'
    yield "</details>"


def _members(cluster: ReportCluster, file: str) -> str:
    listed = cluster.members[:MEMBERS_LISTED]
    rows = [
        f'<tr class="kept"><td class="label">kept</td><td>{_id(cluster.kept_id)}</td><td class="number">–</td></tr>'
    ]
    rows += [
        f'<tr class="dropped"><td class="label">dropped</td><td>{_id(member.doc_id)}</td>'
        f'<td class="number">{_in_bits(member.distance)}</td></tr>'
        for member in listed
    ]
    more = cluster.size - 1 - len(listed)
    return (
        '<table class="members"><thead><tr><th scope="col"></th><th scope="col">document</th>'
        '<th scope="col" class="number">distance</th></tr></thead>\n<tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table>"
        + (f'\n<p class="faint">{more:,} more are in {_text(file)}.</p>' if more > 0 else "")
    )


def _pair(kept_id: str, member: Member, kept: str, dropped: str) -> Iterator[str]:
    """Yield two texts side by side: a row for each passage in which they differ."""
    yield f"<h3>Kept and dropped, {_in_bits(member.distance)} apart</h3>"
    yield '<div class="pair">'
    yield f'<p class="kept"><span class="label">kept</span> {_id(kept_id)}</p>'
    yield f'<p class="dropped"><span class="label">dropped</span> {_id(member.doc_id)}</p>'
    yield "</div>"
    found = stretches(kept[:TEXT_CHARS], dropped[:TEXT_CHARS])
    is_same = all(stretch.is_equal for stretch in found)
    cut = passages(found)
    for passage in () if is_same else cut.shown:
        yield '<div class="pair">'
        yield f'<p class="kept" lang="" dir="auto">{_side((part.is_equal, part.left) for part in passage)}</p>'
        yield f'<p class="dropped" lang="" dir="auto">{_side((part.is_equal, part.right) for part in passage)}</p>'
        yield "</div>"
    if is_same:
        yield f'<p>Both have the same words:</p>\n<p class="faint" lang="" dir="auto">{_text(_opening(kept))}</p>'
    yield from _left_out(cut.hidden, kept, dropped)


def _left_out(hidden: int, *texts: str) -> Iterator[str]:
    notes = []
    if hidden:
        notes.append(f"{hidden:,} more changes are not shown.")
    if any(len(text) >= TEXT_CHARS for text in texts):
        notes.append(f"Only the first {TEXT_CHARS:,} characters were compared.")
    if notes:
        yield f'<p class="faint">{" ".join(notes)}</p>'


def _side(parts: Iterable[tuple[bool, str]]) -> str:
    return "".join(_text(text) if is_equal else _marked(text) for is_equal, text in parts)


def _marked(text: str) -> str:
    words = text.strip()
    before, after = (" " if blank else "" for blank in (text[:1].isspace(), text[-1:].isspace()))
    return f"{before}<mark>{_text(words)}</mark>{after}" if words else text


def _opening(text: str) -> str:
    return " ".join(text[:OPENING_CHARS].split()) + (" …" if len(text) > OPENING_CHARS else "")


def _id(doc_id: str) -> str:
    return f"<bdi>{_text(_cut(doc_id))}</bdi>"


def _cut(name: str) -> str:
    half = ID_CHARS // 2
    return name if len(name) <= ID_CHARS else f"{name[:half]} … {name[-half:]}"


def _text(text: str) -> str:
    """Return text as HTML, a run of hidden characters as the number of the first."""
    shown = _HIDDEN.sub(lambda run: f"‹U+{ord(run[0][0]):04X}{'…' if len(run[0]) > 1 else ''}›", text)
    return html.escape(_LONE_MARK.sub("◌", shown))


def _in_bits(distance: int) -> str:
    return f"{distance} bit" if distance == 1 else f"{distance} bits"
