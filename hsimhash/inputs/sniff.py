"""What the first lines of a file tell: whether it holds fingerprints or texts, and how the fingerprints are written."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TypeGuard

from hsimhash.fingerprint.bits import ALL_FORMATS, Formats, fitting
from hsimhash.inputs.batch import Reject
from hsimhash.inputs.lines import chunks_of, open_source

SNIFFED_LINES = 16  # that tell fingerprints from texts
FORMAT_LINES = 10_000  # read at most to decide a format, and
FORMAT_BYTES = 4 << 20  # so many bytes; nearly every input is decided by its first lines
_BLOCK_BYTES = 1 << 16


class FirstLines:
    """The first lines of a file that are not blank, read as far as they are asked for."""

    def __init__(self, name: str, packing: str) -> None:
        self._name = name
        self._packing = packing

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines up to damage, if there is any; one that is too long is cut."""
        with open_source(self._name, self._packing, _BLOCK_BYTES) as source:
            is_first = True
            for chunk in chunks_of(source, lambda: False):
                if chunk.is_damaged:
                    return
                lines = [chunk.data] if chunk.problem else chunk.data.split(b"\n")
                if is_first:
                    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                yield from (line for line in lines if line.strip())
                is_first = False

    def bounded(self) -> Iterator[bytes]:
        """Yield as many lines as are read to decide a format."""
        size = 0
        for number, line in enumerate(self):
            if number == FORMAT_LINES or size >= FORMAT_BYTES:
                return
            yield line
            size += len(line)


def holds_fingerprints(name: str, lines: FirstLines) -> bool:
    """Return whether a TSV file has fingerprints, not texts, behind its tabs.

    Raises:
        ValueError: some of its first lines have fingerprints, others have not.
    """
    first = list(islice(lines, SNIFFED_LINES))
    others = [(number, line) for number, line in enumerate(first, start=1) if not _is_fingerprint_line(line)]
    if 0 < len(others) < len(first):
        number, line = others[0]
        shown = Reject.of(number, "", line).preview[:80]
        raise ValueError(
            f"input {name}: {len(first) - len(others)} of its first {len(first)} lines are an id, a tab and a "
            f"fingerprint, but line {number} is '{shown}'; say --format "
            f"fingerprints, which rejects the others (a header, say), or --format tsv if all of them are texts"
        )
    return bool(first) and not others


def _is_fingerprint_line(line: bytes) -> bool:
    columns = line.split(b"\t")
    return len(columns) == 2 and bool(fitting(columns[1].decode("utf-8", "replace"), ALL_FORMATS))


def refuse_carriage_returns(name: str, lines: FirstLines) -> None:
    """Raise `ValueError` where a TSV file has records, but no line feeds between them."""
    first = list(islice(lines, 2))
    if len(first) == 1 and b"\t" in first[0].rstrip(b"\r").partition(b"\r")[2]:
        raise ValueError(
            f"input {name}: its lines end in a carriage return alone, so that all of it would be one record; make "
            f"them line feeds (tr '\\r' '\\n')"
        )


def decided_formats(name: str, formats: Formats, written: Iterable[str | int]) -> Formats:
    """Return which formats the fingerprints of a file may have: one, or several that agree on all that was seen.

    Args:
        name: of the file.
        formats: those to choose from.
        written: its first fingerprints; no more of them are read than decide.

    Raises:
        ValueError: there are words, and all of them may be hexadecimal or decimal.
    """
    words = 0
    for one in written:
        if len(formats) == 1:
            return formats
        fits = fitting(one, formats)
        words += isinstance(one, str) and bool(fits)
        formats = fits or formats
    if words and len(formats) > 1 and "hex" in formats:
        raise ValueError(
            f"input {name}: all of its first fingerprints ({words:,}) have 16 digits and no letter, so they may be "
            f"hexadecimal or decimal; say which with --fingerprint-format {'|'.join(formats)}"
        )
    return formats


def written_in(lines: Iterable[bytes], field: str | None) -> Iterator[str | int]:
    """Yield what stands for a fingerprint in lines: in a JSON field, or behind the last tab where `field` is None."""
    for line in lines:
        with suppress(ValueError, RecursionError):  # a bad record decides nothing
            if field is None:
                yield line.rpartition(b"\t")[2].decode()
                continue
            record = json.loads(line)
            value = record.get(field) if isinstance(record, dict) else None
            if is_written(value):
                yield value


def is_written(value: object) -> TypeGuard[str | int]:
    """Whether a JSON value is a word or a whole number, so that it may be a fingerprint."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)
