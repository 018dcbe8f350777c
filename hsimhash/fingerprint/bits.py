"""Fingerprints as numbers and as text: validation, formats, distances.

The format of fingerprints is decided for a whole input, never word by word:

| format | a fingerprint |
|---|---|
| hex | 16 hexadecimal digits, or `0x` and up to 16 hexadecimal digits |
| decimal | a number below 2**64; if it has 16 digits, the first is not 0 |
| signed | a number from -2**63 to 2**63 - 1: 64 bits as in Java and PostgreSQL; the same rule for 16 digits |
| binary | 64 digits 0 or 1, the highest bit first, as cppjieba's `toBinaryString` prints them |

A word may fit several formats. `12` is the same number in decimal and signed, but `1291587514616409` is a different
number in hex. So every format is possible at the start of an input. Each word rules out the formats that it does not
fit, and a word is accepted only if it is the same number in all remaining formats. A JSON number is the same
fingerprint in every format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import Remedy

LIMIT = 1 << 64

# Arrays of any shape.
Uint64s = NDArray[np.uint64]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Uint32s = NDArray[np.uint32]
Uint8s = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
_Scalar = TypeVar("_Scalar", bound=np.generic)
AnyFingerprints = Sequence[int] | Uint64s  # shape (n,), unsigned 64-bit
Format = Literal["hex", "decimal", "signed", "binary"]
Formats = tuple[Format, ...]

ALL_FORMATS: Formats = get_args(Format)
FORMAT_NAMES = ("auto", *ALL_FORMATS)
HEX: Formats = ("hex",)
_NAME_FORMAT = Remedy("name the format with format=", "name the format with --fingerprint-format")
_OTHER_FORMAT = Remedy("choose another format with format=", "choose another format with --fingerprint-format")
_DECIMAL = r"(?!0[0-9]{15}$)[0-9]{1,20}"


class _Form(NamedTuple):
    """A way to write 64 bits, as a number of at least `least`."""

    accepted: str
    pattern: re.Pattern[str]
    base: int = 10
    least: int = 0


_FORMS: dict[Format, _Form] = {
    "hex": _Form(
        "16 hexadecimal digits, or 0x followed by up to 16",
        re.compile("0[xX][0-9a-fA-F]{1,16}|[0-9a-fA-F]{16}"),
        base=16,
    ),
    "decimal": _Form("a decimal number below 2**64", re.compile(_DECIMAL)),
    "signed": _Form(
        "a decimal number from -2**63 to 2**63 - 1", re.compile(f"-[0-9]{{1,19}}|{_DECIMAL}"), least=-LIMIT // 2
    ),
    "binary": _Form("64 binary digits", re.compile("[01]{64}"), base=2),
}


def format_fingerprint(fp: int) -> str:
    """Return the fingerprint as 16 lower-case hexadecimal digits."""
    return f"{as_fingerprint(fp):016x}"


def distance(a: int, b: int) -> int:
    """Return the Hamming distance between two fingerprints, in bits."""
    return (as_fingerprint(a) ^ as_fingerprint(b)).bit_count()


def distances(query: int, fingerprints: Uint64s) -> Uint8s:
    """Return the Hamming distance from `query` to each fingerprint.

    Args:
        query: Unsigned 64-bit fingerprint.
        fingerprints: Shape (n,), uint64, native byte order; not copied.

    Returns:
        Shape (n,), uint8, in bits, 0 to 64, in the given order.

    Raises:
        ValueError: `query` is not in [0, 2**64).
    """
    bits: Uint8s = np.bitwise_count(fingerprints ^ np.uint64(as_fingerprint(query)))
    return bits


def as_fingerprint(value: int) -> int:
    """Return a fingerprint as an int; raise `ValueError` or `TypeError` for other values."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"a fingerprint must be an int, got {type(value).__name__}: {value!r:.80}")
    number = int(value)
    if 0 <= number < LIMIT:
        return number
    raise ValueError(f"a fingerprint must be 0 to 2**64 - 1, got {value}")


