"""`hsimhash query`: the documents near fingerprints, documents or texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from hsimhash.cli.console import is_for_people, iso_time, print_json, print_table, say, send
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.lines import Lines, Request, read_text, requested_fingerprints
from hsimhash.cli.options import Settings, json_option, open_index, utf8, with_settings
from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import format_fingerprint, parse_fingerprint
from hsimhash.index import HSimIndex, Match


@dataclass(frozen=True, slots=True)
class Source:
    """What was asked for: one of these."""

    fingerprints: tuple[str, ...]
    doc_id: str | None
    text: str | None
    path: str | None

    @classmethod
    def of(cls, fingerprints: tuple[str, ...], **options: tuple[str, ...]) -> Source:
        """Return what was asked for; `options` are the values of --id, --text and --file, each as often as given."""
        given = [
            *(["fingerprints"] if fingerprints else []),
            *(f"--{name} {value!r:.80}" for name, values in options.items() for value in values),
        ]
        if len(given) != 1:
            raise click.UsageError(
                f"give fingerprints, or one of --id, --text, --file, or - for JSON lines on stdin"
                f"{', not ' if given else ''}{' and '.join(given)}"
            )
        if "-" in fingerprints and len(fingerprints) > 1:
            raise click.UsageError("- stands alone: stdin, or fingerprints")
        doc_id, text, path = (next(iter(options[name]), None) for name in ("id", "text", "file"))
        return cls(fingerprints, doc_id, text, path)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What to find and how to show it."""

    max_distance: int | None
    limit: int | None
    exclude: str | None
    is_for_people: bool


@click.command("query")
@click.argument("fingerprints", metavar="[FP…|-]", nargs=-1)
@click.option(
    "--id", "doc_ids", type=utf8, multiple=True, metavar="ID", help="A document, which is not among its own matches."
)
@click.option("--text", "texts", type=utf8, multiple=True, metavar="TEXT", help="A text.")
@click.option("--file", "paths", multiple=True, metavar="FILE", help="A file with a text; - is stdin.")
@with_settings("store", "max_distance", "text_field", "id_field", "fingerprint_format")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The nearest N only.")
@click.option("--exclude", type=utf8, metavar="ID", help="Leave this document out.")
@click.option("--exit-code", "tells_by_exit_code", is_flag=True, help="Exit with 8 if nothing was found at all.")
@json_option
def query_command(
    settings: Settings,
    fingerprints: tuple[str, ...],
    doc_ids: tuple[str, ...],
    texts: tuple[str, ...],
    paths: tuple[str, ...],
    limit: int | None,
    exclude: str | None,
    tells_by_exit_code: bool,
    as_json: bool,
) -> ExitCode:
    """Find every document within a few bits of each FP (16 hex digits, 0x…, or decimal), or of a document or a text.

    16 digits without a letter may be hex or decimal: write 0x before them, or say --fingerprint-format. A negative
    number, such as Java and PostgreSQL print, stands behind --.

    On a terminal a table is printed; into a pipe, or with --json, one JSON line for each query: {"fingerprint",
    "matches": [{"distance", "id", "fingerprint", "first_seen"}, …]}, nearest first, first_seen in ms since 1970.

    With - queries are read from stdin, one JSON object a line: {"fingerprint": …} or {"text": …}; the document of
    its "id" is left out. The answers have "line" and "id" of their queries; "fingerprint" is null where the text was
    too short. A bad line is told on stderr, the rest goes on, and the exit code is 7.

    \b
    Example: hsimhash query --id https://example.org/a --store lmdb://pages
             hsimhash query - --json < queries.jsonl
    """
    source = Source.of(fingerprints, id=doc_ids, text=texts, file=paths)
    if source.doc_id is not None and exclude is not None:
        raise click.UsageError("--id leaves its own document out already; --exclude goes with the others")
    bounds = Bounds(settings.max_distance, limit, exclude, is_for_people(as_json))
    lines = Lines("-") if fingerprints == ("-",) else None
    form = settings.fingerprint_format
    asked = [] if lines else [Request(parse_fingerprint(text, format=form)) for text in fingerprints]
    with open_index(settings) as index:
        batches = lines.requests(settings) if lines else iter([asked or [_request(source, index)]])
        found = sum(_answer(index, batch, bounds) for batch in batches)
    if lines and lines.rejected:
        return ExitCode.REJECTED_RECORDS
    return ExitCode.NOTHING_FOUND if tells_by_exit_code and not found else ExitCode.DONE


def _request(source: Source, index: HSimIndex) -> Request:
    """Return what --id, --text or --file asks for; a text without fingerprint is an error here."""
    if source.doc_id is not None:
        document = index.get(source.doc_id)
        if document is None:
            raise HsimhashError(f"{index.url} has no document {source.doc_id!r}")
        return Request(document.fingerprint, doc_id=source.doc_id)
    text = source.text if source.text is not None else read_text(source.path or "-")
    index.profile.verify()
    return Request(index.profile.fingerprint(text))


def _answer(index: HSimIndex, requests: Sequence[Request], bounds: Bounds) -> int:
    """Print the answers to requests; return how many matches there are."""
    asked = list(zip(requests, requested_fingerprints(requests, index.profile), strict=True))
    answers = iter(
        index.query_many(
            [fingerprint for _, fingerprint in asked if fingerprint is not None],
            max_distance=bounds.max_distance,
            limit=bounds.limit,
            exclude=[request.doc_id or bounds.exclude for request, fingerprint in asked if fingerprint is not None],
        )
    )
    found = 0
    for request, fingerprint in asked:
        shown = None if fingerprint is None else format_fingerprint(fingerprint)
        matches = [] if fingerprint is None else next(answers)
        found += len(matches)
        (_print_table if bounds.is_for_people else _print_json)(request, shown, matches)
    send()
    return found


def _print_json(request: Request, fingerprint: str | None, matches: Sequence[Match]) -> None:
    rows = [
        {
            "distance": match.distance,
            "id": match.doc_id,
            "fingerprint": format_fingerprint(match.fingerprint),
            "first_seen": match.first_seen,
        }
        for match in matches
    ]
    print_json({**request.label, "fingerprint": fingerprint, "matches": rows})


def _print_table(request: Request, fingerprint: str | None, matches: Sequence[Match]) -> None:
    name = " ".join([*map(str, request.label.values()), fingerprint or "text too short"])
    if not matches:
        say(f"{name}: nothing found")
        return
    rows = [
        (str(match.distance), match.doc_id, format_fingerprint(match.fingerprint), iso_time(match.first_seen))
        for match in matches
    ]
    print_table(("distance>", "id", "fingerprint", "first seen"), rows, title=name)
