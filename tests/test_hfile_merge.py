"""Cells of several files: shown is what HBase shows, by brute force over its rules."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.errors import CorruptionError
from hsimhash.hfile import KeyValue, merged_cells, visible_cells
from hsimhash.hfile.cells import DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION, PUT

KINDS = (PUT, PUT, PUT, DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION)


@st.composite
def written(draw: st.DrawFn) -> list[KeyValue]:
    """Cells in the order in which they were written: few rows, qualifiers and times, so that many meet."""
    cells = []
    for number in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(KINDS))
        qualifier = b"" if kind in (DELETE_FAMILY, DELETE_FAMILY_VERSION) else draw(st.sampled_from([b"", b"a", b"b"]))
        value = b"%d" % number if kind == PUT else b""
        cells.append(
            KeyValue(draw(st.sampled_from([b"r", b"s"])), qualifier, draw(st.integers(0, 4)), value, kind, number)
        )
    return cells


def shown(cells: Sequence[KeyValue], oldest: int) -> dict[tuple[bytes, bytes], bytes]:
    """Return what a read of one version of each cell returns, straight from the rules."""

    def is_hidden(put: KeyValue) -> bool:
        return put.timestamp < oldest or any(
            one.row == put.row
            and (one.qualifier == put.qualifier or one.kind in (DELETE_FAMILY, DELETE_FAMILY_VERSION))
            and (
                put.timestamp <= one.timestamp
                if one.kind in (DELETE_COLUMN, DELETE_FAMILY)
                else put.timestamp == one.timestamp
            )
            for one in cells
            if one.kind != PUT
        )

    puts = (one for one in cells if one.kind == PUT and not is_hidden(one))
    ordered = sorted(puts, key=lambda one: (one.timestamp, one.sequence))
    return {(one.row, one.qualifier): one.value for one in ordered}


def in_order(cells: Sequence[KeyValue]) -> list[KeyValue]:
    return sorted(cells, key=lambda one: (one.row, one.qualifier, -one.timestamp, -one.kind, -one.sequence))


@given(written(), st.lists(st.integers(0, 3)), st.integers(0, 3), st.booleans())
def test_shown_is_what_the_rules_say(
    cells: list[KeyValue], places: list[int], oldest: int, is_one_after_the_other: bool
) -> None:
    files = [list[KeyValue]() for _ in range(4)]
    for number, one in enumerate(cells):
        if is_one_after_the_other:  # flushed one after the other: the file tells which write was later
            files[4 * number // len(cells)].append(one)
        else:
            files[places[number % len(places)] if places else 0].append(one)
    ordered = [in_order(one) for one in files]
    if is_one_after_the_other:
        ordered = [[one._replace(sequence=0) for one in file] for file in ordered]
    found = list(visible_cells(merged_cells(ordered), oldest))
    assert {(one.row, one.qualifier): one.value for one in found} == shown(cells, oldest)
    assert found == sorted(found)


def test_a_cell_of_an_unknown_type_is_told() -> None:
    with pytest.raises(CorruptionError, match="row 72 has the unknown type 9"):
        list(visible_cells([KeyValue(b"r", b"", 1, b"", 9)]))
