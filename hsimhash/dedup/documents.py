"""Inputs → documents in columns: what is needed of each to compare it, to choose which to keep, and to find it again.

Texts are not held. The first record with an id is the document. A later one with the same id is a repeat, which is only
counted, if its signature and its length are the same, else a reject: which of the two counts is not for us to say.
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

from hsimhash.dedup.options import DedupOptions
from hsimhash.fingerprint import TOO_SHORT, Profile, Signatures, format_fingerprint
from hsimhash.fingerprint.bits import Bools, Int64s, Uint64s
from hsimhash.inputs.files import Input
from hsimhash.inputs.reader import Batch, read_batches
from hsimhash.inputs.records import Documents, Reject
from hsimhash.load.intake import bytes_before, fingerprinted, reject_line, short_lines, usual_workers

FIELD_CHARACTERS = 64  # a longer value of a field is no time and no number


# Of each document: its fingerprint, sketch and key, 0 for what it has none of; its kind, `VOTED`, `EXACT` or
# `TOO_SHORT`; the characters of its text, 0 where a fingerprint was read; the number of its input; its line there,
# from 1.
_SIGNATURE = (("fingerprint", "u8"), ("sketch", "u8"), ("key", "u8"), ("kind", "u1"))
_ROW = np.dtype([*_SIGNATURE, ("length", "i8"), ("input", "i4"), ("line", "i8")])
_OF_THE_TEXT = (*(name for name, _ in _SIGNATURE), "length")
_Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who follows what is read: lines for the lists, warnings, and (bytes read, in all, documents)."""

    rejects: Callable[[Sequence[str]], object]
    short: Callable[[Sequence[str]], object]
    say: Callable[[str], object]
    progress: Callable[[int, int, int], object]


@dataclass(frozen=True, eq=False)
class Collected:
    """Documents in the order of the inputs, in columns."""

    doc_ids: Sequence[str]  # each once
    rows: _Rows  # `_ROW`
    fields: Mapping[str, Sequence[object]]  # what was asked for, by name
    rejected: int  # records that are none of these documents
    repeated: int  # records that say again what one before said

    @cached_property
    def fingerprints(self) -> Uint64s:
        """The fingerprints, 0 for a document without one."""
        return np.ascontiguousarray(self.rows["fingerprint"])

    @cached_property
    def has_signatures(self) -> bool:
        """Whether some document has a sketch or a key."""
        return bool(self.rows["sketch"].any() or self.rows["key"].any())

    def signatures(self, numbers: Int64s) -> Signatures:
        """Return the signatures of some documents; where there are fingerprints alone, they take no more memory."""
        if not self.has_signatures:
            return Signatures.of(self.fingerprints[numbers])
        return Signatures(*(self.rows[name][numbers] for name, _ in _SIGNATURE))

    @cached_property
    def comparable(self) -> Int64s:
        """The numbers of the documents that have a fingerprint."""
        return np.flatnonzero(self.rows["kind"] != TOO_SHORT)


def collect(
    inputs: Sequence[Input], options: DedupOptions, profile: Profile, fields: Sequence[str], listener: Listener
) -> Collected:
    """Read the inputs once; `fields` are those of JSON records to keep for each document."""
    if not all(one.has_fingerprints for one in inputs):
        profile.verify()
    batches = read_batches(inputs, options.reading, fields=fields)
    workers = options.workers or usual_workers(inputs)
    columns = _Columns(inputs, fields)
    with closing(fingerprinted(inputs, batches, profile, workers)) as found:
        for batch, made in found:
            one, documents = inputs[batch.input], batch.documents
            if made is not None:
                listener.short(short_lines(one, documents, made))
            if warning := documents.warning(one.name):
                listener.say(warning)
            listener.rejects(columns.take(batch, made))
            listener.progress(*bytes_before(inputs, batch.end), columns.count)
    return columns.collected()


