"""Inputs → documents in columns: what is needed of each to compare it, to choose which to keep, and to find it again.

Texts are not held. The first record with an id is the document. A later one with the same id is a repeat, which is only
counted, if its fingerprint and its length are the same, else a reject: which of the two counts is not for us to say.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint import TOO_SHORT, VOTED, Fingerprints, Profile, format_fingerprint
from hsimhash.inputs.batch import Batch, Documents, Position, Reject
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.records import DocumentReader
from hsimhash.load.intake import bytes_before, fingerprinted, reject_line, short_lines, usual_workers

BLOCK_BYTES = 256 << 10
FIELD_CHARACTERS = 64  # a longer value of a field is no time and no number


@dataclass(frozen=True, slots=True)
class Reading:
    """How documents are read.

    Args:
        inputs: what `find_inputs` found.
        options: how they are read.
        profile: what fingerprints texts.
        workers: processes that do; None: one per core.
        fields: fields of JSON records to keep for each document.
    """

    inputs: Sequence[Input]
    options: InputOptions
    profile: Profile
    workers: int | None = None
    fields: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told of what is read: lines for the lists, warnings, and (bytes read, in all, documents)."""

    rejects: Callable[[Sequence[str]], object]
    short: Callable[[Sequence[str]], object]
    say: Callable[[str], object]
    progress: Callable[[int, int, int], object]


@dataclass(frozen=True, eq=False)
class Collected:
    """Documents in the order of the inputs, in columns.

    Args:
        doc_ids: each once.
        fingerprints: uint64; 0 where there is none.
        kinds: uint8, `VOTED`, `EXACT` or `TOO_SHORT`.
        lengths: int64, characters of the text; 0 where a fingerprint was read.
        inputs: int32, the number of the input.
        lines: int64, where in it, from 1.
        fields: what was asked for, by name.
        rejected: records that are none of these documents.
        repeated: records that say again what one before said.
    """

    doc_ids: Sequence[str]
    fingerprints: NDArray[np.uint64]
    kinds: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    inputs: NDArray[np.int32]
    lines: NDArray[np.int64]
    fields: Mapping[str, Sequence[object]]
    rejected: int
    repeated: int

    @cached_property
    def comparable(self) -> NDArray[np.int64]:
        """The numbers of the documents that have a fingerprint."""
        return np.flatnonzero(self.kinds != TOO_SHORT)


def collect(reading: Reading, listener: Listener) -> Collected:
    """Read the inputs once."""
    inputs = reading.inputs
    if not all(one.has_fingerprints for one in inputs):
        reading.profile.verify()
    reader = DocumentReader(inputs, reading.options, lambda: False, BLOCK_BYTES, fields=reading.fields)
    batches = reader.batches(Position())
    workers = reading.workers or usual_workers(inputs)
    columns = _Columns(inputs, reading.fields)
    with closing(fingerprinted(inputs, batches, reading.profile, workers)) as found:
        for batch, made in found:
            _tell(listener, inputs[batch.input], batch, made)
            listener.rejects(columns.take(batch, made))
            listener.progress(*bytes_before(inputs, batch.end), columns.count)
    return columns.collected()


def _tell(listener: Listener, one: Input, batch: Batch, made: Fingerprints | None) -> None:
    documents = batch.documents
    if made is not None:
        listener.short(short_lines(one, documents, made))
    if documents.note:
        listener.say(f"{one.name}: {documents.note}")
    if documents.damage:
        listener.say(f"{one.name}:{documents.rejects[0].line}: {documents.damage}; the documents before it are kept")


@dataclass(slots=True)
class _Part:
    """Columns of one batch."""

    fingerprints: NDArray[np.uint64]
    kinds: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    lines: NDArray[np.int64]
    input: int

    def only(self, is_wanted: NDArray[np.bool_]) -> _Part:
        return _Part(
            self.fingerprints[is_wanted],
            self.kinds[is_wanted],
            self.lengths[is_wanted],
            self.lines[is_wanted],
            self.input,
        )


