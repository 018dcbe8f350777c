"""From queries to matches: read the buckets of a cover, count differing bits, confirm documents by their registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from hsimhash.cover import PREFIX_BITS, Cover, Reading
from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s
from hsimhash.fingerprint.signature import Signature, Signatures, most_differing, similarity
from hsimhash.layout import FINGERPRINT_BITS
from hsimhash.rowkey import (
    KEY_FLAG,
    PREFIX_BYTES,
    ROWKEY_BYTES,
    SEGMENT_BYTES,
    bucket_range,
    distinct_rows,
    fingerprints_of,
    key_numbers,
    key_prefix,
)
from hsimhash.store.base import Document, Reader

FEW_ROWS = 40  # up to so many, a loop costs less than numpy's calls
READS_AT_ONCE = 1 << 18  # buckets that are read at once, if a query has no more: it bounds the memory of a batch, and
MEETINGS_AT_ONCE = 1 << 20  # rows times queries that are compared at once

Near = list[tuple[int, int]]  # distance and fingerprint, ascending, each once

KEYS = Reading(0, (), np.empty(0, np.int64), np.empty(0, np.uint64))  # whole prefixes of the key drawer


class Match(NamedTuple):
    """A document near the query; ordered by distance (bits), then id. `first_seen` in ms since 1970.

    `similarity` is about the Jaccard index of the two texts' shingles, 0 to 1, as their sketches tell; None without.
    It was found by its distance, or, where that is greater than asked for, by a key that is the query's.
    """

    distance: int
    doc_id: str
    fingerprint: int
    first_seen: int
    similarity: float | None = None
    found_by: Literal["distance", "key"] = "distance"


class Query(NamedTuple):
    """A query, the stored fingerprints that are near it or share its key, and a document to leave out."""

    signature: Signature
    near: Near
    exclude: str | None


class Rule(NamedTuple):
    """What matches a query: documents within a distance or with its key, but for those with too different a sketch."""

    max_distance: int
    max_sketch: int | None  # bits; None: sketches are not compared
    limit: int | None  # so many of the nearest; None: all

    def match(self, query: Query, document: Document) -> Match | None:
        """Return the match that a document is, None if it is none."""
        (fingerprint, sketch, key), _, exclude = query
        doc_id, its_fingerprint, first_seen, its_sketch, its_key = document
        distance = (its_fingerprint ^ fingerprint).bit_count()
        is_near = distance <= self.max_distance
        if not (is_near or 0 != its_key == key) or doc_id == exclude:
            return None
        if not (sketch and its_sketch):
            return Match(distance, doc_id, its_fingerprint, first_seen, None, "distance" if is_near else "key")
        bits = (its_sketch ^ sketch).bit_count()
        if self.max_sketch is not None and bits > most_differing(self.max_sketch, is_near=is_near):
            return None
        alike = similarity(its_sketch, sketch)
        return Match(distance, doc_id, its_fingerprint, first_seen, alike, "distance" if is_near else "key")


def near_one(reader: Reader, cover: Cover, query: Signature) -> Near:
    """Return the stored fingerprints within the cover's distance of one query, and those under its key."""
    if cover.is_own:  # in scalar Python a single query takes a sixth
        prefixes = cover.layout.prefixes(query.fingerprint)
        rows = reader.scan([*prefixes, key_prefix(query.key)] if query.key else prefixes)
    else:
        rows = _read_all(reader, cover, query)
    by_key: list[int] = []
    if query.key:
        is_key = rows[:, SEGMENT_BYTES] == KEY_FLAG
        by_key, rows = fingerprints_of(rows[is_key]).tolist(), rows[~is_key]
    if len(rows) <= FEW_ROWS:
        packed = rows.tobytes()
        values = [int.from_bytes(packed[at : at + 8], "big") for at in range(PREFIX_BYTES, len(packed), ROWKEY_BYTES)]
    else:
        candidates = fingerprints_of(rows)
        values = candidates[np.bitwise_count(candidates ^ np.uint64(query.fingerprint)) <= cover.distance].tolist()
    fingerprint, most = query.fingerprint, cover.distance
    near = {(bits, one) for one in set(values) if (bits := (one ^ fingerprint).bit_count()) <= most}
    if by_key:
        near.update(((one ^ fingerprint).bit_count(), one) for one in by_key)
    return sorted(near)


