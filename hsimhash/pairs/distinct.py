"""Find the distinct fingerprints, sorted, with the first position of each, in memory or in files.

Values are sorted as words that combine their leading bits with their index. Only runs of values with equal leading
bits are sorted again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hsimhash.errors import Remedy
from hsimhash.files import naming
from hsimhash.fingerprint.bits import Bools, Int64s, Uint32s, Uint64s, sorted_distinct
from hsimhash.layout import FINGERPRINT_BITS

ROW_BYTES = 40  # measured working memory per fingerprint
PART_ROW_BYTES = 96  # memory per row of a part read from files
SAMPLE = 1 << 16  # fingerprints sampled to choose the splits

_REMEDY = (
    "data that does not fit into memory is spilled there: set TMPDIR to a folder with more space, or allow more "
    "memory with " + Remedy("memory_bytes", "--memory")
)


class Distinct(NamedTuple):
    """The distinct fingerprints in ascending order, shape (m,), and the index of each one's first occurrence."""

    values: Uint64s
    first: Uint32s


def distinct(fingerprints: Uint64s, groups: Int64s | None = None) -> Distinct:
    """Find the distinct fingerprints in memory.

    Args:
        fingerprints: Shape (n,), fewer than 2**32.
        groups: The numbers 0 to n - 1. For each repeated value, its number is replaced by the index of the first
            occurrence.
    """
    return _without_repeats(*_sorted(fingerprints), groups)


def distinct_in_files(fingerprints: Uint64s, folder: Path, memory_bytes: int, groups: Int64s | None = None) -> Distinct:
    """Find the distinct fingerprints like `distinct`; the arrays are mapped from files in `folder`."""
    rows = max(SAMPLE, memory_bytes // PART_ROW_BYTES)
    step = max(1, len(fingerprints) // SAMPLE)
    splits = quantiles(fingerprints[::step], -(-len(fingerprints) // rows))
    runs = SpilledRuns([Column(folder / "values.run", np.uint64), Column(folder / "indices.run", np.uint32)], splits)
    for start in range(0, len(fingerprints), rows):
        ordered, order = _sorted(fingerprints[start : start + rows])
        runs.add(ordered, order + start)
    found = [Column(folder / "values", np.uint64), Column(folder / "first", np.uint32)]
    for values, indices in runs.parts():
        ordered, order = _sorted(values)
        known = _without_repeats(ordered, indices[order], groups)
        found[0].append(known.values)
        found[1].append(known.first)
    return Distinct(found[0].mapped(), found[1].mapped())


def _without_repeats(ordered: Uint64s, indices: NDArray[Any], groups: Int64s | None) -> Distinct:
    is_new = is_first(ordered)
    first = indices[is_new].astype(np.uint32)
    repeats = np.flatnonzero(~is_new)
    if groups is not None and len(repeats):
        groups[indices[repeats]] = first[repeats - np.arange(1, len(repeats) + 1)]
    return Distinct(ordered[is_new], first)


def is_first(ordered: Uint64s) -> Bools:
    """Return which of the ordered values differ from the previous one."""
    found = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=found[1:])
    return found


def _sorted(values: Uint64s) -> tuple[Uint64s, Int64s]:
    """Return the values in order and their positions; equal values keep their order."""
    index_mask = np.uint64((1 << max(1, (len(values) - 1).bit_length())) - 1)
    varying = int(np.bitwise_or.reduce(values ^ values[:1])) if len(values) else 0
    lead = np.uint64(FINGERPRINT_BITS - max(1, varying.bit_length()))  # leading bits that are the same in all values
    words = values << lead
    words &= ~index_mask
    words |= np.arange(len(values), dtype=np.uint64)
    words.sort()
    words &= index_mask
    order = words.view(np.int64)
    ordered = values[order]
    if (ordered[1:] < ordered[:-1]).any():
        run = _unsorted(ordered << lead & ~index_mask, ordered)
        order[run] = order[run][np.argsort(ordered[run], kind="stable")]
        ordered[run] = values[order[run]]
    return ordered, order


def _unsorted(leading: Uint64s, values: Uint64s) -> Int64s:
    """Return the positions of all runs of equal leading bits that are out of order."""
    run = np.concatenate([[0], np.cumsum(leading[1:] != leading[:-1])])
    is_wrong = np.zeros(run[-1] + 1, bool)
    is_wrong[run[1:][values[1:] < values[:-1]]] = True
    return np.flatnonzero(is_wrong[run])


@contextmanager
def spill_folder() -> Iterator[Path]:
    """Create a folder for temporary files (in TMPDIR) and delete it at the end."""
    with naming("the folder for temporary files", _REMEDY):
        parent = tempfile.gettempdir()
    with naming(parent, _REMEDY):
        folder = tempfile.TemporaryDirectory(prefix="hsimhash-pairs-")
    with folder as name:
        yield Path(name)


class Column:
    """A growing array in a file; disk errors include a remedy."""

    def __init__(self, path: Path, dtype: DTypeLike, remedy: str = _REMEDY) -> None:
        self._path = path
        self._dtype = np.dtype(dtype)
        self._remedy = remedy
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: NDArray[Any]) -> None:
        """Append rows."""
        with naming(self._path.parent, self._remedy), self._path.open("ab") as file:
            file.write(np.ascontiguousarray(rows, self._dtype).data)
        self._rows += len(rows)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows in [start, stop)."""
        with naming(self._path.parent, self._remedy):
            return np.fromfile(self._path, self._dtype, stop - start, offset=start * self._dtype.itemsize)

    def mapped(self) -> NDArray[Any]:
        """Return all rows as a memory map."""
        return np.memmap(self._path, self._dtype, "r") if self._rows else np.empty(0, self._dtype)

    def delete(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)


class SpilledRuns:
    """Runs of rows sorted by their first column, read back one range of keys at a time.

    Args:
        columns: One file per column; the first holds the keys.
        splits: Ascending keys; part p holds the keys from splits[p - 1] (inclusive) to splits[p] (exclusive).
    """

    def __init__(self, columns: Sequence[Column], splits: Uint64s) -> None:
        self._columns = columns
        self._splits = splits
        self._edges: list[list[int]] = []  # for each run: the rows where its parts begin, and where the last one ends
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
        """Yield the columns of each part, run after run; then delete the files."""
        for part in range(len(self._splits) + 1):
            ranges = [(edges[part], edges[part + 1]) for edges in self._edges]
            yield [np.concatenate([column.read(*rows) for rows in ranges]) for column in self._columns]
        for column in self._columns:
            column.delete()


def quantiles(sample: Uint64s, parts: int) -> Uint64s:
    """Return up to `parts - 1` splits that divide the sampled population into parts of about the same size."""
    ordered = np.sort(sample)
    return sorted_distinct(ordered[np.arange(1, parts) * len(ordered) // parts])
