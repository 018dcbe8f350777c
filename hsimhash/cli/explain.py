"""`hsimhash explain`: what a query reads; or of two documents, what differs and what made it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import click

from hsimhash.calibrate.two import Side, TwoDocuments, explain_two
from hsimhash.cli.console import print_fields, print_json, print_line, print_table
from hsimhash.cli.lines import read_text
from hsimhash.cli.options import Settings, json_option, open_index, stored, utf8, wanted_record, with_settings
from hsimhash.cover import LMDB_PRICES, Cover, cover
from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import Profile, Signature, format_fingerprint, parse_fingerprint
from hsimhash.index import HSimIndex

PLANNED = 1_000_000  # documents for which a query's buckets are chosen where there is no index


@dataclass(frozen=True, slots=True)
class _Asked:
    """What names the document of a query: one of these."""

    fingerprint: str | None
    doc_id: str | None
    text: str | None
    path: str | None

    @property
    def count(self) -> int:
        return sum(one is not None for one in (self.fingerprint, self.doc_id, self.text, self.path))


@click.command("explain")
@click.argument("documents", metavar="[A B]", nargs=-1, type=utf8)
@click.option(
    "--as",
    "kind",
    type=click.Choice(["auto", "file", "id", "text"]),
    default="auto",
    help="What A and B are; auto: files where such are there, else ids if --store is set, else texts.",
)
@click.option("--query", "fingerprint", metavar="FP", help="A fingerprint: 16 hex digits, 0x…, or decimal.")
@click.option("--id", "doc_id", type=utf8, metavar="ID", help="A document.")
@click.option("--text", type=utf8, metavar="TEXT", help="A text.")
@click.option("--file", "path", metavar="FILE", help="A file with a text; - is stdin.")
@with_settings("store", "layout", "profile", "max_distance", "max_sketch", "fingerprint_format")
@json_option
def explain_command(
    settings: Settings,
    documents: tuple[str, ...],
    kind: str,
    fingerprint: str | None,
    doc_id: str | None,
    text: str | None,
    path: str | None,
    as_json: bool,
) -> None:
    """Show what a query reads; or of two documents A and B, what differs, and whether a query by one finds the other.

    Of a query: of each drawer its own bucket and those within a radius, their rows, how many are near. A document or a
    text with a key is also looked for in the bucket of its key, in the drawer "key". The own bucket is shown as a
    half-open range of rowkeys, on HBase with its region and its server. The drawers are read one by one here, each with
    its time; a query reads them all at once, and its own time is shown below.

    Of A and B: their distance, how similar their sketches are, which bits differ in which block, which drawers would
    meet, which features moved which bits, and the words that differ. Bits are counted from 0, the lowest. Profile,
    layout and distance are those of --store, where it is set; an index keeps no texts, so that its documents are
    compared by their signatures alone.

    \b
    Example: hsimhash explain --query 0123456789abcdef --store hbase://gw1/crawl:pages
             hsimhash explain --id https://example.org/a --store lmdb://pages
             hsimhash explain old.txt new.txt --profile auto-2
             hsimhash explain https://example.org/a https://example.org/b --store lmdb://pages
    """
    asked = _Asked(fingerprint, doc_id, text, path)
    if documents:
        if len(documents) != 2 or asked.count:
            raise click.UsageError("give two documents, A and B, without --query, --id, --text and --file")
        if documents == ("-", "-"):
            raise click.UsageError("stdin can be read only once; give one of the two as a file or a text")
        found = _two(settings, documents, kind)
        print_json(found.to_json()) if as_json else _print_two(found)
        return
    if asked.count != 1:
        raise click.UsageError("give one of --query, --id, --text and --file, or two documents")
    _explain_query(settings, asked, as_json=as_json)


def _explain_query(settings: Settings, asked: _Asked, *, as_json: bool) -> None:
    form, written = settings.fingerprint_format, asked.fingerprint
    given = None if written is None else parse_fingerprint(written, format=form)
    with open_index(settings) as index:
        if given is not None:
            query = Signature(given)
        elif asked.doc_id is not None:
            query = stored(index, asked.doc_id).signature
        else:
            index.profile.verify()
            query = index.profile.signature(read_text(asked.path or "") if asked.text is None else asked.text)
        found = index.explain(query, max_distance=settings.max_distance, max_sketch=settings.max_sketch)
    facts = {
        "fingerprint": format_fingerprint(query.fingerprint),
        "max_distance": found.cover.distance,
        "scans": found.reads,
        "candidates": sum(read.rows for read in found.probes),
        "near": sum(read.near for read in found.probes),
        "documents": found.documents,
        "milliseconds": round(found.milliseconds, 2),
    }
    shown = [read.to_json() for read in found.probes]
    if as_json:
        print_json({**facts, "probes": shown})
        return
    columns = [name if name in ("start", "stop", "region", "server") else f"{name}>" for name in shown[0]]
    print_table(
        columns,
        [
            [str("first" if (name, value) == ("region", "") else value) for name, value in read.items()]
            for read in shown
        ],
    )
    print_fields(facts)


def _two(settings: Settings, documents: tuple[str, ...], kind: str) -> TwoDocuments:
    if "store" in settings.model_fields_set:
        with open_index(settings) as index:
            return _explained(settings, documents, kind, index.profile, index.cover(settings.max_distance), index)
    if kind == "id":
        raise click.UsageError("--as id reads documents of an index; name it with --store")
    record, profile = wanted_record(settings, settings.max_distance), Profile.named(settings.profile)
    return _explained(settings, documents, kind, profile, cover(record.layout, record.reach, PLANNED, LMDB_PRICES))


def _explained(
    settings: Settings,
    documents: tuple[str, ...],
    kind: str,
    profile: Profile,
    read: Cover,
    index: HSimIndex | None = None,
) -> TwoDocuments:
    profile.verify()
    a, b = (_side(one, kind, profile, index) for one in documents)
    return explain_two(a, b, profile, read, max_sketch=settings.max_sketch)


def _side(document: str, kind: str, profile: Profile, index: HSimIndex | None) -> Side:
    """Return one of the two documents; what it was taken for is in its name."""
    if kind == "file" or (kind == "auto" and (document == "-" or os.path.isfile(document))):  # noqa: PTH113 (any text)
        text = read_text(document)
        return Side(f"file {document}", profile.signature(text), text)
    if index and kind != "text":
        try:
            return Side(f"id {document}", stored(index, document).signature)
        except HsimhashError as error:
            raise HsimhashError(f"{error}; nor is there a file of that name. --as text takes it as a text") from error
    return Side(f"text {document:.40}", profile.signature(document), document)


def _print_two(found: TwoDocuments) -> None:
    a, b = found.sides
    alike = "none" if found.similarity is None else f"{found.similarity:.2f}"
    print_fields(
        {
            "a": f"{format_fingerprint(a.signature.fingerprint)}  {a.name}",
            "b": f"{format_fingerprint(b.signature.fingerprint)}  {b.name}",
            "distance": found.distance,
            "similarity": alike,
            "same key": found.has_same_key,
            "found": f"by {found.found_by}" if found.found_by else f"no: {found.reason}",
        }
    )
    _print_bits(found)
    _print_features(found)
    _print_words(found)


def _print_bits(found: TwoDocuments) -> None:
    print_table(
        ("block", "differing>", "bits"),
        [(f"{one.highest}–{one.lowest}", str(len(one.differing)), _listed(one.differing)) for one in found.blocks],
        title="Bits that differ, by block",
    )
    print_table(
        ("drawer>", "bits>", "differing>", "radius>", ""),
        [
            (
                *map(str, (one.probe.drawer, one.probe.bits, one.differing, one.probe.radius)),
                "meets" if one.meets else "",
            )
            for one in found.probes
        ],
        title="Drawers that a query reads",
    )


def _print_features(found: TwoDocuments) -> None:
    if found.features_missing:
        print_line(f"no features: {found.features_missing}")
    if found.features:
        print_table(
            ("feature", "weight in a>", "in b>", "bits that it pushed"),
            [(one.text, *(f"{weight:,.6g}" for weight in one.weights), _listed(one.bits)) for one in found.features],
            title="Features that moved the bits, the greatest push first",
        )
    if found.flips:
        print_table(
            ("bit>", "sum in a>", "in b>", "pushed by"),
            [(str(one.bit), *(f"{total:,.6g}" for total in one.sums), ", ".join(one.features)) for one in found.flips],
            title="Bits that differ: the sums of their votes",
        )


def _print_words(found: TwoDocuments) -> None:
    if found.words is None:
        return
    print_line(f"words equal: {found.words.equal_share:.1%}")
    for passage in found.words.passages.shown:
        for sign, side in (("-", "left"), ("+", "right")):
            print_line(f"{sign} {''.join(_marked(part.is_equal, getattr(part, side)) for part in passage)}")
        print_line("")
    if found.words.passages.hidden:
        print_line(f"{found.words.passages.hidden:,} more changes are not shown")


def _marked(is_equal: bool, text: str) -> str:
    """Return a part of a passage in one line, in brackets where it differs."""
    line = text.replace("\n", " ")
    words = line.strip()
    return line if is_equal or not words else line.replace(words, f"[{words}]", 1)


def _listed(bits: tuple[int, ...]) -> str:
    return " ".join(map(str, bits))
