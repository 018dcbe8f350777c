"""The interface between an index and its storage: buckets, documents, registers and a record, in batches.

A store files every fingerprint once per drawer, lists the documents of each fingerprint, and keeps a *register* that
says which fingerprint a document has now. The register is the truth. Other rows that it does not confirm are leftovers
of an interrupted write: they are never reported, and `check(repair=True)` deletes them.
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

from hsimhash.errors import (
    CREATE_ONE,
    CorruptionError,
    FormatVersionError,
    IndexExistsError,
    IndexNotFoundError,
    LostRightError,
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

# On disk: never reuse a version. Format 2 has sketches and keys in its registers, and a key drawer; format 3 files
# there the parts of keys.
RECORD_FORMATS: tuple[dict[str, object], ...] = tuple({"version": version, "rows": "tall"} for version in (1, 2, 3))
RECORD_PARTS = (b"layout", b"profile", b"format")  # on disk, in the order in which they are written
DISTANCE_PART = b"distance"  # on disk, before the others; not there: the layout's k
IDENTITY_PART = b"identity"  # on disk, beside them, where a store can lose an index that is open; older ones have none
LIST_PIECE_BYTES = 1 << 20
SIGNED_DRAWERS = 251  # at most, with sketches and keys; in format 1 the flags 252 and 253 may be drawers
INSERT_DOCUMENTS = 100_000  # written in one step; bounds memory, and how long other writers wait
LOCK_TIMEOUT_S = 30.0  # how long a write waits for another process that writes
DEADLINE_S = 30.0  # how long a call to a cluster is tried without an answer
JOB_DEADLINE_S = 600.0  # the same for a job that takes minutes: losing a region server takes two


MOST_LOSSES = 10  # of a right, in one call of `resumed`: the work itself may be what ends the server


def gone(url: str, *, is_replaced: bool, cause: str = "it was dropped") -> IndexNotFoundError:
    """Return the error for a call on an index that was dropped or replaced."""
    if is_replaced:
        return IndexNotFoundError(
            f"the index at {url} was dropped and created again since this process opened it; open it again"
        )
    return IndexNotFoundError(f"no index at {url} any more: {cause}; " + CREATE_ONE)


class Document(NamedTuple):
    """A document as its register has it; `first_seen` in ms since 1970; a sketch or a key of 0 means none."""

    doc_id: str
    fingerprint: int
    first_seen: int
    sketch: int = 0
    key: int = 0

    @classmethod
    def of(cls, doc_id: str, signature: Signature, first_seen: int) -> Document:
        """Make a document from its signature."""
        return cls(doc_id, signature.fingerprint, first_seen, signature.sketch, signature.key)

    @property
    def signature(self) -> Signature:
        """The fingerprint, sketch and key."""
        return Signature(self.fingerprint, self.sketch, self.key)


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

    def to_json(self) -> dict[str, object]:
        """Return JSON values by name; the document's id is `id`, its fingerprint has 16 hexadecimal digits."""
        return {
            "distance": self.distance,
            "id": self.doc_id,
            "fingerprint": format_fingerprint(self.fingerprint),
            "first_seen": self.first_seen,
            "similarity": self.similarity,
            "found_by": self.found_by,
        }


class Matches(list[Match]):
    """The matches of a query, nearest first. It is complete unless it is the answer to a partial query.

    `missing` has the numbers of the drawers that did not answer such a query in time, and 253 for the drawer of keys. A
    document that matches is left out only if all drawers in which it would be found are missing. 255 says that nothing
    shows whether the index was replaced since it was opened. Without missing numbers the answer is complete.
    """

    def __init__(self, matches: Iterable[Match] = (), missing: tuple[int, ...] = ()) -> None:
        super().__init__(matches)
        self.missing = missing


class Claim(NamedTuple):
    """The decision on a claimed document: it is new and stored, or it had a match."""

    is_new: bool
    match: Match | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """The progress of the job with a token, as the index remembers it: how many of its documents are decided."""

    token: str
    count: int = 0

    @property
    def key(self) -> bytes:
        """The name under which it is stored beside the record, whatever its count."""
        return f"job:{self.token}".encode()

    @property
    def value(self) -> bytes:
        """The stored count."""
        return str(self.count).encode()


