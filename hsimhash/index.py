"""`HSimIndex`: fingerprints and documents in, every near-duplicate out; on any store.

A query scans the buckets of its prefixes, one per drawer, counts differing bits, and asks the store for the documents
of the fingerprints that are near enough.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from hsimhash.errors import LayoutMismatchError, ProfileMismatchError
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Fingerprints, Uint8s, Uint64s, as_fingerprint, as_fingerprints, distances
from hsimhash.layout import Layout
from hsimhash.rowkey import (
    PREFIX_BYTES,
    ROWKEY_BYTES,
    check_doc_ids,
    check_documents,
    fingerprints_of,
    last_occurrences,
)
from hsimhash.store import (
    BULK_LIMITS,
    BulkLimits,
    BulkLoad,
    CheckReport,
    Document,
    Record,
    Store,
    create_store,
    open_store,
)
from hsimhash.store.base import DEADLINE_S, FORMAT, LOCK_TIMEOUT_S, Reader
from hsimhash.store.facts import BucketRead, Explanation

T = TypeVar("T")

ADD_BATCH = 100_000  # documents written in one transaction; bounds memory, and how long other writers wait
QUERY_BATCH = 1_000  # queries whose buckets are read at once, and
FEW_ROWS = 40  # up to so many, a loop costs less than numpy's calls
MEETINGS_AT_ONCE = 1 << 20  # rows times queries that are compared at once: both bound the memory of query_many


class Match(NamedTuple):
    """A document near the query; ordered by distance (bits), then id. `first_seen` in ms since 1970."""

    distance: int
    doc_id: str
    fingerprint: int
    first_seen: int


class HSimIndex(AbstractContextManager["HSimIndex"]):
    """An index of documents by fingerprint. Made by `create` or `open`; a context manager.

    Thread-safe and fork-safe. After `close` every call raises `StoreClosedError`.
    """

    def __init__(self, store: Store, profile: Profile) -> None:
        self.store = store  # for what is true of one kind of store only
        self.profile = profile
        self.layout = store.record.layout
        self.url = store.url

    @classmethod
    def create(
        cls,
        url: str,
        *,
        layout: Layout | str = "10",
        profile: Profile | str = "auto-1",
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> HSimIndex:
        """Make an empty index at `url` and open it.

        Raises:
            IndexExistsError: there is one.
            ValueError: no such layout, profile or kind of store.
        """
        layout = Layout.parse(layout) if isinstance(layout, str) else layout
        profile = Profile.named(profile) if isinstance(profile, str) else profile
        record = Record(layout, profile.to_json())
        return cls(create_store(url, record, lock_timeout_s=lock_timeout_s), profile)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        layout: Layout | str | None = None,
        profile: Profile | str | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        exclusive: bool = False,
        deadline_s: float = DEADLINE_S,
    ) -> HSimIndex:
        """Open the index at `url`, with the layout and the profile it was made with.

        Args:
            url: of the index.
            layout: what it must have been made with; any where it is None.
            profile: likewise.
            lock_timeout_s: on LMDB, how long a write waits for another process that writes.
            exclusive: on HBase alone, nobody else writes the documents that are written through this index, nor does
                so within 20 minutes after; they are written faster.
            deadline_s: on HBase, how long a call is tried without an answer, unless the URL has a `deadline=`.

        Raises:
            IndexNotFoundError: there is no index.
            LayoutMismatchError, ProfileMismatchError: it was made with another than `layout` or `profile`.
            FormatVersionError: a release that this one does not know wrote it.
        """
        wanted_layout = Layout.parse(layout) if isinstance(layout, str) else layout
        wanted_profile = Profile.named(profile) if isinstance(profile, str) else profile
        store = open_store(url, lock_timeout_s=lock_timeout_s, exclusive=exclusive, deadline_s=deadline_s)
        try:
            if wanted_layout is not None and wanted_layout != store.record.layout:
                raise LayoutMismatchError(
                    f"{url} was made with layout {store.record.layout.name}, not {wanted_layout.name}; "
                    f"omit the layout, or create another index"
                )
            return cls(store, _profile_of(store, wanted_profile))
        except BaseException:
            store.close()
            raise

    def add(self, fingerprint: int, doc_id: str, *, first_seen: int | None = None) -> None:
        """Add one document, or move it if it has another fingerprint; durable on return. See `add_many`."""
        self.add_many([fingerprint], [doc_id], first_seen=first_seen)

    def add_many(
        self, fingerprints: Fingerprints, doc_ids: Sequence[str], *, first_seen: Sequence[int] | int | None = None
    ) -> int:
        """Add documents, and move those that have another fingerprint; durable on return.

        More than ADD_BATCH are written one batch after the other, between which others write: of a call that fails,
        some batches may be there. The same call again does the rest.

        Args:
            fingerprints: shape (n,), unsigned 64-bit.
            doc_ids: n ids of 1 to 2,048 bytes of UTF-8 without control characters; of one that occurs twice the last
                occurrence counts.
            first_seen: ms since 1970, one for all or one each; now by default. A document that is there already with
                the same fingerprint keeps its own.

        Returns:
            How many documents are new or moved.

        Raises:
            ValueError, TypeError: a bad argument; nothing was written.
        """
        if first_seen is None:
            first_seen = time.time_ns() // 1_000_000
        values, encoded, times = check_documents(fingerprints, doc_ids, first_seen)
        if len(values) <= ADD_BATCH:
            return self.store.insert(encoded, values, times)
        last = last_occurrences(encoded)  # of the whole call
        parts = (last[start : start + ADD_BATCH] for start in range(0, len(last), ADD_BATCH))
        return sum(self.store.insert([encoded[place] for place in part], values[part], times[part]) for part in parts)

    def query(
        self,
        fingerprint: int,
        *,
        max_distance: int | None = None,
        limit: int | None = None,
        exclude: str | None = None,
        timeout: float | None = None,
    ) -> list[Match]:
        """Return every document within `max_distance` bits of a fingerprint, nearest first.

        Args:
            fingerprint: unsigned 64-bit.
            max_distance: 0 to the layout's k, its default.
            limit: return only the first so many.
            exclude: leave this document out.
            timeout: seconds after which the call ends, whatever it waits for or still has to read.

        Raises:
            StoreTimeoutError: the `timeout` passed.
        """
        k = self._distance(max_distance)
        _check_limit(limit)
        fingerprint = as_fingerprint(fingerprint)
        with self.store.view(timeout_s=timeout) as reader:
            near = _near(reader.scan(self.layout.prefixes(fingerprint)), fingerprint, k)
            return _matches(reader, fingerprint, near, k, limit, exclude) if near else []

    def query_many(
        self,
        fingerprints: Fingerprints,
        *,
        max_distance: int | None = None,
        limit: int | None = None,
        exclude: Sequence[str | None] | None = None,
        timeout: float | None = None,
    ) -> list[list[Match]]:
        """Return what `query` returns for each fingerprint, in the order given; many at once cost far less each.

        Args:
            fingerprints: shape (n,), unsigned 64-bit.
            max_distance: as for `query`.
            limit: as for `query`.
            exclude: for each query a document to leave out, or None.
            timeout: as for `query`, for all queries together.

        Raises:
            StoreTimeoutError: the `timeout` passed.
        """
        k, values = self._distance(max_distance), as_fingerprints(fingerprints)
        _check_limit(limit)
        if isinstance(exclude, str):
            raise TypeError(f"exclude is a sequence, an id or None for each query, not one str: {exclude!r:.80}")
        if exclude is not None and len(exclude) != len(values):
            raise ValueError(
                f"{len(exclude)} ids to exclude for {len(values)} fingerprints; give one, or None, for each"
            )
        found: list[list[Match]] = [[] for _ in range(len(values))]
        with self.store.view(timeout_s=timeout) as reader:
            for start in range(0, len(values), QUERY_BATCH):
                for place, near in self._near_pairs(reader, values[start : start + QUERY_BATCH], k).items():
                    query = start + place
                    left_out = exclude[query] if exclude is not None else None
                    found[query] = _matches(reader, int(values[query]), near, k, limit, left_out)
        return found

    def explain(self, fingerprint: int, *, max_distance: int | None = None) -> Explanation:
        """Return what `query` reads, and what it takes; the buckets are read one by one, each with its own time."""
        k, fingerprint = self._distance(max_distance), as_fingerprint(fingerprint)
        matches, milliseconds = _timed(lambda: self.query(fingerprint, max_distance=k))
        regions, buckets = self.store.regions(), []
        starts = [region.start for region in regions]
        for prefix in self.layout.prefixes(fingerprint):
            rows, took = _timed(partial(self.store.scan, [prefix]))
            near = int(np.count_nonzero(distances(fingerprint, fingerprints_of(rows)) <= k))
            region = regions[bisect_right(starts, prefix) - 1] if regions else None
            buckets.append(BucketRead(prefix, region, len(rows), near, took))
        return Explanation(k, len(matches), milliseconds, tuple(buckets))

    def _near_pairs(self, reader: Reader, queries: Uint64s, k: int) -> dict[int, list[tuple[int, int]]]:
        """Return {position of a query: its (distance, fingerprint) pairs, ascending}, for the queries that have any."""
        prefixes = self.layout.prefix_array(queries).reshape(-1, PREFIX_BYTES)
        wanted = _prefix_numbers(prefixes)
        order = np.argsort(wanted, kind="stable")
        ordered = wanted[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        distinct, ends = ordered[starts], np.append(starts[1:], len(order))
        first = prefixes[order[starts]]
        rows = reader.scan([prefix.tobytes() for prefix in first])
        if not len(rows):
            return {}
        # Each row meets every query that asked for its bucket; so many at a time that memory does not grow with both.
        bucket = np.searchsorted(distinct, _prefix_numbers(rows))
        askers = ends[bucket] - starts[bucket]
        meetings = np.cumsum(askers)
        cuts = np.searchsorted(meetings, np.arange(MEETINGS_AT_ONCE, int(meetings[-1]), MEETINGS_AT_ONCE))
        pairs: dict[int, set[tuple[int, int]]] = {}
        for part in np.split(np.arange(len(rows)), cuts):
            row = np.repeat(part, askers[part])
            offset = np.arange(len(row)) - np.repeat(np.cumsum(askers[part]) - askers[part], askers[part])
            query = order[starts[bucket[row]] + offset] // len(self.layout.drawers)
            fingerprints = fingerprints_of(rows[part])[row - part[0]] if len(part) else np.empty(0, np.uint64)
            distance = np.bitwise_count(fingerprints ^ queries[query])
            near = np.flatnonzero(distance <= k)
            for position, bits, value in zip(
                query[near].tolist(), distance[near].tolist(), fingerprints[near].tolist(), strict=True
            ):
                pairs.setdefault(position, set()).add((bits, value))
        return {position: sorted(found) for position, found in pairs.items()}

    def remove(self, doc_ids: str | Sequence[str], *, before: int | None = None) -> int:
        """Remove documents; durable on return. Return how many there were; unknown ids are passed over.

        With `before` (ms since 1970) only those first seen earlier; one that others move meanwhile stays.
        """
        return self.store.remove(check_doc_ids([doc_ids] if isinstance(doc_ids, str) else doc_ids), before=before)

    def get(self, doc_id: str) -> Document | None:
        """Return a document's fingerprint and first seen, None where it is unknown."""
        return self.get_many([doc_id])[0]

    def get_many(self, doc_ids: Sequence[str]) -> list[Document | None]:
        """Return what `get` returns for each id, in the order given."""
        return self.store.lookup(check_doc_ids(doc_ids))

    def count(self) -> int:
        """Return how many documents there are."""
        return self.store.count()

    def is_empty(self) -> bool:
        """Whether there is no document; on HBase far cheaper than to count them."""
        return self.store.is_empty()

    def documents(self, *, before: int | None = None) -> Iterator[Document]:
        """Yield all documents, in order of (fingerprint, id); with `before` (ms since 1970) those first seen earlier.

        Documents added, moved or removed meanwhile may or may not be seen.
        """
        for documents in self.store.walk():
            yield from (document for document in documents if before is None or document.first_seen < before)

    def check(self, *, repair: bool = False, progress: Callable[[int, int], None] | None = None) -> CheckReport:
        """Compare the index's rows with each other, and repair them if `repair`; `progress` is given (done, total)."""
        return self.store.check(repair=repair, progress=progress)

    def describe(self, *, is_counted: bool = True) -> dict[str, object]:
        """Return facts about the index as JSON values: url, layout, profile, format, documents, rows, bytes.

        Args:
            is_counted: with the number of documents, for which HBase reads all registers.
        """
        record = self.store.record
        return {
            "url": self.url,
            "layout": record.layout.to_json(),
            "max_distance": self.layout.max_distance,
            "profile": record.profile,
            "format": FORMAT,
            **({"documents": self.count()} if is_counted else {}),
            **self.store.describe(),
        }

    def compact(self) -> tuple[int, int]:
        """Rewrite the index without free space; return its bytes before and after.

        Raises:
            StoreBusyError: others have the index open; the message names their processes.
        """
        return self.store.compact()

    def backup(self, target: str | Path) -> None:
        """Write a copy of the index as it is now to the new folder `target`, while others read and write."""
        self.store.backup(Path(target))

    def bulk(self, folder: str | Path, limits: BulkLimits = BULK_LIMITS) -> BulkLoad:
        """Return a bulk load that keeps its sorted runs in `folder`; see `BulkLoad`."""
        return self.store.bulk(Path(folder), limits)

    def close(self) -> None:
        """Let go of the store; harmless when repeated."""
        self.store.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HSimIndex {self.url} layout={self.layout.name} profile={self.profile.name}>"

    def _distance(self, max_distance: int | None) -> int:
        if max_distance is None:
            return self.layout.max_distance
        if not isinstance(max_distance, int):
            raise TypeError(f"max_distance is an int, not {type(max_distance).__name__}: {max_distance!r}")
        if not 0 <= max_distance <= self.layout.max_distance:
            raise ValueError(
                f"max_distance {max_distance} is outside 0 to {self.layout.max_distance}, what layout "
                f"{self.layout.name} finds without a miss; see 'hsimhash plan --distance {max_distance}'"
            )
        return max_distance


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return what a call returns, and how many milliseconds it takes."""
    began = time.perf_counter()
    found = call()
    return found, 1_000 * (time.perf_counter() - began)


def _check_limit(limit: int | None) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"limit is a whole number of matches, not {type(limit).__name__}: {limit!r:.80}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit {limit} must be at least 1")


def _matches(
    reader: Reader, query: int, near: list[tuple[int, int]], k: int, limit: int | None, exclude: str | None
) -> list[Match]:
    """Return the matches among the documents of `near`, (distance, fingerprint) pairs in ascending order."""
    most = None if limit is None else limit + (exclude is not None)
    matches: dict[str, Match] = {}
    groups = [near] if limit is None else [list(group) for _, group in groupby(near, key=itemgetter(0))]
    for group in groups:
        for document in chain.from_iterable(reader.documents([value for _, value in group], most)):
            # The register may tell of a move since the row was read.
            distance = (document.fingerprint ^ query).bit_count()
            if distance <= k and document.doc_id != exclude:
                matches[document.doc_id] = Match(distance, *document)
        if limit is not None and sum(match.distance <= group[0][0] for match in matches.values()) >= limit:
            break  # what follows is farther
    return sorted(matches.values())[:limit]


def _near(rows: Uint8s, query: int, k: int) -> list[tuple[int, int]]:
    """Return the (distance, fingerprint) pairs within k of rows of shape (m, 13), each once, ascending."""
    if len(rows) <= FEW_ROWS:
        packed = rows.tobytes()
        values = [int.from_bytes(packed[at : at + 8], "big") for at in range(PREFIX_BYTES, len(packed), ROWKEY_BYTES)]
    else:
        candidates = fingerprints_of(rows)
        values = candidates[np.bitwise_count(candidates ^ np.uint64(query)) <= k].tolist()
    return sorted({(bits, value) for value in values if (bits := (value ^ query).bit_count()) <= k})


def _prefix_numbers(rows: Uint8s) -> Uint64s:
    """Return the first 5 bytes of rows of shape (m, ≥ 5) as numbers in byte order."""
    padded = np.zeros((len(rows), 8), np.uint8)
    padded[:, 3:] = rows[:, :PREFIX_BYTES]
    return padded.view(">u8").ravel().astype(np.uint64)


def _profile_of(store: Store, wanted: Profile | None) -> Profile:
    try:
        stored = Profile.from_json(store.record.profile)
    except ValueError as error:
        raise ProfileMismatchError(
            f"{store.url} was made with a profile {store.record.profile.get('name')!r} that is not this release's "
            f"({error}); use the release that made it, or ingest the documents again"
        ) from error
    if wanted is not None and wanted != stored:
        mine, its = wanted.to_json(), store.record.profile
        differing = ", ".join(
            f"{key} {its.get(key)!r}, not {value!r}" for key, value in mine.items() if value != its.get(key)
        )
        raise ProfileMismatchError(
            f"{store.url} was made with profile {stored.name}, not {wanted.name} ({differing}); omit the "
            f"profile, or create another index"
        )
    return stored