def _read_all(reader: Reader, cover: Cover, query: Signature) -> Uint8s:
    """Return the rows that a cover reads for one query, and those under its key; all whole prefixes are one read."""
    numbers = [(reading, reading.numbers_of(query.fingerprint)) for reading in cover.readings]
    whole = [part for reading, part in numbers if reading.shift == 0]
    if query.key:
        whole.append(key_numbers(np.array([query.key], np.uint64)))
    parts = [reader.scan(_prefixes(np.sort(np.concatenate(whole))))] if whole else []
    parts += [read(reader, reading, np.sort(part)) for reading, part in numbers if reading.shift]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def near_many(reader: Reader, cover: Cover, queries: Signatures) -> dict[int, Near]:
    """Return what `near_one` returns by a query's position, for the queries that are near anything."""
    at_once = max(1, READS_AT_ONCE // cover.reads)
    found: dict[int, set[tuple[int, int]]] = {}

    def take(places: Int64s, fingerprints: Uint64s, max_distance: int) -> None:
        is_near = np.bitwise_count(fingerprints ^ queries.fingerprints[places]) <= max_distance
        asking, fingerprints = distinct_rows(places[is_near].astype(np.uint64), fingerprints[is_near])
        distance = np.bitwise_count(fingerprints ^ queries.fingerprints[asking])
        for place, bits, value in zip(asking.tolist(), distance.tolist(), fingerprints.tolist(), strict=True):
            found.setdefault(place, set()).add((bits, value))

    for start in range(0, len(queries), at_once):
        part = queries.fingerprints[start : start + at_once]
        for reading in cover.readings:
            for query, fingerprints in _met(reader, reading, reading.numbers(part)):
                take(query + start, fingerprints, cover.distance)
    keyed = np.flatnonzero(queries.keys)
    for start in range(0, len(keyed), READS_AT_ONCE):
        asking = keyed[start : start + READS_AT_ONCE]
        for query, fingerprints in _met(reader, KEYS, key_numbers(queries.keys[asking])[:, None]):
            take(asking[query], fingerprints, FINGERPRINT_BITS)
    return {place: sorted(pairs) for place, pairs in found.items()}


def _met(reader: Reader, reading: Reading, numbers: Uint64s) -> Iterator[tuple[Int64s, Uint64s]]:
    """Yield queries' positions, and as many fingerprints of what each of them reads: numbers of shape (n, reads)."""
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


def confirmed_one(reader: Reader, query: Query, rule: Rule) -> list[Match]:
    """Return what `confirmed` does for one query; without a limit a third sooner."""
    if rule.limit is not None:
        return confirmed(reader, [query], rule)[0]
    matches = {}
    for documents in reader.documents([value for _, value in query.near]):
        for document in documents:
            match = rule.match(query, document)
            if match is not None:
                matches[match.doc_id] = match
    return sorted(matches.values())


def confirmed(reader: Reader, queries: Sequence[Query], rule: Rule) -> list[list[Match]]:
    """Return each query's matches among the documents of what is near it, nearest first; with a limit the first ones.

    Documents are read for all queries at once: all of them, or with a limit the nearest ones first, as far as needed.
    """
    found: list[dict[str, Match]] = [{} for _ in queries]
    limit, most = rule.limit, None
    rounds = [FINGERPRINT_BITS] if limit is None else sorted({bits for query in queries for bits, _ in query.near})
    for nearest in rounds:
        pairs = [
            (query, matches, value)
            for query, matches in zip(queries, found, strict=True)
            if limit is None or sum(match.distance < nearest for match in matches.values()) < limit
            for bits, value in query.near
            if limit is None or bits == nearest
        ]
        if limit is not None:
            most = limit + any(query.exclude is not None for query in queries)
        while pairs:
            documents = _documents(reader, {value for _, _, value in pairs}, most)
            left = []
            for query, matches, value in pairs:
                # A register may tell of a move since the row was read.
                met = [match for one in documents[value] if (match := rule.match(query, one)) is not None]
                matches.update((match.doc_id, match) for match in met)
                if (
                    most is not None
                    and limit is not None
                    and len(met) < limit
                    and _is_cut(documents[value], value, most)
                ):
                    left.append((query, matches, value))
            pairs, most = left, 4 * most if most is not None else None
    return [sorted(matches.values())[:limit] for matches in found]


def _documents(reader: Reader, fingerprints: set[int], most: int | None) -> dict[int, list[Document]]:
    ordered = sorted(fingerprints)
    return dict(zip(ordered, reader.documents(ordered, most), strict=True))


def _is_cut(documents: Sequence[Document], fingerprint: int, most: int) -> bool:
    """Whether there may be more documents of a fingerprint: so many were read, of which some were passed over."""
    return sum(document.fingerprint == fingerprint for document in documents) >= most
