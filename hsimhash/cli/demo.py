"""`hsimhash demo`: index the sample corpus, show its near-duplicates, and compare them with the known pairs."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hsimhash import sample
from hsimhash.cli.closing_messages import program
from hsimhash.cli.help import Command
from hsimhash.dedup.word_diff import opening, passages, stretches
from hsimhash.errors import IndexExistsError, IndexNotFoundError
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.index import HSimIndex
from hsimhash.inputs import find_inputs
from hsimhash.load import IngestOptions, ingest
from hsimhash.store import Document
from hsimhash.store.base import Match

DEMO_STORE = "lmdb://.demo/index"
SHOWN_KINDS = ("edit", "repost", "sentence", "reformat", "mixed")
_LONG = re.compile("(.{40}).+(.{40})")  # a long unchanged stretch; only its two ends are shown

TextPair = tuple[str, str]


@click.command("demo", cls=Command)
@click.option("--store", default=DEMO_STORE, show_default=True, metavar="URL", help="The index to create.")
@click.option("--fresh/--keep", default=True, help="Start over (default), or reuse the index of an earlier demo.")
def demo_command(store: str, fresh: bool) -> None:
    """Show what hsimhash finds in a small sample.

    \b
    Example: hsimhash demo
             hsimhash demo --store lmdb:///tmp/demo --keep

    demo indexes about 370 short documents in Chinese and English, prints one pair of near-duplicates of each kind, and
    compares all pairs that it finds with the known pairs.
    """
    started = time.perf_counter()
    with sample.documents().open(encoding="utf-8") as lines:
        texts = {record["id"]: record["text"] for record in map(json.loads, lines)}
    with _demo_index(store, texts, fresh=fresh) as index:
        _report(index, _evaluate(index, texts), time.perf_counter() - started)


def _demo_index(store: str, texts: dict[str, str], *, fresh: bool) -> HSimIndex:
    """Return the index at `store`, with the sample in it."""
    try:
        index = HSimIndex.open(store)
    except IndexNotFoundError:
        index = HSimIndex.create(store)
    try:
        foreign = next((one.doc_id for one in index.documents() if one.doc_id not in texts), None)
        if foreign is not None:
            raise IndexExistsError(
                f"{index.url} contains documents that do not belong to the demo, such as {foreign!r}; "
                "nothing was changed; choose another index with --store"
            )
        if fresh and index.count():
            click.echo(f"starting over: removed {index.remove(list(texts))} documents from an earlier demo", err=True)
        if not index.count():
            options = IngestOptions(workers=1, fresh=True)  # starting another process would take longer than the work
            ingest(index, find_inputs([str(sample.documents())], options.reading), options)
    except BaseException:
        index.close()
        raise
    return index


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The pairs found in the sample and the true ones, in the order of the documents."""

    texts: dict[str, str]
    truth: dict[TextPair, str]  # pair → kind
    found: dict[TextPair, Match]  # pair → the second document as a match of the first
    refuted: list[TextPair]  # pairs that would also be found without comparing sketches

    @property
    def right(self) -> list[TextPair]:
        """The true pairs among those found."""
        return [pair for pair in self.found if pair in self.truth]


def _evaluate(index: HSimIndex, texts: dict[str, str]) -> DemoOutcome:
    """Query every document of the sample that is in the index."""
    documents = [document for document in index.get_many(list(texts)) if document is not None]
    found, unconfirmed = (_found(index, documents, max_sketch) for max_sketch in (MAX_SKETCH, None))
    truth = {(first, second): kind for first, second, kind in sample.truth()}
    return DemoOutcome(texts, truth, found, [pair for pair in unconfirmed if pair not in found])


def _found(index: HSimIndex, documents: list[Document], max_sketch: int | None) -> dict[TextPair, Match]:
    """Return the pairs that queries for all documents find, in the order of the documents."""
    ids = [document.doc_id for document in documents]
    answers = index.query_many([document.signature for document in documents], exclude=ids, max_sketch=max_sketch)
    place = {doc_id: number for number, doc_id in enumerate(ids)}
    pairs = {
        (doc_id, match.doc_id): match
        for doc_id, matches in zip(ids, answers, strict=True)
        for match in matches
        if place[doc_id] < place[match.doc_id]
    }
    return dict(sorted(pairs.items(), key=lambda item: [place[doc_id] for doc_id in item[0]]))


def _report(index: HSimIndex, outcome: DemoOutcome, seconds: float) -> None:
    """Print the whole report to stdout, as plain text unless stdout is a terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(
        f"{len(outcome.texts)} documents, {index.count()} indexed (one is empty); "
        f"layout {index.layout.name}, profile {index.profile.name}; "
        f"{len(outcome.found)} pairs within {index.distance} bits or with a shared key; {seconds:.1f} s"
    )
    shown = list(_shown(outcome))
    for pair in shown:
        _print_pair(console, outcome, pair)
    _print_score(console, outcome)
    _print_limits(console, outcome, index)
    _print_next(console, index, shown[0][0])


def _shown(outcome: DemoOutcome) -> Iterator[TextPair]:
    """Yield one found pair of each kind, alternately English and Chinese, starting with the user's own language."""
    languages = ("zh", "en") if _user_locale().startswith("zh") else ("en", "zh")
    for number, kind in enumerate(SHOWN_KINDS):
        pairs = [pair for pair in outcome.right if outcome.truth[pair] == kind]
        pairs.sort(key=lambda pair: not pair[0].startswith(languages[number % 2]))
        yield from pairs[:1]


