"""`hsimhash query`: the documents near fingerprints, documents or texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import click

from hsimhash.cli.console import is_for_people, iso_time, print_json, print_table, say, send
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.lines import Lines, Request, read_text, requested_signatures
from hsimhash.cli.options import Settings, json_option, open_index, stored, utf8, with_settings
from hsimhash.fingerprint import Signature, format_fingerprint, parse_fingerprint
from hsimhash.index import HSimIndex
from hsimhash.store.base import Match


@click.command("query")
@click.argument("fingerprints", metavar="[FP…|-]", nargs=-1)
@click.option(
    "--id", "doc_ids", type=utf8, multiple=True, metavar="ID", help="A document, which is not among its own matches."
)
@click.option("--text", "texts", type=utf8, multiple=True, metavar="TEXT", help="A text.")
@click.option("--file", "paths", multiple=True, metavar="FILE", help="A file with a text; - is stdin.")
@with_settings("store", "max_distance", "max_sketch", "text_field", "id_field", "fingerprint_format")
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

    16 digits without a letter may be hex or decimal: write 0x before them, or pass --fingerprint-format. A negative
    number, such as Java and PostgreSQL print, goes after --.

    Where the index's profile makes sketches and keys (auto-2), a document or a text is asked for with its own: those
    with the same key are found too, however far, and any with too different a sketch is passed over (--max-sketch).

    On a terminal a table is printed; into a pipe, or with --json, one JSON line for each query: {"fingerprint",
    "matches": [{"distance", "id", "fingerprint", "first_seen", "similarity", "found_by"}, …]}, nearest first;
    "first_seen" in ms since 1970, "similarity" about the share of equal shingles (null where a sketch is missing),
    "found_by" "distance", or "key" where the distance is greater than asked for.

    With - queries are read from stdin, one JSON object a line: {"fingerprint": …}, also with "sketch" and "key", or
    {"text": …}; the document of its "id" is left out. The answers have "line" and "id" of their queries; "fingerprint"
    is null where the text was too short. Bad lines are reported on stderr, the others answered; the exit code is 7.

    \b
    Example: hsimhash query --id https://example.org/a --store lmdb://pages
             hsimhash query - --json < queries.jsonl
    """
    _check_asked(fingerprints, id=doc_ids, text=texts, file=paths)
    if doc_ids and exclude is not None:
        raise click.UsageError("--id excludes its own document already; use --exclude with the others")
    lines = Lines("-") if fingerprints == ("-",) else None
    parsed = partial(parse_fingerprint, format=settings.fingerprint_format)
    asked = [] if lines else [Request(Signature(one)) for one in map(parsed, fingerprints)]
    with open_index(settings) as index:
        if doc_ids:
            asked = [Request(stored(index, doc_ids[0]).signature, doc_id=doc_ids[0])]
        elif texts or paths:
            index.profile.verify()
            asked = [Request(index.profile.signature(texts[0] if texts else read_text(paths[0])))]
        has_signatures = index.store.record.has_signatures
        batches = lines.requests(settings, index.profile, has_signatures=has_signatures) if lines else [asked]
        answers = partial(_answers, index, settings=settings, exclude=exclude, limit=limit)
        found = sum(_show(answers(batch), is_table=is_for_people(as_json)) for batch in batches)
    usual = ExitCode.NOTHING_FOUND if tells_by_exit_code and not found else ExitCode.DONE
    return ExitCode.REJECTED_RECORDS if lines and lines.rejected else usual


def _show(answers: Iterable[tuple[Request, str | None, list[Match]]], *, is_table: bool) -> int:
    """Print the answers of a batch; return how many matches there are."""
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


def _check_asked(fingerprints: tuple[str, ...], **options: tuple[str, ...]) -> None:
    """Refuse all but one question; `options` are the values of --id, --text and --file, each as often as given."""
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
        raise click.UsageError("give - alone (stdin), or fingerprints")


def _answers(
    index: HSimIndex, requests: Sequence[Request], settings: Settings, *, exclude: str | None, limit: int | None
) -> Iterator[tuple[Request, str | None, list[Match]]]:
    """Yield each request with its fingerprint as it is printed, None where its text is too short, and its matches."""
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
        say(f"{name}: nothing found")
        return
    columns = {
        "distance>": [str(match.distance) for match in matches],
        "similarity>": ["" if match.similarity is None else f"{match.similarity:.2f}" for match in matches],
        "id": [match.doc_id for match in matches],
        "fingerprint": [format_fingerprint(match.fingerprint) for match in matches],
        "first seen": [iso_time(match.first_seen) for match in matches],
    }
    if not any(columns["similarity>"]):
        del columns["similarity>"]
    print_table(list(columns), list(zip(*columns.values(), strict=True)), title=name)
