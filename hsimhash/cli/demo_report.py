"""What `hsimhash demo` prints: pairs side by side, and how what was found compares with the truth."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hsimhash import sample
from hsimhash.dedup.word_diff import compare
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout

WIDE_LAYOUT = "28"  # the named layout with the greatest k
SHOWN_KINDS = ("edit", "repost", "sentence", "reformat", "mixed")
_LONG = re.compile("(.{40}).+(.{40})")  # an unchanged stretch of which only both ends are shown

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What the index found in the sample, and the truth. Pairs are in the order of the documents."""

    texts: dict[str, str]
    truth: dict[Pair, str]  # pair → kind
    distances: dict[Pair, int]  # of every pair of indexed documents
    found: list[Pair]

    @property
    def right(self) -> list[Pair]:
        """The pairs found that are true."""
        return [pair for pair in self.found if pair in self.truth]

    @property
    def wrong(self) -> list[Pair]:
        """The pairs found that are not."""
        return [pair for pair in self.found if pair not in self.truth]

    @property
    def missed(self) -> list[Pair]:
        """The true pairs not found."""
        found = set(self.found)
        return [pair for pair in self.truth if pair not in found]


def evaluate(index: HSimIndex, texts: dict[str, str]) -> DemoOutcome:
    """Query every document of the sample that is in the index."""
    documents = [document for document in index.get_many(list(texts)) if document is not None]
    ids = [document.doc_id for document in documents]
    fingerprints = np.array([document.fingerprint for document in documents], np.uint64)
    position = {doc_id: number for number, doc_id in enumerate(ids)}
    found = {
        (position[doc_id], position[match.doc_id])
        for doc_id, matches in zip(ids, index.query_many(fingerprints, exclude=ids), strict=True)
        for match in matches
        if position[doc_id] < position[match.doc_id]
    }
    return DemoOutcome(
        texts=texts,
        truth={(first, second): kind for first, second, kind in sample.truth()},
        distances=_all_distances(ids, fingerprints),
        found=[(ids[first], ids[second]) for first, second in sorted(found)],
    )


def _all_distances(ids: Sequence[str], fingerprints: NDArray[np.uint64]) -> dict[Pair, int]:
    first, second = np.triu_indices(len(ids), k=1)
    bits = np.bitwise_count(fingerprints[first] ^ fingerprints[second])
    return {
        (ids[i], ids[j]): distance
        for i, j, distance in zip(first.tolist(), second.tolist(), bits.tolist(), strict=True)
    }


def report(index: HSimIndex, outcome: DemoOutcome, seconds: float) -> None:
    """Print all of it to stdout: plain text where that is no terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    distance = index.layout.max_distance
    console.print(
        f"{len(outcome.texts)} documents, {index.count()} indexed (one is empty); "
        f"layout {index.layout.name}, profile {index.profile.name}; "
        f"{len(outcome.found)} pairs within {distance} bits; {seconds:.1f} s"
    )
    for pair in _shown(outcome):
        _print_pair(console, outcome, pair)
    _print_score(console, outcome)
    _print_limits(console, outcome, distance)
    _print_next(console, index)


def _shown(outcome: DemoOutcome) -> Iterator[Pair]:
    """Yield a found pair of each kind, by turns Chinese and English."""
    for number, kind in enumerate(SHOWN_KINDS):
        pairs = [pair for pair in outcome.right if outcome.truth[pair] == kind]
        pairs.sort(key=lambda pair: pair[0].startswith("en") == (number % 2 == 0))
        yield from pairs[:1]


def _print_pair(console: Console, outcome: DemoOutcome, pair: Pair) -> None:
    kind, distance = outcome.truth[pair], outcome.distances[pair]
    console.print()
    console.print(f"{kind} ({sample.KINDS[kind]}), distance {distance} bits", style="bold")
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="cyan")
    for doc_id in pair:
        table.add_column(Text(doc_id), ratio=1, overflow="fold")
    colours = console.color_system is not None and not console.no_color
    comparison = compare(*(outcome.texts[doc_id] for doc_id in pair))
    for passage in comparison.passages.shown:
        are_equal, *sides = zip(*passage, strict=True)
        table.add_row(*(_side(zip(are_equal, side, strict=True), colours=colours) for side in sides))
    if comparison.opening:
        table.add_row(_shorten(comparison.opening), "(the same words)")
    console.print(table)


def _side(parts: Iterable[tuple[bool, str]], *, colours: bool) -> Text:
    """Return a text's side of a passage with what differs marked."""
    return Text.assemble(*(_shorten(text) if is_equal else _marked(text, colours=colours) for is_equal, text in parts))