@dataclass(frozen=True, slots=True)
class Record:
    """The record of how an index was made: layout, profile as JSON values, default distance of queries.

    No distance: the layout's k. `assumed` names what nobody asked for: an index that has another is as good.
    `identity` tells the index from others that had, or will have, its place; empty where none is recorded.
    """

    layout: Layout
    profile: dict[str, object]
    distance: int | None = None
    assumed: frozenset[str] = field(default=frozenset(), compare=False)
    identity: bytes = field(default=b"", compare=False)

    def __post_init__(self) -> None:
        if self.has_signatures and len(self.layout.drawers) > SIGNED_DRAWERS:
            raise ValueError(
                f"layout {self.layout.name} has {len(self.layout.drawers)} drawers, and an index with sketches and "
                f"keys has at most {SIGNED_DRAWERS}; choose another layout, or a profile without them"
            )

    @property
    def has_signatures(self) -> bool:
        """Whether its documents have sketches and keys, because the profile makes them."""
        return any(self.profile.get(name) is not None for name in ("sketch", "key"))

    @property
    def form(self) -> dict[str, object]:
        """The storage format."""
        return RECORD_FORMATS[self.has_signatures + (self.keying is not Keying.WHOLE)]

    @property
    def keying(self) -> Keying:
        """Which kind of key its documents have."""
        return Keying(self.profile.get("keying", Keying.WHOLE.value))

    @property
    def most_key_rows(self) -> int:
        """How many rows of the key drawer a document may have."""
        return self.keying.most_parts if self.has_signatures else 0

    def is_key_row(self, row: bytes) -> bool:
        """Whether a row, or a prefix, belongs to the key drawer."""
        return self.has_signatures and row[SEGMENT_BYTES] == KEY_FLAG

    def stored(self, signatures: Signatures) -> Signatures:
        """Return signatures as the index stores them: without sketches and keys in format 1."""
        if not self.has_signatures:
            return Signatures.of(signatures.fingerprints)
        return replace(signatures, keying=self.keying)

    def filed_rowkeys(self, signatures: Iterable[Signature]) -> Uint8s:
        """Return the distinct rowkeys of signatures in every drawer and the key drawer: shape (m, 13), uint8."""
        return filed_rowkeys(self.layout, signatures, self.keying)

    def key_prefixes(self, key: int) -> list[bytes]:
        """Return the prefixes under which the key drawer files the fingerprints of documents with a key."""
        return key_prefixes(self.keying, key)

    def to_parts(self) -> dict[bytes, bytes]:
        """Return the stored values by name, as `schema/record.md` has them, in the order in which they are written."""
        parts: dict[bytes, object] = {} if self.distance is None else {DISTANCE_PART: self.distance}
        parts |= zip(RECORD_PARTS, (self.layout.to_json(), self.profile, self.form), strict=True)
        return {name: json.dumps(part, ensure_ascii=False).encode() for name, part in parts.items()}

    def list_parts(self) -> dict[bytes, bytes]:
        """Return the lists in pieces by name, as `schema/record.md` has them; they are written before the record.

        Raises:
            ProfileMismatchError: this process does not know a list.
        """
        return {
            _list_part(sha256, number): piece
            for sha256, kind in own_lists(self.profile).items()
            for number, piece in enumerate(_pieces(kept_list(kind, sha256)))
        }

    def learn_lists(self, read: Callable[[bytes], bytes | None], index: str) -> Record:
        """Load the record's lists into this process, from the pieces that `read` returns by name; return the record.

        Raises:
            CorruptionError: a list is not there, or damaged.
        """
        for sha256, kind in own_lists(self.profile).items():
            pieces = map(read, (_list_part(sha256, number) for number in count()))
            content = b"".join(piece for piece in takewhile(bool, pieces) if piece)
            if hashlib.sha256(content).hexdigest() != sha256:
                what = f"is damaged: {len(content):,} bytes of it are there" if content else "is missing"
                raise CorruptionError(
                    f"the {kind} of {index}, with SHA-256 {sha256[:16]}…, {what}; restore a backup, or export the "
                    f"documents and ingest them into an index that is made with it"
                )
            keep_list(content)
        return self

    @classmethod
    def from_parts(cls, parts: Mapping[bytes, bytes], index: str) -> Record:
        """Return the record of stored values; messages name `index`.

        Raises:
            FormatVersionError: a release that this one does not know wrote it.
            ValueError: they cannot be a record.
        """
        if lost := [name.decode() for name in RECORD_PARTS if not parts.get(name)]:
            raise ValueError(f"it lacks {', '.join(lost)}")
        layout, profile, form = (json.loads(parts[name]) for name in RECORD_PARTS)
        if not (isinstance(layout, dict) and isinstance(profile, dict)):
            raise ValueError("its layout and its profile must be JSON objects")
        if form not in RECORD_FORMATS:
            raise FormatVersionError(
                f"{index} has format {form}, this release reads {RECORD_FORMATS[-1]} and before; upgrade hsimhash, or "
                f"export the index with the release that wrote it"
            )
        distance = json.loads(parts.get(DISTANCE_PART) or b"null")
        if distance is not None and not (type(distance) is int and 0 <= distance <= FINGERPRINT_BITS):
            raise ValueError(f"its distance is {distance!r}, not a number of bits")
        record = cls(Layout.from_json(layout), profile, distance, identity=parts.get(IDENTITY_PART, b""))
        if form != record.form:
            raise FormatVersionError(
                f"{index} has format {form}, and its profile asks for {record.form}: no release made it so; ingest the "
                f"texts into a new index"
            )
        return record

    @property
    def reach(self) -> int:
        """The default distance of queries, in bits."""
        return self.layout.max_distance if self.distance is None else self.distance

    def check_same(self, asked: Record, url: str) -> None:
        """Raise `IndexExistsError`, naming the differences, if the index at `url` was made differently."""
        parts = {"layout": (self.layout.to_json(), asked.layout.to_json()), "profile": (self.profile, asked.profile)}
        if asked.distance is not None:
            parts["queries"] = ({"distance": self.reach}, {"distance": asked.distance})
        differences = [
            f"{part}.{name}: the index has {json.dumps(stored.get(name))}, asked for {json.dumps(wanted.get(name))}"
            for part, (stored, wanted) in parts.items()
            if part not in asked.assumed
            for name in sorted(stored.keys() | wanted.keys())
            if stored.get(name) != wanted.get(name)
        ]
        if differences:
            raise IndexExistsError(
                f"the index at {url} was made with other settings; use those, or choose another place: "
                f"{'; '.join(differences)}"
            )


