"""The interface between an index and its storage: buckets, documents, registers and a record, in batches.

A store files every fingerprint once per drawer, lists the documents with each fingerprint, and keeps a *register* with
each document's current fingerprint. The register is authoritative. Rows that no register confirms are leftovers of an
interrupted write: queries never return them, and `check(repair=True)` deletes them.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from hsimhash.errors import (
    CorruptionError,
    FormatVersionError,
    IndexExistsError,
    IndexNotFoundError,
    LostRightError,
    create_one,
)
from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s, format_fingerprint
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.recipe import own_lists
from hsimhash.fingerprint.signature import Signature, Signatures
from hsimhash.fingerprint.wordlists import keep_list, kept_list
from hsimhash.layout import FINGERPRINT_BITS, Layout
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import KEY_FLAG, SEGMENT_BYTES, filed_rowkeys, key_prefixes
from hsimhash.store.reports import MOST_LISTED, SAMPLED_DOCUMENTS, CheckReport, CrowdedFingerprint, crowded

T = TypeVar("T")

# On disk: never reuse a version. Format 2 adds sketches and keys to the registers, and a key drawer. In format 3, the
# key drawer files fingerprints under the parts of keys.
RECORD_FORMATS: tuple[dict[str, object], ...] = tuple({"version": version, "rows": "tall"} for version in (1, 2, 3))
RECORD_PARTS = (b"layout", b"profile", b"format")  # on disk, in the order in which they are written
DISTANCE_PART = b"distance"  # on disk, written before `RECORD_PARTS`; if it is missing, the layout's k applies
IDENTITY_PART = b"identity"  # on disk, if an open index can be dropped or replaced; older indexes do not have it
LIST_PIECE_BYTES = 1 << 20
SIGNED_DRAWERS = 251  # maximum number of drawers with sketches and keys; format 1 also allows drawers 252 and 253
INSERT_DOCUMENTS = 100_000  # maximum number of documents written in one step; limits memory use and lock times
LOCK_TIMEOUT_S = 30.0  # how long a write waits for another process's write
DEADLINE_S = 30.0  # how long a call to a cluster is retried if there is no reply
JOB_DEADLINE_S = 600.0  # the same limit for jobs that run for minutes; recovering from a lost region server takes two


_KEY_DRAWER = bytes([KEY_FLAG])
MOST_LOSSES = 10  # maximum number of retries per `resumed` call, because the work itself may crash the server


def gone(url: str, *, is_replaced: bool, cause: str = "it was dropped") -> IndexNotFoundError:
    """Return the error for a call to an index that was dropped or replaced."""
    if is_replaced:
        return IndexNotFoundError(
            f"the index at {url} has been dropped and recreated since this process opened it; open it again"
        )
    return IndexNotFoundError(f"no index at {url}: {cause}; " + create_one(url))


class Document(NamedTuple):
    """A document according to its register. `first_seen` is in ms since 1970. A sketch or key of 0 means none."""

    doc_id: str
    fingerprint: int
    first_seen: int
    sketch: int = 0
    key: int = 0

    @classmethod
    def of(cls, doc_id: str, signature: Signature, first_seen: int) -> Document:
        """Return a document with the given signature."""
        return cls(doc_id, signature.fingerprint, first_seen, signature.sketch, signature.key)

    @property
    def signature(self) -> Signature:
        """The fingerprint, sketch and key."""
        return Signature(self.fingerprint, self.sketch, self.key)


class ListedDocuments(NamedTuple):
    """Documents in columns, which are much faster than one `Document` each.

    For each document, `places` has the position of the requested fingerprint that lists it, in ascending order.
    `registers` has the other fields of `Document`: shape (n, 4).
    """

    places: Int64s
    doc_ids: Sequence[str]
    registers: Uint64s

    @classmethod
    def of(cls, listed: Iterable[Iterable[Document]]) -> ListedDocuments:
        """Return the documents that are listed under each fingerprint."""
        rows = [(place, document) for place, documents in enumerate(listed) for document in documents]
        return cls(
            np.array([place for place, _ in rows], np.int64),
            [document.doc_id for _, document in rows],
            np.array([document[1:] for _, document in rows], np.uint64).reshape(-1, 4),
        )


class Match(NamedTuple):
    """A document near the query; ordered by distance (bits), then id. `first_seen` is in ms since 1970.

    `similarity` (0 to 1) is the Jaccard index of the two texts' shingles, estimated from their sketches, or None
    without sketches. `found_by` is "key" if the document is farther away than the query's distance and matched only
    because it shares a key with the query.
    """

    distance: int
    doc_id: str
    fingerprint: int
    first_seen: int
    similarity: float | None = None
    found_by: Literal["distance", "key"] = "distance"

    def to_json(self) -> dict[str, object]:
        """Return the match as JSON values by name; `id` is the document's id, and the fingerprint is in hex."""
        return {
            "distance": self.distance,
            "id": self.doc_id,
            "fingerprint": format_fingerprint(self.fingerprint),
            "first_seen": self.first_seen,
            "similarity": self.similarity,
            "found_by": self.found_by,
        }


