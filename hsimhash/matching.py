"""Answer queries: read the buckets of a cover, count differing bits, confirm documents by their registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from struct import Struct
from typing import NamedTuple

import numpy as np

from hsimhash.cover import PREFIX_BITS, Cover, ProbeSet
from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, Uint64s, sorted_distinct, spans
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import (
    Signature,
    Signatures,
    are_alike,
    most_differing,
    similarities,
    similarity,
)
from hsimhash.layout import FINGERPRINT_BITS, Layout
from hsimhash.query_log import QueryStats
from hsimhash.rowkey import (
    KEY_FLAG,
    PREFIX_BYTES,
    RECORD_FLAG,
    SEGMENT_BYTES,
    bucket_range,
    fingerprints_of,
    key_numbers,
    key_prefixes,
    prefix_numbers_of,
    prefixes_of,
)
from hsimhash.store.base import Document, Match, View, ViewInPart

FEW_ROWS = 40  # up to this many rows, a Python loop takes less time than numpy calls
QUERY_BATCH = 1_000  # queries whose buckets are read at once; bounds memory
# Each of these numbers bounds the memory of a batch of queries.
BUCKETS_AT_ONCE = 1 << 18  # buckets read at once, unless one query needs more
MEETINGS_AT_ONCE = 1 << 20  # pairs of a row and a query compared at once
PAIRS_AT_ONCE = 1 << 15  # pairs of a query and a document decided at once
MOST_ANSWERED = 1_000  # maximum documents from `View.near` if there is a limit; if there are more, first rows are read
CROWDED_ROWS = 4_000  # number of rows of a bucket that a query with a limit reads first; usually they are enough

_ROWKEY = Struct(f">{PREFIX_BYTES}xQ")  # unpacks the fingerprint

Near = list[tuple[int, int]]  # distinct (distance, fingerprint), ascending


class NearPairs(NamedTuple):
    """Distinct pairs of a query and a fingerprint near it, in order of query, distance and fingerprint."""

    places: Int64s  # positions of the queries
    distances: Uint8s
    fingerprints: Uint64s

    def by_place(self) -> dict[int, Near]:
        """Return the fingerprints near each query, by the query's position; omits queries without any."""
        near = list(zip(self.distances.tolist(), self.fingerprints.tolist(), strict=True))
        starts = np.flatnonzero(np.append(True, self.places[1:] != self.places[:-1])[: len(near)])
        cuts = pairwise([*starts.tolist(), len(near)])
        return {
            place: near[start:stop] for place, (start, stop) in zip(self.places[starts].tolist(), cuts, strict=True)
        }


KEYS = ProbeSet(0, (), np.empty(0, np.int64), np.empty(0, np.uint64))  # for whole prefixes of the key drawer