@dataclass(slots=True)
class _Columns:
    inputs: Sequence[Input]
    field_names: Sequence[str]
    rejected: int = 0
    repeated: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)  # of the documents, in their order
    _parts: list[_Rows] = field(default_factory=lambda: [np.empty(0, _ROW)])  # one for each batch
    _starts: list[int] = field(default_factory=lambda: [0])  # the number of each part's first document
    _fields: dict[str, list[object]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def take(self, batch: Batch, made: Signatures | None) -> list[str]:
        """Add a batch; return its rejects as lines, in order."""
        documents, one = batch.documents, self.inputs[batch.input]
        rows, start = _rows(batch, made), self.count
        is_new = self._register(documents.doc_ids)
        for name in self.field_names:
            values = map(_bounded, documents.fields.get(name) or (None,) * len(rows))
            self._fields.setdefault(name, []).extend(itertools.compress(values, is_new.tolist()))
        self._starts.append(start)
        self._parts.append(rows[is_new])
        rejects = [*documents.rejects, *self._refused(documents, rows, np.flatnonzero(~is_new).tolist())]
        if one.kind != "files":  # there a reject's line is not its place
            rejects.sort(key=lambda reject: reject.line)
        self.rejected += len(rejects)
        return [reject_line(one, reject) for reject in rejects]

    def _register(self, doc_ids: Sequence[str]) -> Bools:
        """Number the ids that are new; return which are."""
        numbers, count = self._numbers, self.count
        if numbers.keys().isdisjoint(doc_ids) and len(set(doc_ids)) == len(doc_ids):
            numbers.update(zip(doc_ids, itertools.count(count)))
            return np.ones(len(doc_ids), np.bool_)
        is_new = np.zeros(len(doc_ids), np.bool_)
        for place, doc_id in enumerate(doc_ids):
            is_new[place] = numbers.setdefault(doc_id, count) == count
            count += int(is_new[place])
        return is_new

    def _refused(self, documents: Documents, rows: _Rows, places: Sequence[int]) -> Iterator[Reject]:
        """Yield rejects for those records with an id seen before that are no repeats; count the others."""
        for place in places:
            doc_id, row = documents.doc_ids[place], rows[place]
            number = self._numbers[doc_id]
            part = bisect_right(self._starts, number) - 1
            earlier = self._parts[part][number - self._starts[part]]
            is_known = row["kind"] != TOO_SHORT or earlier["kind"] != TOO_SHORT
            if is_known and all(row[name] == earlier[name] for name in _OF_THE_TEXT):
                self.repeated += 1
                continue
            how = "with another text or fingerprint" if is_known else "and both texts are too short to be compared"
            where = _where(self.inputs[earlier["input"]], doc_id, earlier["line"])
            yield self._reject(documents, row, place, f"id seen before at {where}, {how}; the first counts")

    def _reject(self, documents: Documents, row: np.void, place: int, reason: str) -> Reject:
        one, doc_id, line = self.inputs[row["input"]], documents.doc_ids[place], int(row["line"])
        held = documents.texts[place] if documents.texts else format_fingerprint(int(row["fingerprint"]))
        if one.kind == "files":
            return Reject.of(1, reason, held.encode(), _where(one, doc_id, line))
        return Reject.of(line, reason, f"{doc_id}\t{held}".encode())

    def collected(self) -> Collected:
        doc_ids = list(self._numbers)
        self._numbers.clear()
        fields = {name: self._fields.get(name, []) for name in self.field_names}
        return Collected(doc_ids, np.concatenate(self._parts), fields, self.rejected, self.repeated)


def _rows(batch: Batch, made: Signatures | None) -> _Rows:
    documents = batch.documents
    rows = np.zeros(len(documents.doc_ids), _ROW)
    rows["input"], rows["line"] = batch.input, documents.lines
    signatures = documents.signatures if made is None else made
    rows["fingerprint"], rows["sketch"], rows["key"] = signatures.fingerprints, signatures.sketches, signatures.keys
    rows["kind"] = signatures.kinds
    if made is not None:
        rows["length"] = [len(text) for text in documents.texts]
    return rows


def _bounded(value: object) -> object:
    """Return a field's value if it may be a time or a number, else an empty text; None stays."""
    is_long = isinstance(value, str) and len(value) > FIELD_CHARACTERS
    is_long = is_long or (isinstance(value, int) and abs(value) >= 10**FIELD_CHARACTERS)
    return value if value is None or (isinstance(value, (str, int, float)) and not is_long) else ""


def _where(one: Input, doc_id: str, line: int) -> str:
    return os.path.join(one.name, doc_id) if one.kind == "files" else f"{one.name}:{line}"  # noqa: PTH118
