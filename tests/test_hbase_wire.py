"""What is written as bytes is what thriftpy2 writes of the same objects."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from thriftpy2.utils import serialize

from hsimhash.store.hbase.connection import THRIFT2
from hsimhash.store.hbase.gateway import DRAWER_FAMILY, Put
from hsimhash.store.hbase.thrift2 import put_arguments, put_bytes, row_puts, scan_arguments, sorted_rows

puts = st.builds(
    Put,
    *(st.binary(max_size=most) for most in (300, 3, 300, 30)),
    timestamp=st.none() | st.integers(0, 2**63 - 1),
)
drawer_rows = st.integers(0, 20).flatmap(lambda count: arrays(np.uint8, (count, 13), elements=st.integers(0, 255)))


def written(table: bytes, wanted: list[Put]) -> bytes:
    """Return what thriftpy2 makes of the arguments."""
    tputs = [
        THRIFT2.TPut(
            row=put.row,
            columnValues=[
                THRIFT2.TColumnValue(
                    family=put.family, qualifier=put.qualifier, value=put.value, timestamp=put.timestamp
                )
            ],
        )
        for put in wanted
    ]
    return serialize(THRIFT2.THBaseService.putMultiple_args(table=table, tputs=tputs))


@given(st.binary(max_size=30), st.lists(puts, max_size=5))
def test_puts_are_written_as_thrift_does(table: bytes, wanted: list[Put]) -> None:
    assert put_arguments(table, b"".join(map(put_bytes, wanted)), len(wanted)) == written(table, wanted)


@given(st.binary(max_size=30), st.binary(max_size=20), st.binary(max_size=20), st.integers(1, 2**31 - 1))
def test_scans_are_written_as_thrift_does(table: bytes, start: bytes, stop: bytes, limit: int) -> None:
    rest = {"columns": [THRIFT2.TColumn(family=DRAWER_FAMILY)], "caching": limit, "limit": limit}
    scan = THRIFT2.TScan(startRow=start, stopRow=stop, **rest)
    arguments = THRIFT2.TRowScan.getScannerResults_args(table=table, tscan=scan, numRows=limit)
    rest_bytes = serialize(THRIFT2.TScan(**rest))
    assert scan_arguments(table, start, stop, rest_bytes, limit) == serialize(arguments)


@given(drawer_rows)
def test_drawer_rows_are_written_as_puts(rows: NDArray[np.uint8]) -> None:
    wanted = [Put(row.tobytes(), DRAWER_FAMILY, b"", b"") for row in rows]
    assert row_puts(rows).tobytes() == b"".join(map(put_bytes, wanted))


@given(drawer_rows)
def test_rows_are_brought_in_order(rows: NDArray[np.uint8]) -> None:
    assert [row.tobytes() for row in sorted_rows(rows)] == sorted(row.tobytes() for row in rows)
