"""Batches of queries on a real HBase whose gateway does not take filters, and which rows there are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase import thrift2
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.operations import open_gateway
from hsimhash.store.hbase.table import TableSettings
from hsimhash.store.hbase.thrift2 import SINGLE_SCANS, Thrift2Gateway
from tests.support.hbase_server import Gateways
from tests.support.hbase_tables import new_table, table_url

ROWS = [bytes([number, 1, 2, 3, 4]) + bytes(8) for number in range(0, 250, 2)]


@pytest.fixture(scope="module")
def table(hbase: Gateways) -> Iterator[str]:
    """A table of two regions that holds `ROWS`."""
    with new_table(hbase, TableSettings(splits=(b"\x80\x00\x00\x00",))) as name:
        with open_gateway(Address.parse(table_url(hbase, name))) as gateway:
            gateway.put_rows(np.frombuffer(b"".join(ROWS), np.uint8).reshape(-1, ROWKEY_BYTES))
        yield name


@pytest.mark.parametrize(
    ("filter_bytes", "is_asked_again"), [(b"\x0a\x01x\x12\x00", True), (None, False)], ids=["refused", "ignored"]
)
def test_a_gateway_that_takes_no_filters_is_asked_range_by_range(
    request: pytest.FixtureRequest,
    hbase: Gateways,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    filter_bytes: bytes | None,
    is_asked_again: bool,
) -> None:
    # A filter that the gateway does not know stands for one that it refuses, perhaps for this call only; none, for one
    # that it passes over, which is so for good.
    filters: list[int] = []

    def refused(ranges: list[tuple[bytes, bytes]]) -> bytes | None:
        filters.append(len(ranges))
        return filter_bytes

    monkeypatch.setattr(thrift2, "row_ranges", refused)
    gateway = open_gateway(Address.parse(f"hbase://{hbase.host}:{hbase.thrift2_port}/{table}?timeout=60s"))
    request.addfinalizer(gateway.close)
    assert isinstance(gateway, Thrift2Gateway)
    ranges = [(row, row + b"\x00") for row in ROWS[::2]]
    ranges += [(b"\x7f\xff", b"\x7f\xff\x00"), (b"\xff", b"\xff\x00")]  # empty, so that others come at the ends
    assert len(ranges) > SINGLE_SCANS
    assert sorted(row.tobytes() for row in gateway.scan(ranges)) == ROWS[::2]
    asked = len(filters)
    assert asked > 0
    assert sorted(row.tobytes() for row in gateway.scan(ranges)) == ROWS[::2]
    assert (len(filters) > asked) == is_asked_again


@pytest.mark.parametrize("idl", ["thrift2", "thrift1"])
def test_which_rows_there_are_is_told_one_by_one(hbase: Gateways, table: str, idl: str) -> None:
    port = hbase.thrift2_port if idl == "thrift2" else hbase.thrift1_port
    gateway = open_gateway(Address.parse(f"hbase://{hbase.host}:{port}/{table}?timeout=60s"))
    absent = [row[:-1] + b"\x01" for row in ROWS]
    mixed = [row for pair in zip(absent, ROWS, strict=True) for row in pair]
    assert gateway.holds(mixed) == [False, True] * len(ROWS)
    assert gateway.holds([ROWS[0], absent[0], ROWS[0]]) == [True, False, True]
    assert gateway.holds([]) == []
    gateway.close()
