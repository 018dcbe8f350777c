"""Tests of what `Store.claim` guarantees. The stores come from a fixture in `contract.py`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.store import Store
from hsimhash.store.conformance.contract import RECORD, put
from hsimhash.store.conformance.place import StorePlace


def claimed(store: Store, *documents: tuple[str, int]) -> list[str | None]:
    """Claim documents; return the id of each document's match, or None if the document is new."""
    profile = Profile.named("auto-1")
    claims = HSimIndex(store, profile).claim_many([value for _, value in documents], [one for one, _ in documents])
    assert all(claim.is_new == (claim.match is None) for claim in claims)
    return [claim.match.doc_id if claim.match else None for claim in claims]


def test_a_claim_stores_only_what_nothing_near_is_stored_of(store: Store) -> None:
    put(store, ("a", 5))
    assert claimed(store, ("b", 4)) == ["a"]
    assert claimed(store, ("c", 2**64 - 1)) == [None]
    assert [document and document.fingerprint for document in store.lookup([b"a", b"b", b"c"])] == [5, None, 2**64 - 1]
    assert store.documents([4, 2**64 - 1])[0] == []
    assert store.check().is_sound


def test_a_document_that_claims_again_is_new_again_and_moves(place: StorePlace, store: Store) -> None:
    for value in (5, 5, 4):
        assert claimed(store, ("a", value)) == [None]
    put(store, ("near", 4))
    assert claimed(store, ("a", 7), ("b", 7)) == [None, "a"]
    assert claimed(store, ("far", 2**40 - 1), ("a", 2**40 - 2)) == [None, "far"]
    assert [document and document.fingerprint for document in store.lookup([b"a"])] == [7]
    assert claimed(store, ("a", 2**64 - 1)) == [None]
    place.settle(store)
    assert [document and document.fingerprint for document in store.lookup([b"a"])] == [2**64 - 1]
    assert store.check().leftovers == 0


def test_a_claim_meets_a_document_that_a_later_one_of_the_batch_moves(store: Store) -> None:
    put(store, ("d", 0))
    # "a" waits for "r", which is near it. "d" waits for neither, but must not move before "a" has matched it.
    assert claimed(store, ("r", 0b111111), ("a", 0b111), ("d", 2**64 - 1)) == [None, "d", None]
    assert [document and document.fingerprint for document in store.lookup([b"d"])] == [2**64 - 1]


def test_claims_of_a_batch_meet_each_other_as_if_made_one_by_one(place: StorePlace) -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        # Chains of near documents, repeated ids, and documents that move from one chain to another.
        steps = rng.integers(0, 4, 60)
        values = [
            (1 << int(group)) * 0x0F0F_0F0F_0F0F_0F0F % 2**64 ^ (1 << int(step)) - 1
            for group, step in zip(rng.integers(0, 4, 60) * 8, steps * 2, strict=True)
        ]
        documents = [(str(number), value) for number, value in zip(rng.integers(0, 40, 60), values, strict=True)]
        with place.create(place.url(), RECORD) as at_once, place.create(place.url(), RECORD) as one_by_one:
            put(at_once, *documents[:5])
            put(one_by_one, *documents[:5])
            expected = [claimed(one_by_one, document)[0] for document in documents]
            assert claimed(at_once, *documents) == expected
            ids = sorted({doc_id.encode() for doc_id, _ in documents})
            found, wanted = at_once.lookup(ids), one_by_one.lookup(ids)
            assert [one and one.fingerprint for one in found] == [one and one.fingerprint for one in wanted]


def test_of_threads_that_claim_near_documents_one_is_new(store: Store) -> None:
    start = threading.Barrier(8)

    def work(worker: int) -> list[str | None]:
        start.wait()
        return [
            claimed(store, (f"{group} {worker}", group * 0x9E3779B97F4A7C15 % 2**64 ^ worker & 3))[0]
            for group in range(20)
        ]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(8)))
    for group, of_group in enumerate(zip(*found, strict=True)):
        (new,) = (worker for worker, match in enumerate(of_group) if match is None)
        assert set(of_group) == {None, f"{group} {new}"}
    assert store.count() == 20
