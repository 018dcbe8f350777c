"""`hsimhash query`: find the documents near texts, documents or fingerprints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import click

from hsimhash.cli.arguments import Named, by_options, fingerprint_in, read_text, refuse_records, understood
from hsimhash.cli.console import is_for_people, is_narrow, iso_time, print_json, print_table, say, send
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.input_lines import Lines, Request, requested_signatures
from hsimhash.cli.options import json_option, open_index, stored, utf8, with_settings
from hsimhash.errors import plural
from hsimhash.fingerprint import Signature, format_fingerprint
from hsimhash.index import HSimIndex
from hsimhash.settings import Settings
from hsimhash.store.base import Match

_SHORT_CHARACTERS, _FEW_FEATURES = 200, 5  # shorter texts with fewer features get a note


@click.command("query", cls=Command)
@click.argument("words", type=utf8, metavar="[FILE|FP…|-]", nargs=-1)
@click.option(
    "--id",
    "doc_ids",
    type=utf8,
    multiple=True,
    metavar="ID",
    help="Query by a document in the index. The results do not include the document itself.",
)
@click.option("--text", "texts", type=utf8, multiple=True, metavar="TEXT", help="Query by this text.")
@click.option("--file", "paths", multiple=True, metavar="FILE", help="Query by the text in FILE; - is stdin.")
@with_settings("store", "max_distance", "max_sketch", "text_field", "id_field", "extract", "fingerprint_format")
@click.option("--limit", type=Count(), metavar="N", help="Return only the N nearest documents.")
@click.option("--exclude", type=utf8, metavar="ID", help="Leave this document out of the results.")
@click.option("--exit-code", "tells_by_exit_code", is_flag=True, help="Exit with 8 if nothing is found.")
@json_option
def query_command(
    settings: Settings,
    words: tuple[str, ...],
    doc_ids: tuple[str, ...],
    texts: tuple[str, ...],
    paths: tuple[str, ...],
    limit: int | None,
    exclude: str | None,
    tells_by_exit_code: bool,
    as_json: bool,
) -> ExitCode:
    """Find the documents in an index that are near a file, a text, a document or a fingerprint.

    \b
    Example: hsimhash query page.html --store lmdb://pages
             hsimhash query --id https://example.org/a --store lmdb://pages
             hsimhash query --text "A text of some length" --store lmdb://pages
             hsimhash query - --json < queries.jsonl

    Each argument is a file path or a fingerprint: 16 hex digits, 0x…, or decimal. Compressed files are unpacked,
    and for HTML pages only the main text is used. Put -- before a negative number.

    query finds every document within --distance bits. If the index has keys and sketches (profiles auto-3 and auto-2),
    a query by text or document also finds documents that share a key, and leaves out documents whose sketches
    differ too much (--max-sketch).

    On a terminal, query prints a table. Otherwise it prints one JSON line per query: {"fingerprint", "matches":
    [{"distance", "id", "fingerprint", "first_seen", "similarity", "found_by"}, …]}, nearest first. "first_seen" is in
    ms since 1970, "similarity" estimates the share of equal shingles, and "found_by" is "distance" or "key".

    With -, query reads one JSON object per line from stdin: {"text": …}, or {"fingerprint": …} with an optional
    "sketch" and "key". A query with an "id" does not match the document with that id. Each answer repeats the "line"
    number and the "id" of its query; "fingerprint" is null if the text is too short. Invalid lines are reported on
    stderr, and the exit code is 7.
    """
    _check_asked(words, id=doc_ids, text=texts, file=paths)
    refuse_records(words)
    if doc_ids and exclude is not None:
        raise click.UsageError(
            "--exclude cannot be combined with --id, which already excludes its own document; omit --exclude"
        )
    lines = Lines("-") if words == ("-",) else None
    named = [*understood(words, "fingerprint"), *by_options(texts=texts, paths=paths, doc_ids=doc_ids)]
    for one in named:
        if one.kind == "fingerprint":  # before the index is opened
            fingerprint_in(one.value, settings.fingerprint_format)
    with open_index(settings) as index:
        asked = [] if lines else [_request(one, index, settings) for one in named]
        has_signatures = index.store.record.has_signatures
        batches = lines.requests(settings, index.profile, has_signatures=has_signatures) if lines else [asked]
        answers = partial(_answers, index, settings=settings, exclude=exclude, limit=limit)
        found = sum(_show(answers(batch), is_table=is_for_people(as_json)) for batch in batches)
    usual = ExitCode.NOTHING_FOUND if tells_by_exit_code and not found else ExitCode.DONE
    return ExitCode.REJECTED_RECORDS if lines and lines.rejected else usual


def _request(named: Named, index: HSimIndex, settings: Settings) -> Request:
    """Return the request for one argument or option."""
    if named.kind == "fingerprint":
        return Request(Signature(fingerprint_in(named.value, settings.fingerprint_format)))
    if named.kind == "id":
        return Request(stored(index, named.value).signature, doc_id=named.value)
    index.profile.verify()
    text = read_text(named.value, settings.extract) if named.kind == "file" else named.value
    signature = index.profile.signature(text)
    if len(text) < _SHORT_CHARACTERS and (count := len(index.profile.features(text))) < _FEW_FEATURES:
        say(f"the text has only {plural(count, 'feature')}; a text this short matches only nearly identical texts")
    return Request(signature)


def _show(answers: Iterable[tuple[Request, str | None, list[Match]]], *, is_table: bool) -> int:
    """Print the answers of a batch; return the number of matches."""
    found = 0
    for request, fingerprint, matches in answers:
        if is_table:
            _print_table(request, fingerprint, matches)
        else:
            found_json = [match.to_json() for match in matches]
            print_json({**request.label, "fingerprint": fingerprint, "matches": found_json})
        found += len(matches)
    send()
    return found


def _check_asked(words: tuple[str, ...], **options: tuple[str, ...]) -> None:
    """Raise unless there are either arguments or one option. `options` has all values of --id, --text and --file."""
    given = [
        *(["arguments"] if words else []),
        *(f"--{name} {value!r:.80}" for name, values in options.items() for value in values),
    ]
    if len(given) != 1:
        raise click.UsageError(
            f"pass files or fingerprints, or one of --id, --text or --file, or - for JSON lines on stdin"
            f"{', not ' if given else ''}{' and '.join(given)}"
        )
    if "-" in words and len(words) > 1:
        raise click.UsageError("expected files and fingerprints, or - alone to read JSON lines from stdin")


def _answers(
    index: HSimIndex, requests: Sequence[Request], settings: Settings, *, exclude: str | None, limit: int | None
) -> Iterator[tuple[Request, str | None, list[Match]]]:
    """Yield each request with its formatted fingerprint (None if its text is too short) and its matches."""
    signatures = requested_signatures(requests, index.profile)
    asked = [(one, signature) for one, signature in zip(requests, signatures, strict=True) if signature is not None]
    answers = iter(
        index.query_many(
            [signature for _, signature in asked],
            max_distance=settings.max_distance,
            max_sketch=settings.max_sketch,
            limit=limit,
            exclude=[request.doc_id or exclude for request, _ in asked],
        )
    )
    for request, signature in zip(requests, signatures, strict=True):
        if signature is None:
            yield request, None, []
        else:
            yield request, format_fingerprint(signature.fingerprint), next(answers)


def _print_table(request: Request, fingerprint: str | None, matches: Sequence[Match]) -> None:
    name = " ".join([*map(str, request.label.values()), fingerprint or "text too short"])
    if not matches:
        say(f"{name}: no {'other ' if request.doc_id else ''}document is near")
        return
    columns: dict[str, list[str]] = {
        "distance>": [str(match.distance) for match in matches],
        "similarity>": ["" if match.similarity is None else f"{match.similarity:.2f}" for match in matches],
        "found by": [match.found_by for match in matches],
        "id": [match.doc_id for match in matches],
        "fingerprint": [format_fingerprint(match.fingerprint) for match in matches],
        "first seen": [iso_time(match.first_seen) for match in matches],
    }
    if not any(columns["similarity>"]):
        del columns["similarity>"]
    if all(match.found_by == "distance" for match in matches):
        del columns["found by"]
    if is_narrow():
        del columns["fingerprint"]
    print_table(list(columns), list(zip(*columns.values(), strict=True)), title=name)
