"""Survey a table from samples: how many drawer rows each region has, and which rows are crowded.

A gateway does not report sizes. So the survey reads windows, which are short ranges of segments, at random positions in
every region. All windows have the same width, chosen so that each has a few hundred rows. If a table is so small that
the windows would overlap, the whole table is read, and the numbers are exact.

The report includes the fullest buckets that were read, also in the key drawer. If very many documents share a
fingerprint, their listings are in one row, which no region split can divide. A sample of registers at random positions
finds such a fingerprint: if half of the documents have it, so do about half of the sampled registers.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise
from typing import NamedTuple

from hsimhash.rowkey import PREFIX_BYTES, bucket_range, documents_rowkey
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Gateway
from hsimhash.store.hbase.rows.cells import SEGMENTS, TABLE_STOP, is_register, segment_key, segment_of, signature_in
from hsimhash.store.reports import MOST_LISTED, Counted, CrowdedFingerprint, Region, Survey, crowded

HOT_BUCKET_ROWS = 100
MOST_HOT_BUCKETS = 5
WINDOW_ROWS = 200  # target number of rows in a window
MOST_WINDOW_ROWS = 2_000  # maximum rows read at once; if a window has more, the rest of the last bucket is skipped

_PILOTS, _FEW_PILOTS, _PILOT_ROWS = 32, 4, 64
_MOST_READS = 4  # per window
_REGION_WINDOWS = 16, 4  # windows per region: the usual number, and the number for tables with a great many regions
_MOST_WINDOWS = 2_048
_AT_ONCE = 8


class _SampleWindow(NamedTuple):
    """A part of a region: a half-open range of keys, and its width in segments."""

    start: bytes
    stop: bytes
    width: int


class _WindowRows(NamedTuple):
    """The rows read from a window, the number of segments they cover, and whether they are all of its rows."""

    prefixes: list[bytes]
    width: int
    are_all: bool


def survey(gateway: Gateway, record: Record) -> Survey:
    """Count the drawer rows of every region: exactly in a small table, from samples in a large one."""
    regions, randoms = gateway.regions(), random.Random(0)  # noqa: S311 (the same windows in every call)

    prefixes = partial(_prefixes, gateway)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        starts = [randoms.randrange(SEGMENTS) for _ in range(_PILOTS)]
        rows, segments = _density(
            record, starts, pool.map(lambda start: prefixes(segment_key(start), TABLE_STOP, _PILOT_ROWS), starts)
        )
        width = min(math.ceil(WINDOW_ROWS * segments / rows), SEGMENTS) if rows else SEGMENTS
        parts = max(_REGION_WINDOWS[1], min(_REGION_WINDOWS[0], _MOST_WINDOWS // len(regions)))
        windows = [_windows(region, width, parts, randoms) for region in regions]
        read = pool.map(partial(_read, gateway), chain.from_iterable(windows))
        found = [[next(read) for _ in own] for own in windows]
    buckets = Counter(prefix for own in found for rows in own for prefix in rows.prefixes)
    hot = [one for one in buckets.most_common(MOST_HOT_BUCKETS) if one[1] >= HOT_BUCKET_ROWS]
    return Survey(tuple(map(partial(_counted, record), regions, found)), tuple(hot))


def crowds(gateway: Gateway, sampled: int) -> tuple[CrowdedFingerprint, ...]:
    """Return the fingerprints that very many documents share, found from registers at random positions."""
    randoms, limit = random.Random(0), math.ceil(sampled / _PILOTS)  # noqa: S311 (the same positions in every call)
    starts = [segment_key(randoms.randrange(SEGMENTS)) for _ in range(_PILOTS)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda start: gateway.rows(start, TABLE_STOP, DOCUMENT_FAMILY, limit=limit), starts))
    registers = {
        cell.qualifier: signature_in(cell)
        for rows in found
        for (cell, *_) in rows
        if is_register(cell.row, cell.qualifier)
    }
    fingerprints = [signature.fingerprint for signature in registers.values() if signature is not None]
    return crowded(fingerprints, lambda value: _listed(gateway, value))


def _listed(gateway: Gateway, fingerprint: int) -> int:
    return len(gateway.cells(documents_rowkey(fingerprint), DOCUMENT_FAMILY, limit=MOST_LISTED))


def rows_about(gateway: Gateway, record: Record) -> int:
    """Estimate the number of drawer rows, except for the key drawer, from a few random positions."""
    randoms = random.Random(0)  # noqa: S311 (the same positions in every call)
    starts = [randoms.randrange(SEGMENTS) for _ in range(_FEW_PILOTS)]
    rows, segments = _density(
        record, starts, (_prefixes(gateway, segment_key(start), TABLE_STOP, _PILOT_ROWS) for start in starts)
    )
    return rows * SEGMENTS // segments


def _prefixes(gateway: Gateway, start: bytes, stop: bytes, limit: int) -> list[bytes]:
    return [cells[0].row[:PREFIX_BYTES] for cells in gateway.rows(start, stop, DRAWER_FAMILY, limit=limit)]


def _read(gateway: Gateway, window: _SampleWindow) -> _WindowRows:
    """Read a window, but not the whole of a hot bucket."""
    found, start = list[bytes](), window.start
    for number in range(_MOST_READS):
        rows = _prefixes(gateway, start, window.stop, MOST_WINDOW_ROWS)
        found += rows
        if len(rows) < MOST_WINDOW_ROWS:
            return _WindowRows(found, window.width, number == 0)
        _, start = bucket_range(rows[-1])
    return _WindowRows(found, max(segment_of(start) - segment_of(window.start), 1), False)


def _count(record: Record, prefixes: Iterable[bytes]) -> tuple[int, int]:
    """Return the number of drawer rows, and how many of them are in the key drawer."""
    is_key = [record.is_key_row(prefix) for prefix in prefixes if len(prefix) == PREFIX_BYTES]
    return len(is_key), sum(is_key)


def _density(record: Record, starts: Sequence[int], found: Iterable[list[bytes]]) -> tuple[int, int]:
    """Return how many rows outside the key drawer were found after the starts, and how many segments they cover."""
    segments = rows = 0
    for start, prefixes in zip(starts, found, strict=True):
        stop = segment_of(prefixes[-1]) + 1 if len(prefixes) == _PILOT_ROWS else SEGMENTS
        met, keyed = _count(record, prefixes)
        segments, rows = segments + stop - start, rows + met - keyed
    return rows, segments


def _windows(region: Region, width: int, parts: int, randoms: random.Random) -> list[_SampleWindow]:
    """Return one window in each of a region's equal parts; a part no wider than a window is returned whole."""
    lower, upper = segments_of(region)
    parts = min(parts, max(upper - lower, 1))
    edges = [lower + (upper - lower) * number // parts for number in range(parts + 1)]
    windows = []
    for start, stop in pairwise(edges):
        if stop - start > width:
            start = randoms.randrange(start, stop - width + 1)
            stop = start + width
        # A region may begin and end inside a segment.
        first = region.start if start == lower else segment_key(start)
        last = region.stop or TABLE_STOP if stop == upper else segment_key(stop)
        windows.append(_SampleWindow(first, last, max(stop - start, 1)))
    return windows


def _counted(record: Record, region: Region, found: list[_WindowRows]) -> Counted:
    read = _count(record, chain.from_iterable(rows.prefixes for rows in found))
    segments = sum(rows.width for rows in found)
    lower, upper = segments_of(region)
    is_whole = segments >= upper - lower and all(rows.are_all for rows in found)
    rows, keyed = (one if is_whole else round(one * (upper - lower) / segments) for one in read)
    return Counted(region, rows, keyed, is_whole)


def segments_of(region: Region) -> tuple[int, int]:
    """Return a region's half-open range of segments, ignoring that it may begin or end inside one."""
    return segment_of(region.start), segment_of(region.stop) if region.stop else SEGMENTS
