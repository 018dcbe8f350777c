"""Match many queries against compressed tables: read each table once, and compare its rows segment by segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from hsimhash.compressed.files import DOCUMENTS, PERMUTED, Manifest, drawer_file, file_content, kept_profile
from hsimhash.cover import check_distance
from hsimhash.errors import CorruptionError
from hsimhash.extras import arrow_needed
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import AnyFingerprints, Int64s, Uint8s, Uint64s, as_fingerprints, spans
from hsimhash.layout import Drawer, Layout

MEETINGS_AT_ONCE = 1 << 20  # rows times queries that are compared at once


class NearPairs(NamedTuple):
    """Near pairs of a query and a stored fingerprint, ordered by query, distance and fingerprint, without repeats."""

    queries: Int64s  # positions
    fingerprints: Uint64s
    distances: Uint8s

    def by_query(self, count: int) -> Iterator[slice]:
        """Yield the slice of the pairs of each query."""
        edges = np.searchsorted(self.queries, np.arange(count + 1)).tolist()
        return (slice(start, stop) for start, stop in pairwise(edges))


class StoredDocument(NamedTuple):
    """A document of the tables; `first_seen` in ms since 1970."""

    doc_id: str
    fingerprint: int
    first_seen: int


class CompressedTables:
    """Tables that `write_tables` wrote.

    Raises:
        IndexNotFoundError: there are none, or they are not whole.
        CorruptionError: they cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, Manifest.load(folder)
        self.layout = Layout.parse(self.manifest.layout)

    @cached_property
    def profile(self) -> Profile:
        """The profile of the fingerprints; `CorruptionError` if it or one of its lists is damaged."""
        return kept_profile(self.manifest, str(self.folder), partial(file_content, self.folder))

    def match(
        self,
        fingerprints: AnyFingerprints,
        max_distance: int | None = None,
        tell: Callable[[int, int], None] = lambda *_: None,
    ) -> NearPairs:
        """Match queries; return the near stored fingerprints of each.

        Args:
            fingerprints: shape (n,), unsigned 64-bit; held in memory once for each drawer.
            max_distance: in bits, at most the layout's own, which is the default.
            tell: is given how many rows were read, of how many.

        Raises:
            ValueError: a greater distance.
        """
        distance = scanned_distance(self.layout, max_distance)
        queries = as_fingerprints(fingerprints)
        asking, found = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        done, total = 0, self.manifest.fingerprints * len(self.layout.drawers)
        for drawer in self.layout.drawers:
            order = np.argsort(permuted := drawer.permute(queries))
            ordered = permuted[order]
            for stored in self._rows(drawer):
                for places, near in near_rows(ordered, stored, drawer, distance):
                    asking.append(order[places])
                    found.append(drawer.restore(near))
                done += len(stored)
                tell(done, total)
        return _distinct_pairs(np.concatenate(asking), np.concatenate(found), queries)

    def _rows(self, drawer: Drawer) -> Iterator[Uint64s]:
        """Yield the rows of a drawer's table in order, a row group at a time."""
        path, rows = drawer_file(self.folder, drawer.number), 0
        for part in _parts(path):
            for group in _groups(part, [PERMUTED]):
                values = group.column(0).to_numpy()
                rows += len(values)
                yield values
        if rows != self.manifest.fingerprints:
            raise CorruptionError(
                f"{path} has {rows:,} rows instead of {self.manifest.fingerprints:,}; write the tables again"
            )

    def documents(self, fingerprints: Uint64s) -> dict[int, list[StoredDocument]]:
        """Return the documents of stored fingerprints, by fingerprint, in order of id."""
        wanted, found = np.unique(fingerprints), dict[int, list[StoredDocument]]()
        for part in _parts(self.folder / DOCUMENTS):
            for group in _groups(part, ["id", "fingerprint", "first_seen"]):
                own = group.column("fingerprint").to_numpy().view(np.uint64)
                places = np.flatnonzero(np.isin(own, wanted))
                ids, _, times = (column.to_pylist() for column in group.take(places).columns)
                for row in zip(ids, own[places].tolist(), times, strict=True):
                    found.setdefault(row[1], []).append(StoredDocument(*row))
        return {fingerprint: sorted(rows) for fingerprint, rows in found.items()}