def whole_number(value: object, name: str) -> int:
    """Return an `int` or a NumPy integer as an `int`; raise `TypeError` for anything else, including `bool`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}: {value!r:.80}")
    return int(value)


def as_fingerprints(fingerprints: AnyFingerprints) -> Uint64s:
    """Return fingerprints as an array of shape (n,), uint64; raise `ValueError` or `TypeError` for an invalid one."""
    if isinstance(fingerprints, np.ndarray) and fingerprints.dtype == np.uint64 and fingerprints.ndim == 1:
        return fingerprints
    numbers: list[int] = fingerprints.tolist() if isinstance(fingerprints, np.ndarray) else list(fingerprints)
    if numbers and set(map(type, numbers)) == {int} and 0 <= min(numbers) <= max(numbers) < LIMIT:
        return np.array(numbers, np.uint64)  # the usual case, without a loop
    return np.array(list(map(as_fingerprint, numbers)), np.uint64)


def spans(starts: Int64s | int, lengths: Int64s) -> Int64s:
    """Return the concatenated ranges that begin at `starts` and contain `lengths` numbers each."""
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)


def starts_of(ordered: NDArray[np.integer[Any]], count: int) -> Int64s:
    """For each number below `count`, return its leftmost insertion point in an ascending array: shape (count,)."""
    sizes = np.bincount(ordered, minlength=count)
    starts: Int64s = np.cumsum(sizes) - sizes
    return starts


def counts_before(places: Int64s, marks: Int64s) -> Int64s:
    """For each place, return how many marks precede it; both ascend, and no place is a mark."""
    if len(places) < len(marks):  # search for the values of the shorter array
        return np.searchsorted(marks, places)
    return np.cumsum(np.bincount(np.searchsorted(places, marks), minlength=len(places)))[: len(places)]


def sorted_distinct(values: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Return the distinct values of an array of any shape, ascending.

    `np.unique` is not used, because its first call imports numpy.ma, which would delay every forked process.
    """
    ordered: NDArray[_Scalar] = np.sort(values, axis=None)
    is_new: Bools = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[is_new]


def are_in(values: NDArray[_Scalar], ordered: NDArray[_Scalar]) -> Bools:
    """Return which values occur in an ascending array, in a quarter of the time that `np.isin` takes."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: Bools = ordered[places] == values
    return found


def formats_named(name: str) -> Formats:
    """Return the formats that `name` allows; `auto` allows all of them."""
    if name not in FORMAT_NAMES:
        raise ValueError(f"unknown fingerprint format {name!r}; use one of {', '.join(FORMAT_NAMES)}")
    return tuple(one for one in ALL_FORMATS if name in ("auto", one))


def parse_fingerprint(text: str, *, format: str = "auto") -> int:
    """Parse a fingerprint.

    Args:
        text: The fingerprint; surrounding whitespace is ignored.
        format: `hex`, `decimal`, `signed` or `binary`. With `auto`, a text that denotes different numbers in different
            formats is rejected. Name the format if several fingerprints come from one source, because `auto` detects
            the format of each text separately.

    Raises:
        ValueError: the text is not a fingerprint in this format, or it is ambiguous (16 digits without a letter).
    """
    return read_fingerprint(text, formats_named(format))


def read_fingerprint(written: str | int, formats: Formats) -> int:
    """Return the fingerprint in a word or JSON number; raise `ValueError` unless all matching `formats` agree."""
    if _is_in_all(written, formats):
        return int(written)
    values = {value for one in formats if (value := _value(written, _FORMS[one])) is not None}
    if len(values) == 1:
        return values.pop()
    if values:
        raise ValueError(
            f"ambiguous fingerprint {written!r}: 16 digits may be hexadecimal or decimal; prefix them with 0x if they "
            f"are hexadecimal, or " + _NAME_FORMAT
        )
    accepted = ", or ".join(_FORMS[one].accepted for one in formats)
    remedy = "" if len(formats) == len(ALL_FORMATS) else "; or " + _OTHER_FORMAT
    raise ValueError(f"not a fingerprint: {written!r:.80}; expected {accepted}" + remedy)


def narrow(formats: Formats, written: Iterable[str | int]) -> Formats:
    """Return the `formats` that fit a series of words and JSON numbers; stop reading once only one format is left.

    A word that fits none of the remaining formats is ignored: it is a bad record, or contradicts earlier words.
    """
    for one in written:
        if len(formats) == 1:
            break
        formats = fitting(one, formats) or formats
    return formats


def fitting(written: str | int, formats: Formats) -> Formats:
    """Return the formats in which a word or a JSON number is a fingerprint."""
    if _is_in_all(written, formats):
        return formats
    return tuple(name for name in formats if _value(written, _FORMS[name]) is not None)


def spoken(formats: Formats) -> str:
    """Return the formats as a phrase for messages."""
    return " or ".join("hexadecimal" if one == "hex" else one for one in formats)


def _is_in_all(written: str | int, formats: Formats) -> bool:
    """Whether `written` is a JSON number that is the same in all `formats`: a fast check for the usual case."""
    return isinstance(written, int) and 0 <= written < (LIMIT // 2 if "signed" in formats else LIMIT)


def _value(written: str | int, form: _Form) -> int | None:
    """Return the 64 bits that a word or JSON number denotes in a format, or None if it does not fit."""
    if isinstance(written, str):
        word = written.strip()
        if not form.pattern.fullmatch(word):
            return None
        written = int(word, form.base)
    return written % LIMIT if form.least <= written < form.least + LIMIT else None
