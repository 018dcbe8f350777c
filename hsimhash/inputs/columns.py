"""Lines of `id<TAB>fingerprint` → columns, whole blocks at once: a Python loop would cost more than the index does.

What every usual line has in common is checked with numpy: one tab, 1 to 2,048 bytes before it without control
characters, 16 hexadecimal digits behind it. Any other line, and every line where these are not known to be
hexadecimal, goes through `_parse_line`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import HEX, Formats, read_fingerprint
from hsimhash.inputs.batch import BadRecordError, Documents, Reject
from hsimhash.rowkey import DOC_ID_BYTES, check_doc_id

_DIGITS = 16
_NO_DIGIT = 255
_TAB, _NEWLINE = ord("\t"), ord("\n")

_DIGIT_VALUES = np.full(256, _NO_DIGIT, np.uint8)
for _value, _digits in enumerate(zip("0123456789abcdef", "0123456789ABCDEF", strict=True)):
    _DIGIT_VALUES[[ord(digit) for digit in _digits]] = _value

Bytes = NDArray[np.uint8]
Positions = NDArray[np.intp]


def fingerprint_columns(data: bytes, first_line: int, formats: Formats) -> Documents:
    """Return the documents of whole lines, the first of which is line `first_line`; see `read_fingerprint`."""
    data = data.replace(b"\r\n", b"\n")
    characters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(characters == _NEWLINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    fingerprints = np.zeros(len(ends), np.uint64)
    is_usual = np.zeros(len(ends), np.bool_)
    if formats == HEX:
        is_usual = _usual(characters, starts, ends, fingerprints)
    doc_ids = _usual_ids(characters, data, starts, ends, is_usual)
    if doc_ids is None:  # somewhere it is not UTF-8
        is_usual &= _is_ascii(characters, starts)
        doc_ids = _usual_ids(characters, data, starts, ends, is_usual) or []
    if len(doc_ids) == len(ends):
        return Documents(doc_ids, fingerprints=fingerprints, lines=range(first_line, first_line + len(ends)))
    return _with_unusual(data, first_line, _Lines(starts, ends, is_usual, formats), doc_ids, fingerprints)


def _usual(
    characters: Bytes, starts: Positions, ends: Positions, fingerprints: NDArray[np.uint64]
) -> NDArray[np.bool_]:
    """Return which lines are usual, and fill in their fingerprints."""
    tabs = ends - (_DIGITS + 1)  # where the tab of a usual line is
    is_usual = (tabs - starts >= 1) & (tabs - starts <= DOC_ID_BYTES)
    is_usual[is_usual] = characters[tabs[is_usual]] == _TAB
    # Control characters: U+0000 to U+001F, U+007F, and in UTF-8 U+0080 to U+009F.
    is_control = (characters < 0x20) | (characters == 0x7F)
    is_control[1:] |= (characters[:-1] == 0xC2) & (characters[1:] >= 0x80) & (characters[1:] < 0xA0)
    is_usual &= np.add.reduceat(is_control, starts, dtype=np.intp) == 2  # the tab and the newline
    usual = np.flatnonzero(is_usual)
    digits = _DIGIT_VALUES[characters[tabs[usual, None] + np.arange(1, _DIGITS + 1)]]
    is_usual[usual] = is_hex = (digits != _NO_DIGIT).all(axis=1)
    packed = digits[is_hex, ::2] << 4 | digits[is_hex, 1::2]
    fingerprints[usual[is_hex]] = packed.view(">u8").ravel()
    return is_usual


def _usual_ids(
    characters: Bytes, data: bytes, starts: Positions, ends: Positions, is_usual: NDArray[np.bool_]
) -> list[str] | None:
    """Return the ids of the usual lines, None if those lines are not UTF-8."""
    if not is_usual.all():
        data = characters[np.repeat(is_usual, ends + 1 - starts)].tobytes()
    try:
        # Two columns and two separators: every other piece is an id, the last one is empty.
        return data.decode("utf-8").replace("\n", "\t").split("\t")[:-1:2]
    except UnicodeDecodeError:
        return None


def _is_ascii(characters: Bytes, starts: Positions) -> NDArray[np.bool_]:
    return np.maximum.reduceat(characters, starts) < 0x80


class _Lines(NamedTuple):
    """Where lines begin and end, which are usual, and the formats of their fingerprints."""

    starts: Positions
    ends: Positions
    is_usual: NDArray[np.bool_]
    formats: Formats


def _with_unusual(
    data: bytes, first_line: int, lines: _Lines, usual_ids: list[str], fingerprints: NDArray[np.uint64]
) -> Documents:
    doc_ids: list[str | None] = [None] * len(lines.ends)
    for place, doc_id in zip(np.flatnonzero(lines.is_usual).tolist(), usual_ids, strict=True):
        doc_ids[place] = doc_id
    rejects = []
    for place in np.flatnonzero(~lines.is_usual).tolist():
        line = data[lines.starts[place] : lines.ends[place]]
        if not line.strip(b" \r"):
            continue
        try:
            doc_ids[place], fingerprints[place] = _parse_line(line, lines.formats)
        except BadRecordError as error:
            rejects.append(Reject.of(first_line + place, error, line))
    is_document = np.array([doc_id is not None for doc_id in doc_ids], np.bool_)
    return Documents(
        [doc_id for doc_id in doc_ids if doc_id is not None],
        fingerprints=fingerprints[is_document],
        lines=(first_line + np.flatnonzero(is_document)).tolist(),
        rejects=rejects,
    )


def _parse_line(line: bytes, formats: Formats) -> tuple[str, int]:
    try:
        columns = line.removesuffix(b"\r").decode("utf-8").split("\t")
        if len(columns) != 2:
            raise BadRecordError(f"{len(columns)} columns instead of an id, a tab and a fingerprint")
        check_doc_id(columns[0])
        return columns[0], read_fingerprint(columns[1], formats)
    except UnicodeDecodeError as error:
        raise BadRecordError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    except BadRecordError:
        raise
    except ValueError as error:
        raise BadRecordError(str(error)) from error
