"""`hsimhash distance`: how many bits lie between two fingerprints, and which."""

from __future__ import annotations

import click

from hsimhash.cli.console import print_fields, print_json
from hsimhash.cli.options import json_option, with_settings
from hsimhash.fingerprint import distance as bits_between
from hsimhash.fingerprint import format_fingerprint, parse_fingerprint
from hsimhash.fingerprint.bits import FINGERPRINT_BITS
from hsimhash.settings import Settings


@click.command("distance")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@with_settings("fingerprint_format")
@json_option
def distance_command(settings: Settings, first: str, second: str, as_json: bool) -> None:
    """Print how many bits differ between the fingerprints A and B (16 hex digits, 0x…, or decimal), and which.

    Bits are counted from 0, the lowest, to 63. 16 digits without a letter may be hex or decimal: write 0x before them,
    or say --fingerprint-format. A negative number, such as Java and PostgreSQL print, stands behind --.

    \b
    Example: hsimhash distance 0123456789abcdef 0x123456789abcdee
             hsimhash distance --fingerprint-format signed -- -1 1291587514616409
    """
    a, b = (parse_fingerprint(text, format=settings.fingerprint_format) for text in (first, second))
    bits = [bit for bit in range(FINGERPRINT_BITS) if (a ^ b) >> bit & 1]
    shown = {"a": format_fingerprint(a), "b": format_fingerprint(b), "differing": format_fingerprint(a ^ b)}
    if as_json:
        print_json({"distance": bits_between(a, b), **shown, "bits": bits})
    else:
        print_fields(
            [("distance", f"{bits_between(a, b)}"), *shown.items(), ("bits", " ".join(map(str, bits)) or "none")]
        )