class Matches(list[Match]):
    """The matches of a query, nearest first. They are complete unless the query was partial.

    `missing` holds the numbers of the drawers that did not respond to a partial query in time; 253 is the key drawer.
    255 means that the store could not confirm that the index is still the one that was opened. A matching document is
    absent only if all drawers that would find it are missing. If `missing` is empty, the matches are complete.
    """

    missing: tuple[int, ...] = ()

    @classmethod
    def in_part(cls, matches: Iterable[Match], missing: tuple[int, ...]) -> Matches:
        """Return matches that do not include those from the `missing` drawers."""
        found = cls(matches)  # without a Python `__init__`, a batch of queries takes a twentieth less time
        found.missing = missing
        return found


class Claim(NamedTuple):
    """The decision on a claimed document: it was new and is now stored, or it had a match."""

    is_new: bool
    match: Match | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A job's progress, stored in the index under the job's token: how many of its documents or slices are done."""

    token: str
    count: int = 0

    @property
    def key(self) -> bytes:
        """The name under which the mark is stored next to the record; it does not depend on the count."""
        return f"job:{self.token}".encode()

    @property
    def value(self) -> bytes:
        """The stored count."""
        return str(self.count).encode()


@dataclass(frozen=True, slots=True)
class Record:
    """How an index was made: its layout, its profile as JSON values, and the default distance of queries.

    Without a distance, the layout's k applies. `assumed` names the parts that were not requested explicitly, so an
    existing index may differ in them. `identity` distinguishes the index from earlier and later ones at the same URL;
    it is empty if none is recorded.
    """

    layout: Layout
    profile: dict[str, object]
    distance: int | None = None
    assumed: frozenset[str] = field(default=frozenset(), compare=False)
    identity: bytes = field(default=b"", compare=False)

    def __post_init__(self) -> None:
        if self.has_signatures and len(self.layout.drawers) > SIGNED_DRAWERS:
            raise ValueError(
                f"layout {self.layout.name} has {len(self.layout.drawers)} drawers, but an index with sketches and "
                f"keys can have at most {SIGNED_DRAWERS}; choose a layout with fewer drawers, or a profile without "
                f"sketches and keys"
            )

    @property
    def has_signatures(self) -> bool:
        """Whether the profile makes sketches and keys for the documents."""
        return any(self.profile.get(name) is not None for name in ("sketch", "key"))

    @property
    def form(self) -> dict[str, object]:
        """The storage format."""
        return RECORD_FORMATS[self.has_signatures + (self.keying is not Keying.WHOLE)]

    @property
    def keying(self) -> Keying:
        """The kind of key that the documents have."""
        return Keying(self.profile.get("keying", Keying.WHOLE.value))

    @property
    def most_key_rows(self) -> int:
        """The maximum number of key drawer rows per document."""
        return self.keying.most_parts if self.has_signatures else 0

    def is_key_row(self, row: bytes) -> bool:
        """Whether a row or prefix belongs to the key drawer."""
        return self.has_signatures and row.startswith(_KEY_DRAWER, SEGMENT_BYTES)  # foreign rows may be shorter

    def stored(self, signatures: Signatures) -> Signatures:
        """Return signatures as the index stores them: format 1 drops sketches and keys."""
        if not self.has_signatures:
            return Signatures.of(signatures.fingerprints)
        return replace(signatures, keying=self.keying)

    def filed_rowkeys(self, signatures: Iterable[Signature]) -> Uint8s:
        """Return the distinct rowkeys of signatures in every drawer and the key drawer: shape (m, 13), uint8."""
        return filed_rowkeys(self.layout, signatures, self.keying)

    def key_prefixes(self, key: int) -> list[bytes]:
        """Return the prefixes under which the key drawer files the fingerprints of documents with this key."""
        return key_prefixes(self.keying, key)

    def to_parts(self) -> dict[bytes, bytes]:
        """Return the stored values by name, as `schema/record.md` defines them, in the order they are written."""
        parts: dict[bytes, object] = {} if self.distance is None else {DISTANCE_PART: self.distance}
        parts |= zip(RECORD_PARTS, (self.layout.to_json(), self.profile, self.form), strict=True)
        return {name: json.dumps(part, ensure_ascii=False).encode() for name, part in parts.items()}

    def list_parts(self) -> dict[bytes, bytes]:
        """Return the pieces of the profile's own lists by name, as `schema/record.md` defines them.

        The pieces are written before the record.

        Raises:
            ProfileMismatchError: The contents of a list are not available in this process.
        """
        return {
            _list_part(sha256, number): piece
            for sha256, kind in own_lists(self.profile).items()
            for number, piece in enumerate(_pieces(kept_list(kind, sha256)))
        }

    def learn_lists(self, read: Callable[[bytes], bytes | None], index: str) -> Record:
        """Load the profile's own lists into this process from pieces that `read` returns by name; return the record.

        Raises:
            CorruptionError: A list is missing or damaged.
        """
        for sha256, kind in own_lists(self.profile).items():
            pieces = map(read, (_list_part(sha256, number) for number in count()))
            content = b"".join(piece for piece in takewhile(bool, pieces) if piece)
            if hashlib.sha256(content).hexdigest() != sha256:
                what = f"is damaged: its {len(content):,} bytes have a different SHA-256" if content else "is missing"
                raise CorruptionError(
                    f"the {kind} of {index}, with SHA-256 {sha256[:16]}…, {what}; restore a backup, or export the "
                    f"documents and ingest them into a new index created with this list"
                )
            keep_list(content)
        return self

    @classmethod
    def from_parts(cls, parts: Mapping[bytes, bytes], index: str) -> Record:
        """Return the record with these stored values; error messages name `index`.

        Raises:
            FormatVersionError: The format is newer than this release, or does not match the profile.
            ValueError: The values are not a valid record.
        """
        if lost := [name.decode() for name in RECORD_PARTS if not parts.get(name)]:
            raise ValueError(f"it lacks {', '.join(lost)}")
        layout, profile, form = (json.loads(parts[name]) for name in RECORD_PARTS)
        if not (isinstance(layout, dict) and isinstance(profile, dict)):
            raise ValueError("its layout and profile must be JSON objects")
        if form not in RECORD_FORMATS:
            raise FormatVersionError(
                f"{index} has format {form}, but this release reads formats up to {RECORD_FORMATS[-1]}; upgrade "
                f"hsimhash, or export the index with the release that wrote it"
            )
        distance = json.loads(parts.get(DISTANCE_PART) or b"null")
        if distance is not None and not (type(distance) is int and 0 <= distance <= FINGERPRINT_BITS):
            raise ValueError(f"its distance must be a number of bits, got {distance!r}")
        record = cls(Layout.from_json(layout), profile, distance, identity=parts.get(IDENTITY_PART, b""))
        if form != record.form:
            raise FormatVersionError(
                f"{index} has format {form}, but its profile requires {record.form}: no release writes this "
                f"combination; ingest the texts into a new index"
            )
        return record

    @property
    def reach(self) -> int:
        """The default distance of queries, in bits."""
        return self.layout.max_distance if self.distance is None else self.distance

    def check_same(self, asked: Record, url: str) -> None:
        """Raise `IndexExistsError` with the differences if the index at `url` was created with different settings."""
        parts = {"layout": (self.layout.to_json(), asked.layout.to_json()), "profile": (self.profile, asked.profile)}
        differences = [
            difference
            for part, (stored, wanted) in parts.items()
            if part not in asked.assumed
            for difference in _differences(part, stored, wanted)
        ]
        if "distance" not in asked.assumed and asked.distance not in (None, self.reach):
            differences.append(f"distance: the index has {self.reach}, requested {asked.distance}")
        if differences:
            is_copyable = not any(one.startswith("profile") for one in differences)
            remedy = "; to change the layout or the distance, copy the index with 'hsimhash relayout'"
            raise IndexExistsError(
                f"the index at {url} was created with different settings ({'; '.join(differences)}); use the same "
                f"settings, or another URL{remedy if is_copyable else ''}"
            )


def _differences(part: str, stored: dict[str, object], wanted: dict[str, object]) -> Iterator[str]:
    """Describe how two layouts or two profiles differ: by their names or, if those are equal, by their fields."""
    if stored.get("name") != wanted.get("name"):
        yield f"{part}: the index has {stored.get('name')}, requested {wanted.get('name')}"
        return
    for name in sorted(stored.keys() | wanted.keys()):
        if stored.get(name) != wanted.get(name):
            yield (
                f"{part}.{name}: the index has {json.dumps(stored.get(name))}, requested {json.dumps(wanted.get(name))}"
            )


def _list_part(sha256: str, number: int) -> bytes:
    return f"list:{sha256}:{number}".encode()


def _pieces(content: bytes) -> Iterator[bytes]:
    """Yield a list in pieces of whole lines, or of whole characters if a line is longer than a piece."""
    while content:
        stop = content.rfind(b"\n", 0, LIST_PIECE_BYTES) + 1 or LIST_PIECE_BYTES
        while content[stop : stop + 1] and content[stop] & 0xC0 == 0x80:
            stop -= 1
        yield content[:stop]
        content = content[stop:]


class View(ABC):
    """Read access for a query: to buckets, to the documents with near fingerprints, and to registers."""

    answers = False  # whether the store itself computes distances, so that `near` is supported

    def __str__(self) -> str:
        """Return a description of what has been read so far; empty if the caller already knows it."""
        return ""

    def near(
        self, prefixes: Sequence[bytes], query: Signature, distance: int, most: int | None = None
    ) -> list[Document] | None:
        """Return the documents near the query under 5-byte `prefixes`, and those that share its key, in one call.

        The order is arbitrary, and documents may repeat. Returns None if there may be `most` documents or more. Only
        for views whose `answers` is true.
        """
        raise NotImplementedError

    @property
    def finds_near(self) -> bool:
        """Whether `near_one` and `near_many` are supported and faster than reading the rows of buckets."""
        return False

    def near_one(
        self, fingerprint: int, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[int] | None:
        """Return the fingerprints in the chosen buckets that are within `distance` bits of `fingerprint`.

        They come in any order and may repeat. Other buckets may contain more. Returns None if a bucket may have
        more than `most` rows, or if the view cannot tell. Only for views whose `finds_near` is true.

        Args:
            fingerprint: Unsigned 64-bit fingerprint.
            distance: Distance in bits.
            numbers: Prefixes of the drawers' buckets to read, as 40-bit numbers; None: the fingerprint's own prefixes.
            most: Maximum number of rows in a bucket.
        """
        raise NotImplementedError

    def near_many(
        self, fingerprints: Uint64s, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[tuple[Int64s, Uint64s]] | None:
        """Run `near_one` for many fingerprints, with `numbers` of shape (n, reads).

        Returns pairs of positions in `fingerprints` and stored fingerprints, in several parts.
        """
        raise NotImplementedError

    @abstractmethod
    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        """Return the rowkeys of the buckets under 5-byte `prefixes`: shape (m, 13), uint8, in any order.

        If a bucket has more than `most` rows, the result may contain exactly `most` of them, chosen arbitrarily.
        """

    @abstractmethod
    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        """Return the drawer rows in ranges of prefixes, without the key drawer: shape (m, 13), uint8, in any order.

        The ranges are half-open and disjoint, and their bounds have 5 bytes. The last range may end at five 0xff bytes,
        which sort after the prefixes of all drawers.
        """

    @abstractmethod
    def estimate(self) -> int:
        """Estimate the number of documents, cheaply."""

    @abstractmethod
    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        """Return the documents listed under each fingerprint, according to their registers and sorted by id.

        If a document has just moved, its register may hold a different fingerprint.

        Args:
            fingerprints: Unsigned 64-bit fingerprints.
            limit: Stop reading after this many documents whose register has the requested fingerprint.
        """

    def documents_of(self, fingerprints: Sequence[int]) -> ListedDocuments:
        """Return the same documents as `documents`, in columns; those with the same fingerprint come in any order."""
        return ListedDocuments.of(self.documents(fingerprints))

    @abstractmethod
    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        """Return each document according to its register, or None if it does not have one."""


class ViewInPart(View):
    """A view that skips the parts of an index that do not respond in time, and records what is missing."""

    def __init__(self) -> None:
        self.unanswered: list[tuple[bytes, bytes]] = []  # half-open ranges of drawer rows that could not be read
        self.unread: set[int] = set()  # fingerprints with documents that could not be read
        self.unread_near: dict[int, list[int]] = {}  # unread fingerprints near each query, by the query's index
        self.is_certain = True  # whether the store confirmed that the index is still the one that was opened

    def note_unread(self, place: int, near: Sequence[tuple[int, int]]) -> None:
        """Record which fingerprints near query number `place`, given as (distance, fingerprint), were not read."""
        unread = [fingerprint for _, fingerprint in near if fingerprint in self.unread]
        if unread:
            self.unread_near[place] = unread


class Claims(ABC):
    """Documents, numbered from 0, to store only if they are new. Each is also compared with those before it."""

    doc_ids: Sequence[bytes]
    signatures: Signatures
    first_seen: Int64s

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether some claims are undecided."""

    @abstractmethod
    def look(self, view: View, most: int | None = None) -> tuple[list[int], dict[int, Match]]:
        """Return which of the next documents (up to `most`) are new, and which have a match.

        A document is new only if no other writer adds a match in the meantime. No two new documents are near each
        other; documents whose decision depends on a new one are left for a later call.
        """

    @abstractmethod
    def nearest(self, view: View, numbers: Sequence[int]) -> list[Match | None]:
        """Return each document's nearest match other than itself."""

    @abstractmethod
    def meets(self, number: int, document: Document) -> bool:
        """Whether a stored document matches a claimed one; they may be the same document."""

    @abstractmethod
    def settle(self, number: int, claim: Claim) -> None:
        """Record the decision on a document."""


