"""Detect how an input writes its fingerprints: from its first values, narrowed down by later ones."""

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
        """Whether further values may still rule out formats."""
        return len(self.formats) > 1

    def take(self, written: Iterable[str | int]) -> str:
        """Rule out formats by a block of the input; return a message for the user if the choice narrowed."""
        before, self.formats = self.formats, narrow(self.formats, written)
        is_news = self.formats != before and ("hex" not in self.formats or not self.is_open)
        return f"fingerprints are read as {spoken(self.formats)}" if is_news else ""


def decided_formats(name: str, formats: Formats, written: Iterable[str | int]) -> Formats:
    """Return the possible formats of a file's fingerprints: one, or several that agree on all values seen.

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
            f"hexadecimal or decimal; choose with "
            + Remedy("fingerprint_format=", "--fingerprint-format ")
            + "|".join(formats)
        )
    return formats


def written_in(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield the fingerprints in lines: the text after the last tab."""
    for line in lines:
        with suppress(ValueError):  # a bad record decides nothing
            yield line.rpartition(b"\t")[2].decode()


def is_written(value: object) -> TypeGuard[str | int]:
    """Whether a JSON value is a word or a whole number, which may be a fingerprint."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)


def words_in(records: Iterable[Mapping[str, object]], field: str) -> Iterator[str | int]:
    """Yield the fingerprints in records."""
    return filter(is_written, (record.get(field) for record in records))