def _shorten(text: str) -> str:
    """Return both ends of an unchanged stretch, in one line."""
    return _LONG.sub(r"\1…\2", re.sub(r"\n+", " ", text)).replace("… ", "…")


def _marked(text: str, *, colours: bool) -> Text:
    """Return a differing part marked: by colour, or else by brackets; line breaks are made visible."""
    before = " " if text.startswith(" ") else ""
    after = " " if text.endswith("\n") else ""
    text = re.sub(r"\n+", "¶ ", text).strip(" ")
    if not text:
        return Text()
    return Text.assemble(before, (text, "bold yellow") if colours else f"[{text}]", after)


def _print_score(console: Console, outcome: DemoOutcome) -> None:
    true, right = Counter(outcome.truth.values()), Counter(outcome.truth[pair] for pair in outcome.right)
    table = Table(box=None, pad_edge=False, header_style="cyan")
    table.add_column("true pairs")
    table.add_column("what was done")
    for title in ("pairs", "found", "recall"):
        table.add_column(title, justify="right")
    for kind, meaning in sample.KINDS.items():
        table.add_row(kind, meaning, str(true[kind]), str(right[kind]), f"{right[kind] / true[kind]:.2f}")
    recall, precision = len(outcome.right) / len(outcome.truth), _ratio(len(outcome.right), len(outcome.found))
    table.add_row("all", "", str(len(outcome.truth)), str(len(outcome.right)), f"{recall:.2f}", style="bold")
    console.print()
    console.print(table)
    console.print()
    harmonic = _ratio(2 * precision * recall, precision + recall)
    console.print(f"precision {precision:.3f}   recall {recall:.3f}   F1 {harmonic:.3f}", style="bold")


def _print_limits(console: Console, outcome: DemoOutcome, distance: int) -> None:
    """Say what was wrong or missed, and what a greater distance would find."""
    for first, second in outcome.wrong:
        console.print(f"Not the same, though within {distance} bits: {first}, {second} (one form, other facts).")
    wide = Layout.named(WIDE_LAYOUT).max_distance
    near = [pair for pair, bits in outcome.distances.items() if bits <= wide]
    right = sum(pair in outcome.truth for pair in near)
    if outcome.missed and wide > distance:
        console.print(
            f"The {len(outcome.missed)} pairs missed are more than {distance} bits apart: in texts as short as these "
            f"a changed word or an added line weighs much. Layout {WIDE_LAYOUT} finds up to {wide} bits: "
            f"recall {right / len(outcome.truth):.2f}, precision {_ratio(right, len(near)):.2f}."
        )


def _print_next(console: Console, index: HSimIndex) -> None:
    console.print()
    console.print(f"The index lies in {index.url}. Try next:", soft_wrap=True)
    program = _program()
    for command in (
        f"{program} query --store {index.url} --id zh-metro",
        f"{program} describe --store {index.url}",
        f"{program} ingest my-documents.jsonl --store lmdb://my-index",
    ):
        console.print(f"  {command}", soft_wrap=True)


def _program() -> str:
    """Return how this program is called: the one of `make demo` is not on the path."""
    if shutil.which("hsimhash"):
        return "hsimhash"
    return "python -m hsimhash" if Path(sys.argv[0]).name == "__main__.py" else shlex.quote(sys.argv[0])


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
