"""Collect documents in columns, with the data needed to compare them, choose which to keep, and find them again.

Ids and positions go to files in the results folder, and texts are held in memory only if they are small. The first
record with an id is the document. A later record with the same id is a repeat if it has the same signature and length.
Otherwise it is rejected, because hsimhash cannot know which of the two records is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash.dedup.held_texts import HeldTexts
from hsimhash.dedup.ids import SpilledIds
from hsimhash.dedup.options import DedupOptions
from hsimhash.dedup.outputs import output_errors
from hsimhash.fingerprint import TOO_SHORT, Profile, Signatures, format_fingerprint
from hsimhash.fingerprint.bits import Floats, Int64s, Uint8s, Uint64s
from hsimhash.fingerprint.keys import Keying
from hsimhash.inputs.field_values import integer_in
from hsimhash.inputs.files import Input, usual_workers
from hsimhash.inputs.reader import Batch, HeldBatches, read_again
from hsimhash.inputs.records import Documents, Reject
from hsimhash.load.intake import bytes_before, fingerprinted, reject_line, short_lines
from hsimhash.pairs.distinct import Column
from hsimhash.pairs.keep_policies import VALUE_PARTS, Policy
from hsimhash.progress import Observer

FIELD_CHARACTERS = 64  # a longer field value cannot be a time or a number
ROWS_AT_ONCE = 1 << 16  # rows in memory while a column is read


# For each document: its fingerprint, sketch and key (0 if missing), its kind (`VOTED`, `EXACT` or `TOO_SHORT`), the
# length of its text in characters (0 if a fingerprint was read), the number of its input, and its line there, from 1.
_SIGNATURE = (("fingerprint", "u8"), ("sketch", "u8"), ("key", "u8"), ("kind", "u1"))
_ROW = np.dtype([*_SIGNATURE, ("length", "i8"), ("input", "i4"), ("line", "i8")])
_VALUE = np.dtype([(f"part{number}", "f8") for number in range(VALUE_PARTS)])
_OF_THE_TEXT = (*(name for name, _ in _SIGNATURE), "length")
_RowArray = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Listener:
    """Receives progress, and the lines for the lists of rejected records and short texts."""

    rejects: Callable[[Sequence[str]], object]
    short: Callable[[Sequence[str]], object]
    observer: Observer


class SpilledRows:
    """Rows of one dtype in a file in `folder`."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any]) -> None:
        self._folder = folder
        self._dtype = dtype
        self._rows = Column(folder / name, dtype, "")

    def append(self, rows: _RowArray) -> None:
        """Append rows."""
        with output_errors(self._folder):
            self._rows.append(rows)

    def at(self, numbers: Int64s) -> _RowArray:
        """Return the rows with the given numbers."""
        with output_errors(self._folder):
            return np.array(self._rows.mapped()[numbers])

    def column(self, name: str) -> NDArray[Any]:
        """Return one column of all rows."""
        found = np.empty(len(self._rows), self._dtype[name])
        with output_errors(self._folder):
            for start in range(0, len(found), ROWS_AT_ONCE):
                stop = min(start + ROWS_AT_ONCE, len(found))
                found[start:stop] = self._rows.read(start, stop)[name]
        return found


class PolicyValues:
    """The values that a policy with a field compares, one per document, in a file in `folder`."""

    def __init__(self, folder: Path, number: int, policy: Policy) -> None:
        self._policy = policy
        self._rows = SpilledRows(folder, f"values-{number}", _VALUE)
        # Numbers of documents: all, with a comparable value, and with a value that cannot be compared.
        self.count = self.compared = self.unfit = 0
        self.first_unfit = 0  # number of the first unfit document

    def append(self, values: Sequence[object]) -> None:
        """Add the field's values for more documents."""
        rows = np.array([self._policy.parts_of(value) for value in values], _VALUE)
        is_compared = ~np.isnan(rows["part0"])
        unfit = [place for place in np.flatnonzero(~is_compared).tolist() if values[place] is not None]
        if unfit and not self.unfit:
            self.first_unfit = self.count + unfit[0]
        self.count += len(values)
        self.compared += int(np.count_nonzero(is_compared))
        self.unfit += len(unfit)
        self._rows.append(rows)

    def columns(self) -> list[Floats]:
        """Return the columns for `rank`."""
        first, *others = (self._rows.column(name) for name in _VALUE.names or ())
        return [first, *(other for other in others if other.any())]


@dataclass(frozen=True, eq=False)
class Collected:
    """Documents in the order of the inputs."""

    doc_ids: SpilledIds
    rows: SpilledRows  # `_ROW`
    values: Mapping[Policy, PolicyValues]  # for policies with a field
    has_signatures: bool  # whether any document has a sketch or a key
    rejected: int  # number of rejected records
    repeated: int  # number of records that repeat an earlier record
    keying: Keying
    texts: HeldTexts

    @cached_property
    def fingerprints(self) -> Uint64s:
        """The fingerprints; 0 for a document without a fingerprint."""
        return self.rows.column("fingerprint")

    @cached_property
    def sketches(self) -> Uint64s:
        """The sketches; 0 for a document without a sketch."""
        return self.rows.column("sketch")

    @cached_property
    def _keys(self) -> Uint64s:
        return self.rows.column("key")

    @cached_property
    def kinds(self) -> Uint8s:
        """The kinds: `VOTED`, `EXACT` or `TOO_SHORT`."""
        return self.rows.column("kind")

    def signatures(self, numbers: Int64s) -> Signatures:
        """Return the signatures of some documents; loads sketches and keys only if there are any."""
        if not self.has_signatures:
            return Signatures.of(self.fingerprints[numbers])
        return Signatures(self.fingerprints, self.sketches, self._keys, self.kinds, self.keying)[numbers]

    @cached_property
    def comparable(self) -> Int64s:
        """The numbers of the documents that have a fingerprint."""
        return np.flatnonzero(self.kinds != TOO_SHORT)


