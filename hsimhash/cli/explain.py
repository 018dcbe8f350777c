"""`hsimhash explain`: show how two documents differ and why, or what a query reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from hsimhash.calibrate.compare_two import Side, TwoDocuments, explain_two
from hsimhash.cli.arguments import (
    ArgumentKind,
    Named,
    by_options,
    fingerprint_in,
    is_file,
    read_text,
    refuse_missing_file,
    refuse_records,
    understood,
)
from hsimhash.cli.console import is_narrow, print_fields, print_json, print_line, print_table, say
from hsimhash.cli.help import Command
from hsimhash.cli.options import json_option, open_index, stored, utf8, wanted_record, with_settings
from hsimhash.cover import Cover, cover
from hsimhash.errors import HsimhashError, IndexNotFoundError, in_shell
from hsimhash.fingerprint import Profile, Signature, format_fingerprint
from hsimhash.fingerprint.bits import fitting, formats_named
from hsimhash.fingerprint.fit import LEAST_DOCUMENTS
from hsimhash.fingerprint.profile_grammar import with_option
from hsimhash.index import HSimIndex
from hsimhash.settings import Settings
from hsimhash.store import default_backend

PLANNED = 1_000_000  # assumed number of documents if there is no index


@click.command("explain", cls=Command)
@click.argument("words", metavar="[A [B]]", nargs=-1, type=utf8)
@click.option("--id", "doc_ids", type=utf8, multiple=True, metavar="ID", help="Use a document in the index.")
@click.option("--text", "texts", type=utf8, multiple=True, metavar="TEXT", help="Use this text.")
@click.option("--file", "paths", multiple=True, metavar="FILE", help="Use the text in FILE; - is stdin.")
@click.option("--query", "fingerprint", type=utf8, hidden=True)
@with_settings("store", "layout", "profile", "max_distance", "max_sketch", "extract", "fingerprint_format")
@json_option
def explain_command(
    settings: Settings,
    words: tuple[str, ...],
    doc_ids: tuple[str, ...],
    texts: tuple[str, ...],
    paths: tuple[str, ...],
    fingerprint: str | None,
    as_json: bool,
) -> None:
    """Show how two documents differ and whether a query by one finds the other, or what a query reads.

    \b
    Example: hsimhash explain old.txt new.txt
             hsimhash explain https://example.org/a https://example.org/b --store lmdb://pages
             hsimhash explain 0123456789abcdef 0x123456789abcdee
             hsimhash explain --id https://example.org/a --store lmdb://pages
             hsimhash explain 0123456789abcdef --store hbase://gw1/crawl:pages

    If an argument is a file path, explain uses the text in the file. Otherwise a single argument must be a
    fingerprint: 16 hex digits, 0x…, or decimal, with -- before a negative number. With two arguments, each is an id if
    the --store index has a document with that id; otherwise a fingerprint if it looks like one; otherwise, without
    --store, a text. Use --id, --text or --file to be explicit.

    For two documents, explain prints their distance, the similarity of their sketches, the words in their keys, the
    bits that differ in each block, the drawers in which they share a bucket, the features that moved the bits, and the
    words that differ. Bit 0 is the lowest. With --store, explain uses the profile, layout and distance of the index. An
    index does not keep texts, so only the signatures of its documents can be compared.

    For one document, explain prints the buckets that a query reads in each drawer, how many rows they have, and how
    many of those rows are near. On HBase it also prints the region and its server. explain reads and times the drawers
    one after another. A query reads them in parallel; its time is printed last. The drawer "key" is the bucket of the
    document's key.
    """
    refuse_records(words)
    named = [
        *understood(words, "fingerprint" if len(words) == 1 else "unclear"),
        *by_options(texts=texts, paths=paths, doc_ids=doc_ids),
        *([] if fingerprint is None else [Named("fingerprint", fingerprint)]),
    ]
    if not 1 <= len(named) <= 2:
        raise click.UsageError(f"expected one or two documents, got {len(named)}")
    if len(named) == 1:
        _explain_query(settings, named[0], as_json=as_json)
        return
    if [one.value for one in named if one.kind == "file"] == ["-", "-"]:
        raise click.UsageError("stdin can be read only once; pass one of the two documents with --file or --text")
    found = _two(settings, named)
    print_json(found.to_json()) if as_json else _print_two(found)
    if not _has_store(settings):
        _say_how_compared(found, settings.profile, is_of_files=any(one.kind == "file" for one in named))


def _say_how_compared(found: TwoDocuments, profile: str, *, is_of_files: bool) -> None:
    """Print a hint if the arguments may be ids, or if `dedup` may have used other word weights for the same files."""
    if not is_of_files and all(one.text and not one.text.split()[1:] for one in found.sides):
        say("compared the two words as texts; to compare documents in an index by their ids, pass --store")
    if is_of_files and Profile.named(profile).can_be_fitted:
        say(
            f"explain uses word weights for general text; for {LEAST_DOCUMENTS} or more documents, dedup learns its "
            f"own; to use these, run 'hsimhash fit' and pass --profile {with_option(profile, 'rarity=TABLE')}"
        )


def _has_store(settings: Settings) -> bool:
    return "store" in settings.given


def _opened(settings: Settings) -> HSimIndex:
    try:
        return open_index(settings)
    except IndexNotFoundError as error:
        if _has_store(settings):
            raise
        message = "with one document, explain needs an index to query; pass --store, or a second document"
        raise click.UsageError(message) from error


def _explain_query(settings: Settings, named: Named, *, as_json: bool) -> None:
    given = fingerprint_in(named.value, settings.fingerprint_format) if named.kind == "fingerprint" else None
    with _opened(settings) as index:
        query = Signature(given) if given is not None else _side(named, settings, index.profile, index).signature
        found = index.explain(query, max_distance=settings.max_distance, max_sketch=settings.max_sketch)
    facts = {
        "fingerprint": format_fingerprint(query.fingerprint),
        "max_distance": found.cover.distance,
        "scans": found.bucket_count,
        "candidates": sum(read.rows for read in found.probes),
        "near": sum(read.near for read in found.probes),
        "documents": found.documents,
        "milliseconds": round(found.milliseconds, 2),
    }
    shown = [read.to_json() for read in found.probes]
    if as_json:
        print_json({**facts, "probes": shown})
        return
    print_probes(shown)
    print_fields({"distance" if name == "max_distance" else name: value for name, value in facts.items()})


def print_probes(probes: Sequence[Mapping[str, object]]) -> None:
    """Print a row for each drawer. On a narrow terminal, omit columns that would wrap."""
    left_out = ("start", "stop", *(("radius", "buckets") if "server" in probes[0] else ())) if is_narrow() else ()
    names = [name for name in probes[0] if name not in left_out]
    titles = {"milliseconds": "ms>", **{name: name for name in ("start", "stop", "region", "server")}}
    columns = [titles.get(name, f"{name}>") for name in names]
    cells = [["first" if name == "region" and one[name] == "" else str(one[name]) for name in names] for one in probes]
    print_table(columns, cells)


def _two(settings: Settings, named: Sequence[Named]) -> TwoDocuments:
    if _has_store(settings):
        with open_index(settings) as index:
            return _explained(settings, named, index.profile, index.cover(settings.max_distance), index)
    if any(one.kind == "id" for one in named):
        raise click.UsageError("--id names a document in an index; pass the index with --store")
    record, profile = wanted_record(settings, settings.max_distance), Profile.named(settings.profile)
    return _explained(settings, named, profile, cover(record.layout, record.reach, PLANNED, default_backend().prices))


def _explained(
    settings: Settings, named: Sequence[Named], profile: Profile, used: Cover, index: HSimIndex | None = None
) -> TwoDocuments:
    a, b = (_side(one, settings, profile, index) for one in named)
    return explain_two(a, b, profile, used, max_sketch=settings.max_sketch)


def _side(named: Named, settings: Settings, profile: Profile, index: HSimIndex | None) -> Side:
    """Return one of the two documents. Its name shows how the argument was interpreted."""
    profile.verify()
    if named.kind == "unclear":
        named = named._replace(kind=_kind_of(named.value, settings, index))
    if named.kind == "fingerprint":
        return Side(f"fingerprint {named.value}", Signature(fingerprint_in(named.value, settings.fingerprint_format)))
    if named.kind == "id" and index is not None:
        try:
            return Side(f"id {named.value}", stored(index, named.value).signature)
        except HsimhashError as error:
            if is_file(named.value):
                raise
            raise HsimhashError(
                f"{in_shell(error)}, and there is no such file; to compare texts, pass each one with --text, "
                f"or save it in a file and pass --file"
            ) from error
    text = read_text(named.value, settings.extract) if named.kind == "file" else named.value
    name = f"file {named.value}" if named.kind == "file" else f"text {named.value:.40}"
    return Side(name, profile.signature(text), text)


def _kind_of(word: str, settings: Settings, index: HSimIndex | None) -> ArgumentKind:
    """Return the kind of an argument that is not a file."""
    if index is not None and index.get(word) is not None:
        return "id"
    if fitting(word, formats_named(settings.fingerprint_format)):
        return "fingerprint"
    if index is not None:
        return "id"
    refuse_missing_file(word)
    return "text"


def _print_two(found: TwoDocuments) -> None:
    a, b = found.sides
    alike = "unknown: a sketch is missing" if found.similarity is None else f"about {found.similarity:.2f}, by sketches"
    print_fields(
        {
            "a": f"{format_fingerprint(a.signature.fingerprint)}  {a.name}",
            "b": f"{format_fingerprint(b.signature.fingerprint)}  {b.name}",
            "distance": found.distance,
            "similarity": alike,
            "shared key": found.shares_key,
            **{f"key of {name}": ", ".join(words) for name, words in zip("ab", found.key_features or (), strict=False)},
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
            title="Features that moved the bits, greatest push first",
        )
    if found.flips:
        print_table(
            ("bit>", "sum in a>", "in b>", "pushed by"),
            [(str(one.bit), *(f"{total:,.6g}" for total in one.sums), ", ".join(one.features)) for one in found.flips],
            title="Votes for the bits that differ",
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
    """Return a part of a passage as one line, in brackets if it differs."""
    line = text.replace("\n", " ")
    words = line.strip()
    return line if is_equal or not words else line.replace(words, f"[{words}]", 1)


def _listed(bits: tuple[int, ...]) -> str:
    return " ".join(map(str, bits))