class Store(View, AbstractContextManager["Store"]):
    """The storage of an index. Thread-safe and fork-safe; closing it twice is harmless.

    Every call raises `StoreClosedError` after `close`, `StoreUnavailableError` if the store cannot be reached or
    written to, `StoreBusyError` if another writer locks it for too long, `CorruptionError` for invalid stored bytes,
    and `IndexNotFoundError` (`gone`) if the index has been dropped or replaced since it was opened. To detect this,
    `Backend.create` stores a random `IDENTITY_PART` with the record, and every write compares it.

    A process may fork while other threads are inside calls. The child may then use the same store, so implementations
    must not use the parent's connections in the child.

    `hsimhash/rowkey.py` has functions that every store needs: `bucket_range`, `filed_rowkeys`, `last_occurrences`. See
    also `Record.stored`.
    """

    url: str
    record: Record
    is_atomic = True  # whether `insert` stores all documents and the mark, or nothing, if the process is killed

    @abstractmethod
    def view(self, *, timeout_s: float | None = None) -> AbstractContextManager[View]:
        """Return a view for one query. It never misses a document that is near the query throughout the block.

        On LMDB, PostgreSQL and in memory, the block sees one state of the index. On HBase and Redis, a document
        that moves keeps its old listing, so successive reads do not miss it.

        If the view loses its state, the block raises `LostRightError` and the view can be entered again; see
        `with_view`.

        Args:
            timeout_s: Total time that the block's reads may take, in seconds; after that they raise
                `StoreTimeoutError`. None: no limit.
        """

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        return with_view(self, lambda view: view.scan(prefixes, most))

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        return with_view(self, lambda view: view.sweep(ranges))

    def estimate(self) -> int:
        return with_view(self, lambda view: view.estimate())

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        return with_view(self, lambda view: view.documents(fingerprints, limit))

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        return with_view(self, lambda view: view.lookup(doc_ids))

    @abstractmethod
    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        """Keep other processes and threads from writing during the block, if the store supports that; reentrant.

        This is a lock, not a transaction: an `insert` within the block is durable when it returns. `insert`, `remove`
        and repairs take the lock themselves. On HBase and Redis this does nothing: writers never wait for each other.

        Args:
            stop: Called repeatedly while another writer holds the lock; returns true to end the wait.

        Raises:
            StoreBusyError: Another writer held the lock for too long.
            StopAskedError: `stop` returned true.
        """

    @abstractmethod
    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        """Add or change documents; durable on return. Return how many are new or now have a different signature.

        An unchanged document keeps its `first_seen`. An index with format 1 keeps only the fingerprints. If an id
        occurs twice, the last occurrence is used. A `mark` replaces the mark with the same token: in the same step as
        the documents on LMDB and in memory, after them on HBase.
        """

    def insert_in_parts(self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s) -> int:
        """Insert any number of documents with distinct ids; if the process is killed, only some of them may be stored.

        Each `insert` writes up to `INSERT_DOCUMENTS` documents, and other processes can write between them.
        """
        parts = even_parts(len(doc_ids), INSERT_DOCUMENTS)
        return sum(self.insert(doc_ids[part], signatures[part], first_seen[part]) for part in parts)

    def claim(self, claims: Claims) -> None:
        """Decide all claims, and store the documents without a match; concurrent callers see all or nothing."""

        def decide() -> None:  # a document that was stored but not settled matches only itself, so it is new again
            with self.writing():
                while claims.is_open:
                    with self.view() as view:
                        new, matches = claims.look(view)
                    doc_ids = [claims.doc_ids[number] for number in new]
                    self.insert(doc_ids, claims.signatures[new], claims.first_seen[new])
                    for number in (*new, *matches):
                        claims.settle(number, Claim(number not in matches, matches.get(number)))

        resumed(decide)

    @abstractmethod
    def marked(self, token: str) -> int:
        """Return the count in the mark with the given token, or 0 if there is no such mark."""

    @abstractmethod
    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        """Remove documents; durable on return. Return how many existed.

        With `before` (ms since 1970), remove only those first seen earlier, according to their registers when they are
        removed.
        """

    def count(self, *, before: int | None = None, workers: int = 1, observer: Observer = UNWATCHED) -> int:
        """Return the number of documents; with `before` (ms since 1970), count only those first seen earlier.

        On HBase, `workers` processes read the registers, and `observer` receives their progress. Stores whose
        `estimate` is not exact must override this method.
        """
        if before is None:
            return self.estimate()
        return sum(document.first_seen < before for page in self.walk() for document in page)

    @abstractmethod
    def walk(self) -> Iterator[list[Document]]:
        """Yield all documents in pages, in order of (fingerprint, id); no transaction stays open between pages.

        Ids longer than 502 bytes that start with the same bytes may come in a different order.
        """

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        """Yield the documents in one of `shards` disjoint shards, numbered from 0, in pages."""
        low, high = ((number << 64) // shards for number in (shard, shard + 1))
        for page in self.walk():
            yield [document for document in page if low <= document.fingerprint < high]

    @abstractmethod
    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        """Compare registers, documents and drawer rows with each other; with `repair`, fix the differences.

        On HBase, `workers` processes read the table. Their findings stay in `folder` until the check is complete, and
        another call with the same folder resumes the check.
        """

    @abstractmethod
    def describe(self) -> dict[str, str | int]:
        """Return facts about the storage, such as `drawer_rows` and `file_bytes`; commands print them unchanged."""

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        """Return fingerprints shared by 1,000 documents or more, as found in a sample, most common first.

        The numbers may still include documents that have just moved or expired. This implementation reads all
        documents, so stores for large indexes override it.

        Args:
            sampled: Approximate number of documents to read; a smaller index is read completely, or almost so on HBase.
        """
        fingerprints = [document.fingerprint for page in self.walk() for document in page]
        return crowded(fingerprints, lambda value: len(self.documents([value], MOST_LISTED)[0]))

    @abstractmethod
    def close(self) -> None:
        """Close the storage."""

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def with_view(store: Store, work: Callable[[View], T], *, timeout_s: float | None = None) -> T:
    """Call `work` with a view and return its result; repeat the call if the view loses its state."""
    view = store.view(timeout_s=timeout_s)

    def read() -> T:
        with view as entered:
            return work(entered)

    return resumed(read)


def resumed(work: Callable[[], T]) -> T:
    """Call `work` and return its result; repeat the call after `LostRightError`, so `work` must be able to resume.

    Raises:
        LostRightError: `work` raised it again after `MOST_LOSSES` retries.
    """
    for _ in range(MOST_LOSSES):
        try:
            return work()
        except LostRightError:
            continue
    return work()


def even_parts(count: int, most: int) -> list[slice]:
    """Return nearly equal slices of at most `most` items that cover `count` items; one empty slice for 0 items."""
    parts = max(1, -(-count // most))
    return [slice(count * number // parts, count * (number + 1) // parts) for number in range(parts)]


def up_to(documents: list[Document], fingerprint: int, limit: int) -> list[Document]:
    """Return the documents, truncated after the first `limit` whose register has the fingerprint."""
    places = [place for place, document in enumerate(documents) if document.fingerprint == fingerprint]
    return documents[: places[limit - 1] + 1] if len(places) > limit else documents
