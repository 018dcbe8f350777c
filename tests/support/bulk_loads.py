"""What tests of bulk loads into HBase share, whichever program writes the files."""

from __future__ import annotations

from hsimhash import HSimIndex
from hsimhash.store.hbase.gateway.base import Gateway
from hsimhash.store.hbase.rows.protocol import Times, loads_begun
from hsimhash.store.hbase.store import HBaseStore

FIRST_SEEN = 1_600_000_000_000
MOVING = ("same", 1), ("moved", 8), ("removed", 3), ("new", 9), ("new", 10)  # ids and fingerprints to load


def gateway_of(index: HSimIndex) -> Gateway:
    assert isinstance(index.store, HBaseStore)
    return index.store.gateway


def add_before_moving(url: str) -> None:
    """Add the documents that the table has before `MOVING` is loaded."""
    with HSimIndex.open(url) as index:
        index.add_many([1, 2, 3, 4], ["same", "moved", "removed", "other"], first_seen=7)
        index.remove(["removed"])


def check_moved(url: str) -> None:
    """Assert that `MOVING` was loaded: known documents stay or move, and their leftovers are collected."""
    with HSimIndex.open(url) as index:
        found = {one.doc_id: (one.fingerprint, one.first_seen) for one in index.documents()}
        assert found == {
            "same": (1, 7),
            "moved": (8, FIRST_SEEN),
            "removed": (3, FIRST_SEEN),
            "other": (4, 7),
            "new": (10, FIRST_SEEN),
        }
        index.add(11, "moved")  # one more change than the load's
        assert [match.doc_id for match in index.query(11, max_distance=0)] == ["moved"]
        assert index.check().is_sound
        assert loads_begun(gateway_of(index)) == {}
        index.store.times = Times(settled_s=0)  # type: ignore[attr-defined]
        assert index.collect().entries == 3  # moved twice, removed once
        assert index.check().leftovers == 0
