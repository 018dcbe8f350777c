"""Regions as a gateway reports them, keys in words, and the regions' rows estimated from samples."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hsimhash.fingerprint.signature import Signature
from hsimhash.layout import Layout
from hsimhash.rowkey import PREFIX_BYTES, encode, key_prefix, splits
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway import thrift1, thrift2
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Put
from hsimhash.store.hbase.gateway.connection import THRIFT2
from hsimhash.store.hbase.rows.cells import Register, listing_put, register_key, rows_of_key
from hsimhash.store.hbase.rows.survey import crowds, rows_about, survey
from hsimhash.store.reports import Region, key_in_words
from tests.support.effort import thorough
from tests.support.hbase_model import Cluster, ModelGateway

LAYOUT = Layout.named("10")
RECORD = Record(LAYOUT, {"name": "test-2", "key": {}})
MIDDLE = b"\x80,1_0001.\n"
DIGEST = "0123456789abcdef" * 2
REGIONS = [Region(b"", MIDDLE, "one:16020"), Region(MIDDLE, b"", "")]


class SplitGateway(ModelGateway):
    """The model's gateway to a table that is split."""

    def __init__(self, cluster: Cluster, keys: list[bytes]) -> None:
        super().__init__(cluster)
        self.keys = [b"", *keys, b""]

    def regions(self) -> list[Region]:
        return [Region(start, stop, "model:16020") for start, stop in zip(self.keys, self.keys[1:], strict=False)]


def skewed(count: int) -> NDArray[np.uint64]:
    """Return fingerprints whose bits have one value more often than the other, as in real texts."""
    randoms = np.random.default_rng(1)
    bits = randoms.random((count, 64)) < randoms.uniform(0.35, 0.65, 64)
    return np.packbits(bits, axis=1).view(">u8").ravel().astype(np.uint64)


def table(fingerprints: NDArray[np.uint64], keys: list[bytes]) -> tuple[SplitGateway, list[int]]:
    """Return a table with the fingerprints' drawer rows, and the number of rows in each region."""
    cluster = Cluster()
    rows = [row.tobytes() for row in encode(LAYOUT, fingerprints).reshape(-1, 13)]
    for row in rows:
        cluster.put(Put(row, DRAWER_FAMILY, b"", b""))
    ranked = np.searchsorted(np.array([key.ljust(13, b"\x00") for key in keys]), np.array(rows), side="right")
    return SplitGateway(cluster, keys), np.bincount(ranked, minlength=len(keys) + 1).tolist()


def test_a_small_table_is_counted_exactly() -> None:
    gateway, rows = table(skewed(100), splits(LAYOUT, 4))
    found = survey(gateway, RECORD)
    assert [(counted.rows, counted.is_exact) for counted in found.regions] == [(count, True) for count in rows]
    assert found.skew == pytest.approx(max(rows) / 250)
    assert found.hot_buckets == ()


def test_rows_of_others_are_not_counted() -> None:
    gateway, rows = table(skewed(100), splits(LAYOUT, 4))
    for key in (b"r1", b"r1234", b"\xff"):
        gateway.cluster.put(Put(key, DRAWER_FAMILY, b"q", b""))
    found = survey(gateway, RECORD)
    assert sum(counted.rows for counted in found.regions) == sum(rows) + 1  # b"r1234" looks like a prefix
    assert rows_about(gateway, RECORD) >= 0


@thorough
def test_a_large_table_with_a_hot_bucket_is_estimated() -> None:
    same = np.uint64(0xABCDEF0123 << 24) + np.arange(300, dtype=np.uint64)
    gateway, rows = table(np.concatenate([skewed(20_000), same]), splits(LAYOUT, 4))
    found = survey(gateway, RECORD)
    assert not any(counted.is_exact for counted in found.regions)
    assert found.rows == pytest.approx(sum(rows), rel=0.1)
    assert [counted.rows for counted in found.regions] == pytest.approx(rows, rel=0.2)
    assert found.skew == pytest.approx(max(rows) * 4 / sum(rows), rel=0.15)