def _parts(path: Path) -> list[Path]:
    """Return the files of a table, in order: one, or those of the folder that a job on Spark wrote."""
    return sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]


def _groups(path: Path, columns: list[str]) -> Iterator[Any]:
    """Yield the row groups of a table; `CorruptionError` where it cannot be read."""
    try:
        stream = path.open("rb")
    except OSError as error:
        raise CorruptionError(f"{path} cannot be read ({error}); write the tables again") from error
    with stream:
        yield from row_groups(str(path), stream, columns)


def row_groups(name: str, stream: BinaryIO, columns: list[str]) -> Iterator[Any]:
    """Yield the row groups of an open table; raise `CorruptionError` with its name if it cannot be read."""
    pa, pq = arrow_needed("a compressed table")
    try:
        with pq.ParquetFile(stream, page_checksum_verification=True) as table:
            for number in range(table.num_row_groups):
                group = table.read_row_group(number, columns=columns)
                if group.column_names != columns:
                    raise CorruptionError(f"{name} lacks one of the columns {columns}; write the tables again")
                yield group
    except (OSError, pa.ArrowException) as error:
        raise CorruptionError(f"{name} cannot be read ({error}); write the tables again") from error


def scanned_distance(layout: Layout, max_distance: int | None) -> int:
    """Return the distance to match, by default the layout's; raise `ValueError` if its tables cannot answer it."""
    distance = layout.max_distance if max_distance is None else max_distance
    check_distance(distance, layout)
    if distance > layout.max_distance:
        raise ValueError(
            f"distance {distance} is beyond the {layout.max_distance} bits of layout {layout.name}: its tables are "
            f"scanned by their own segments; write them with a layout of that distance"
        )
    return distance


def near_rows(queries: Uint64s, stored: Uint64s, drawer: Drawer, max_distance: int) -> Iterator[tuple[Int64s, Uint64s]]:
    """Yield positions of queries, and the near stored numbers of their segments, in blocks of bounded size.

    Args:
        queries: shape (n,), permuted by the drawer and sorted.
        stored: shape (m,), at least one, permuted and sorted too.
        drawer: by whose segment they meet.
        max_distance: in bits.
    """
    shift = np.uint64(64 - drawer.segment_bits)
    first, last = stored[0] >> shift, stored[-1] >> shift
    segments = queries >> shift
    start, stop = int(np.searchsorted(segments, first)), int(np.searchsorted(segments, last, "right"))
    own = stored >> shift
    begins = np.searchsorted(own, segments[start:stop])
    lengths = np.searchsorted(own, segments[start:stop], "right") - begins
    met = np.flatnonzero(lengths)
    meetings = np.cumsum(lengths[met])
    if not len(met):
        return
    cuts = np.searchsorted(meetings, np.arange(MEETINGS_AT_ONCE, int(meetings[-1]), MEETINGS_AT_ONCE))
    for part in np.split(met, cuts):
        places = np.repeat(part + start, lengths[part])
        rows = stored[spans(begins[part], lengths[part])]
        is_near = np.bitwise_count(queries[places] ^ rows) <= max_distance
        yield places[is_near], rows[is_near]


def _distinct_pairs(asking: Int64s, found: Uint64s, queries: Uint64s) -> NearPairs:
    distances = np.bitwise_count(found ^ queries[asking])
    order = np.lexsort((found, distances, asking))
    asking, found, distances = asking[order], found[order], distances[order]
    is_new = np.append(True, (asking[1:] != asking[:-1]) | (found[1:] != found[:-1]))[: len(order)]
    return NearPairs(asking[is_new], found[is_new], distances[is_new])
