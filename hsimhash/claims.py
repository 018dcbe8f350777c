"""Decide which documents in a batch are new: those without an earlier match in the index or in the batch.

A claim can be decided once all earlier claims that it depends on are decided: those near it, those with the same id,
and those that may move the document that it matched. So nothing that a round stores changes what that round decides. A
claim that moves a document away waits for earlier claims that may match the document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hsimhash.fingerprint.bits import Bools, Int64s
from hsimhash.fingerprint.signature import Signature, Signatures
from hsimhash.matching import Rule
from hsimhash.store.base import Claim, Claims, Document, Match, View

ROUND_DOCUMENTS = 2_000  # maximum number of documents in a round; each is compared with all earlier documents

Ask = Callable[[View, Sequence[int]], list[list[Match]]]  # returns the matches of the numbered claims, nearest first


class Turns(Claims):
    """The claims in a batch; see the module docstring.

    Args:
        doc_ids: Ids as UTF-8. An id that occurs twice is claimed twice.
        signatures: The parts of the documents' signatures that the index stores.
        first_seen: ms since 1970.
        ask: Reads matches from the index, excluding the claimed documents themselves.
        rule: Decides what matches.
    """

    def __init__(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, ask: Ask, rule: Rule
    ) -> None:
        self.doc_ids = doc_ids
        self.signatures = signatures
        self.first_seen = first_seen
        self._ask = ask
        self._rule = rule
        self._key_parts = signatures.key_parts
        self._claims: dict[int, Claim] = {}

    @property
    def is_open(self) -> bool:
        """See `Claims`."""
        return len(self._claims) < len(self.doc_ids)

    @property
    def decided(self) -> list[Claim]:
        """The decision on each document, in the order given."""
        return [self._claims[number] for number in range(len(self.doc_ids))]

    def look(self, view: View, most: int | None = None) -> tuple[list[int], dict[int, Match]]:
        """See `Claims`."""
        most = most or ROUND_DOCUMENTS
        numbers = [number for number in range(len(self.doc_ids)) if number not in self._claims][:most]
        found, first = self.nearest(view, numbers), numbers[0]
        matched = [self.doc_ids[number] for number, match in zip(numbers, found, strict=True) if match is not None]
        own = dict(zip(matched, view.lookup(matched), strict=True))
        ready, matches, open_ids = list[int](), dict[int, Match](), set[str]()
        is_waiting = np.zeros(len(self.doc_ids), np.bool_)
        for number, match in zip(numbers, found, strict=True):
            doc_id, stored = self.doc_ids[number].decode(), own.get(self.doc_ids[number])
            is_near = self._near(self.signatures.at(number), first, number)[is_waiting[first:number]].any()
            if not (is_near or doc_id in open_ids or (match is not None and match.doc_id in open_ids)):
                if match is not None and (stored is None or not self.meets(number, stored)):
                    matches[number] = match
                    continue
                ready.append(number)
            is_waiting[number] = True
            open_ids.add(doc_id)
        is_waiting[ready] = False
        if is_waiting.any():
            ready = self._unmissed(view, ready, is_waiting)
        return ready, matches

    def _unmissed(self, view: View, ready: Sequence[int], is_waiting: Bools) -> list[int]:
        """Return the claims that do not move a document that an earlier claim may match. All other claims wait."""
        found, first = list[int](), int(np.argmax(is_waiting))
        for number, stored in zip(ready, view.lookup([self.doc_ids[one] for one in ready]), strict=True):
            is_met = stored is not None and self._near(stored.signature, first, number)[is_waiting[first:number]].any()
            is_waiting[number] = is_met
            if not is_met:
                found.append(number)
        return found

    def _near(self, value: Signature, first: int, stop: int) -> Bools:
        """Return which of the claims [first, stop) are within the maximum distance of a signature or share its key."""
        some = self.signatures[first:stop]
        near: Bools = np.bitwise_count(some.fingerprints ^ np.uint64(value.fingerprint)) <= self._rule.max_distance
        return near | some.keying.sharing(self._key_parts[first:stop], value.key) if value.key else near

    def nearest(self, view: View, numbers: Sequence[int]) -> list[Match | None]:
        """See `Claims`."""
        return [matches[0] if matches else None for matches in self._ask(view, numbers)]

    def meets(self, number: int, document: Document) -> bool:
        """See `Claims`."""
        return self._rule.match(self.signatures.at(number), document) is not None

    def settle(self, number: int, claim: Claim) -> None:
        """See `Claims`."""
        self._claims[number] = claim
