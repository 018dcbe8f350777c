"""How fingerprints are written, which is decided for a whole input and never word by word.

| format | what is one |
|---|---|
| hex | 16 hexadecimal digits, or `0x` and up to 16 |
| decimal | a number below 2**64; of 16 digits it has no zero in front |
| signed | a number from -2**63 to 2**63 - 1, the same 64 bits as Java and PostgreSQL print them; likewise |

Two formats may both fit a word: `12` is the same number in decimal and signed, but `1291587514616409` is another in
hex. So an input begins with all formats that it may be in, each word that does not fit some of them rules those out,
and a word is read only where all that are left agree. JSON numbers are numbers in every format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Literal, get_args

from hsimhash.fingerprint.bits import FINGERPRINT_DIGITS, LIMIT

Format = Literal["hex", "decimal", "signed"]
Formats = tuple[Format, ...]

ALL_FORMATS: Formats = get_args(Format)
FORMAT_NAMES = ("auto", *ALL_FORMATS)
HEX: Formats = ("hex",)
DECIMAL: Formats = ("decimal",)
SIGNED: Formats = ("signed",)

_HEX = re.compile(rf"0[xX][0-9a-fA-F]{{1,{FINGERPRINT_DIGITS}}}|[0-9a-fA-F]{{{FINGERPRINT_DIGITS}}}")
_DECIMAL = re.compile(rf"(?!0[0-9]{{{FINGERPRINT_DIGITS - 1}}}$)[0-9]{{1,20}}")
_SIGNED = re.compile(rf"-[0-9]{{1,19}}|{_DECIMAL.pattern}")
_ACCEPTED: dict[Format, str] = {
    "hex": "16 hexadecimal digits, or 0x and up to 16 of them",
    "decimal": "a decimal number below 2**64",
    "signed": "a decimal number from -2**63 to 2**63 - 1",
}


def formats_named(name: str) -> Formats:
    """Return the formats that an input of format `name` may be in; `auto` leaves all of them open."""
    if name not in FORMAT_NAMES:
        raise ValueError(f"there is no fingerprint format {name!r}; there are: {', '.join(FORMAT_NAMES)}")
    return tuple(one for one in ALL_FORMATS if name in ("auto", one))


def parse_fingerprint(text: str, *, format: str = "auto") -> int:
    """Return the fingerprint that `text` writes.

    Args:
        text: the word; blanks around it are passed over.
        format: `hex`, `decimal` or `signed`; with `auto` a word that would be another number in another format is
            refused, and words of one source should not be read one by one.

    Raises:
        ValueError: it is no fingerprint in this format, or an ambiguous one: 16 digits without a letter.
    """
    return read_fingerprint(text, formats_named(format))


def read_fingerprint(written: str | int, formats: Formats) -> int:
    """Return the fingerprint that a word or a JSON number is in all of `formats` that it fits; `ValueError` if none."""
    if _is_in_all(written, formats):
        return int(written)
    values = {value for one in formats if (value := _READERS[one](written)) is not None}
    if len(values) == 1:
        return values.pop()
    if values:
        raise ValueError(
            f"ambiguous fingerprint {written!r}: 16 digits may be hexadecimal or decimal; write 0x before them if they "
            f"are hexadecimal, or name the format (--fingerprint-format, in Python format=)"
        )
    accepted = ", or ".join(_ACCEPTED[one] for one in formats)
    remedy = "" if len(formats) == len(ALL_FORMATS) else "; --fingerprint-format chooses the format of the input"
    raise ValueError(f"not a fingerprint: {written!r:.80}; accepted are {accepted}{remedy}")


def narrow(formats: Formats, written: Iterable[str | int]) -> Formats:
    """Return which of `formats` fit words and JSON numbers that follow each other; reads no more than decide.

    What fits none that is left decides nothing: it is a bad record, or contradicts what came before.
    """
    for one in written:
        if len(formats) == 1:
            break
        formats = fitting(one, formats) or formats
    return formats


def fitting(written: str | int, formats: Formats) -> Formats:
    """Return those of `formats` in which a word or a JSON number is a fingerprint."""
    if _is_in_all(written, formats):
        return formats
    return tuple(name for name in formats if _READERS[name](written) is not None)


def _is_in_all(written: str | int, formats: Formats) -> bool:
    """Whether it is a JSON number that is the same in all of `formats`: the usual one, told without trying each."""
    return isinstance(written, int) and 0 <= written < (LIMIT // 2 if "signed" in formats else LIMIT)


def spoken(formats: Formats) -> str:
    """Return formats as words for the user."""
    return " or ".join("hexadecimal" if one == "hex" else one for one in formats)


def _hex(written: str | int) -> int | None:
    if isinstance(written, int):
        return _number(written, 0)
    word = written.strip()
    return int(word, 16) if _HEX.fullmatch(word) else None


def _decimal(written: str | int) -> int | None:
    if isinstance(written, int):
        return _number(written, 0)
    word = written.strip()
    return _number(int(word), 0) if _DECIMAL.fullmatch(word) else None


def _signed(written: str | int) -> int | None:
    if isinstance(written, int):
        return _number(written, -LIMIT // 2)
    word = written.strip()
    return _number(int(word), -LIMIT // 2) if _SIGNED.fullmatch(word) else None


def _number(value: int, least: int) -> int | None:
    """Return the 64 bits of a number of the half-open range [least, least + 2**64), None outside."""
    return value % LIMIT if least <= value < least + LIMIT else None


_READERS: dict[Format, Callable[[str | int], int | None]] = {"hex": _hex, "decimal": _decimal, "signed": _signed}
