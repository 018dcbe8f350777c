"""Turn batches of records into documents with signatures, and write lines for the lists of rejects and short texts."""

from __future__ import annotations

import itertools
import json
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hsimhash.fingerprint import EXACT, TOO_SHORT, Profile, Signatures
from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.stream import signature_stream
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.reader import Batch, Position, read_batches, without_refused
from hsimhash.inputs.records import Documents, Reject
from hsimhash.load.job import Counts

NO_TEXT = "no text was found in the page"
_WHY = {
    int(EXACT): "too few features for a vote: it matches only identical texts",
    int(TOO_SHORT): "nothing to fingerprint",
}


def bytes_before(inputs: Sequence[Input], position: Position) -> tuple[int, int]:
    """Return the bytes of the inputs before a position and the total size; (0, 0) if the size is unknown."""
    if any(one.is_stream for one in inputs):
        return 0, 0
    done = sum(one.size_bytes for one in inputs[: position.input]) + position.place.read_bytes
    return done, sum(one.size_bytes for one in inputs)


def estimated(inputs: Sequence[Input], options: InputOptions) -> tuple[int, int] | None:
    """Estimate the number of documents and the bytes per id from the first batch.

    Returns None if the first batch does not have any documents, or if an input is a stream, which cannot be read again.
    """
    if any(one.is_stream for one in inputs):
        return None
    batch = next(read_batches(inputs, options), None)
    if batch is None or not batch.documents.doc_ids:
        return None
    ids = batch.documents.doc_ids
    read, total = bytes_before(inputs, batch.end)
    return total * len(ids) // max(read, 1), sum(len(one.encode()) for one in ids) // len(ids)


def fingerprinted(
    inputs: Sequence[Input], batches: Iterable[Batch], profile: Profile, workers: int
) -> Generator[tuple[Batch, Signatures | None], None, None]:
    """Yield each batch in order with the signatures of its texts, or with None if its input has fingerprints.

    If a text cannot be fingerprinted, its document becomes a reject.
    """
    for has_fingerprints, group in itertools.groupby(batches, lambda batch: inputs[batch.input].has_fingerprints):
        if has_fingerprints:
            yield from ((batch, None) for batch in group)
            continue
        waiting: deque[Batch] = deque()
        for made in signature_stream(profile, _texts(group, waiting), workers):
            batch = waiting.popleft()
            documents = without_refused(inputs[batch.input], batch.documents, made.refused)
            is_signed = np.array([at not in made.refused for at in range(len(made.signatures))], np.bool_)
            yield replace(batch, documents=documents), made.signatures[is_signed]


def _texts(batches: Iterable[Batch], waiting: deque[Batch]) -> Iterator[Sequence[str]]:
    for batch in batches:
        waiting.append(batch)
        yield batch.documents.texts


def reject_line(one: Input, reject: Reject) -> str:
    """Return a line for the list of rejects."""
    return _line(file=reject.path or one.name, line=reject.line, reason=reject.reason, record=reject.preview)


def _why(kind: int, text: str, *, is_page: bool) -> str:
    if is_page and not text:
        return NO_TEXT
    return "the text is empty" if kind == TOO_SHORT and not text.strip() else _WHY[kind]


def short_lines(one: Input, documents: Documents, made: Signatures) -> list[str]:
    """Return lines for the list of short texts."""
    has_pages, places, lines = bool(documents.is_page), np.flatnonzero(made.kinds), list[str]()
    for place, kind in zip(places.tolist(), made.kinds[places].tolist(), strict=True):
        doc_id = documents.doc_ids[place]
        file, line = one.place_of(doc_id, documents.lines[place])
        why = _why(kind, documents.texts[place], is_page=has_pages and documents.is_page[place])
        lines.append(_line(id=doc_id, file=file, line=line, why=why, indexed=kind != TOO_SHORT))
    return lines


def _line(**fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False)


@dataclass(slots=True)
class Gathering:
    """Collects documents and lines for the lists from batches, until there is enough to add.

    `counts` does not include the results of adding the documents; `end` is the position after the last batch.
    """

    doc_ids: list[str] = field(default_factory=list)
    id_characters: int = 0
    rejects: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    end: Position | None = None
    _began_at: float = 0.0
    _signatures: list[Signatures] = field(default_factory=list)
    _first_seen: list[Int64s] = field(default_factory=list)

    def take(self, one: Input, batch: Batch, made: Signatures | None) -> None:
        """Add a batch from an input, with the signatures of its texts."""
        self.end, documents = batch.end, batch.documents
        records = len(documents.doc_ids) + len(documents.rejects)
        if not records:  # a silent stream yields empty batches
            return
        self._began_at = self._began_at or time.monotonic()
        self.rejects += [reject_line(one, reject) for reject in documents.rejects]
        self.counts = self.counts.plus(documents=records, rejected=len(documents.rejects))
        doc_ids, signatures, first_seen = documents.doc_ids, documents.signatures, _times(documents)
        if made is not None:
            self.short += short_lines(one, documents, made)
            is_indexed = made.kinds != TOO_SHORT
            self.counts = self.counts.plus(
                short=int(np.count_nonzero(~is_indexed)), exact=int(np.count_nonzero(made.kinds == EXACT))
            )
            doc_ids = list(itertools.compress(doc_ids, is_indexed.tolist()))
            signatures, first_seen = made[is_indexed], first_seen[is_indexed]
        self.doc_ids += doc_ids
        self.id_characters += sum(map(len, doc_ids))
        self._signatures.append(signatures)
        self._first_seen.append(first_seen)

    def is_older_than(self, seconds: float) -> bool:
        """Whether the first record was added at least `seconds` ago."""
        return bool(self._began_at) and time.monotonic() - self._began_at >= seconds

    def columns(self) -> tuple[Signatures, Int64s]:
        """Return the signatures and the times first seen, in ms since 1970, one for each of `doc_ids`."""
        return Signatures.joined(self._signatures), np.concatenate([np.empty(0, np.int64), *self._first_seen])


def _times(documents: Documents) -> Int64s:
    now = time.time_ns() // 1_000_000
    if not documents.first_seen:
        return np.full(len(documents.doc_ids), now, np.int64)
    return np.array([now if one is None else one for one in documents.first_seen], np.int64)