def collect(
    inputs: Sequence[Input],
    options: DedupOptions,
    profile: Profile,
    folder: Path,
    listener: Listener,
    held: HeldBatches,
) -> Collected:
    """Read the inputs, except for batches in `held`; columns go to `folder`, which the caller deletes."""
    if not all(one.has_fingerprints for one in inputs):
        profile.verify()
    workers = options.workers or usual_workers(inputs)
    batches = read_again(inputs, options.reading, held, workers)
    columns = _Columns(inputs, options.keep, folder)
    with closing(fingerprinted(inputs, batches, profile, workers)) as found:
        for batch, made in found:
            one, documents = inputs[batch.input], batch.documents
            if made is not None:
                listener.short(short_lines(one, documents, made))
            if warning := documents.warning(one.name):
                listener.observer.say(warning)
            if not one.is_stream:  # texts of a stream are never held, whatever its size
                columns.texts.take(batch)
            listener.rejects(columns.take(batch, made))
            listener.observer.report("read", *bytes_before(inputs, batch.end), len(columns.doc_ids))
    return columns.collected(profile.key_kind)


class _Columns:
    def __init__(self, inputs: Sequence[Input], keep: Sequence[Policy], folder: Path) -> None:
        self._inputs = inputs
        self.doc_ids = SpilledIds(folder)
        self.texts = HeldTexts()
        self._rows = SpilledRows(folder, "rows", _ROW)
        with_field = dict.fromkeys(policy for policy in keep if policy.field)
        self._values = {policy: PolicyValues(folder, number, policy) for number, policy in enumerate(with_field)}
        self._has_signatures = False
        self._rejected = self._repeated = 0

    def take(self, batch: Batch, made: Signatures | None) -> list[str]:
        """Add a batch; return its rejects as lines, in input order."""
        documents, one = batch.documents, self._inputs[batch.input]
        rows, earlier = _rows(batch, made), self.doc_ids.add(documents.doc_ids)
        is_new = earlier < 0
        self._rows.append(rows[is_new])
        self._has_signatures |= bool(rows["sketch"].any() or rows["key"].any())
        for policy, column in self._values.items():
            values = map(_bounded, documents.fields.get(policy.field) or (None,) * len(rows))
            column.append(list(compress(values, is_new.tolist())))
        rejects = [*documents.rejects, *self._refused(documents, rows, earlier)]
        if one.kind != "files":  # in a folder, a reject's line is not its position
            rejects.sort(key=lambda reject: reject.line)
        self._rejected += len(rejects)
        return [reject_line(one, reject) for reject in rejects]

    def _refused(self, documents: Documents, rows: _RowArray, earlier: Int64s) -> Iterator[Reject]:
        """Yield rejects for records whose id was seen before with different content; count exact repeats."""
        places = np.flatnonzero(earlier >= 0)
        if not len(places):
            return
        ours, theirs = rows[places], self._rows.at(earlier[places])
        is_known = (ours["kind"] != TOO_SHORT) | (theirs["kind"] != TOO_SHORT)
        is_repeat = is_known & np.all([ours[name] == theirs[name] for name in _OF_THE_TEXT], axis=0)
        self._repeated += int(np.count_nonzero(is_repeat))
        for at in np.flatnonzero(~is_repeat).tolist():
            how = "with a different text or fingerprint" if is_known[at] else "and both texts are too short to compare"
            place, first = int(places[at]), theirs[at]
            where = _where(self._inputs[first["input"]], documents.doc_ids[place], first["line"])
            yield self._reject(documents, rows[place], place, f"id already used at {where}, {how}; the first is kept")

    def _reject(self, documents: Documents, row: np.void, place: int, reason: str) -> Reject:
        one, doc_id, line = self._inputs[row["input"]], documents.doc_ids[place], int(row["line"])
        held = documents.texts[place] if documents.texts else format_fingerprint(int(row["fingerprint"]))
        if one.kind == "files":
            return Reject.of(1, reason, held.encode(), _where(one, doc_id, line))
        return Reject.of(line, reason, f"{doc_id}\t{held}".encode())

    def collected(self, keying: Keying) -> Collected:
        has_signatures, rejected = self._has_signatures, self._rejected
        return Collected(
            self.doc_ids, self._rows, self._values, has_signatures, rejected, self._repeated, keying, self.texts
        )


def _rows(batch: Batch, made: Signatures | None) -> _RowArray:
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
    """Return a field's value if it may be a time or a number, None if it is missing, or else an empty string."""
    if isinstance(value, Decimal) and value.is_finite():
        value = integer_in(value) or float(value)
    is_long = isinstance(value, str) and len(value) > FIELD_CHARACTERS
    is_long = is_long or (isinstance(value, int) and abs(value) >= 10**FIELD_CHARACTERS)
    return value if value is None or (isinstance(value, (str, int, float)) and not is_long) else ""


def _where(one: Input, doc_id: str, line: int) -> str:
    return one.path_of(doc_id) if one.kind == "files" else f"{one.name}:{line}"
