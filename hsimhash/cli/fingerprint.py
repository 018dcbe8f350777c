"""`hsimhash fingerprint`: of texts, and what weighed how much; `hsimhash distance`: of two fingerprints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from hsimhash.cli.console import is_for_people, print_fields, print_json, print_line, print_table, say, send
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.lines import Lines, Request, read_text, requested_signatures
from hsimhash.cli.options import Settings, field_options, json_option, utf8, warn_of, with_settings
from hsimhash.fingerprint import Feature, Profile, Signature, format_fingerprint, parse_fingerprint
from hsimhash.layout import FINGERPRINT_BITS


@click.command("fingerprint")
@click.argument("texts", type=utf8, metavar="[TEXT…|-]", nargs=-1)
@click.option("--file", "paths", metavar="FILE", multiple=True, help="A file with a text; may be repeated.")
@with_settings("profile", "text_field", "id_field", "fingerprint_format")
@field_options
@click.option("--features", "shows_features", is_flag=True, help="Show each feature, its weight, its share, its hash.")
@click.option("--signature", "shows_signature", is_flag=True, help="Print the sketch and the key too.")
@json_option
def fingerprint_command(
    settings: Settings,
    texts: tuple[str, ...],
    paths: tuple[str, ...],
    shows_features: bool,
    shows_signature: bool,
    as_json: bool,
) -> ExitCode:
    """Print the fingerprint of each TEXT or FILE, 16 hex digits a line.

    With - texts are read from stdin, one JSON object a line: {"text": …, "id": …}; the answers are JSON lines with the
    "line", the "id" and the "fingerprint", null where the text is too short. A text too short on the command line is an
    error, exit code 1.

    --signature prints fingerprint, sketch and key, separated by tabs, with - for one that the profile does not make or
    the text does not have; in JSON it adds "sketch" and "key" where there are such.

    --features prints a table of what votes on a terminal, else JSON lines; it marks the features at the profile's cap.
    With fewer features than the profile asks for none of them votes: "is_vote" is false, and the fingerprint is the
    hash of the whole text.

    \b
    Example: hsimhash fingerprint "A text of some length" --features
             hsimhash fingerprint - --profile zh-1 < pages.jsonl
    """
    if bool(texts) == bool(paths) or ("-" in texts and len(texts) > 1):
        raise click.UsageError("give texts, or --file, or - for JSON lines on stdin")
    profile = Profile.named(settings.profile)
    warn_of(profile)
    lines = Lines("-") if texts == ("-",) else None
    if lines:
        batches = lines.requests(settings, profile, has_signatures=shows_signature)
    else:
        files = [Request(text=read_text(path), doc_id=path) for path in paths]
        batches = iter([files or [Request(text=text) for text in texts]])
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


def _print_fingerprints(profile: Profile, requests: Sequence[Request], names: Sequence[str], *, as_json: bool) -> int:
    """Print a line for each request; return how many are too short for a fingerprint."""
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
    """Print what votes in each request; return how many are too short for a fingerprint."""
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
    """Return those of a signature's parts that have one of these names and are there."""
    return {name: part for name, part in signature.to_json().items() if name in names}


def _rows(features: Sequence[Feature], cap: int | None) -> list[tuple[str, float, float, str, bool]]:
    """Return text, weight, share of the vote, hash, and whether the weight is what the profile allows at most.

    Capped features all weigh the same: the cap, which is 1/cap of the total before, so at least that of what is left.
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
        title += f" (fewer than {min_features} features: no vote, the hash of the whole text)"
    shown = [
        (text, f"{weight:,.6g}" if isinstance(weight, float) else f"{weight:,}", f"{share:.1%}", hashed, "cap" * at_cap)
        for text, weight, share, hashed, at_cap in rows
    ]
    print_table(("feature", "weight>", "share>", "hash", ""), shown, title=title)


def _say_too_short(request: Request) -> None:
    name = " ".join(f"{key} {value}" for key, value in request.label.items())
    say(f"{name or 'the text'} has nothing to fingerprint; it is too short for the profile")


@click.command("distance")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@with_settings("fingerprint_format")
@json_option
def distance_command(settings: Settings, first: str, second: str, as_json: bool) -> None:
    """Print how many bits differ between the fingerprints A and B (16 hex digits, 0x…, or decimal), and which.

    Bits are counted from 0, the lowest, to 63. 16 digits without a letter may be hex or decimal: write 0x before them,
    or pass --fingerprint-format. A negative number, such as Java and PostgreSQL print, goes after --.

    \b
    Example: hsimhash distance 0123456789abcdef 0x123456789abcdee
             hsimhash distance --fingerprint-format signed -- -1 1291587514616409
    """
    a, b = (parse_fingerprint(text, format=settings.fingerprint_format) for text in (first, second))
    bits = [bit for bit in range(FINGERPRINT_BITS) if (a ^ b) >> bit & 1]
    shown = {"a": format_fingerprint(a), "b": format_fingerprint(b), "differing": format_fingerprint(a ^ b)}
    (print_json if as_json else print_fields)({"distance": len(bits), **shown, "bits": bits})
