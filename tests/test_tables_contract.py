"""What every store must do when it reads, tested on tables that were exported from an embedded index."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from hsimhash.store import Store
from hsimhash.store.conformance import *  # noqa: F403  (its tests)
from hsimhash.store.conformance import StorePlace
from hsimhash.store.conformance.contract import put
from tests.support.places import exported_place


@pytest.fixture(params=[(1, False), (3, True)], ids=["one part", "three packed parts"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    parts, is_packed = request.param
    return exported_place(tmp_path, parts=parts, is_packed=is_packed)


del test_threads_add_remove_and_read_at_once  # noqa: F821  (nothing writes to tables, and each read here writes some)


def test_check_of_a_used_store_is_sound(place: StorePlace, store: Store) -> None:
    """Replaces the contract's test: a fingerprint has rows in every part that has documents with it."""
    put(store, *[(str(number), number % 7) for number in range(100)])
    put(store, *[(str(number), number % 5) for number in range(50)])
    store.remove([b"1", b"2", b"3"])
    report = store.check()
    assert (report.documents, report.problems, report.leftovers) == (97, 0, 0)
    parts = int(store.describe()["parts"])
    filed = {(zlib.crc32(one.doc_id.encode()) % parts, one.fingerprint) for page in store.walk() for one in page}
    assert report.drawer_rows == len(filed) * len(store.record.layout.drawers)
