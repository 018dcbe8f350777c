"""`hsimhash fingerprint`: print fingerprints and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from hsimhash.cli.arguments import Named, by_options, read_text, refuse_records, understood
from hsimhash.cli.console import is_for_people, print_json, print_line, print_table, say, send
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.input_lines import Lines, Request, requested_signatures
from hsimhash.cli.options import field_options, json_option, utf8, warn_of, with_settings
from hsimhash.fingerprint import Feature, Profile, Signature, format_fingerprint
from hsimhash.settings import Settings


@click.command("fingerprint", cls=Command)
@click.argument("words", type=utf8, metavar="[FILE|TEXT…|-]", nargs=-1)
@click.option(
    "--text", "texts", type=utf8, multiple=True, metavar="TEXT", help="Use this text, even if a file has that name."
)
@click.option("--file", "paths", multiple=True, metavar="FILE", help="Use the text in FILE; - is stdin.")
@with_settings("profile", "text_field", "id_field", "extract", "fingerprint_format")
@field_options
@click.option("--features", "shows_features", is_flag=True, help="Show each feature with its weight, share and hash.")
@click.option("--signature", "shows_signature", is_flag=True, help="Also print the sketch and the key.")
@json_option
def fingerprint_command(
    settings: Settings,
    words: tuple[str, ...],
    texts: tuple[str, ...],
    paths: tuple[str, ...],
    shows_features: bool,
    shows_signature: bool,
    as_json: bool,
) -> ExitCode:
    """Print the fingerprint of each file or text, 16 hex digits per line.

    \b
    Example: hsimhash fingerprint notes.txt page.html
             hsimhash fingerprint "A text of some length" --features
             hsimhash fingerprint - --profile zh-1 < pages.jsonl

    If an argument is a file path, fingerprint reads the text from the file. Any other argument is itself the text.
    Compressed files are unpacked, and for HTML pages only the main text is used.

    With -, fingerprint reads one JSON object per line from stdin: {"text": …, "id": …}. It prints JSON lines with
    "line", "id" and "fingerprint", which is null if the text is too short. If a text on the command line is too short,
    the exit code is 1.

    --signature adds the sketch and the key, separated by tabs; a missing value is printed as -. --features shows which
    features vote, and marks those whose weight is capped by the profile. If a text has fewer features than the profile
    needs, there is no vote ("is_vote" is false), and the fingerprint is a hash of the whole text.
    """
    named = [*understood(words, "text"), *by_options(texts=texts, paths=paths)]
    if not named or ("-" in words and len(named) > 1):
        raise click.UsageError("expected files or texts, or - alone to read JSON lines from stdin")
    refuse_records(words)
    profile = Profile.named(settings.profile)
    warn_of(profile)
    lines = Lines("-") if words == ("-",) else None
    if lines:
        batches = lines.requests(settings, profile, has_signatures=shows_signature)
    else:
        batches = iter([[_request(one, settings.extract) for one in named]])
    short = 0
    names = Signature._fields if shows_signature else Signature._fields[:1]
    for batch in batches:
        if shows_features:
            short += _print_features(profile, batch, names, is_for_people=is_for_people(as_json))
        else:
            short += _print_fingerprints(profile, batch, names, as_json=as_json or lines is not None)
        send()
    if lines:
        return ExitCode.REJECTED_RECORDS if lines.rejected else ExitCode.DONE
    return ExitCode.FAILED if short else ExitCode.DONE


def _request(named: Named, extract: str) -> Request:
    if named.kind == "file":
        return Request(text=read_text(named.value, extract), doc_id=named.value)
    return Request(text=named.value)


def _print_fingerprints(profile: Profile, requests: Sequence[Request], names: Sequence[str], *, as_json: bool) -> int:
    """Print a line for each request; return how many texts are too short for a fingerprint."""
    signatures = requested_signatures(requests, profile)
    for request, signature in zip(requests, signatures, strict=True):
        parts = _parts(signature, names) if signature else {}
        if as_json:
            print_json({**request.label, "fingerprint": None, **parts})
        elif parts:
            print_line("\t".join(parts.get(name, "-") for name in names))
        if not parts:
            _say_too_short(request)
    return signatures.count(None)


def _print_features(profile: Profile, requests: Sequence[Request], names: Sequence[str], *, is_for_people: bool) -> int:
    """Print the features of each request; return how many texts are too short for a fingerprint."""
    signatures = requested_signatures(requests, profile)
    for request, signature in zip(requests, signatures, strict=True):
        if signature is None:
            _say_too_short(request)
            continue
        parts, rows = _parts(signature, names), _rows(profile.features(request.text), profile.cap)
        if is_for_people:
            _print_table(request, parts, rows, profile.min_features)
        else:
            fields = [dict(zip(("text", "weight", "share", "hash", "at_cap"), row, strict=True)) for row in rows]
            print_json({**request.label, **parts, "is_vote": len(rows) >= profile.min_features, "features": fields})
    return signatures.count(None)


def _parts(signature: Signature, names: Sequence[str]) -> dict[str, str]:
    """Return the parts of a signature with these names, except for missing ones."""
    return {name: part for name, part in signature.to_json().items() if name in names}


def _rows(features: Sequence[Feature], cap: int | None) -> list[tuple[str, float, float, str, bool]]:
    """Return text, weight, share of the vote, hash, and whether the weight is the maximum that the profile allows.

    Capped features all weigh the same: 1/cap of the total before capping, so at least 1/cap of the total after it.
    """
    total = sum(feature.weight for feature in features)
    heaviest = max((feature.weight for feature in features), default=0)
    is_cap_reached = cap is not None and heaviest >= total // cap
    return [
        (
            feature.text,
            feature.weight,
            round(feature.weight / total, 4) if total else 0.0,
            format_fingerprint(feature.hash),
            is_cap_reached and feature.weight == heaviest,
        )
        for feature in features
    ]


def _print_table(
    request: Request,
    parts: Mapping[str, str],
    rows: Sequence[tuple[str, float, float, str, bool]],
    min_features: int,
) -> None:
    title = " ".join([*map(str, request.label.values()), *parts.values()])
    if len(rows) < min_features:
        title += f" (fewer than {min_features} features: no vote; the fingerprint is a hash of the whole text)"
    shown = [
        (text, f"{weight:,.6g}" if isinstance(weight, float) else f"{weight:,}", f"{share:.1%}", hashed, "cap" * at_cap)
        for text, weight, share, hashed, at_cap in rows
    ]
    print_table(("feature", "weight>", "share>", "hash", ""), shown, title=title)


def _say_too_short(request: Request) -> None:
    name = " ".join(f"{key} {value}" for key, value in request.label.items())
    say(f"{name or 'the text'} is too short for a fingerprint with this profile")