class FirstRows(View):
    """A view of the first rows of crowded buckets. `cut` has the numbers of the buckets that were truncated."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.cut: list[Uint64s] = []

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        """See `View`."""
        most = most or CROWDED_ROWS
        rows = self._view.scan(prefixes, most)
        if len(rows) >= most:
            numbers = np.sort(prefix_numbers_of(rows))
            first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
            is_cut = np.diff(first, append=len(numbers)) == most
            if is_cut.any():
                self.cut.append(numbers[first[is_cut]])
        return rows

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        """See `View`."""
        return self._view.sweep(ranges)

    @property
    def finds_near(self) -> bool:
        """See `View`."""
        return self._view.finds_near

    def near_one(
        self, fingerprint: int, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[int] | None:
        """See `View`."""
        return self._view.near_one(fingerprint, distance, numbers, most or CROWDED_ROWS)

    def near_many(
        self, fingerprints: Uint64s, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[tuple[Int64s, Uint64s]] | None:
        """See `View`."""
        return self._view.near_many(fingerprints, distance, numbers, most or CROWDED_ROWS)

    def estimate(self) -> int:
        """See `View`."""
        return self._view.estimate()

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        """See `View`."""
        return self._view.documents(fingerprints, limit)

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        """See `View`."""
        return self._view.lookup(doc_ids)

    def has_cut(self, cover: Cover, queries: Signatures) -> Bools:
        """Return which queries read a truncated bucket. At least one bucket must have been truncated."""
        cut = np.concatenate(self.cut)
        parts = queries.key_parts
        found: Bools = (np.isin(key_numbers(parts), cut) & (parts != 0)).any(axis=1)
        for probe_set in cover.probe_sets:
            if probe_set.shift == 0:
                found |= np.isin(probe_set.numbers(queries.fingerprints), cut).any(axis=1)
        return found


class Rule(NamedTuple):
    """Decides which documents match: those near enough or with a shared key, unless the sketches differ too much."""

    max_distance: int
    max_sketch: int | None  # bits; None: sketches are not compared
    limit: int | None  # number of nearest matches, among the rows read first from crowded buckets; None: all
    keying: Keying = Keying.WHOLE

    def match(self, query: Signature, document: Document) -> Match | None:
        """Return the document as a match, or None if it does not match."""
        fingerprint, sketch, key = query
        doc_id, its_fingerprint, first_seen, its_sketch, its_key = document
        distance = (its_fingerprint ^ fingerprint).bit_count()
        is_near = distance <= self.max_distance
        if not (is_near or self.keying.is_shared(key, its_key)):
            return None
        if not (sketch and its_sketch):
            return Match(distance, doc_id, its_fingerprint, first_seen, None, "distance" if is_near else "key")
        bits = (its_sketch ^ sketch).bit_count()
        if self.max_sketch is not None and bits > most_differing(self.max_sketch, distance):
            return None
        alike = similarity(its_sketch, sketch)
        return Match(distance, doc_id, its_fingerprint, first_seen, alike, "distance" if is_near else "key")

    def matches(self, queries: Signatures, doc_ids: Sequence[str], registers: Uint64s) -> tuple[Int64s, list[Match]]:
        """Call `match` for each query and the document at the same position, given as in `ListedDocuments`.

        Returns the positions of the documents that match, and the matches.
        """
        fingerprints, _, sketches, keys = registers.T
        distances = np.bitwise_count(queries.fingerprints ^ fingerprints)
        is_near = distances <= self.max_distance
        is_match = is_near | self.keying.shared(queries.keys, keys)
        is_match &= are_alike(queries.sketches, sketches, self.max_sketch, distances)
        places = np.flatnonzero(is_match)
        index = similarities(queries.sketches[places], sketches[places])
        alike = index.astype(object)
        alike[np.isnan(index)] = None
        rows = zip(
            distances[places].tolist(),
            [doc_ids[place] for place in places.tolist()],
            fingerprints[places].tolist(),
            registers[places, 1].tolist(),
            alike.tolist(),
            np.where(is_near[places], "distance", "key").tolist(),
            strict=True,
        )
        return places, list(map(Match._make, rows))


def matches_of_one(
    view: View, cover: Cover, query: Signature, exclude: str | None, rule: Rule, stats: QueryStats
) -> list[Match]:
    """Return the matches of one signature, excluding the document with the id `exclude`."""
    stats.view = view
    if view.answers:
        found = answer(view, cover, query, exclude, rule, stats)
        if found is not None:
            return found
    if rule.limit is not None:
        first = FirstRows(view)
        found = _read_one(view, first, cover, query, exclude, rule, stats)
        if len(found) >= rule.limit or not first.cut:
            return found
    return _read_one(view, view, cover, query, exclude, rule, stats)


def _read_one(
    view: View, buckets: View, cover: Cover, query: Signature, exclude: str | None, rule: Rule, stats: QueryStats
) -> list[Match]:
    """Read one query's buckets from the view `buckets`, and its documents from `view`."""
    near = near_one(buckets, cover, query, rule.keying, stats)
    if not near:
        return []
    found = confirmed_one(view, query, near, exclude, rule)
    if isinstance(view, ViewInPart):
        view.note_unread(0, near)
    return found


