"""The store for tables: memory-mapped parts that are read like a single index."""

from __future__ import annotations

import heapq
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from hsimhash.errors import StoreClosedError, StoreTimeoutError
from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s, spans
from hsimhash.fingerprint.signature import Signatures
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import ROWKEY_BYTES, prefix_numbers_of
from hsimhash.store.base import Claims, Document, Mark, Store, View
from hsimhash.store.base_files.base_file import first_of_each
from hsimhash.store.base_files.base_format import DamagedBaseError
from hsimhash.store.base_files.packed_base import opened_base
from hsimhash.store.reports import (
    CROWDED_DOCUMENTS,
    MOST_CROWDS,
    SAMPLED_DOCUMENTS,
    CheckReport,
    CrowdedFingerprint,
)
from hsimhash.store.tables.check import check_part
from hsimhash.store.tables.documents_file import DocumentsFile, FiledColumns
from hsimhash.store.tables.folder import Manifest, damaged, read_only

_PAGE_DOCUMENTS = 10_000
_FEW = 4  # with at most this many fingerprints, it is faster to read their documents one by one
_GLANCED = 1 << 20  # number of fingerprints counted at a time


class TablesView(View):
    """The parts of tables; reads raise `StoreTimeoutError` once the view's time limit has passed."""

    finds_near = True

    def __init__(self, folder: Path, parts: Sequence[DocumentsFile], timeout_s: float | None = None) -> None:
        self._folder, self._parts, self._timeout_s = folder, parts, timeout_s
        self._deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s

    def __enter__(self) -> TablesView:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DamagedBaseError):
            raise damaged(self._folder, error) from error

    def _timely(self) -> Sequence[DocumentsFile]:
        """Return the parts; raise `StoreTimeoutError` when the time is up."""
        if self._timeout_s is not None and time.monotonic() >= self._deadline:
            raise StoreTimeoutError(f"tables {self._folder}: the time limit of {self._timeout_s:g} s was exceeded")
        return self._parts

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        found = [part.base.scan(prefixes, most) for part in self._timely()]
        rows = found[0] if len(found) == 1 else np.concatenate([np.empty((0, ROWKEY_BYTES), np.uint8), *found])
        if most is None or len(found) < 2 or len(rows) < most:
            return rows
        rows = rows[np.argsort(prefix_numbers_of(rows), kind="stable")]
        return rows[first_of_each(prefix_numbers_of(rows), most)]

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        return np.concatenate(
            [np.empty((0, ROWKEY_BYTES), np.uint8), *(one.base.sweep(ranges) for one in self._timely())]
        )

    def near_one(
        self, fingerprint: int, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[int] | None:
        found = list[int]()
        for part in self._timely():
            if numbers is None:
                near = part.base.near(fingerprint, distance, most)
            else:
                near = part.base.near_among(numbers, fingerprint, distance, most)
            if near is None:
                return None
            found += near
        return found

    def near_many(
        self, fingerprints: Uint64s, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[tuple[Int64s, Uint64s]] | None:
        found = list[tuple[Int64s, Uint64s]]()
        for part in self._timely():
            near = part.base.near_many(fingerprints, distance, numbers, most)
            if near is None:
                return None
            found += near
        return found

    def estimate(self) -> int:
        return sum(part.documents for part in self._parts)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        if limit is not None or len(fingerprints) <= _FEW:
            return [self._documents_of(fingerprint, limit) for fingerprint in fingerprints]
        found: list[list[Document]] = [[] for _ in fingerprints]
        asked = np.array(fingerprints, np.uint64)
        for part in self._timely():
            places = part.base.places_of(asked)
            is_there = np.flatnonzero(places >= 0)
            first, stop = part.bounds_of(places[is_there])
            counts = stop - first
            columns = part.columns(spans(first, counts))
            of_each = np.repeat(is_there, counts)
            whole = columns._replace(signatures=replace(columns.signatures, fingerprints=asked[of_each]))
            for place, document in zip(of_each.tolist(), documents_in(whole), strict=True):
                found[place].append(document)
        if len(self._parts) > 1:
            for several in found:
                several.sort()
        return found

    def _documents_of(self, fingerprint: int, limit: int | None) -> list[Document]:
        found = list[Document]()
        for part in self._timely():
            place = part.base.place_of(fingerprint)
            if place >= 0:
                first, stop = part.bounds(place)
                for number in range(first, stop if limit is None else min(stop, first + limit)):
                    doc_id, first_seen, sketch, key = part.stored(number)
                    found.append(Document(doc_id.decode(), fingerprint, first_seen, sketch, key))
        if len(self._parts) > 1:
            found.sort()
        return found[:limit]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        return list(map(self._registered, doc_ids))

    def _registered(self, doc_id: bytes) -> Document | None:
        for part in self._timely():
            number = part.find(doc_id)
            if number is not None:
                _, first_seen, sketch, key = part.stored(number)
                return Document(doc_id.decode(), part.fingerprint_of(number), first_seen, sketch, key)
        return None


def documents_in(columns: FiledColumns) -> Iterator[Document]:
    """Yield the documents in columns."""
    signatures = columns.signatures
    rows = (columns.ids, signatures.fingerprints, columns.first_seen, signatures.sketches, signatures.keys)
    for doc_id, *fields in zip(rows[0], *(one.tolist() for one in rows[1:]), strict=True):
        yield Document(doc_id.decode(), *fields)


class TablesStore(Store):
    """Tables in a folder; every write raises `StoreReadOnlyError`. See the package docstring and `Store`."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, Path(os.path.abspath(folder))  # noqa: PTH100 (does not resolve links)
        self.manifest, self._parts = _opened(self.folder)
        self.record = self.manifest.record
        self._is_closed = False

    def view(self, *, timeout_s: float | None = None) -> TablesView:
        return TablesView(self.folder, self._open_parts(), timeout_s)

    def _open_parts(self) -> list[DocumentsFile]:
        if self._is_closed:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        return self._parts

    # Writes, which are all rejected.

    def _refuse(self) -> NoReturn:
        self._open_parts()
        raise read_only(self.url)

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        self._refuse()

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        self._refuse()

    def insert_in_parts(self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s) -> int:
        self._refuse()

    def claim(self, claims: Claims) -> None:
        self._refuse()

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        self._refuse()

    def marked(self, token: str) -> int:
        self._open_parts()
        return 0

    # Reads of all documents.

    def walk(self) -> Iterator[list[Document]]:
        return self.registered(0, 1)

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        low, high = ((number << 64) // shards for number in (shard, shard + 1))
        with self._errors():
            pages = [_pages(part, low, high) for part in self._open_parts()]
            if len(pages) == 1:
                yield from pages[0]
                return
            merged = heapq.merge(*map(chain.from_iterable, pages), key=lambda one: (one.fingerprint, one.doc_id))
            while page := list(islice(merged, _PAGE_DOCUMENTS)):
                yield page

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except DamagedBaseError as error:
            raise damaged(self.folder, error) from error

    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        """Verify all checksums, and each part's drawers, documents and ids; raise `CorruptionError` for a fault."""
        parts = self._open_parts()
        if repair:
            self._refuse()
        report, total = CheckReport(), sum(part.documents for part in parts)
        with self._errors():
            for part in parts:
                check_part(part, self.record, partial(_report, observer, report.documents, total))
                report.documents += part.documents
                report.drawer_rows += part.base.row_count
        return report

    def describe(self) -> dict[str, str | int]:
        parts = self._open_parts()
        rows, documents = sum(part.base.file_bytes for part in parts), sum(part.file_bytes for part in parts)
        return {
            "path": str(self.folder),
            "parts": len(parts),
            "drawer_rows": sum(part.base.row_count for part in parts),
            "rows_bytes": rows,
            "documents_bytes": documents,
            "file_bytes": rows + documents,
        }

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        """See `Store.crowds`. All fingerprints are counted, not a sample."""
        counts, parts = dict[int, int](), self._open_parts()
        with self._errors():
            for part in parts:
                least = max(1, CROWDED_DOCUMENTS // len(parts))  # a crowded fingerprint has this many in some part
                for start in range(0, part.base.rows, _GLANCED):
                    places = np.arange(start, min(start + _GLANCED, part.base.rows))
                    first, stop = part.bounds_of(places)
                    for place in places[stop - first >= least].tolist():
                        fingerprint = int(part.base.part(part.base.drawers[0], place, place + 1)[0])
                        counts[fingerprint] = 0
            for fingerprint in counts:
                bounds = [part.bounds(at) for part in parts if (at := part.base.place_of(fingerprint)) >= 0]
                counts[fingerprint] = sum(stop - first for first, stop in bounds)
        total = max(self.estimate(), 1)
        common = sorted(counts.items(), key=lambda one: -one[1])[:MOST_CROWDS]
        found = (CrowdedFingerprint(value, count, count / total) for value, count in common)
        return tuple(one for one in found if one.documents >= CROWDED_DOCUMENTS)

    def close(self) -> None:
        self._is_closed = True
        self._parts = []


def _report(observer: Observer, before: int, total: int, count: int) -> None:
    observer.report("check", before + count, total)


def _opened(folder: Path) -> tuple[Manifest, list[DocumentsFile]]:
    """Open the parts that the manifest names; if the tables have just been replaced, open the new parts."""
    manifest = Manifest.load(folder)
    try:
        return manifest, [_opened_part(folder, manifest, number) for number in range(len(manifest.parts))]
    except (FileNotFoundError, DamagedBaseError) as error:
        again = Manifest.load(folder)
        if again != manifest:
            return _opened(folder)
        said = f"{Path(error.filename).name} is missing" if isinstance(error, FileNotFoundError) else error
        raise damaged(folder, said) from error


def _opened_part(folder: Path, manifest: Manifest, number: int) -> DocumentsFile:
    part = manifest.parts[number]
    base = opened_base(folder / part.rows.file, part.rows, manifest.record.layout)
    return DocumentsFile(folder / part.documents.file, part.documents, base)


def _pages(part: DocumentsFile, low: int, high: int) -> Iterator[list[Document]]:
    """Yield the documents of a part whose fingerprints lie in [low, high), in pages."""
    first, stop = (part.first_at(part.base.first_place(edge)) for edge in (low, high))
    for start in range(first, stop, _PAGE_DOCUMENTS):
        yield list(documents_in(part.page(start, min(start + _PAGE_DOCUMENTS, stop))))
