"""Reads for queries. A view is one snapshot, taken at its first read; a query for a few buckets is one statement."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import psycopg

from hsimhash.errors import HsimhashError, LostRightError, StoreTimeoutError, StoreUnavailableError
from hsimhash.fingerprint.bits import Uint8s, sorted_distinct
from hsimhash.fingerprint.signature import Signature
from hsimhash.rowkey import SEGMENT_BYTES
from hsimhash.store.base import Document, View
from hsimhash.store.postgresql.codec import (
    COLUMNS,
    Tables,
    document_of,
    made_sql,
    segments_by_flag,
    signed_word,
    signed_words,
)
from hsimhash.store.postgresql.failures import SilentServerError, is_late, is_lost
from hsimhash.store.postgresql.session import DatabaseSession, Link, TextArray

T = TypeVar("T")

_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_MORE = (None,) * 5  # this row means that there are more results than allowed
_SOON_S = 0.1  # a read that fails this close to its deadline is treated as late and is not retried
_PAGE_ROWS = 226  # fingerprints in a page of a table: 8,168 bytes divided by 36


class DatabaseView(View):
    """The reads of one query; see `Store.view`."""

    answers = True

    def __init__(self, session: DatabaseSession, tables: Tables, timeout_s: float | None) -> None:
        self._session = session
        self._tables = tables
        self._timeout_s = timeout_s
        self._until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._link: Link | None = None

    def __enter__(self) -> DatabaseView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        link, self._link = self._link, None
        if link is not None and link.pid == os.getpid():  # a forked child leaves it to the parent
            with suppress(psycopg.Error):
                if error is None:
                    link.execute("COMMIT", prepare=False)
                else:
                    self._session.end_failed(link)
            self._session.give(link)

    def _rows(self, statement: str, *values: object) -> list[Any]:
        """Return a statement's rows from the view's snapshot; the first call takes the snapshot and is retried."""
        if self._link is None:
            begin = partial(self._session.begun, lambda link: link.execute(_SNAPSHOT, prepare=False))
            self._link = self._timed(lambda: self._session.tried(begin, self._until))
        link = self._link
        link.until = min(self._until, time.monotonic() + self._session.deadline_s)

        def read() -> list[Any]:
            try:
                return link.rows(statement, *values)
            except psycopg.Error as error:
                if is_lost(link):
                    raise LostRightError(*self._session.error(error).args) from error
                raise

        return self._timed(read)

    def _timed(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except (psycopg.Error, StoreUnavailableError) as error:
            if time.monotonic() >= self._until - _SOON_S:
                raise self._late(error) from error
            if isinstance(error, StoreUnavailableError):
                raise
            raise self._session.error(error) from error

    def _late(self, error: psycopg.Error | StoreUnavailableError) -> StoreTimeoutError:
        late = f"a query on {self._session.url} did not finish within {self._timeout_s:g} s"
        cause = error if isinstance(error, psycopg.Error) else error.__cause__
        if is_late(cause) and not isinstance(cause, SilentServerError):
            return StoreTimeoutError(f"{late}; allow more time")
        return StoreTimeoutError(f"{late}: {error if isinstance(error, HsimhashError) else self._session.error(error)}")

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        if not prefixes:
            return self._tables.rowkeys([])
        segments = segments_by_flag(prefixes)
        statement = self._tables.buckets(tuple(segments), is_ranges=False, most=most)
        return self._buckets(statement, *segments.values())

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        if not ranges:
            return self._tables.rowkeys([])
        flags, *edges = zip(*self._tables.ranges_of(ranges), strict=True)
        statement = self._tables.buckets(flags, is_ranges=True)
        return self._buckets(statement, *chain.from_iterable(zip(*edges, strict=True)))

    def _buckets(self, statement: str, *values: object) -> Uint8s:
        """Return the rowkeys of buckets; raise `IndexNotFoundError` if the index is not the one that was opened."""
        if self._link is None:  # later reads use the same snapshot
            self._check_same()
        return self._tables.rowkeys(self._rows(statement, *values))

    def _check_same(self) -> None:
        self._session.check_same(self._rows(made_sql(self._session.address)))

    def near(
        self, prefixes: Sequence[bytes], query: Signature, distance: int, most: int | None = None
    ) -> list[Document] | None:
        asked: dict[int, list[int]] = {}
        for prefix in prefixes:
            asked.setdefault(prefix[SEGMENT_BYTES], []).append(int.from_bytes(prefix[:SEGMENT_BYTES], "big"))
        statement = self._tables.near(
            tuple(asked),
            tuple(len(one) > 1 for one in asked.values()),
            has_key=bool(query.key),
            has_most=most is not None,
        )
        segments = [np.array(one, np.int64) if len(one) > 1 else one[0] for one in asked.values()]
        keyed = self._tables.key_values(query.key)
        values = [signed_word(query.fingerprint), distance, *([] if most is None else [most]), *segments, *keyed]
        if self._link is not None:
            rows = self._rows(statement, *values)
        else:  # one statement is one snapshot
            ask = partial(
                self._session.once,
                lambda link: link.asker.execute(statement, values, prepare=True, binary=True).fetchall(),
            )
            rows = self._timed(lambda: self._session.tried(ask, self._until))
        if most is not None and (len(rows) >= most or rows[:1] == [_MORE]):
            return None
        return list(map(document_of, rows))

    def estimate(self) -> int:
        ((pages, rows),) = self._rows(
            "SELECT pg_relation_size(oid) / current_setting('block_size')::bigint, "
            "CASE WHEN reltuples > 0 AND relpages > 0 THEN reltuples / relpages ELSE $2 END "
            "FROM pg_class WHERE oid = $1::text::regclass",
            self._tables.fingerprints,
            _PAGE_ROWS,
        )
        self._check_same()
        return int(pages * rows)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        words = signed_words(np.array(fingerprints, np.uint64))
        if limit is None:
            statement = f"SELECT {COLUMNS} FROM {self._tables.documents} WHERE fingerprint = ANY($1)"
            rows = self._rows(statement, words)
        else:
            first = f"SELECT {COLUMNS} FROM {self._tables.documents} WHERE fingerprint = word ORDER BY doc_id LIMIT $2"
            statement = f"SELECT listed.* FROM unnest($1::bigint[]) AS word, LATERAL ({first}) AS listed"
            rows = self._rows(statement, sorted_distinct(words), limit)
        found: dict[int, list[Document]] = {value: [] for value in fingerprints}
        for document in sorted(map(document_of, rows)):
            found[document.fingerprint].append(document)
        return [found[value] for value in fingerprints]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        statement = f"SELECT {COLUMNS} FROM {self._tables.documents} WHERE doc_id = ANY($1)"
        found = {row[0]: document_of(row) for row in self._rows(statement, TextArray(doc_ids))}
        return [found.get(doc_id.decode()) for doc_id in doc_ids]