def matches_of(
    view: View, cover: Cover, asked: Signatures, exclude: Sequence[str | None] | None, rule: Rule, stats: QueryStats
) -> list[list[Match]]:
    """Return the matches of each signature, excluding the document with the id at the same position in `exclude`."""
    stats.view = view
    found: list[list[Match]] = [[] for _ in range(len(asked))]

    def read(places: Int64s, buckets: View) -> None:
        near = near_many(buckets, cover, asked[places], stats)
        if not len(near.places):
            return
        left_out = None if exclude is None else [exclude[place] for place in places.tolist()]
        answers = confirmed(view, asked[places], near, left_out, rule)
        for place, matches in zip(places.tolist(), answers, strict=True):
            found[place] = matches
        if isinstance(view, ViewInPart):
            for place, its in near.by_place().items():
                view.note_unread(int(places[place]), its)

    for start in range(0, len(asked), QUERY_BATCH):
        places = np.arange(start, min(start + QUERY_BATCH, len(asked)))
        if rule.limit is None:
            read(places, view)
            continue
        first = FirstRows(view)
        read(places, first)
        if first.cut:
            short = places[[len(found[place]) < rule.limit for place in places]]
            read(short[first.has_cut(cover, asked[short])], view)
    return found


def near_one(view: View, cover: Cover, query: Signature, keying: Keying, stats: QueryStats) -> Near:
    """Return the stored fingerprints within the cover's distance of one query, and those that share its key."""
    fingerprint, _, key = query
    if view.finds_near and not cover.is_swept:
        numbers = None if cover.is_own else cover.probe_sets[0].numbers_of(fingerprint)
        found = view.near_one(fingerprint, cover.distance, numbers)
        if found is not None:
            stats.buckets += len(cover.probes) if numbers is None else len(numbers)
            return _near_found(view, query, found, keying, stats)
    if cover.is_own:  # for one query, scalar Python takes a sixth of numpy's time
        prefixes = cover.layout.prefixes(fingerprint)
        if key:
            prefixes = [*prefixes, *key_prefixes(keying, key)]
        stats.buckets += len(prefixes)
        rows = view.scan(prefixes)
    else:
        rows = _fetch_all(view, cover, query, keying, stats)
    stats.rows += len(rows)
    most = cover.distance
    if len(rows) <= FEW_ROWS:
        by_key: list[int] = []
        if key:
            is_key = rows[:, SEGMENT_BYTES] == KEY_FLAG
            by_key, rows = fingerprints_of(rows[is_key]).tolist(), rows[~is_key]
        unpacked = _ROWKEY.iter_unpack(rows.data)
        near = {(bits, one) for (one,) in unpacked if (bits := (one ^ fingerprint).bit_count()) <= most}
        near.update([((one ^ fingerprint).bit_count(), one) for one in by_key])
        ordered = sorted(near)
    else:
        values = fingerprints_of(rows)
        distances = np.bitwise_count(values ^ np.uint64(fingerprint))
        is_met = distances <= most
        if key:
            is_met |= rows[:, SEGMENT_BYTES] == KEY_FLAG
        values, distances = values[is_met], distances[is_met]
        order = np.lexsort((values, distances))
        values, distances = values[order], distances[order]
        is_new = np.append(True, values[1:] != values[:-1])[: len(values)]
        ordered = list(zip(distances[is_new].tolist(), values[is_new].tolist(), strict=True))
    stats.near += len(ordered)
    return ordered


def _near_found(view: View, query: Signature, found: list[int], keying: Keying, stats: QueryStats) -> Near:
    """Return the result of `near_one`: the fingerprints that a view found near the query, and those under its key."""
    stats.rows += len(found)
    if query.key:
        prefixes = key_prefixes(keying, query.key)
        rows = view.scan(prefixes)
        stats.buckets += len(prefixes)
        stats.rows += len(rows)
        found = found + fingerprints_of(rows).tolist()
    if not found:
        return []
    fingerprint = query.fingerprint
    near = [((one ^ fingerprint).bit_count(), one) for one in set(found)]  # several drawers may contain the same one
    near.sort()
    stats.near += len(near)
    return near