def test_rows_of_the_key_drawer_are_counted_and_may_be_a_hot_bucket() -> None:
    fingerprints, key = skewed(500), 0x0123456789ABCDEF
    gateway, rows = table(fingerprints, splits(LAYOUT, 4))
    for value in fingerprints.tolist():
        (row,) = rows_of_key(RECORD, Signature(value, 0, key))
        gateway.cluster.put(Put(row, DRAWER_FAMILY, b"", b""))
    found = survey(gateway, RECORD)
    assert [counted.rows - counted.key_rows for counted in found.regions] == rows
    assert (found.rows, found.regions[0].key_rows) == (sum(rows) + 500, 500)
    told = found.to_json(len(LAYOUT.drawers))
    assert (told["drawer_rows"], told["fingerprints"]) == (sum(rows) + 500, sum(rows) // len(LAYOUT.drawers))
    assert found.hot_buckets == ((key_prefix(key), 500),)
    assert rows_about(gateway, RECORD) == pytest.approx(sum(rows), rel=0.3)


def test_a_hot_bucket_is_met_where_it_is_read() -> None:
    same = np.uint64(0xABCDEF0123 << 24) + np.arange(300, dtype=np.uint64)
    gateway, _ = table(same, [])
    (prefix, rows), *_ = survey(gateway, RECORD).hot_buckets
    assert prefix in LAYOUT.prefixes(int(same[0]))
    assert len(prefix) == PREFIX_BYTES
    assert rows == 300


def documents(cluster: Cluster, fingerprints: list[int]) -> None:
    for number, fingerprint in enumerate(fingerprints):
        doc_id = b"https://example.org/%d" % number
        cluster.put(listing_put(fingerprint, doc_id))
        row, qualifier = register_key(doc_id)
        cluster.put(
            Put(row, DOCUMENT_FAMILY, qualifier, Register(Signature(fingerprint)).to_bytes(has_signatures=True))
        )


def test_a_fingerprint_that_many_documents_share_is_met() -> None:
    gateway, _ = table(skewed(100), [])
    documents(gateway.cluster, [*range(3_000), *[5_000] * 1_500, *[6_000] * 999])
    (crowd,) = crowds(gateway, 2_000)
    assert (crowd.fingerprint, crowd.documents) == (5_000, 1_500)
    assert crowd.share == pytest.approx(1_500 / 5_499, rel=0.2)


def test_a_survey_as_json_has_the_sums_and_the_regions() -> None:
    gateway, rows = table(skewed(100), splits(LAYOUT, 2))
    facts = survey(gateway, RECORD).to_json(len(LAYOUT.drawers))
    sums = {name: value for name, value in facts.items() if not isinstance(value, list)}
    assert list(sums) == ["regions", "servers", "drawer_rows", "is_exact", "fingerprints", "skew"]
    assert list(sums.values()) == [2, 1, 1_000, True, 100, round(max(rows) / 500, 2)]
    key = gateway.keys[1].hex()
    assert facts["region_rows"] == [
        {"start": start, "stop": stop, "segments": words, "server": "model:16020", "rows": count, "is_exact": True}
        for start, stop, words, count in (("", key, f"[00000000, {key})", rows[0]), (key, "", f"[{key}, end)", rows[1]))
    ]
    assert facts["hot_buckets"] == []


def test_an_empty_table_has_no_skew() -> None:
    gateway, _ = table(np.empty(0, np.uint64), splits(LAYOUT, 2))
    found = survey(gateway, RECORD)
    assert (found.rows, found.skew, found.hot_buckets) == (0, None, ())


def test_a_region_that_begins_inside_of_a_segment_is_counted_as_it_is() -> None:
    fingerprints = skewed(100)
    middle = encode(LAYOUT, fingerprints)[7, 4].tobytes()
    gateway, rows = table(fingerprints, [middle[:PREFIX_BYTES]])
    assert [counted.rows for counted in survey(gateway, RECORD).regions] == rows


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("", "00000000"),
        ("4000", "40000000"),
        ("40000000", "40000000"),
        ("4000000003", "40000000 drawer 3"),
        ("4000000000", "40000000 documents"),
        ("40000000fe0123456789abcdef", "40000000 registers 0123456789abcdef"),
    ],
)
def test_a_key_in_words_has_its_segment_and_its_drawer(key: str, words: str) -> None:
    assert key_in_words(bytes.fromhex(key)) == words


# Regions as a gateway reports them: with replicas, and without a server.


def test_thrift2_reports_each_region_once() -> None:
    def location(start: bytes, stop: bytes, server: str | None, replica: int | None) -> object:
        info = THRIFT2.THRegionInfo(regionId=1, tableName=b"t", startKey=start, endKey=stop, replicaId=replica)
        name = THRIFT2.TServerName(hostName=server, port=16020) if server else None
        return THRIFT2.THRegionLocation(serverName=name, regionInfo=info)

    locations = [
        *(location(MIDDLE, b"", None, replica) for replica in (None, 1)),
        *(location(b"", MIDDLE, ("one", "two")[replica], replica) for replica in (1, 0)),
    ]
    assert thrift2.regions_of_locations(locations) == REGIONS


def test_thrift1_reports_each_region_once() -> None:
    def info(start: bytes, stop: bytes, server: bytes | None, replica: str) -> object:
        name = b"t," + start + f",1700000000000{replica}.{DIGEST}.".encode()
        return thrift1.HBASE.TRegionInfo(startKey=start, endKey=stop, name=name, serverName=server, port=16020)

    infos = [
        *(info(MIDDLE, b"", None, replica) for replica in ("", "_0001")),
        info(b"", MIDDLE, b"two", "_000A"),
        info(b"", MIDDLE, b"one", ""),
    ]
    assert thrift1.regions_of_infos(infos) == REGIONS
