"""The verdict on what an index on HBase, with keys in parts, answered while others wrote to it.

For a document that was not being written while the query ran, the answer must agree with its last write before the
query. If several overlapping writes were the last, it must agree with one of them.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from hsimhash import HSimIndex, Match
from hsimhash.cover import Cover
from hsimhash.fingerprint import Signature, Signatures
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import as_signatures
from hsimhash.store import Document
from hsimhash.store.conformance.random_calls import plain_parts, share_a_key
from tests.support.oracles import drawers_finding

EXAMPLES = 5  # examples of what is wrong


class Write(NamedTuple):
    """A document's new signature, written between two moments; None if it was removed."""

    doc_id: str
    signature: Signature | None
    began: int
    ended: int


class Query(NamedTuple):
    """What a query found between two moments: each document's fingerprint, except in the missing drawers."""

    signature: Signature
    began: int
    ended: int
    found: dict[str, int]
    missing: frozenset[int] = frozenset()


def noted(signatures: Signatures, began: int, ended: int, answers: Sequence[Sequence[Match]]) -> list[Query]:
    """Return the notes of queries that were run together."""
    return [
        Query(
            signature,
            began,
            ended,
            {match.doc_id: match.fingerprint for match in matches},
            frozenset(getattr(matches, "missing", ())),
        )
        for signature, matches in zip(signatures, answers, strict=True)
    ]


@dataclass(slots=True)
class Verdict:
    """How many times a document had to be found, had to be absent, or could be either; and what was wrong."""

    queries: int = 0
    present: int = 0
    absent: int = 0
    either: int = 0
    excused: int = 0  # not found, because all drawers that would have it are missing
    wrong: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.wrong and self.present > 0

    def __str__(self) -> str:
        text = (
            f"{self.queries:,} queries: of documents that had to be found {self.present:,}, had not to be "
            f"{self.absent:,}, were being written {self.either:,}, were in missing drawers {self.excused:,}; "
            f"{len(self.wrong)} wrong"
        )
        return "; ".join([text, *self.wrong[:EXAMPLES]])


class History:
    """The writes of one document, in the order in which they began."""

    def __init__(self, writes: Iterable[Write]) -> None:
        self.writes = sorted(writes, key=attrgetter("began"))
        self._begins = [write.began for write in self.writes]
        self._latest_ends = list(itertools.accumulate((write.ended for write in self.writes), max))

    def states(self, began: int, ended: int) -> set[Signature | None] | None:
        """Return which states the document may have throughout [began, ended]; None if it was being written."""
        count = bisect_right(self._begins, ended)
        if not count:
            return {None}
        if self._latest_ends[count - 1] >= began:
            return None
        latest, found, place = self._begins[count - 1], set(), count - 1
        while place >= 0 and self._latest_ends[place] >= latest:
            if self.writes[place].ended >= latest:
                found.add(self.writes[place].signature)
            place -= 1
        return found


_UNKNOWN = History([])


def histories(writes: Iterable[Write]) -> dict[str, History]:
    """Return the writes grouped by document."""
    of_document: dict[str, list[Write]] = defaultdict(list)
    for write in writes:
        of_document[write.doc_id].append(write)
    return {doc_id: History(own) for doc_id, own in of_document.items()}


def judge(writes: Sequence[Write], queries: Iterable[Query], k: int, cover: Cover | None = None) -> Verdict:
    """Compare answers with the right ones; the cover excuses what is missing with a drawer."""
    of_document = histories(writes)
    filed = sorted({(write.doc_id, write.signature) for write in writes if write.signature is not None})
    written = as_signatures([signature for _, signature in filed])
    having: dict[tuple[int, ...], set[int]] = defaultdict(set)  # positions in `filed`, by each part of a key
    for place, (_, signature) in enumerate(filed):
        for part in plain_parts(signature.key, Keying.IN_PARTS):
            having[part].add(place)
    verdict = Verdict()
    for query in queries:
        verdict.queries += 1
        is_near = np.bitwise_count(written.fingerprints ^ np.uint64(query.signature.fingerprint)) <= k
        asked = plain_parts(query.signature.key, Keying.IN_PARTS)
        met = set(np.flatnonzero(is_near).tolist()).union(*(having[part] for part in asked if part in having))
        for doc_id in dict.fromkeys([*query.found, *(filed[one][0] for one in sorted(met))]):
            history = of_document.get(doc_id, _UNKNOWN)
            if doc_id not in query.found and _is_excused(query, doc_id, history, cover):
                verdict.excused += 1
            else:
                _judge_one(verdict, query, doc_id, history, k)
    return verdict


def _is_excused(query: Query, doc_id: str, history: History, cover: Cover | None) -> bool:
    """Whether all drawers in which the document could be found are missing."""
    if not query.missing or cover is None:
        return False
    states = history.states(query.began, query.ended) or {write.signature for write in history.writes}
    found = (
        drawers_finding(Document.of(doc_id, one, 0), query.signature, cover, Keying.IN_PARTS)
        for one in states
        if one is not None
    )
    return all(drawers <= query.missing for drawers in found)


def _judge_one(verdict: Verdict, query: Query, doc_id: str, history: History, k: int) -> None:
    found = query.found.get(doc_id)
    allowed = history.states(query.began, query.ended)
    if allowed is None:
        verdict.either += 1
        right = {None, *_answers(query.signature, {write.signature for write in history.writes}, k)}
    else:
        right = _answers(query.signature, allowed, k)
        verdict.present += None not in right
        verdict.absent += right == {None}
    if found not in right:
        verdict.wrong.append(f"query {query.signature} found {doc_id} as {found}, not one of {right}")


def _answers(query: Signature, states: Set[Signature | None], k: int) -> set[int | None]:
    """Return the fingerprints under which a document in these states is found; None for not found."""
    return {state.fingerprint if state is not None and _is_match(state, query, k) else None for state in states}


def _is_match(one: Signature, query: Signature, k: int) -> bool:
    is_near = (one.fingerprint ^ query.fingerprint).bit_count() <= k
    return is_near or share_a_key(one.key, query.key, Keying.IN_PARTS)


def lost_documents(index: HSimIndex, writes: Sequence[Write]) -> list[str]:
    """Read all documents; return those that do not agree with their last acknowledged write."""
    doc_ids = list(dict.fromkeys(write.doc_id for write in writes))
    began = time.monotonic_ns()
    documents = dict(zip(doc_ids, index.get_many(doc_ids), strict=True))
    of_document = histories(writes)
    lost = []
    for doc_id, document in documents.items():
        allowed = of_document[doc_id].states(began, time.monotonic_ns())
        if allowed is None or (document and document.signature) not in allowed:
            lost.append(f"{doc_id} is {document}, not one of {allowed}")
    return lost


def ask_for_all(index: HSimIndex, writes: Sequence[Write]) -> list[Query]:
    """Query every signature that was ever written."""
    signatures = as_signatures(sorted({write.signature for write in writes if write.signature is not None}))
    began = time.monotonic_ns()
    answers = index.query_many(signatures, max_sketch=None)
    return noted(signatures, began, time.monotonic_ns(), answers)
