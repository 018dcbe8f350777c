"""Decide which documents in a batch have a near-duplicate, as if they had arrived one by one.

Each document is compared with the state of the index before the batch, and with the documents accepted earlier in the
batch. If a document is accepted again, its old entry in the index is ignored. A document never matches itself.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

import numpy as np

from hsimhash.files import AppendLog
from hsimhash.fingerprint.bits import HEX, Bools, Uint8s, read_fingerprint
from hsimhash.fingerprint.signature import Signature, Signatures, are_alike, similarity
from hsimhash.index import HSimIndex
from hsimhash.inputs.records import signature_of
from hsimhash.store.base import Claim, Match

_MATCH_FIELDS = ("id", "distance", "fingerprint", "similarity", "found_by")  # fields of a match in a line of JSON


class Verdict(StrEnum):
    """The decision on a document."""

    ADDED = "added"  # new
    CHANGED = "changed"  # already in the index with a different signature
    UNCHANGED = "unchanged"  # already in the index with this signature
    DUPLICATE = "duplicate"  # skipped, because it is near another document


@dataclass(frozen=True, slots=True)
class Decision:
    """A document, its verdict, and its nearest earlier match by (distance, id), if there is one.

    A line of JSON does not include the time at which the match was first seen; after parsing, this time is 0.
    """

    doc_id: str
    signature: Signature
    verdict: Verdict
    match: Match | None

    def to_line(self) -> str:
        """Return the decision as a line of JSON."""
        return json.dumps({**self._fields(), "verdict": self.verdict}, ensure_ascii=False)

    def to_tag(self) -> str:
        """Return the document and its match as a line of JSON, without the verdict."""
        return json.dumps(self._fields(), ensure_ascii=False)

    def _fields(self) -> dict[str, object]:
        match = self.match and self.match.to_json()
        shown = match and {name: match[name] for name in _MATCH_FIELDS}
        return {"id": self.doc_id, **self.signature.to_json(), "match": shown}

    def claimed(self, claim: Claim) -> Decision:
        """Return the final decision after the claim; without a match, this is `self`."""
        if claim.match is None:
            return self
        return replace(self, verdict=Verdict.DUPLICATE, match=claim.match)

    @classmethod
    def from_line(cls, line: bytes) -> Decision:
        """Parse a line from `to_line`, including lines from before format 2.

        Raises:
            ValueError, KeyError: The line is not a decision.
        """
        fields = json.loads(line)
        match = fields["match"]
        nearest = match and Match(
            match["distance"],
            match["id"],
            read_fingerprint(match["fingerprint"], HEX),
            0,
            match.get("similarity"),
            match.get("found_by", "distance"),
        )
        return cls(fields["id"], signature_of(fields, "fingerprint", HEX), Verdict(fields["verdict"]), nearest)


@dataclass(frozen=True, slots=True)
class DuplicateRule:
    """Defines when a document has a match, and whether documents with a match are skipped."""

    max_distance: int
    max_sketch: int | None
    leaves_out: bool


def decide(index: HSimIndex, doc_ids: Sequence[str], signatures: Signatures, rule: DuplicateRule) -> list[Decision]:
    """Decide on documents in order; only reads the index. Takes time quadratic in their number, but in numpy."""
    stored = index.get_many(doc_ids)
    found = index.query_many(
        signatures, max_distance=rule.max_distance, max_sketch=rule.max_sketch, limit=1, exclude=doc_ids
    )
    batch = _Batch(index, doc_ids, signatures, rule)
    return [
        batch.decide(number, document.signature if document else None, matches)
        for number, (document, matches) in enumerate(zip(stored, found, strict=True))
    ]


def expected_of(index: HSimIndex, doc_ids: Sequence[str], signatures: Signatures) -> list[Decision]:
    """Return the decision on each document, assuming that it does not have a match.

    These decisions are recorded before claiming, to keep the counts exact.
    """
    documents = zip(doc_ids, index.get_many(doc_ids), strict=True)
    known = {doc_id: document.signature for doc_id, document in documents if document}
    expected = []
    for doc_id, signature in zip(doc_ids, signatures, strict=True):
        verdict = _verdict(known.get(doc_id), signature)
        known[doc_id] = signature
        expected.append(Decision(doc_id, signature, verdict, None))
    return expected


def _verdict(stored: Signature | None, signature: Signature) -> Verdict:
    """Return the verdict on a document that is not skipped, given the signature that is stored under its id."""
    if stored is None:
        return Verdict.ADDED
    return Verdict.UNCHANGED if stored == signature else Verdict.CHANGED


class _Listed:
    """The matches of one signature in the index, nearest first, read only as far as needed.

    Skipped matches are never examined again. Otherwise, if a batch updated thousands of documents with one signature,
    each of them would skip all earlier ones again.
    """

    def __init__(self, index: HSimIndex, signature: Signature, rule: DuplicateRule) -> None:
        self._index = index
        self._signature = signature
        self._rule = rule
        self._matches: deque[Match] = deque()
        self._limit = 4
        self._is_read = False

    def first(self, replaced: Container[str], own: str) -> Match | None:
        """Return the first document that is neither replaced nor `own`; `replaced` may only grow between calls."""
        while True:
            while self._matches and self._matches[0].doc_id in replaced:
                self._matches.popleft()
            for match in self._matches:
                if match.doc_id != own and match.doc_id not in replaced:
                    return match
            if self._is_read:
                return None
            self._read_more()

    def _read_more(self) -> None:
        self._limit *= 4
        found = self._index.query(
            self._signature,
            max_distance=self._rule.max_distance,
            max_sketch=self._rule.max_sketch,
            limit=self._limit,
        )
        self._matches, self._is_read = deque(found), len(found) < self._limit


class _Batch:
    def __init__(self, index: HSimIndex, doc_ids: Sequence[str], signatures: Signatures, rule: DuplicateRule) -> None:
        self._index = index
        self._doc_ids = doc_ids
        self._signatures = signatures
        self._rule = rule
        self._values, self._key_parts = list(signatures), signatures.key_parts
        self._rank = np.empty(len(doc_ids), np.int64)  # rank of each id in sorted order, for numpy
        self._rank[sorted(range(len(doc_ids)), key=doc_ids.__getitem__)] = np.arange(len(doc_ids))
        self._is_in_force = np.zeros(len(doc_ids), np.bool_)  # accepted, and not replaced later
        self._place: dict[str, int] = {}  # id -> index of its document in force
        self._listed: dict[Signature, _Listed] = {}

    def decide(self, number: int, stored: Signature | None, matches: Sequence[Match]) -> Decision:
        doc_id, signature = self._doc_ids[number], self._values[number]
        own = self._place.get(doc_id)
        if own is not None:
            stored = self._values[own]
            self._is_in_force[own] = False
        candidates = [self._in_index(number, matches), self._in_batch(number)]
        nearest = min((one for one in candidates if one), default=None)
        if nearest is not None and self._rule.leaves_out:
            if own is not None:
                self._is_in_force[own] = True
            return Decision(doc_id, signature, Verdict.DUPLICATE, nearest)
        self._is_in_force[number] = True
        self._place[doc_id] = number
        return Decision(doc_id, signature, _verdict(stored, signature), nearest)

    def _in_batch(self, number: int) -> Match | None:
        """Return the nearest earlier document in the batch."""
        fingerprints, value = self._signatures.fingerprints, self._values[number]
        distance = np.bitwise_count(fingerprints[:number] ^ fingerprints[number])
        near = np.flatnonzero(self._is_match(number, distance) & self._is_in_force[:number])
        if not len(near):
            return None
        best = int(near[np.argmin(distance[near] * np.int64(len(self._rank)) + self._rank[near])])
        other, bits = self._values[best], int(distance[best])
        return Match(
            bits,
            self._doc_ids[best],
            other.fingerprint,
            0,
            similarity(value.sketch, other.sketch),
            "distance" if bits <= self._rule.max_distance else "key",
        )

    def _is_match(self, number: int, distance: Uint8s) -> Bools:
        """Return which of the earlier documents match document `number`, as `matching.Rule` does."""
        value, earlier = self._values[number], self._signatures[:number]
        is_near: Bools = distance <= self._rule.max_distance
        is_match = is_near | earlier.keying.sharing(self._key_parts[:number], value.key) if value.key else is_near
        if value.sketch:
            alike = are_alike(np.uint64(value.sketch), earlier.sketches, self._rule.max_sketch, distance)
            is_match = is_match & alike
        return is_match

    def _in_index(self, number: int, matches: Sequence[Match]) -> Match | None:
        """Return the nearest document in the index that no earlier document in the batch replaces."""
        first = matches[0] if matches else None
        if first is not None and first.doc_id in self._place:
            value = self._values[number]
            if value not in self._listed:
                self._listed[value] = _Listed(self._index, value, self._rule)
            first = self._listed[value].first(self._place, self._doc_ids[number])
        return first


class DecisionLog:
    """Log of decisions in the order of their documents; those that a kill left unacknowledged are still ahead."""

    def __init__(self, path: Path, acknowledged: int) -> None:
        self.acknowledged = acknowledged
        self._ahead = deque(_decisions_behind(path, acknowledged))
        self._log = self._opened(path)

    def _opened(self, path: Path) -> AppendLog:
        return AppendLog(path, self.acknowledged + sum(size for _, size in self._ahead))

    def take(self, doc_ids: Sequence[str], signatures: Iterable[Signature]) -> list[Decision]:
        """Return the recorded decisions on the first of these documents, in order; empty if there are none.

        If the documents differ from the recorded ones, because a file in a folder could not be read earlier, the
        remaining decisions ahead are dropped.
        """
        taken: list[Decision] = []
        for document in zip(doc_ids, signatures, strict=True):
            if not self._ahead:
                break
            decision, size = self._ahead[0]
            if (decision.doc_id, decision.signature) != document:
                self.drop()
                break
            self._ahead.popleft()
            self.acknowledged += size
            taken.append(decision)
        return taken

    def append(self, decisions: Iterable[Decision]) -> None:
        """Write decisions; they are durable on return."""
        self._log.append(decision.to_line() for decision in decisions)
        self._log.sync()
        self.acknowledged = self._log.size

    def drop(self, after: int = 0) -> None:
        """Drop all decisions ahead except the first `after`."""
        if len(self._ahead) > after:
            self._ahead = deque(islice(self._ahead, after))
            self.close()
            self._log = self._opened(self._log.path)

    def rewind(self, acknowledged: int) -> None:
        """Go back to an earlier position; the decisions written after it are then ahead."""
        self.close()
        self.acknowledged = acknowledged
        self._ahead = deque(_decisions_behind(self._log.path, acknowledged))
        self._log = self._opened(self._log.path)

    def close(self) -> None:
        """Close the file."""
        self._log.close()


def _decisions_behind(path: Path, offset: int) -> Iterator[tuple[Decision, int]]:
    """Yield (decision, size in bytes) for each complete line after `offset`; a truncated line was not acknowledged."""
    with suppress(FileNotFoundError, ValueError, KeyError, TypeError), path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if line.endswith(b"\n"):
                yield Decision.from_line(line), len(line)
