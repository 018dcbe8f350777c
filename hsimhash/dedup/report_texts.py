"""Keep the texts that the report compares, in a temporary file if there are many."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from hsimhash.dedup.documents import Collected
from hsimhash.dedup.report import INPUTS_NAMED, ShownPair
from hsimhash.dedup.rereading import texts_again
from hsimhash.dedup.word_diff import Comparison, compare
from hsimhash.inputs.files import Input, InputOptions

HELD_BYTES = 64 << 20  # maximum bytes of text in memory; beyond that, texts go to a file
COMPARED_CHARS = 40_000_000  # total characters after which no more texts are compared; takes at most a minute
FIRST_LINE_CHARS = 120


class Texts:
    """Texts of documents by number; if they exceed HELD_BYTES, they go to a file in `folder`. A context manager."""

    def __init__(
        self, folder: Path, *, compared_chars: int = COMPARED_CHARS, tell: Callable[[], object] = lambda: None
    ) -> None:
        self._tell = tell  # called for each pair, because comparing long texts takes seconds
        self.first_lines: dict[int, str] = {}
        self._file = tempfile.SpooledTemporaryFile[bytes](HELD_BYTES, dir=str(folder))
        self._places: dict[int, tuple[int, int]] = {}
        self._chars_left = compared_chars
        self._missing: list[str] = []  # inputs that cannot be read again
        self._found: dict[tuple[int, int], Comparison | None] = {}  # the same pair may be shown twice

    def __enter__(self) -> Texts:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def add(self, number: int, text: str, *, is_compared: bool) -> None:
        """Add the first line of a text, and the whole text if it is compared."""
        self.first_lines[number] = first_line(text)
        if is_compared:
            data = text.encode("utf-8", "surrogatepass")
            self._places[number] = self._file.tell(), len(data)
            self._file.write(data)

    def pair(self, left: tuple[int, str], right: tuple[int, str], distance: int) -> ShownPair:
        """Return two documents, each given as (number, id), with their differences if both texts are available."""
        self._tell()
        pair = left[0], right[0]
        if pair not in self._found and self._places.keys() >= {*pair} and self._chars_left > 0:
            texts = self._text(left[0]), self._text(right[0])
            self._chars_left -= sum(map(len, texts))
            self._found[pair] = compare(*texts)
        return ShownPair(left[1], right[1], distance, self._found.get(pair))

    def _text(self, number: int) -> str:
        start, size = self._places[number]
        self._file.seek(start)
        return self._file.read(size).decode("utf-8", "surrogatepass")

    @property
    def note(self) -> str:
        """Why texts are missing or pairs were not compared, in full sentences; may be empty."""
        missing, notes = self._missing, []
        if missing:
            more = f"; and {len(missing) - INPUTS_NAMED:,} more" if len(missing) > INPUTS_NAMED else ""
            notes.append(f"Some texts are missing: {'; '.join(missing[:INPUTS_NAMED])}{more}.")
        if self._chars_left <= 0:
            notes.append(f"The texts are long: hsimhash stopped comparing pairs after {COMPARED_CHARS:,} characters.")
        return " ".join(notes)

    def read(
        self,
        documents: Collected,
        inputs: Sequence[Input],
        options: InputOptions,
        *,
        compared: Collection[int],
        listed: Collection[int],
    ) -> None:
        """Add the texts of documents to compare, and of documents whose first lines are listed."""
        wanted = np.array(sorted({*compared, *listed}), np.int64)
        missing: dict[int, str] = {}
        for number, text in texts_again(documents, inputs, options, wanted, missing):
            self.add(number, text, is_compared=number in compared)
        self._missing += missing.values()


def first_line(text: str) -> str:
    """Return the first line of a text that contains a word; empty if no line does."""
    word = re.search(r"\w", text)
    start = text.rfind("\n", 0, word.start()) + 1 if word else len(text)
    line = text[start : start + FIRST_LINE_CHARS].lstrip().partition("\n")[0]
    return " ".join(line.split())


def date_of(inputs: Sequence[Input]) -> str:
    """Return when the newest input file was modified; empty if there are no files.

    Unlike the current time, this date makes reports on the same files identical.
    """
    times = []
    for one in inputs:
        with suppress(FileNotFoundError):  # the file was deleted after it was read
            times += [] if one.is_stream or one.remote else [Path(one.name).stat().st_mtime]
    return datetime.fromtimestamp(max(times), UTC).strftime("%Y-%m-%d %H:%M UTC") if times else ""