@dataclass(slots=True)
class _Columns:
    inputs: Sequence[Input]
    field_names: Sequence[str]
    rejected: int = 0
    repeated: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)  # of the documents, in their order
    _parts: list[_Part] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)  # the number of each part's first document
    _fields: dict[str, list[object]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def take(self, batch: Batch, made: Fingerprints | None) -> list[str]:
        """Add a batch; return its rejects as lines, in order."""
        documents, one = batch.documents, self.inputs[batch.input]
        rejects = list(documents.rejects)
        if documents.doc_ids:
            rejects += self._take(batch.input, documents, made)
            if one.kind != "files":  # there a reject's line is not its place
                rejects.sort(key=lambda reject: reject.line)
        self.rejected += len(rejects)
        return [reject_line(one, reject) for reject in rejects]

    def _take(self, number: int, documents: Documents, made: Fingerprints | None) -> list[Reject]:
        doc_ids, first = documents.doc_ids, self.count
        part = _part(number, documents, made)
        self._starts.append(first)
        is_new = self._register(doc_ids)
        if is_new is None:
            self._parts.append(part)
            self._take_fields(documents, None)
            return []
        self._parts.append(part.only(is_new))
        self._take_fields(documents, is_new)
        return list(self._refused(documents, part, np.flatnonzero(~is_new).tolist()))

    def _register(self, doc_ids: Sequence[str]) -> NDArray[np.bool_] | None:
        """Number the ids that are new; return which are, None for all."""
        numbers, count = self._numbers, self.count
        if numbers.keys().isdisjoint(doc_ids) and len(set(doc_ids)) == len(doc_ids):
            numbers.update(zip(doc_ids, itertools.count(count)))
            return None
        is_new = np.zeros(len(doc_ids), np.bool_)
        for place, doc_id in enumerate(doc_ids):
            is_new[place] = numbers.setdefault(doc_id, count) == count
            count += int(is_new[place])
        return is_new

    def _take_fields(self, documents: Documents, is_new: NDArray[np.bool_] | None) -> None:
        for name in self.field_names:
            values = [_bounded(value) for value in documents.fields.get(name) or (None,) * len(documents.doc_ids)]
            kept = values if is_new is None else itertools.compress(values, is_new.tolist())
            self._fields.setdefault(name, []).extend(kept)

    def _refused(self, documents: Documents, part: _Part, places: Sequence[int]) -> Iterator[Reject]:
        """Yield rejects for those records with an id seen before that are no repeats; count the others."""
        for place in places:
            doc_id = documents.doc_ids[place]
            earlier, at = self._place_of(self._numbers[doc_id])
            if (
                earlier.kinds[at] == part.kinds[place] != TOO_SHORT
                and earlier.fingerprints[at] == part.fingerprints[place]
                and earlier.lengths[at] == part.lengths[place]
            ):
                self.repeated += 1
                continue
            where = _where(self.inputs[earlier.input], doc_id, int(earlier.lines[at]))
            is_known = not earlier.kinds[at] == part.kinds[place] == TOO_SHORT
            how = "with another text or fingerprint" if is_known else "and both texts are too short to be compared"
            reason = f"id seen before at {where}, {how}; the first counts"
            yield _reject(self.inputs[part.input], documents, part, place, reason)

    def _place_of(self, number: int) -> tuple[_Part, int]:
        """Return where the document of a number is kept."""
        part = bisect_right(self._starts, number) - 1
        return self._parts[part], number - self._starts[part]

    def collected(self) -> Collected:
        doc_ids = list(self._numbers)
        self._numbers.clear()
        parts = self._parts
        sizes = [len(part.lines) for part in parts]
        return Collected(
            doc_ids,
            np.concatenate([np.empty(0, np.uint64), *(part.fingerprints for part in parts)]),
            np.concatenate([np.empty(0, np.uint8), *(part.kinds for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)]),
            np.repeat(np.array([part.input for part in parts], np.int32), sizes),
            np.concatenate([np.empty(0, np.int64), *(part.lines for part in parts)]),
            {name: self._fields.get(name, []) for name in self.field_names},
            self.rejected,
            self.repeated,
        )


def _part(number: int, documents: Documents, made: Fingerprints | None) -> _Part:
    count = len(documents.doc_ids)
    lines = np.array(documents.lines, np.int64)
    if made is None:
        kinds = np.full(count, VOTED, np.uint8)
        return _Part(documents.fingerprints, kinds, np.zeros(count, np.int64), lines, number)
    lengths = np.fromiter(map(len, documents.texts), np.int64, count)
    return _Part(made.values, made.kinds, lengths, lines, number)


def _bounded(value: object) -> object:
    """Return a field's value if it may be a time or a number, else an empty text; None stays."""
    is_long = isinstance(value, str) and len(value) > FIELD_CHARACTERS
    is_long = is_long or (isinstance(value, int) and abs(value) >= 10**FIELD_CHARACTERS)
    return value if value is None or (isinstance(value, (str, int, float)) and not is_long) else ""


def _where(one: Input, doc_id: str, line: int) -> str:
    return os.path.join(one.name, doc_id) if one.kind == "files" else f"{one.name}:{line}"  # noqa: PTH118


def _reject(one: Input, documents: Documents, part: _Part, place: int, reason: str) -> Reject:
    doc_id, line = documents.doc_ids[place], int(part.lines[place])
    held = documents.texts[place] if documents.texts else format_fingerprint(int(part.fingerprints[place]))
    if one.kind == "files":
        return Reject.of(1, reason, held.encode(), _where(one, doc_id, line))
    return Reject.of(line, reason, f"{doc_id}\t{held}".encode())