def _user_locale() -> str:
    """Return the locale of messages, such as `zh_CN.UTF-8`, or an empty string."""
    return next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")


def _print_pair(console: Console, outcome: DemoOutcome, pair: TextPair) -> None:
    kind = outcome.truth[pair]
    console.print()
    match = outcome.found[pair]
    console.print(f"{kind} ({sample.PAIR_KINDS[kind]}), distance {match.distance} bits", style="bold")
    alike = (
        "one of them does not have a sketch"
        if match.similarity is None
        else f"about {match.similarity:.0%} alike, judging by their sketches"
    )
    console.print(f"found by {match.found_by}, {alike}")
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="cyan")
    for doc_id in pair:
        table.add_column(Text(doc_id), ratio=1, overflow="fold")
    colours = console.color_system is not None and not console.no_color
    found = stretches(*(outcome.texts[doc_id] for doc_id in pair)) or []
    for passage in passages(found).shown:
        are_equal, *sides = zip(*passage, strict=True)
        marked = (
            [_marked(text, equal, colours) for equal, text in zip(are_equal, side, strict=True)] for side in sides
        )
        table.add_row(*(Text.assemble(*parts) for parts in marked))
    if all(stretch.is_equal for stretch in found):
        table.add_row(_shorten(opening(outcome.texts[pair[0]])), "(the same words)")
    console.print(table)


def _shorten(text: str) -> str:
    """Return the two ends of an unchanged stretch, as one line."""
    return _LONG.sub(r"\1…\2", re.sub(r"\n+", " ", text)).replace("… ", "…")


def _marked(text: str, is_equal: bool, colours: bool) -> Text:
    """Return a part, marked with colour or brackets if it differs. Line breaks are made visible."""
    if is_equal:
        return Text(_shorten(text))
    before = " " if text.startswith(" ") else ""
    after = " " if text.endswith("\n") else ""
    text = re.sub(r"\n+", "¶ ", text).strip(" ")
    if not text:
        return Text()
    return Text.assemble(before, (text, "bold yellow") if colours else f"[{text}]", after)


def _print_score(console: Console, outcome: DemoOutcome) -> None:
    true, right = Counter(outcome.truth.values()), Counter(outcome.truth[pair] for pair in outcome.right)
    keyed = Counter(outcome.truth[pair] for pair in outcome.right if outcome.found[pair].found_by == "key")
    table = Table(box=None, pad_edge=False, header_style="cyan")
    table.add_column("true pairs")
    table.add_column("description")
    for title in ("pairs", "found", "by key alone", "recall"):
        table.add_column(title, justify="right")
    for kind, meaning in sample.PAIR_KINDS.items():
        table.add_row(
            kind, meaning, str(true[kind]), str(right[kind]), str(keyed[kind]), f"{right[kind] / true[kind]:.2f}"
        )
    recall, precision = len(outcome.right) / len(outcome.truth), _ratio(len(outcome.right), len(outcome.found))
    counts = (len(outcome.truth), len(outcome.right), keyed.total())
    table.add_row("all", "", *map(str, counts), f"{recall:.2f}", style="bold")
    console.print("", table, "", sep="\n")
    harmonic = _ratio(2 * precision * recall, precision + recall)
    console.print(f"precision {precision:.3f}   recall {recall:.3f}   F1 {harmonic:.3f}", style="bold")


def _print_limits(console: Console, outcome: DemoOutcome, index: HSimIndex) -> None:
    """Print what was wrong or missed, and what the sketches kept out."""
    right = set(outcome.right)
    for first, second in (pair for pair in outcome.found if pair not in right):
        console.print(f"False positive: {first}, {second} (same form, different facts).")
    true = sum(pair in outcome.truth for pair in outcome.refuted)
    if outcome.refuted:
        console.print(
            f"Without sketches, {len(outcome.refuted)} more pairs would be found; {true} of them "
            f"{'is' if true == 1 else 'are'} true."
        )
    if missed := len(outcome.truth.keys() - right):
        console.print(
            f"The {missed} missed pairs are more than {index.distance} bits apart and have different keys, or their "
            f"sketches differ: in texts this short, a changed word or an added line makes a big difference."
        )


def _print_next(console: Console, index: HSimIndex, doc_id: str) -> None:
    """Print commands to try, ready to paste."""
    console.print()
    console.print(f"The index is at {index.url}. Try next:", soft_wrap=True)
    for arguments in (
        f"query --store {index.url} --id {doc_id}",
        f"describe --store {index.url}",
        "ingest my-documents.jsonl --store lmdb://my-index",
    ):
        console.print(f"  {program()} {arguments}", soft_wrap=True)
    if shutil.which("hsimhash") is None:
        console.print(f"hsimhash is not on your PATH: the program is {program()}", soft_wrap=True)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
