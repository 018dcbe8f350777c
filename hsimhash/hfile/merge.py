"""The cells of several files of a family as HBase shows them: `merged_cells`, then `visible_cells`.

HBase orders cells by row, qualifier, then the newest timestamp first, then the type, a delete marker before a put, then
the latest write first. A marker hides what lies at or below its timestamp, whenever it was written:

| type | hides |
|---|---|
| `DELETE_FAMILY` | all cells of the row up to its timestamp |
| `DELETE_FAMILY_VERSION` | all cells of the row that have its timestamp |
| `DELETE_COLUMN` | the versions of its cell up to its timestamp |
| `DELETE` | the version of its cell that has its timestamp |
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from hsimhash.errors import CorruptionError
from hsimhash.hfile.cells import (
    DELETE,
    DELETE_COLUMN,
    DELETE_FAMILY,
    DELETE_FAMILY_VERSION,
    PUT,
    KeyValue,
)

Place = tuple[bytes, bytes, int, int, int, int]


def merged_cells(files: Sequence[Iterable[KeyValue]]) -> Iterator[KeyValue]:
    """Yield the cells of files, each of them in order, in HBase's order.

    Args:
        files: the oldest first: of two cells that are equal otherwise that of the later file comes first.
    """
    if len(files) == 1:
        return iter(files[0])
    placed = [map(partial(_placed, -number), cells) for number, cells in enumerate(files)]
    return (cell for _, cell in heapq.merge(*placed))


def _placed(number: int, cell: KeyValue) -> tuple[Place, KeyValue]:
    """Return a cell behind its place, which no other cell has."""
    return (cell.row, cell.qualifier, -cell.timestamp, -cell.kind, -cell.sequence, number), cell


def visible_cells(cells: Iterable[KeyValue], oldest: int = 0) -> Iterator[KeyValue]:
    """Yield of cells in HBase's order those that a read of one version returns.

    Args:
        cells: of one family.
        oldest: ms since 1970; what has an earlier timestamp is expired.

    Raises:
        CorruptionError: a cell has an unknown type.
    """
    row, qualifier, is_shown = b"", b"", False
    of_row, of_cell = _Markers(), _Markers()
    for cell in cells:
        if cell.row != row:
            row, qualifier, is_shown, of_row, of_cell = cell.row, cell.qualifier, False, _Markers(), _Markers()
        elif cell.qualifier != qualifier:
            qualifier, is_shown, of_cell = cell.qualifier, False, _Markers()
        if cell.kind != PUT:
            markers = of_row if cell.kind in (DELETE_FAMILY, DELETE_FAMILY_VERSION) else of_cell
            markers.add(cell)
        elif not is_shown and cell.timestamp >= oldest and not (of_row.hide(cell) or of_cell.hide(cell)):
            is_shown = True
            yield cell


class _Markers:
    """Delete markers of a row, or of a cell of it."""

    __slots__ = ("_single", "_until")

    def __init__(self) -> None:
        self._until, self._single = -1, set[int]()

    def add(self, marker: KeyValue) -> None:
        """Take one more."""
        if marker.kind in (DELETE_FAMILY, DELETE_COLUMN):
            self._until = max(self._until, marker.timestamp)
        elif marker.kind in (DELETE_FAMILY_VERSION, DELETE):
            self._single.add(marker.timestamp)
        else:
            raise CorruptionError(
                f"a cell of row {marker.row.hex()} has the unknown type {marker.kind}; take another copy of its file"
            )

    def hide(self, cell: KeyValue) -> bool:
        """Whether they hide a put."""
        return cell.timestamp <= self._until or cell.timestamp in self._single
