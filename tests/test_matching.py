"""Queries in batches: what is near each query among the rows of buckets."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.cover import Cover, own_probes
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.fingerprint.signature import Signature, Signatures
from hsimhash.layout import Layout
from hsimhash.matching import MEETINGS_AT_ONCE, PAIRS_AT_ONCE, NearPairs, Rule, confirmed, near_many
from hsimhash.query_log import QueryStats
from hsimhash.rowkey import rowkeys_of
from hsimhash.store.base import Document, ListedDocuments, Match, View
from tests.support.effort import thorough
from tests.support.oracles import crowds, signed

LAYOUT = Layout.named("4")


class OneBucket(View):
    """Has rows only under the first of the requested prefixes."""

    def __init__(self, fingerprints: np.ndarray) -> None:
        prefix = int.from_bytes(LAYOUT.prefixes(0)[0], "big")
        self.rows = rowkeys_of(np.full(len(fingerprints), prefix, np.uint64), fingerprints)

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        return self.rows[: len(self.rows) * len(prefixes)]

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        raise NotImplementedError

    def estimate(self) -> int:
        raise NotImplementedError

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        raise NotImplementedError

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        raise NotImplementedError


def test_a_bucket_of_more_rows_than_meet_at_once_is_compared_whole() -> None:
    fingerprints = np.arange(MEETINGS_AT_ONCE + 10, dtype=np.uint64)
    cover = Cover(LAYOUT, 3, own_probes(LAYOUT))

    found = near_many(OneBucket(fingerprints), cover, Signatures.of([0, 0xFFFF]), QueryStats("test"))

    for place, query in enumerate((0, 0xFFFF)):
        bits = np.bitwise_count(fingerprints ^ np.uint64(query))
        assert found.fingerprints[found.places == place].tolist() == sorted(
            fingerprints[bits <= 3].tolist(), key=lambda value: ((value ^ query).bit_count(), value)
        )


@given(
    pairs=st.lists(signed(crowds(2, least=2)), max_size=20),
    max_distance=st.integers(0, 8),
    max_sketch=st.none() | st.integers(0, 64),
)
def test_many_pairs_match_as_each_by_itself_does(
    pairs: list[list[Signature]], max_distance: int, max_sketch: int | None
) -> None:
    queries = [query for query, _ in pairs]
    documents = [Document.of(f"d{place}", one, place) for place, (_, one) in enumerate(pairs)]
    rule = Rule(max_distance, max_sketch, None)
    columns = ListedDocuments.of([documents])

    places, matches = rule.matches(Signatures.collected(queries), columns.doc_ids, columns.registers)

    by_place = dict(zip(places.tolist(), matches, strict=True))
    assert [by_place.get(place) for place in range(len(pairs))] == list(map(rule.match, queries, documents))


class Listing(View):
    """ListedDocuments by fingerprint, some of them under more than one."""

    def __init__(self, listed: dict[int, list[Document]]) -> None:
        self.listed = listed

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        raise NotImplementedError

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        raise NotImplementedError

    def estimate(self) -> int:
        raise NotImplementedError

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        return [self.listed[fingerprint] for fingerprint in fingerprints]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        raise NotImplementedError


def test_a_document_counts_once_as_it_was_read_last_and_never_for_the_query_that_excludes_it() -> None:
    view = Listing({4: [Document("moved", 4, 0), Document("own", 4, 0)], 5: [Document("moved", 5, 0)]})
    near = NearPairs(np.repeat(np.arange(2), 2), np.array([0, 1, 0, 1], np.uint8), np.array([4, 5, 4, 5], np.uint64))

    found = confirmed(view, Signatures.of([4, 4]), near, ["own", None], Rule(3, None, None))

    moved, own = Match(1, "moved", 5, 0), Match(0, "own", 4, 0)
    assert found == [[moved], [own, moved]]


@thorough
def test_memory_does_not_grow_with_a_crowd_that_many_queries_meet() -> None:
    view = Listing({4: [Document(f"d{number}", 4, 0, sketch=1) for number in range(PAIRS_AT_ONCE // 2)]})

    def peak_bytes(count: int) -> int:
        queries = Signatures.of([4] * count, np.full(count, 2, np.uint64))
        near = NearPairs(np.arange(count), np.zeros(count, np.uint8), np.full(count, 4, np.uint64))
        tracemalloc.start()
        assert confirmed(view, queries, near, None, Rule(3, 0, None)) == [[]] * count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(10) < 1.5 * peak_bytes(2)