def answer(
    view: View, cover: Cover, query: Signature, exclude: str | None, rule: Rule, stats: QueryStats
) -> list[Match] | None:
    """Return the matches of one query from a single call to `View.near`, or None if that call is not enough.

    The call is not enough if the cover reads ranges of buckets, or if a limit applies to too many documents.
    """
    if cover.is_own:
        prefixes = cover.layout.prefixes(query.fingerprint)
    elif any(probe_set.shift for probe_set in cover.probe_sets):
        return None
    else:
        numbers = [probe_set.numbers_of(query.fingerprint) for probe_set in cover.probe_sets]
        prefixes = prefixes_of(np.concatenate(numbers))
    stats.buckets += len(prefixes) + len(rule.keying.parts_of(query.key))
    most = None if rule.limit is None else MOST_ANSWERED
    documents = view.near(prefixes, query, cover.distance, most)
    return None if documents is None else _ordered(query, documents, exclude, rule)[: rule.limit]


def _fetch_all(view: View, cover: Cover, query: Signature, keying: Keying, stats: QueryStats) -> Uint8s:
    """Return the rows that a cover reads for one query, and the rows under its key. One scan reads all buckets."""
    numbers = [(probe_set, probe_set.numbers_of(query.fingerprint)) for probe_set in cover.probe_sets]
    whole = [part for probe_set, part in numbers if probe_set.shift == 0]
    if query.key:
        whole.append(key_numbers(np.array(keying.parts_of(query.key), np.uint64)))
    stats.buckets += sum(map(len, whole)) + sum(len(part) for probe_set, part in numbers if probe_set.shift)
    parts = [view.scan(prefixes_of(sorted_distinct(np.concatenate(whole))))] if whole else []
    parts += [fetch(view, probe_set, np.sort(part)) for probe_set, part in numbers if probe_set.shift]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def near_many(view: View, cover: Cover, queries: Signatures, stats: QueryStats) -> NearPairs:
    """Do what `near_one` does for many queries at once."""
    at_once = max(1, BUCKETS_AT_ONCE // cover.bucket_count)
    found: list[tuple[Int64s, Uint64s]] = []
    for start in range(0, len(queries), at_once):
        part = queries.fingerprints[start : start + at_once]
        if cover.is_own and view.finds_near and (near := view.near_many(part, cover.distance)) is not None:
            found += _counted(near, start, len(part) * len(cover.probes), stats)
            continue
        for probe_set in cover.probe_sets:
            numbers = probe_set.numbers(part)
            near = view.near_many(part, cover.distance, numbers) if view.finds_near and not probe_set.shift else None
            if near is not None:
                found += _counted(near, start, numbers.size, stats)
                continue
            met = _met(view, probe_set, numbers, part, cover.distance, stats)
            found += [(places + start, fingerprints) for places, fingerprints in met]
    keyed, key_reads = _key_reads(queries)
    for start in range(0, len(keyed), BUCKETS_AT_ONCE):
        asking, numbers = keyed[start : start + BUCKETS_AT_ONCE], key_reads[start : start + BUCKETS_AT_ONCE]
        part = queries.fingerprints[asking]
        met = _met(view, KEYS, numbers, part, FINGERPRINT_BITS, stats)
        found += [(asking[places], fingerprints) for places, fingerprints in met]
    pairs = _near_pairs(found, queries.fingerprints)
    stats.near += len(pairs.places)
    return pairs


def _counted(
    near: Sequence[tuple[Int64s, Uint64s]], start: int, buckets: int, stats: QueryStats
) -> list[tuple[Int64s, Uint64s]]:
    """Return what `View.near_many` found, with `start` added to the positions, and count it."""
    stats.buckets += buckets
    stats.rows += sum(len(places) for places, _ in near)
    return [(places + start, fingerprints) for places, fingerprints in near]


def _key_reads(queries: Signatures) -> tuple[Int64s, Uint64s]:
    """Return the buckets of the key drawer that queries read: positions of the queries, and numbers of shape (m, 1)."""
    parts = queries.key_parts
    places, column = np.nonzero(parts)
    return places, key_numbers(parts[places, column])[:, None]


def _near_pairs(found: Sequence[tuple[Int64s, Uint64s]], queries: Uint64s) -> NearPairs:
    """Return the distinct pairs of a query's position and a fingerprint near the query."""
    if not found:
        return NearPairs(np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.uint64))
    places, fingerprints = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
    distances = np.bitwise_count(fingerprints ^ queries[places])
    order = np.lexsort((fingerprints, distances, places))
    places, fingerprints = places[order], fingerprints[order]
    is_new = np.append(True, (places[1:] != places[:-1]) | (fingerprints[1:] != fingerprints[:-1]))[: len(places)]
    return NearPairs(places[is_new], distances[order][is_new], fingerprints[is_new])