def _list_part(sha256: str, number: int) -> bytes:
    return f"list:{sha256}:{number}".encode()


def _pieces(content: bytes) -> Iterator[bytes]:
    """Yield a list in pieces of whole lines, or of whole characters where a line is longer than a piece."""
    while content:
        stop = content.rfind(b"\n", 0, LIST_PIECE_BYTES) + 1 or LIST_PIECE_BYTES
        while content[stop : stop + 1] and content[stop] & 0xC0 == 0x80:
            stop -= 1
        yield content[:stop]
        content = content[stop:]


class View(ABC):
    """Reads of a query: buckets, the documents of near fingerprints, registers."""

    answers = False  # whether `near` does: the store itself counts bits

    def __str__(self) -> str:
        """Return what was read so far, if the view knows more about it than its caller."""
        return ""

    def near(
        self, prefixes: Sequence[bytes], query: Signature, distance: int, most: int | None = None
    ) -> list[Document] | None:
        """Return the documents near the query under 5-byte `prefixes`, and those with its key, in one call.

        They come in any order, perhaps twice. None where there may be `most` or more. Only where the view `answers`.
        """
        raise NotImplementedError

    @property
    def finds_near(self) -> bool:
        """Whether `near_one` and `near_many` answer: sooner than the rows of buckets do."""
        return False

    def near_one(
        self, fingerprint: int, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[int] | None:
        """Return the stored fingerprints within `distance` bits of one in the buckets it reads, in any order.

        There may be others within that distance, and repeated ones. None where a bucket may have over `most` rows, or
        if the view cannot tell. Only where the view `finds_near`.

        Args:
            fingerprint: unsigned 64-bit.
            distance: in bits.
            numbers: the prefixes of drawers' buckets, as numbers of 40 bits; None: those of its own.
            most: rows of a bucket.
        """
        raise NotImplementedError

    def near_many(
        self, fingerprints: Uint64s, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[tuple[Int64s, Uint64s]] | None:
        """Call `near_one` for many, with `numbers` of shape (n, reads).

        Return pairs, as positions of `fingerprints` and stored ones, in several parts.
        """
        raise NotImplementedError

    @abstractmethod
    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        """Return the rowkeys of the buckets under 5-byte `prefixes`: shape (m, 13), uint8, in any order.

        With `most`, a bucket that has more rows may be cut to exactly so many, whichever these are.
        """

    @abstractmethod
    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        """Return the drawer rows, not the key drawer's, of ranges of prefixes: shape (m, 13), uint8, in any order.

        The ranges are half-open and disjoint, and their ends have 5 bytes. The end of the last may be five bytes of
        0xff, which is no drawer's prefix and lies after all of them.
        """

    @abstractmethod
    def estimate(self) -> int:
        """Estimate the number of documents, cheaply."""

    @abstractmethod
    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        """Return the documents listed under each fingerprint as their registers have them, sorted by id.

        A register may hold another fingerprint than the one asked for (the document moved a moment ago).

        Args:
            fingerprints: unsigned 64-bit.
            limit: read only as far as so many documents whose register has the fingerprint asked for.
        """

    @abstractmethod
    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        """Return each document as its register has it, or None if it does not have a register."""


class ViewInPart(View):
    """A view that leaves out what does not answer in time, and says what that is."""

    def __init__(self) -> None:
        self.unanswered: list[tuple[bytes, bytes]] = []  # half-open ranges of drawer rows that could not be read
        self.unread: set[int] = set()  # fingerprints of which some documents could not be read
        self.unread_near: dict[int, list[int]] = {}  # those near a query, by its place
        self.is_certain = True  # whether the store showed that it still has the index that was opened

    def note_unread(self, place: int, near: Sequence[tuple[int, int]]) -> None:
        """Note which of the fingerprints near a query, given with their distances, were not read."""
        unread = [fingerprint for _, fingerprint in near if fingerprint in self.unread]
        if unread:
            self.unread_near[place] = unread


class Claims(ABC):
    """Documents that claim to be new, numbered from 0; each is compared with those before it."""

    doc_ids: Sequence[bytes]
    signatures: Signatures
    first_seen: Int64s

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether some claims are undecided."""

    @abstractmethod
    def look(self, view: View, most: int | None = None) -> tuple[list[int], dict[int, Match]]:
        """Return which of the next documents, up to `most`, are new if nobody else writes, and which have a match.

        No two of the first are near each other; those that depend on any of these wait.
        """

    @abstractmethod
    def nearest(self, view: View, numbers: Sequence[int]) -> list[Match | None]:
        """Return each document's nearest match other than itself."""

    @abstractmethod
    def meets(self, number: int, document: Document) -> bool:
        """Whether a stored document matches a claimed one; it may be itself."""

    @abstractmethod
    def settle(self, number: int, claim: Claim) -> None:
        """Record the decision on a document."""


class Store(View, AbstractContextManager["Store"]):
    """The storage of an index. Thread-safe and fork-safe; `close` twice is harmless.

    Every call raises `StoreClosedError` after `close`, `StoreUnavailableError` when the store cannot be reached or
    written, `StoreBusyError` when another writer held it too long, `CorruptionError` for stored bytes that cannot be,
    and `IndexNotFoundError` (`gone`) when the index was dropped or replaced since it was opened: `Backend.create` keeps
    a random `IDENTITY_PART` beside the record, and every write compares it.

    Other threads may be within calls when a process forks. The child then calls the same store, but it must not use
    the connections of its parent.

    `hsimhash/rowkey.py` has what every store needs: `bucket_range`, `filed_rowkeys`, `last_occurrences`; see also
    `Record.stored`.
    """

    url: str
    record: Record
    is_atomic = True  # whether a kill leaves all documents of an `insert`, and its mark, or none

    @abstractmethod
    def view(self, *, timeout_s: float | None = None) -> AbstractContextManager[View]:
        """Give a view for one query: it misses no document that is near before, during and after the block.

        On LMDB, PostgreSQL and in memory the block sees one state of the index. On HBase and Redis listings stay when a
        document moves, so reads one after the other miss none.

        A block that loses its state ends with `LostRightError`, and its view can be entered again; see `with_view`.

        Args:
            timeout_s: how long the block's reads may take together, in seconds; `StoreTimeoutError` when they take
                longer. None: no such bound.
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
        """Keep other processes and threads from writing during the block, if the store can; reentrant.

        It is a lock, not a transaction: an `insert` within the block is durable when it returns. `insert`, `remove` and
        a repair take it themselves. On HBase it does nothing: its writers never wait for each other.

        Args:
            stop: asked again and again while another writes.

        Raises:
            StoreBusyError: another writer held the index too long.
            StopAskedError: `stop` asked to end.
        """

    @abstractmethod
    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        """Add or change documents; durable on return. Return how many are new or have another signature now.

        An unchanged document keeps its first seen. An index of format 1 keeps only the fingerprints. Of an id that
        occurs twice the last occurrence counts. A `mark` takes the place of the one with its token, in the same step on
        LMDB and in memory, after the documents on HBase.
        """

    def insert_in_parts(self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s) -> int:
        """Insert any number of documents, each once; a kill may leave some of them. Others can write between parts.

        Up to `INSERT_DOCUMENTS` are one `insert`.
        """
        parts = even_parts(len(doc_ids), INSERT_DOCUMENTS)
        return sum(self.insert(doc_ids[part], signatures[part], first_seen[part]) for part in parts)

    def claim(self, claims: Claims) -> None:
        """Store documents without a near one, and decide all claims; concurrent claimants see all or nothing."""

        def decide() -> None:  # a claim that was stored but not settled meets itself, and is new again
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
        """Return the count of the mark with a token, or 0 if it does not exist."""

    @abstractmethod
    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        """Remove documents; durable on return. Return how many existed.

        With `before` (ms since 1970) only those first seen earlier, as their registers have it in that very moment.
        """

    def count(self, *, before: int | None = None, workers: int = 1, observer: Observer = UNWATCHED) -> int:
        """Return how many documents there are; with `before` (ms since 1970) how many were first seen earlier.

        On HBase `workers` processes read the registers, and `observer` learns how far they are. A store whose
        `estimate` is not exact must override this.
        """
        if before is None:
            return self.estimate()
        return sum(document.first_seen < before for page in self.walk() for document in page)

    @abstractmethod
    def walk(self) -> Iterator[list[Document]]:
        """Yield all documents in pages, in order of (fingerprint, id); no transaction is held between pages.

        Ids of over 502 bytes may come in another order among those with the same beginning.
        """

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        """Yield the documents of one of `shards` disjoint shards, numbered from 0, in pages."""
        low, high = ((number << 64) // shards for number in (shard, shard + 1))
        for page in self.walk():
            yield [document for document in page if low <= document.fingerprint < high]

    @abstractmethod
    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        """Compare registers, documents and drawer rows with each other; with `repair`, fix the differences.

        On HBase `workers` processes read the table; what they find is kept in `folder` until all is done, and a call
        with the same folder continues there.
        """

    @abstractmethod
    def describe(self) -> dict[str, str | int]:
        """Return facts about the storage by name, which commands show as they are: `drawer_rows`, `file_bytes`."""

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        """Return fingerprints that 1,000 documents or more share, most common first, as far as a sample shows.

        A document that moved or expired a moment ago may still count. This implementation reads all documents, so a
        store for large indexes overrides it.

        Args:
            sampled: about how many documents to read; all of an index that has fewer, on HBase nearly all.
        """
        fingerprints = [document.fingerprint for page in self.walk() for document in page]
        return crowded(fingerprints, lambda value: len(self.documents([value], MOST_LISTED)[0]))

    @abstractmethod
    def close(self) -> None:
        """Close the storage."""

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def with_view(store: Store, work: Callable[[View], T], *, timeout_s: float | None = None) -> T:
    """Call `work` with a view and return its result; call it again if the view's state was lost meanwhile."""
    view = store.view(timeout_s=timeout_s)

    def read() -> T:
        with view as entered:
            return work(entered)

    return resumed(read)


def resumed(work: Callable[[], T]) -> T:
    """Call `work` and return its result; call it again if it lost its right, so it must be able to continue.

    Raises:
        LostRightError: the right was lost too often.
    """
    for _ in range(MOST_LOSSES):
        try:
            return work()
        except LostRightError:
            continue
    return work()


def even_parts(count: int, most: int) -> list[slice]:
    """Return slices of about the same length, up to `most`, that cover `count` items; one if there are none."""
    parts = max(1, -(-count // most))
    return [slice(count * number // parts, count * (number + 1) // parts) for number in range(parts)]


def up_to(documents: list[Document], fingerprint: int, limit: int) -> list[Document]:
    """Return documents up to the limit-th whose register has the fingerprint."""
    places = [place for place, document in enumerate(documents) if document.fingerprint == fingerprint]
    return documents[: places[limit - 1] + 1] if len(places) > limit else documents
