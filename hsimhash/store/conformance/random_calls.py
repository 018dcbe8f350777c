"""Random calls to an index. Their results are compared with brute force over a dict of the stored documents.

The calls include difficult cases: many documents with one fingerprint but different sketches, documents that move by 1
to k + 1 bits and back, ids that are removed and added again, sketches on both sides of a limit, limits of 1 to 5,
queries that exclude their nearest match, distances from 0 to the maximum that the index allows, and crowded buckets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np

from hsimhash import matching
from hsimhash.aio import AsyncHSimIndex
from hsimhash.cover import MOST_DISTANCE
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.keys import TAGS, Keying
from hsimhash.fingerprint.signature import MAX_SKETCH, Signature
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.matching import CROWDED_ROWS, Rule
from hsimhash.store import Claim, Document, Match, Record
from hsimhash.store.conformance.place import StorePlace

T = TypeVar("T")
Given = tuple[str, Signature]

WEIGHTS = {"query": 40, "query_many": 8, "tasks": 4, "get": 2, "add": 12, "add_many": 4, "claim": 8, "remove": 6}
RARE = {"remove_before": 2, "expire": 2, "settle": 0.3}  # these change many documents at once
QUERIES, CLAIMS = (1, 2, 6, 20), (1, 2, 6)  # per call; few sizes and distances, because each needs its own cover
MOST_DOCUMENTS, MOST_LIMIT = 8, 5
MAX_SKETCHES = (MAX_SKETCH, MAX_SKETCH, None, 0, 1, 14, 64)
CENTRES = 3  # number of fingerprints that many documents share
ODD_IDS = ("é", "文档", "\U0001f600", "\uffff", "x" * 503, "x" * 504, "x" * 600, "x" * 600 + "a")


def packed_key(tags: Iterable[int]) -> int:
    """Return the key with the tags of the heaviest features, heaviest first, as `schema/fingerprint.md` defines it."""
    listed = list(tags)
    return len(listed) << 60 | sum(tag << 48 - 12 * place for place, tag in enumerate(listed))


def share_a_key(one: int, other: int, keying: Keying) -> bool:
    """Return whether two keys are equal, or share a set of three tags that both file their document under."""
    return not plain_parts(one, keying).isdisjoint(plain_parts(other, keying))


@lru_cache(maxsize=1 << 14)
def plain_parts(key: int, keying: Keying) -> frozenset[tuple[int, ...]]:
    """Return what a key files documents under: the key itself, or each set of three of its tags; nothing for 0."""
    if not key or keying is Keying.WHOLE:
        return frozenset([(key,)] if key else [])
    tags = [key >> 48 - 12 * place & 0xFFF for place in range(max(3, min(key >> 60, 5)))]
    sets = [tags] if len(tags) == 3 else [*combinations(tags[:4], 3), *([*tags[:2], fifth] for fifth in tags[4:])]
    return frozenset((min(3, key >> 60), *sorted(one)) for one in sets)


def plain_matches(
    documents: Iterable[Document], query: Signature, rule: Rule, exclude: str | None = None
) -> list[Match]:
    """Return the matches that a query of an index with these documents must return."""
    found = []
    for doc_id, fingerprint, first_seen, sketch, key in documents:
        distance = (fingerprint ^ query.fingerprint).bit_count()
        is_near = distance <= rule.max_distance
        if doc_id == exclude or not (is_near or share_a_key(key, query.key, rule.keying)):
            continue
        similarity = None
        if sketch and query.sketch:
            bits = (sketch ^ query.sketch).bit_count()
            if rule.max_sketch is not None and bits > max(0, rule.max_sketch - max(0, distance - 16)):
                continue
            similarity = max(0.0, 1 - bits / 32)
        found.append(Match(distance, doc_id, fingerprint, first_seen, similarity, "distance" if is_near else "key"))
    return sorted(found, key=lambda match: (match.distance, match.doc_id))[: rule.limit]


@dataclass(frozen=True)
class Trial:
    """The kind of index to create, and the numbers of calls and documents."""

    layout: str
    profile: str
    seed: int
    calls: int
    documents: int = 40
    crowded_rows: int = CROWDED_ROWS  # in a bucket; with more rows, a limit does not guarantee the nearest matches


class TrialRun:
    """Makes the calls of a trial; `documents` holds the documents that the index must contain."""

    def __init__(self, place: StorePlace, index: HSimIndex, trial: Trial) -> None:
        self._place, self._index, self._trial = place, index, trial
        self._rng = np.random.default_rng(trial.seed)
        self._tasks = AsyncHSimIndex(index)
        self.documents: dict[str, Document] = {}
        self._were: dict[str, Signature] = {}  # signatures of documents before their last move
        self._now = 1
        self.done = Counter[str]()
        self._k = k = index.layout.max_distance
        greatest = max(MOST_DISTANCE, k)
        self._distances = (k, k, 0, 1, k - 1, k + 1, greatest, trial.seed % (greatest + 1))
        self._centres = self._numbers(CENTRES)
        self._centres += [self._flipped(self._centres[0], self._k + 1), 0, 2**64 - 1]
        (sketch,) = self._numbers(1)
        near = [self._flipped(sketch, bits) for bits in (1, 12, 15, 20, 21)]
        self._sketches = [0, 0, sketch, sketch, sketch, sketch ^ 2**64 - 1, *near]
        self._keys = [0, 0, 0, *self._some_keys()]
        numbers = max(trial.documents - len(ODD_IDS), 0)
        self._ids = [*map(str, range(numbers)), *ODD_IDS][: trial.documents]

    def _some_keys(self) -> list[int]:
        """Draw keys: whole keys with the same prefix, or a key of five features and variants with changed features."""
        (key,) = self._numbers(1)
        if self._index.store.record.keying is Keying.WHOLE:
            return [key, key ^ 1]
        tags = [key >> 12 * place & 0xFFF for place in range(TAGS)]
        changed = [[*tags[:place], tags[place] ^ 1, *tags[place + 1 :]] for place in range(TAGS)]
        others = ([*tags[1:], tags[1]], tags[::-1], tags[1:], tags[:3], tags[:2], tags[:1])
        return [packed_key(one) for one in (tags, *changed, *others)]

    async def run(self) -> None:
        """Make all calls; the index is closed at the end. `AssertionError` reports the first wrong result."""
        names = {**WEIGHTS, **RARE}
        names["expire"] *= self._place.expire is not None
        weights = np.array(list(names.values()))
        calls = self._rng.choice(list(names), self._trial.calls, p=weights / weights.sum())
        async with self._tasks:
            self._add_many(self._ids[: len(self._ids) // 2])
            for name in calls.tolist():
                await self._call(name)
            self._same("documents", sorted(self._index.documents()), sorted(self.documents.values()))
            report = self._index.check()
            assert report.is_sound, (self._trial, report)

    async def _call(self, name: str) -> None:
        match name:
            case "query":
                self._query()
            case "query_many":
                self._query_many()
            case "tasks":
                await self._query_in_tasks()
            case "get":
                doc_ids = self._some_ids()
                self._same(name, self._index.get_many(doc_ids), list(map(self.documents.get, doc_ids)))
            case "add":
                (given,) = self._given(1)
                self._index.add(given[1], given[0], first_seen=self._later())
                self._store([given])
            case "add_many":
                self._add_many(self._some_ids())
            case "claim":
                self._claim()
            case "remove":
                doc_ids = self._some_ids(2)
                self._same(name, self._index.remove(doc_ids), self._removed(doc_ids))
            case "remove_before":
                doc_ids, before = self._some_ids(), int(self._rng.integers(self._now))
                old = [one for one in doc_ids if one in self.documents and self.documents[one].first_seen < before]
                self._same(name, self._index.remove(doc_ids, before=before), self._removed(old))
            case "expire":
                assert self._place.expire is not None
                doc_ids = [one for one in self._some_ids() if one in self.documents]
                self._place.expire(self._index.store, [one.encode() for one in doc_ids])
                self._removed(doc_ids)
            case "settle":
                self._place.settle(self._index.store)
        self.done[name] += 1

    def _same(self, call: object, found: T, expected: T) -> None:
        assert found == expected, f"{self._trial}, after {self.done}: {call} returned {found}, expected {expected}"

    # Queries.

    def _query(self) -> None:
        query, rule = self._asked(), self._rule()
        exclude = self._excluded(query, rule)
        found = self._index.query(query, exclude=exclude, **_options(rule))
        self._same(("query", query, rule, exclude), found, self._expected(found, query, rule, exclude))

    def _query_many(self) -> None:
        rule, queries = self._rule(), [self._asked() for _ in range(self._one_of(QUERIES))]
        exclude = [self._excluded(query, rule) for query in queries]
        found = self._index.query_many(queries, exclude=exclude, **_options(rule))
        asked = zip(found, queries, exclude, strict=True)
        expected = [self._expected(matches, query, rule, one) for matches, query, one in asked]
        self._same(("query_many", queries, rule, exclude), found, expected)
        self.done["queries"] += len(queries)

    async def _query_in_tasks(self) -> None:
        asked = []
        for _ in range(self._one_of(QUERIES)):
            query, rule = self._asked(), self._rule()
            asked.append((query, rule, self._excluded(query, rule)))
        calls = [self._tasks.query(query, exclude=one, **_options(rule)) for query, rule, one in asked]
        found = await asyncio.gather(*calls)
        expected = [self._expected(matches, *one) for matches, one in zip(found, asked, strict=True)]
        self._same(("tasks", asked), found, expected)
        self.done["queries"] += len(asked)

    def _expected(self, found: list[Match], query: Signature, rule: Rule, exclude: str | None) -> list[Match]:
        """Return what a query must return; if buckets may be crowded and `found` is also correct, return `found`."""
        whole = plain_matches(self.documents.values(), self._stored(query), rule._replace(limit=None), exclude)
        self.done["matches"] += len(whole[: rule.limit])
        if self._trial.crowded_rows < CROWDED_ROWS and found == sorted(set(found) & set(whole)):
            return whole[: rule.limit] if len(found) < len(whole[: rule.limit]) else found[: rule.limit]
        return whole[: rule.limit]

    def _rule(self) -> Rule:
        distance = self._one_of(self._distances)
        limit = None if self._chance(0.3) else self._count(MOST_LIMIT)
        return Rule(distance, self._one_of(MAX_SKETCHES), limit, self._index.store.record.keying)

    def _excluded(self, query: Signature, rule: Rule) -> str | None:
        drawn = self._rng.random()
        if drawn < 0.4:
            return None
        nearest = plain_matches(self.documents.values(), self._stored(query), rule._replace(limit=1))
        return nearest[0].doc_id if nearest and drawn < 0.8 else self._one_of([*self._ids, "unknown"])

    # Writes.

    def _add_many(self, doc_ids: Sequence[str]) -> None:
        given = [(doc_id, self._signature(doc_id)) for doc_id in doc_ids]
        changed = self._index.add_many([one for _, one in given], doc_ids, first_seen=self._later())
        self._same(("add_many", given), changed, self._store(list(dict(given).items())))

    def _claim(self) -> None:
        given, rule, seen = self._given(self._one_of(CLAIMS)), self._rule()._replace(limit=1), self._later()
        doc_ids, signatures = map(list, zip(*given, strict=True))
        options: dict[str, Any] = {"max_distance": rule.max_distance, "max_sketch": rule.max_sketch}
        found = self._index.claim_many(signatures, doc_ids, first_seen=seen, **options)
        expected = [self._claimed(claim, *one, rule) for claim, one in zip(found, given, strict=True)]
        self._same(("claim", given, rule), found, expected)

    def _claimed(self, claim: Claim, doc_id: str, signature: Signature, rule: Rule) -> Claim:
        own = self.documents.get(doc_id)
        nearest = self._expected([claim.match] if claim.match else [], signature, rule, doc_id)
        if nearest and not (own and plain_matches([own], self._stored(signature), rule)):
            return Claim(is_new=False, match=nearest[0])
        self._store([(doc_id, signature)])
        return Claim(is_new=True)

    def _store(self, given: Sequence[Given]) -> int:
        """Record added documents with distinct ids; return how many are new or have a different signature."""
        changed = 0
        for doc_id, signature in given:
            old, new = self.documents.get(doc_id), Document.of(doc_id, self._stored(signature), self._now)
            if old is None or old.signature != new.signature:
                self.documents[doc_id] = new
                changed += 1
                if old is not None:
                    self._were[doc_id] = old.signature
        return changed

    def _removed(self, doc_ids: Sequence[str]) -> int:
        return sum(self.documents.pop(doc_id, None) is not None for doc_id in doc_ids)

    def _stored(self, signature: Signature) -> Signature:
        return signature if self._index.store.record.has_signatures else Signature(signature.fingerprint)

    # Draws.

    def _given(self, count: int) -> list[Given]:
        return [(doc_id, self._signature(doc_id)) for doc_id in self._rng.choice(self._ids, count).tolist()]

    def _signature(self, doc_id: str) -> Signature:
        """Draw a document's next signature: crowded, its earlier one, near its current one or another document's."""
        drawn, own = self._rng.random(), self.documents.get(doc_id)
        if drawn < 0.2 and doc_id in self._were:
            return self._were[doc_id]
        if drawn < 0.45 and own is not None:
            moved = self._flipped(own.fingerprint, self._count(self._k + 1))
            return own.signature._replace(fingerprint=moved)
        if drawn < 0.55 and own is not None:
            return Signature(own.fingerprint, self._one_of(self._sketches), self._one_of(self._keys))
        fingerprint = self._centre() if drawn < 0.9 else self._near(self._k + 1)
        return Signature(fingerprint, self._one_of(self._sketches), self._one_of(self._keys))

    def _asked(self) -> Signature:
        """Draw a query: a document's current or earlier signature, one in a crowd or near a document, or any other."""
        drawn, known = self._rng.random(), [*self._were.values()]
        if drawn < 0.2 and self.documents:
            return self._one_of([*self.documents.values()]).signature
        if drawn < 0.4 and known:
            return self._one_of(known)
        if drawn < 0.95:
            fingerprint = self._centre() if drawn < 0.7 else self._near(max(self._distances))
        else:
            fingerprint = self._numbers(1)[0]
        return Signature(fingerprint, self._one_of(self._sketches), self._one_of(self._keys))

    def _centre(self) -> int:
        """Draw a centre: the first one half of the time, the second one a quarter of the time, and so on."""
        return self._centres[min(int(self._rng.geometric(0.5)), len(self._centres)) - 1]

    def _near(self, most: int) -> int:
        stored = [one.fingerprint for one in self.documents.values()]
        return self._flipped(self._one_of(stored or self._centres), int(self._rng.integers(most + 1)))

    def _flipped(self, fingerprint: int, bits: int) -> int:
        flips: list[int] = self._rng.choice(64, bits, replace=False).tolist()
        return fingerprint ^ sum(1 << bit for bit in flips)

    def _numbers(self, count: int) -> list[int]:
        drawn: list[int] = self._rng.integers(0, 2**64, count, np.uint64).tolist()
        return drawn

    def _some_ids(self, most: int = MOST_DOCUMENTS) -> list[str]:
        drawn: list[str] = self._rng.choice(self._ids, self._count(most)).tolist()
        return drawn

    def _count(self, most: int) -> int:
        return int(self._rng.integers(1, most + 1))

    def _one_of(self, values: Sequence[T]) -> T:
        return values[int(self._rng.integers(len(values)))]

    def _chance(self, share: float) -> bool:
        return bool(self._rng.random() < share)

    def _later(self) -> int:
        self._now += 1
        return self._now


def _options(rule: Rule) -> dict[str, Any]:
    """Return the options of a query, without the kind of keys, which depends on the index."""
    return {name: value for name, value in rule._asdict().items() if name != "keying"}


def run_trial(place: StorePlace, trial: Trial) -> Counter[str]:
    """Create an index at a new place and make all calls of a trial; return the counts of calls, queries and matches."""

    async def run() -> Counter[str]:
        profile = Profile.named(trial.profile)
        record = Record(Layout.parse(trial.layout), profile.to_json())
        caller = TrialRun(place, HSimIndex(place.create(place.url(), record), profile, slow_s=None), trial)
        with patch.object(matching, "CROWDED_ROWS", trial.crowded_rows):
            await caller.run()
        return caller.done

    return asyncio.run(run())
