"""Documents with sketches and keys on every store: what is found, what changes leave behind, what `check` reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hsimhash import HSimIndex, Match, Profile, Signature, Signatures
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.layout import Layout
from hsimhash.store import Record, Store, create_store
from hsimhash.store.conformance.place import StorePlace
from hsimhash.store.conformance.random_calls import packed_key
from tests.support.effort import tries
from tests.support.oracles import are_near

PLAIN = Profile.named("auto-1")


@pytest.fixture(params=["auto-2", "auto-3"])
def signing(request: pytest.FixtureRequest) -> Profile:
    """A profile for each kind of key."""
    return Profile.named(request.param)


@pytest.fixture
def record(signing: Profile) -> Record:
    return Record(Layout.named("4"), signing.to_json())


@pytest.fixture
def store(place: StorePlace, record: Record) -> Iterator[Store]:
    with place.create(place.url(), record) as made:
        yield made


def key_of(number: int, signing: Profile) -> int:
    """Return a key that has nothing in common with those of other numbers."""
    whole = signing.keying == Keying.WHOLE.value
    return number << 32 if whole else packed_key(range(5 * number, 5 * number + 5))


def drawn(count: int, seed: int, signing: Profile) -> Signatures:
    """Return signatures, many of which are near others or share their keys; some have no sketch or key."""
    rng = np.random.default_rng(seed)
    fingerprints = rng.integers(0, 2**64, count, np.uint64)
    flips = np.bitwise_or.reduce(np.uint64(1) << rng.integers(0, 64, (count, 5), np.uint64), axis=1)
    fingerprints[1::2] = fingerprints[::2] ^ flips[1::2]
    fingerprints[::7] = fingerprints[0]
    # Keys that differ only in their last half are in the same bucket.
    keys = rng.integers(0, 20, count, np.uint64) << np.uint64(32) | rng.integers(0, 2, count, np.uint64)
    if signing.keying != Keying.WHOLE.value:
        tags = [rng.choice(7, number) for number in rng.choice([0, 2, 3, 4, 5, 5], count)]
        keys = np.array([packed_key(one.tolist()) for one in tags], np.uint64)
    sketches = rng.integers(0, 2, count, np.uint64) * (np.uint64(2**20 - 1) << rng.integers(0, 20, count, np.uint64))
    return Signatures(fingerprints, sketches, keys, np.zeros(count, np.uint8))


def expected(
    documents: dict[str, Signature], query: Signature, k: int, max_sketch: int | None, signing: Profile
) -> list[tuple[int, str]]:
    return sorted(
        ((query.fingerprint ^ one.fingerprint).bit_count(), doc_id)
        for doc_id, one in documents.items()
        if are_near(query, one, k, max_sketch, signing.key_kind)
    )


def pairs_of(matches: list[Match]) -> list[tuple[int, str]]:
    return [(match.distance, match.doc_id) for match in matches]


@pytest.mark.parametrize("layout", ["4", "10"])
@pytest.mark.parametrize(("k", "max_sketch"), [(3, 16), (6, 16), (3, None), (0, 1)])
def test_a_query_finds_what_is_near_or_has_its_key_and_passes_over_other_sketches(
    place: StorePlace,
    layout: str,
    k: int,
    max_sketch: int | None,
    signing: Profile,
) -> None:
    stored, ids = drawn(400, 1, signing), [f"d{number}" for number in range(400)]
    documents = dict(zip(ids, stored, strict=True))
    store = place.create(place.url(), Record(Layout.named(layout), signing.to_json()))
    with HSimIndex(store, signing) as index:
        index.add_many(stored, ids)
        queries = [
            *list(stored)[: tries(60, 20)],
            *drawn(tries(40, 16), 2, signing),
            Signature(5, 0, key_of(3, signing)),
            Signature(int(stored.fingerprints[0])),
        ]
        answers = index.query_many(queries, max_distance=k, max_sketch=max_sketch)
        for query, matches in zip(queries, answers, strict=True):
            assert pairs_of(matches) == expected(documents, query, k, max_sketch, signing)
        for query, matches in list(zip(queries, answers, strict=True))[::5]:
            assert index.query(query, max_distance=k, max_sketch=max_sketch) == matches
            for limit in (1, 2, 7):
                assert index.query(query, max_distance=k, max_sketch=max_sketch, limit=limit) == matches[:limit]
            plain = index.query(query.fingerprint, max_distance=k)
            assert pairs_of(plain) == expected(documents, Signature(query.fingerprint), k, None, signing)
            assert {(match.similarity, match.found_by) for match in plain} <= {(None, "distance")}


def test_a_match_tells_similarity_and_what_found_it(signing: Profile) -> None:
    with HSimIndex.create("memory://told", layout="4", profile=signing) as index:
        index.add_many([Signature(0, 0b1111, 9), Signature(2**12 - 1, 0b0011, 9)], ["near", "far"])
        index.add(1, "plain")
        near, plain, far = index.query(Signature(0, 0b1111, 9))
    assert (near.doc_id, near.distance, near.similarity, near.found_by) == ("near", 0, 1.0, "distance")
    assert (plain.doc_id, plain.distance, plain.similarity, plain.found_by) == ("plain", 1, None, "distance")
    assert (far.doc_id, far.distance, far.similarity, far.found_by) == ("far", 12, 1 - 2 / 32, "key")


def test_with_a_limit_documents_are_read_until_enough_sketches_agree(
    place: StorePlace, signing: Profile, record: Record
) -> None:
    others, right = 2_000, 3
    sketches = [2**64 - 1] * others + [0b1] * right
    with HSimIndex(place.create(place.url(), record), signing) as index:
        index.add_many(
            [Signature(7, sketch, 1) for sketch in sketches], [f"d{number:06}" for number in range(others + right)]
        )
        found = index.query(Signature(7, 0b1, 1), limit=2)
        assert [match.doc_id for match in found] == ["d002000", "d002001"]
        assert len(index.query(Signature(7, 0b1, 1), limit=9)) == right


def test_a_document_whose_sketch_or_key_changes_is_changed(
    store: Store, place: StorePlace, signing: Profile, record: Record
) -> None:
    with HSimIndex(store, signing) as index:
        for seen, one, is_change in [
            (1, Signature(5, 6, key_of(7, signing)), 1),
            (2, Signature(5, 6, key_of(7, signing)), 0),
            (3, Signature(5, 9, key_of(7, signing)), 1),
            (4, Signature(5, 9, key_of(8, signing)), 1),
            (5, Signature(5), 1),
        ]:
            assert index.add_many([one], ["a"], first_seen=seen) == is_change
            document = index.get("a")
            assert document is not None
            assert (document.signature, document.first_seen) == (one, seen - (not is_change))
        assert index.query(Signature(2**40 - 1, 0, key_of(8, signing))) == []
        place.settle(store)
        assert index.check().is_sound
        assert not len(store.scan([prefix for one in (7, 8) for prefix in record.key_prefixes(key_of(one, signing))]))


def test_removed_documents_leave_nothing_in_the_key_drawer(store: Store, place: StorePlace, signing: Profile) -> None:
    stored, ids = drawn(300, 3, signing), [f"d{number}" for number in range(300)]
    with HSimIndex(store, signing) as index:
        index.add_many(stored, ids)
        index.remove(ids[::2])
        assert index.check(repair=True).problems == 0
        left = dict(itertools.islice(zip(ids, stored, strict=True), 1, None, 2))
        for query in list(stored)[:50]:
            assert pairs_of(index.query(query)) == expected(left, query, 3, MAX_SKETCH, signing)
        index.remove(ids)
        place.settle(store)
        index.check(repair=True)
        assert not len(store.scan([prefix for one in stored for prefix in store.record.key_prefixes(one.key)]))


def test_an_index_of_fingerprints_drops_sketches_and_keys(place: StorePlace, signing: Profile) -> None:
    with HSimIndex(place.create(place.url(), Record(Layout.named("4"), PLAIN.to_json())), PLAIN) as index:
        index.add(Signature(5, 6, key_of(7, signing)), "a")
        document = index.get("a")
        assert document is not None
        assert document.signature == Signature(5)
        assert index.query(Signature(2**40 - 1, 6, key_of(7, signing))) == []
        (match,) = index.query(Signature(5, 2**64 - 1, key_of(7, signing)))
        assert match.similarity is None
        assert index.store.record.to_parts()[b"format"] == b'{"version": 1, "rows": "tall"}'
        assert not len(index.store.scan(Record(Layout.named("4"), signing.to_json()).key_prefixes(key_of(7, signing))))


def test_a_sweep_leaves_the_key_drawer_out(place: StorePlace, signing: Profile, record: Record) -> None:
    with HSimIndex(place.create(place.url(), record), signing) as index:
        index.add_many(
            [Signature(value, 0, key_of(5, signing)) for value in range(50)], [str(value) for value in range(50)]
        )
        swept = index.query_many([0, 2**63], max_distance=16)
        assert [len(matches) for matches in swept] == [50, 50]
        assert {row[4] for row in index.store.sweep([(bytes(5), b"\xff" * 5)]).tolist()} == {1, 2, 3, 4}


def test_sorted_runs_make_the_same_index_as_adds(tmp_path: Path, signing: Profile, record: Record) -> None:
    stored, ids = drawn(3_000, 4, signing), [f"d{number % 2_500}" for number in range(3_000)]
    urls = [f"lmdb://{tmp_path / name}" for name in ("added", "merged")]
    with create_store(urls[0], record) as added, create_store(urls[1], record) as merged:
        # Some of the documents that are already there move, and some stay as they are.
        for store in (added, merged):
            HSimIndex(store, signing).add_many(drawn(200, 5, signing), ids[:200], first_seen=1)
            HSimIndex(store, signing).add_many(stored[2_600:2_700], ids[2_600:2_700], first_seen=1)
        HSimIndex(added, signing).add_many(stored, ids, first_seen=2)
        with HSimIndex(merged, signing).bulk(tmp_path / "runs") as bulk:
            for start in range(0, len(ids), 700):
                bulk.add_run(stored[start : start + 700], ids[start : start + 700], 2)
            bulk.merge()
            bulk.delete()
        assert list(added.walk()) == list(merged.walk())
        for store in (added, merged):
            report = store.check(repair=True)
            assert report.problems == 0
        prefixes = sorted({prefix for one in stored for prefix in record.key_prefixes(one.key)})
        rows = [sorted(map(bytes, store.scan([one]))) for one in prefixes for store in (added, merged)]
        assert rows[::2] == rows[1::2]
        assert any(rows)


def test_check_finds_and_repairs_what_the_key_drawer_lacks_or_has_too_much(
    tmp_path: Path, signing: Profile, record: Record
) -> None:
    with create_store(f"lmdb://{tmp_path / 'index'}", record) as store:
        index = HSimIndex(store, signing)
        index.add_many([Signature(5, 6, key_of(7, signing)), Signature(5, 6, key_of(8, signing))], ["a", "b"])
        with store.session.write() as transaction:  # type: ignore[attr-defined]
            rows = store.session.rows(transaction)  # type: ignore[attr-defined]
            packed = (5).to_bytes(8, "big")
            its, others = (record.key_prefixes(key_of(number, signing)) for number in (7, 9))
            transaction.delete(its[-1], packed, db=rows.drawers)
            transaction.put(others[0], packed, db=rows.drawers)
            transaction.put(others[-1], (6).to_bytes(8, "big"), db=rows.drawers)
        report = index.check()
        assert (report.problems, report.leftovers) == (1, 2)
        assert index.check(repair=True).repaired == 3
        assert index.check().is_sound
        assert pairs_of(index.query(Signature(2**40 - 1, 6, key_of(7, signing)))) == [(38, "a")]
        assert index.describe()["drawer_rows"] == 4 + 2 * len(its)


def test_texts_that_share_their_heaviest_words_are_found_in_another_frame(signing: Profile) -> None:
    page = (
        "The harbour authority closed the northern lighthouse after the storm had broken its lantern. Engineers "
        "measured the granite tower and found three cracks below the gallery. Fishermen asked for a temporary beacon, "
        "for the reef lies two miles from the pier and the winter tides hide it. The council voted for repairs in "
        "April, and a museum offered its spare lens. "
    ) * 3
    header = "Home News Weather Sport Subscribe Login. "
    footer = "Contact Imprint Privacy Newsletter Archive Jobs Shop Help Terms Sitemap. "
    with HSimIndex.create("memory://framed", layout="4", profile=signing) as index:
        index.add(signing.signature(page), "page")
        asked = signing.signature(header + page + footer)
        (found,) = index.query(asked, max_distance=1)
        assert index.query(asked.fingerprint, max_distance=1) == []
    assert (found.doc_id, found.found_by) == ("page", "key")