def _met(
    view: View, probe_set: ProbeSet, numbers: Uint64s, queries: Uint64s, max_distance: int, stats: QueryStats
) -> Iterator[tuple[Int64s, Uint64s]]:
    """Yield pairs of a query and a fingerprint near it, as (positions of queries, fingerprints). Pairs may repeat.

    Args:
        view: View to read rows from.
        probe_set: Defines which prefix, or range of prefixes, a number stands for.
        numbers: Numbers that each query reads: shape (n, reads).
        queries: Fingerprints of the queries: shape (n,).
        max_distance: Maximum distance in bits.
        stats: Counts the buckets and rows.
    """
    order = np.argsort(numbers, axis=None, kind="stable")
    ordered, asker = numbers.ravel()[order], order // numbers.shape[1]
    first_ask = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    distinct, asks = ordered[first_ask], np.diff(first_ask, append=len(order))
    rows = fetch(view, probe_set, distinct)
    stats.buckets += len(distinct)
    stats.rows += len(rows)
    if not len(rows):
        return
    fingerprints, read_by = fingerprints_of(rows), prefix_numbers_of(rows) >> probe_set.shift
    first_row = np.flatnonzero(np.append(True, read_by[1:] != read_by[:-1]))
    bucket = np.searchsorted(distinct, read_by[first_row])
    # Compare the rows of each bucket with every query that reads it, in parts that bound the memory.
    run = np.repeat(np.arange(len(bucket)), asks[bucket])
    start, length = first_row[run], np.diff(first_row, append=len(rows))[run]
    asking = asker[spans(first_ask[bucket], asks[bucket])]
    meetings = np.cumsum(length)
    cuts = np.searchsorted(meetings, np.arange(MEETINGS_AT_ONCE, int(meetings[-1]), MEETINGS_AT_ONCE))
    for part in filter(len, np.split(np.arange(len(run)), cuts)):
        lengths, places = length[part], asking[part]
        first, stop = start[part[0]], start[part[-1]] + lengths[-1]
        # If no bucket is read by two queries, the rows are consecutive, and a slice does not copy them.
        is_slice = stop - first == lengths.sum()
        met = fingerprints[first:stop] if is_slice else fingerprints[spans(start[part], lengths)]
        near = np.flatnonzero(np.bitwise_count(met ^ np.repeat(queries[places], lengths)) <= max_distance)
        yield places[np.searchsorted(np.cumsum(lengths), near, "right")], met[near]


def fetch(view: View, probe_set: ProbeSet, numbers: Uint64s) -> Uint8s:
    """Return the rows under ascending, distinct numbers of a probe set."""
    return view.scan(prefixes_of(numbers)) if probe_set.shift == 0 else view.sweep(ranges(probe_set, numbers))


def ranges(probe_set: ProbeSet, numbers: Uint64s) -> list[tuple[bytes, bytes]]:
    """Return ascending, distinct numbers of a probe set as half-open ranges of rowkeys.

    Adjacent ranges are merged, unless they are buckets.
    """
    if probe_set.shift == 0:
        return list(map(bucket_range, prefixes_of(numbers)))
    is_last = np.append(numbers[1:] != numbers[:-1] + np.uint64(1), True)
    is_first = np.append(True, is_last[:-1])
    # The last prefix does not belong to a drawer, so it can end the last range.
    stops = np.minimum((numbers[is_last] + np.uint64(1)) << probe_set.shift, (1 << PREFIX_BITS) - 1)
    return list(zip(prefixes_of(numbers[is_first] << probe_set.shift), prefixes_of(stops), strict=True))


