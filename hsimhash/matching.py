"""From queries to matches: read the buckets of a cover, count differing bits, confirm documents by their registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hsimhash.cover import PREFIX_BITS, Cover, Reading
from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s
from hsimhash.rowkey import PREFIX_BYTES, ROWKEY_BYTES, bucket_range, fingerprints_of
from hsimhash.store.base import Reader

FEW_ROWS = 40  # up to so many, a loop costs less than numpy's calls
READS_AT_ONCE = 1 << 18  # buckets that are read at once, if a query has no more: it bounds the memory of a batch, and
MEETINGS_AT_ONCE = 1 << 20  # rows times queries that are compared at once

Near = list[tuple[int, int]]  # distance and fingerprint, ascending, each once


class Match(NamedTuple):
    """A document near the query; ordered by distance (bits), then id. `first_seen` in ms since 1970."""

    distance: int
    doc_id: str
    fingerprint: int
    first_seen: int


class Query(NamedTuple):
    """A query, the stored fingerprints that are near it, and a document to leave out."""

    fingerprint: int
    near: Near
    exclude: str | None


def near_one(reader: Reader, cover: Cover, query: int) -> Near:
    """Return the stored fingerprints within the cover's distance of one query."""
    if cover.is_own:  # in scalar Python a single query takes a sixth
        rows = reader.scan(cover.layout.prefixes(query))
    else:
        parts = [read(reader, reading, np.sort(reading.numbers_of(query))) for reading in cover.readings]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(rows) <= FEW_ROWS:
        packed = rows.tobytes()
        values = [int.from_bytes(packed[at : at + 8], "big") for at in range(PREFIX_BYTES, len(packed), ROWKEY_BYTES)]
    else:
        candidates = fingerprints_of(rows)
        values = candidates[np.bitwise_count(candidates ^ np.uint64(query)) <= cover.distance].tolist()
    return sorted({(bits, value) for value in values if (bits := (value ^ query).bit_count()) <= cover.distance})


def near_many(reader: Reader, cover: Cover, queries: Uint64s) -> dict[int, Near]:
    """Return what `near_one` returns by a query's position, for the queries of shape (n,) that are near anything."""
    at_once = max(1, READS_AT_ONCE // cover.reads)
    found: dict[int, set[tuple[int, int]]] = {}
    for start in range(0, len(queries), at_once):
        part = queries[start : start + at_once]
        for reading in cover.readings:
            for query, fingerprints in _met(reader, reading, part):
                distance = np.bitwise_count(fingerprints ^ part[query])
                is_near = distance <= cover.distance
                places, bits, values = query[is_near] + start, distance[is_near], fingerprints[is_near]
                for place, *pair in zip(places.tolist(), bits.tolist(), values.tolist(), strict=True):
                    found.setdefault(place, set()).add((pair[0], pair[1]))
    return {place: sorted(pairs) for place, pairs in found.items()}


def _met(reader: Reader, reading: Reading, queries: Uint64s) -> Iterator[tuple[Int64s, Uint64s]]:
    """Yield queries' positions, and as many fingerprints of what each of them reads."""
    numbers = reading.numbers(queries)
    order = np.argsort(numbers, axis=None, kind="stable")
    ordered = numbers.ravel()[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    distinct, ends = ordered[starts], np.append(starts[1:], len(order))
    rows = read(reader, reading, distinct)
    if not len(rows):
        return
    # Each row meets every query that asked for its bucket; so many at a time that memory does not grow with both.
    bucket = np.searchsorted(distinct, _prefix_numbers(rows) >> reading.shift)
    fingerprints, asker = fingerprints_of(rows), order // numbers.shape[1]
    askers = ends[bucket] - starts[bucket]
    meetings = np.cumsum(askers)
    cuts = np.searchsorted(meetings, np.arange(MEETINGS_AT_ONCE, int(meetings[-1]), MEETINGS_AT_ONCE))
    for part in np.split(np.arange(len(rows)), cuts):
        row = np.repeat(part, askers[part])
        offset = np.arange(len(row)) - np.repeat(np.cumsum(askers[part]) - askers[part], askers[part])
        yield asker[starts[bucket[row]] + offset], fingerprints[row]


def read(reader: Reader, reading: Reading, numbers: Uint64s) -> Uint8s:
    """Return the rows of ascending, distinct numbers."""
    return reader.scan(_prefixes(numbers)) if reading.shift == 0 else reader.sweep(ranges(reading, numbers))


def ranges(reading: Reading, numbers: Uint64s) -> list[tuple[bytes, bytes]]:
    """Return the half-open ranges of rowkeys that ascending, distinct numbers stand for.

    Adjacent ones are one range, unless they are buckets.
    """
    if reading.shift == 0:
        return list(map(bucket_range, _prefixes(numbers)))
    is_last = np.append(numbers[1:] != numbers[:-1] + np.uint64(1), True)
    is_first = np.append(True, is_last[:-1])
    # The last prefix is no drawer's, so that it ends the last range.
    stops = np.minimum((numbers[is_last] + np.uint64(1)) << reading.shift, (1 << PREFIX_BITS) - 1)
    return list(zip(_prefixes(numbers[is_first] << reading.shift), _prefixes(stops), strict=True))


def _prefixes(numbers: Uint64s) -> list[bytes]:
    """Return the prefixes that numbers of 40 bits stand for."""
    words = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    return words[:, 8 - PREFIX_BYTES :].copy().view(f"V{PREFIX_BYTES}").ravel().tolist()


def _prefix_numbers(rows: Uint8s) -> Uint64s:
    """Return the first 5 bytes of rows of shape (m, 13) as numbers in byte order."""
    padded = np.zeros((len(rows), 8), np.uint8)
    padded[:, 8 - PREFIX_BYTES :] = rows[:, :PREFIX_BYTES]
    return padded.view(">u8").ravel().astype(np.uint64)


def confirmed(reader: Reader, queries: Sequence[Query], max_distance: int, limit: int | None) -> list[list[Match]]:
    """Return each query's matches among the documents of what is near it, nearest first; with a limit the first ones.

    Documents are read for all queries at once: all of them, or with a limit the nearest ones first, as far as needed.
    """
    found: list[dict[str, Match]] = [{} for _ in queries]
    most = None if limit is None else limit + any(query.exclude is not None for query in queries)
    rounds = [0] if limit is None else sorted({bits for query in queries for bits, _ in query.near})
    for nearest in rounds:
        pairs = [
            (query, matches, value)
            for query, matches in zip(queries, found, strict=True)
            if limit is None or sum(match.distance < nearest for match in matches.values()) < limit
            for bits, value in query.near
            if limit is None or bits == nearest
        ]
        values = sorted({value for _, _, value in pairs})
        documents = dict(zip(values, reader.documents(values, most), strict=True))
        for query, matches, value in pairs:
            for document in documents[value]:
                # The register may tell of a move since the row was read.
                distance = (document.fingerprint ^ query.fingerprint).bit_count()
                if distance <= max_distance and document.doc_id != query.exclude:
                    matches[document.doc_id] = Match(distance, *document)
    return [sorted(matches.values())[:limit] for matches in found]
