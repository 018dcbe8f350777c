"""Detect the format of an input's fingerprints from its first values, and narrow it down with later values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TypeGuard

from hsimhash.errors import Remedy
from hsimhash.fingerprint.bits import Formats, fitting, narrow, spoken


class Narrowing:
    """The formats that an input's fingerprints may still have."""

    def __init__(self, formats: Formats) -> None:
        self.formats = formats

    @property
    def is_open(self) -> bool:
        """Whether more than one format is still possible."""
        return len(self.formats) > 1

    def take(self, written: Iterable[str | int]) -> str:
        """Rule out formats that a block of values contradicts; return a message for the user if fewer remain."""
        before, self.formats = self.formats, narrow(self.formats, written)
        is_news = self.formats != before and ("hex" not in self.formats or not self.is_open)
        return f"fingerprints are read as {spoken(self.formats)}" if is_news else ""


def decided_formats(name: str, formats: Formats, written: Iterable[str | int]) -> Formats:
    """Return the possible formats of a file's fingerprints: one, or several that agree on all values seen.

    Args:
        name: Name of the file.
        formats: Formats to choose from.
        written: The first fingerprints of the file; reading stops once only one format is possible.

    Raises:
        ValueError: Some fingerprints are strings, and each of these could be either hexadecimal or decimal.
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
            f"hexadecimal or decimal; choose with "
            + Remedy("fingerprint_format=", "--fingerprint-format ")
            + "|".join(formats)
        )
    return formats


def written_in(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the fingerprint in each line: the text after the last tab."""
    for line in lines:
        with suppress(ValueError):  # ignore bad records
            yield line.rpartition(b"\t")[2].decode()


def is_written(value: object) -> TypeGuard[str | int]:
    """Whether a JSON value may be a fingerprint: a string or an integer."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def words_in(records: Iterable[Mapping[str, object]], field: str) -> Iterator[str | int]:
    """Yield the value of `field` in each record, if it may be a fingerprint."""
    return filter(is_written, (record.get(field) for record in records))