def missing_drawers(view: ViewInPart, cover: Cover, queries: Signatures) -> list[tuple[int, ...]]:
    """Return the numbers of the drawers that are missing from each query's answer; see `Matches`.

    A drawer is missing if a bucket that the query reads in it could not be read, or if it holds a fingerprint near the
    query whose documents could not be read.
    """
    missing: list[set[int]] = [set() if view.is_certain else {RECORD_FLAG} for _ in range(len(queries))]
    if view.unanswered:
        lost, (keyed, key_reads) = _LostRanges(view.unanswered), _key_reads(queries)
        reads = [(one, one.numbers(queries.fingerprints), np.arange(len(queries))) for one in cover.probe_sets]
        for probe_set, numbers, places in [*reads, (KEYS, key_reads, keyed)]:
            is_lost = lost.meet(numbers, probe_set.shift)
            for columns, drawers in _drawers_by_columns(probe_set, cover.layout):
                for row in np.flatnonzero(is_lost[:, columns].any(axis=1)).tolist():
                    missing[places[row]] |= drawers
    for place, fingerprints in view.unread_near.items():
        for fingerprint in fingerprints:
            missing[place] |= _drawers_with(fingerprint, queries.at(place), cover)
    return [tuple(sorted(its)) for its in missing]


class _LostRanges:
    """Half-open ranges of rowkeys, as 40-bit numbers."""

    def __init__(self, ranges: Sequence[tuple[bytes, bytes]]) -> None:
        # The end of a bucket's range is longer than the prefix and sorts after it, so its number is rounded up.
        edges = [(_number(start), _number(stop) + (len(stop) > PREFIX_BYTES)) for start, stop in sorted(ranges)]
        self._starts = np.array([start for start, _ in edges], np.uint64)
        self._stops = np.maximum.accumulate(np.array([0, *(stop for _, stop in edges)], np.uint64))

    def meet(self, numbers: Uint64s, shift: int) -> Bools:
        """Return which numbers of a probe set read a bucket in one of the ranges."""
        first = numbers << np.uint64(shift)
        earlier = np.searchsorted(self._starts, first + np.uint64(1 << shift))  # ranges that begin before the end
        met: Bools = self._stops[earlier] > first
        return met


def _number(key: bytes) -> int:
    return int.from_bytes(key[:PREFIX_BYTES], "big")


def _drawers_by_columns(probe_set: ProbeSet, layout: Layout) -> Iterator[tuple[Int64s, set[int]]]:
    """Yield pairs: columns of a probe set's numbers, and the drawers whose buckets these numbers read."""
    if probe_set is KEYS:
        yield np.zeros(1, np.int64), {KEY_FLAG}
    elif probe_set.shift >= PREFIX_BITS:  # all rows
        yield np.zeros(1, np.int64), {drawer.number for drawer in layout.drawers}
    else:
        for at, drawer in enumerate(probe_set.drawers):
            yield np.flatnonzero(probe_set.places == at), {drawer.number}


def _drawers_with(fingerprint: int, query: Signature, cover: Cover) -> set[int]:
    """Return the drawers in which a query finds a stored fingerprint, and the key drawer if it may be there too."""
    found = {KEY_FLAG} if query.key else set[int]()
    if (fingerprint ^ query.fingerprint).bit_count() <= cover.distance:
        for probe_set in cover.probe_sets:
            own = probe_set.own_numbers(np.array([fingerprint], np.uint64))[0, probe_set.places]
            is_read = probe_set.numbers_of(query.fingerprint) == own
            for columns, drawers in _drawers_by_columns(probe_set, cover.layout):
                found |= drawers if is_read[columns].any() else set()
    return found


def confirmed_one(view: View, query: Signature, near: Near, exclude: str | None, rule: Rule) -> list[Match]:
    """Do what `confirmed` does for one query. Without a limit, this takes a fifth less time."""
    if rule.limit is not None:
        return _first_confirmed(view, [(query, near, exclude)], rule, rule.limit)[0]
    documents = view.documents([value for _, value in near])
    return _ordered(query, chain.from_iterable(documents), exclude, rule)


