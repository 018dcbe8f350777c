"""Scan replies read as arrays, compared with the library's reading of the same bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TClient
from thriftpy2.transport import TMemoryBuffer

from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Cell
from hsimhash.store.hbase.gateway.connection import THRIFT2
from hsimhash.store.hbase.gateway.replies import columns_in, drawer_rows_in

Rows = list[list[tuple[bytes, bytes, bytes, int]]]  # the cells of each row: row, qualifier, value, timestamp

CELL_MARK = b"\x0b\0\1\0\0\0\1d\x0b\0\2"
CELL_END, ROW_END = b"\3\0\6\4\0", b"\2\0\3\0\2\0\4\0\0"


def text(number: int, data: bytes) -> bytes:
    return b"\x0b" + number.to_bytes(2, "big") + len(data).to_bytes(4, "big") + data


def reply(rows: Rows, family: bytes = DOCUMENT_FAMILY, *, row_end: bytes = ROW_END) -> bytes:
    """Return the bytes that a gateway writes for these rows."""
    body = b""
    for cells in rows:
        body += text(1, cells[0][0]) + b"\x0f\0\2\x0c" + len(cells).to_bytes(4, "big")
        for _, name, value, stamp in cells:
            body += text(1, family) + text(2, name) + text(3, value) + b"\x0a\0\4" + stamp.to_bytes(8, "big") + CELL_END
        body += row_end
    head = b"\x80\1\0\2\0\0\0\x11getScannerResults\0\0\0\0\x0f\0\0\x0c"
    return head + len(rows).to_bytes(4, "big") + body + b"\0"


def by_library(data: bytes) -> list[Cell]:
    """Return the cells as the library reads them."""
    results = TClient(THRIFT2.THBaseService, TBinaryProtocol(TMemoryBuffer(data)))._recv("getScannerResults")
    return [
        Cell(one.row, found.qualifier, found.value, found.timestamp) for one in results for found in one.columnValues
    ]


def by_arrays(data: bytes) -> list[Cell] | None:
    found = columns_in(data, DOCUMENT_FAMILY)
    return None if found is None else [found.cell(place) for place in range(len(found.rows))]


contents = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([CELL_MARK, CELL_MARK + CELL_END, CELL_END + ROW_END, CELL_END + CELL_MARK + b"\0\0\0\0", b""]),
)
cells = st.tuples(st.binary(min_size=ROWKEY_BYTES, max_size=ROWKEY_BYTES), contents, contents, st.integers(0, 2**62))
rows_of_cells = st.lists(st.lists(cells, min_size=1, max_size=4), max_size=6)


@given(rows_of_cells)
@example([[(bytes(13), CELL_MARK, CELL_MARK, 1)]])
def test_cells_are_as_the_library_reads_them_or_left_to_it(rows: Rows) -> None:
    data = reply(rows)
    found, expected = by_arrays(data), by_library(data)
    has_marks = any(CELL_MARK in name + b"|" + value for row in rows for _, name, value, _ in row)
    assert found == expected or (found is None and has_marks)


@given(rows_of_cells.filter(bool), st.data())
def test_what_is_damaged_is_left_to_the_library(rows: Rows, data: st.DataObject) -> None:
    whole = bytearray(reply(rows))
    whole[data.draw(st.integers(33, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    found = by_arrays(bytes(whole))
    assert found is None or found == by_library(bytes(whole))


def test_what_is_unusual_is_left_to_the_library() -> None:
    usual = [[(bytes(13), b"a", b"", 7)], [(b"\1" * 13, b"b", b"v", 8), (b"\1" * 13, b"c", b"", 9)]]
    assert by_arrays(reply(usual)) == [Cell(*one) for row in usual for one in row]
    assert by_arrays(reply([*usual, [(b"\2" * 12, b"", b"", 1)]])) is None
    assert by_arrays(reply(usual, b"e")) is None
    assert by_arrays(reply(usual, row_end=b"\2\0\3\0\2\0\4\1\0")) is None  # a partial row
    assert by_arrays(reply(usual)[:-3]) is None
    assert by_arrays(b"") is None


def test_drawer_rows_are_rowkeys_alone() -> None:
    rows = [bytes([number]) * ROWKEY_BYTES for number in range(5)]
    usual = [[(row, b"", b"", number)] for number, row in enumerate(rows)]
    found = drawer_rows_in(reply(usual, DRAWER_FAMILY))
    assert found is not None
    assert found.tobytes() == b"".join(rows)
    nothing = drawer_rows_in(reply([], DRAWER_FAMILY))
    assert nothing is not None
    assert nothing.shape == (0, ROWKEY_BYTES)
    assert nothing.dtype == np.uint8
    row = b"r" * ROWKEY_BYTES
    for odd in ((row, b"q", b"", 1), (row, b"", b"v", 1), (row[:-1], b"", b"", 1), (row[:-1], b"", b"v", 1)):
        assert drawer_rows_in(reply([*usual, [odd]], DRAWER_FAMILY)) is None
    assert drawer_rows_in(reply(usual, b"e")) is None
    assert drawer_rows_in(b"") is None
