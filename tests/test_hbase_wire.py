"""hsimhash encodes calls as the same bytes that thriftpy2 writes for the same objects."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from thriftpy2.utils import serialize

from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY
from hsimhash.store.hbase.gateway.connection import THRIFT2
from hsimhash.store.hbase.gateway.thrift2 import put_arguments, sorted_rows

drawer_rows = st.integers(0, 20).flatmap(lambda count: arrays(np.uint8, (count, 13), elements=st.integers(0, 255)))


@given(st.binary(max_size=30), drawer_rows)
def test_drawer_rows_are_written_as_thrift_does(table: bytes, rows: NDArray[np.uint8]) -> None:
    column = THRIFT2.TColumnValue(family=DRAWER_FAMILY, qualifier=b"", value=b"")
    puts = [THRIFT2.TPut(row=row.tobytes(), columnValues=[column]) for row in rows]
    assert put_arguments(table, rows) == serialize(THRIFT2.THBaseService.putMultiple_args(table=table, tputs=puts))


@given(drawer_rows)
def test_rows_are_brought_in_order(rows: NDArray[np.uint8]) -> None:
    assert [row.tobytes() for row in sorted_rows(rows)] == sorted(row.tobytes() for row in rows)