def confirmed(
    view: View, queries: Signatures, near: NearPairs, exclude: Sequence[str | None] | None, rule: Rule
) -> list[list[Match]]:
    """Return each query's matches among the documents of the fingerprints near it, nearest first, up to the limit.

    Reads the documents of all queries at once.

    Args:
        view: View to read documents from.
        queries: n queries.
        near: The fingerprints near the queries.
        exclude: For each query, the id of a document to leave out, or None.
        rule: Decides which documents match.
    """
    found: list[list[Match]] = [[] for _ in range(len(queries))]
    if rule.limit is not None:
        by_place = near.by_place()
        asked = [(queries.at(place), its, exclude[place] if exclude else None) for place, its in by_place.items()]
        for place, matches in zip(by_place, _first_confirmed(view, asked, rule, rule.limit), strict=True):
            found[place] = matches
        return found
    distinct, at = np.unique(near.fingerprints, return_inverse=True)
    listed, doc_ids, registers = view.documents_of(distinct.tolist())
    starts = np.searchsorted(listed, np.arange(len(distinct) + 1))
    counts = np.diff(starts)[at]
    cuts = np.searchsorted(np.cumsum(counts), np.arange(PAIRS_AT_ONCE, counts.sum(), PAIRS_AT_ONCE))
    for part in np.split(np.arange(len(at)), cuts):
        rows = spans(starts[at[part]], counts[part])
        places = np.repeat(near.places[part], counts[part])
        their_ids = [doc_ids[row] for row in rows.tolist()]
        is_match, matches = rule.matches(queries[places], their_ids, registers[rows])
        for place, match in zip(places[is_match].tolist(), matches, strict=True):
            found[place].append(match)
    for place, several in enumerate(found):
        if exclude is not None:
            several = [match for match in several if match.doc_id != exclude[place]]
        # A document that has just moved may be listed under two fingerprints.
        found[place] = sorted({match.doc_id: match for match in several}.values()) if len(several) > 1 else several
    return found


def _first_confirmed(
    view: View, asked: Sequence[tuple[Signature, Near, str | None]], rule: Rule, limit: int
) -> list[list[Match]]:
    """Return the nearest matches of each query. Reads the nearest documents first and stops when there are enough."""
    found: list[dict[str, Match]] = [{} for _ in asked]
    for nearest in sorted({bits for _, near, _ in asked for bits, _ in near}):
        pairs = [
            (query, exclude, matches, value)
            for (query, near, exclude), matches in zip(asked, found, strict=True)
            if sum(match.distance < nearest for match in matches.values()) < limit
            for bits, value in near
            if bits == nearest
        ]
        most = limit + any(exclude is not None for _, _, exclude in asked)
        while pairs:
            documents = _documents(view, {value for _, _, _, value in pairs}, most)
            left = []
            for query, exclude, matches, value in pairs:
                met = _matches(query, documents[value], exclude, rule)
                matches.update(met)
                # A document that has moved may still be listed under its old fingerprint, although it is now farther
                # away than documents that have not been read yet.
                is_full = sum(match.fingerprint == value for match in met.values()) >= limit
                is_all = sum(one.fingerprint == value for one in documents[value]) < most
                if not (is_full or is_all):
                    left.append((query, exclude, matches, value))
            pairs, most = left, 4 * most
    return [sorted(matches.values())[:limit] for matches in found]


def _ordered(query: Signature, documents: Iterable[Document], exclude: str | None, rule: Rule) -> list[Match]:
    """Return the matches among documents, nearest first."""
    matches = _matches(query, documents, exclude, rule)
    return sorted(matches.values()) if len(matches) > 1 else [*matches.values()]


def _matches(query: Signature, documents: Iterable[Document], exclude: str | None, rule: Rule) -> dict[str, Match]:
    """Return the matches among documents, by id. A store may return a document twice: before and after a change."""
    matches = {}
    for document in documents:
        match = rule.match(query, document)
        if match is not None and match.doc_id != exclude:
            matches[match.doc_id] = match
    return matches


def _documents(view: View, fingerprints: set[int], most: int) -> dict[int, list[Document]]:
    ordered = sorted(fingerprints)
    return dict(zip(ordered, view.documents(ordered, most), strict=True))
