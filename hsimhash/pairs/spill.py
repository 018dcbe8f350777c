"""Columns and sorted runs in a temporary folder, for what does not fit into memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hsimhash.files import naming

_REMEDY = (
    "what does not fit into memory is spilled there: allow more memory (--memory), or set TMPDIR to a folder with room"
)


@contextmanager
def spill_folder() -> Iterator[Path]:
    """Give a new folder in the system's one for temporary files (TMPDIR), which is deleted at the end."""
    with naming("the folder for temporary files", _REMEDY):
        parent = tempfile.gettempdir()
    with naming(parent, _REMEDY):
        folder = tempfile.TemporaryDirectory(prefix="hsimhash-pairs-")
    with folder as name:
        yield Path(name)


class Column:
    """A growing array in a file."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._rows = 0

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows behind those that are there."""
        with naming(self._path.parent, _REMEDY), self._path.open("ab") as file:
            file.write(np.ascontiguousarray(rows, self._dtype).data)
        self._rows += len(rows)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows of [start, stop)."""
        with naming(self._path.parent, _REMEDY):
            return np.fromfile(self._path, self._dtype, stop - start, offset=start * self._dtype.itemsize)

    def mapped(self) -> NDArray[Any]:
        """Return all rows, which stay in the file."""
        return np.memmap(self._path, self._dtype, "r") if self._rows else np.empty(0, self._dtype)

    def delete(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)


class SpilledRuns:
    """Rows in runs that are each sorted by their first column, read back by ranges of it.

    Args:
        columns: one file each; the first holds the keys.
        splits: ascending keys; part p holds the keys from splits[p - 1] (included) to splits[p] (not).
    """

    def __init__(self, columns: Sequence[Column], splits: NDArray[np.uint64]) -> None:
        self._columns = columns
        self._splits = splits
        self._edges: list[list[int]] = []  # of each run: the rows where its parts begin, and where the last one ends
        self._rows = 0

    def add(self, *columns: NDArray[Any]) -> None:
        """Write a run."""
        keys = columns[0]
        edges = [0, *np.searchsorted(keys, self._splits).tolist(), len(keys)]
        for column, rows in zip(self._columns, columns, strict=True):
            column.append(rows)
        self._edges.append([self._rows + edge for edge in edges])
        self._rows += len(keys)

    def parts(self) -> Iterator[list[NDArray[Any]]]:
        """Yield the columns of each part, its runs one after the other; then delete the files."""
        for part in range(len(self._splits) + 1):
            ranges = [(edges[part], edges[part + 1]) for edges in self._edges]
            yield [np.concatenate([column.read(*rows) for rows in ranges]) for column in self._columns]
        for column in self._columns:
            column.delete()


def quantiles(sample: NDArray[np.uint64], parts: int) -> NDArray[np.uint64]:
    """Return up to `parts - 1` splits that cut what the sample stands for into parts of about the same size."""
    ordered = np.sort(sample)
    return np.unique(ordered[np.arange(1, parts) * len(ordered) // parts])
