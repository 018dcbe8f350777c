"""PostgreSQL's tables, statements and values.

| table | one row is | indexes |
|---|---|---|
| `pages` | a document, with its listing and register | by id; by fingerprint and id; by each segment of its key |
| `pages_fingerprints` | a fingerprint that some document has | by fingerprint; for each drawer, by segment |
| `pages_record` | a part of the record, a mark, or the progress of a bulk load | by name |

A drawer is an index on an expression, so PostgreSQL itself maintains its rows: every write of a fingerprint files it in
all drawers, in the same transaction. Each drawer index includes the fingerprint, so reading buckets needs only indexes.

In format 3, a document also has the columns `key_1` to `key_5` with the segment of each part of its key, or -1 if there
is no such part, because SQL cannot easily compute these segments. Equal parts may be in different columns, so a query
searches all of the columns.

A fingerprint, a sketch or a key is stored as a bigint with the same 64 bits. Segments are bigints from 0 to 2**32 - 1,
left-justified in 32 bits as in all stores, so that they sort like prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s, sorted_distinct
from hsimhash.fingerprint.keys import Keying
from hsimhash.layout import Drawer
from hsimhash.rowkey import KEY_FLAG, PREFIX_BYTES, SEGMENT_BYTES, rowkeys_of
from hsimhash.store.base import Document, Record
from hsimhash.store.postgresql.address import DatabaseAddress

COLUMNS = "doc_id, fingerprint, first_seen, sketch, key"
KEY_SEGMENT = "(key >> 32) & 4294967295"
_SIGN, _WORD = 1 << 63, (1 << 64) - 1
_FLAGS = 1 << 8
SUFFIXES = ("", "_fingerprints", "_record")  # suffixes of an index's tables


def signed_word(value: int) -> int:
    """Return the bigint with the same 64 bits."""
    return value - (1 << 64) if value & _SIGN else value


def signed_words(values: Uint64s) -> Int64s:
    """Return the bigints with the same 64 bits, in the same shape."""
    return values.astype(np.uint64).view(np.int64)


def document_of(row: Sequence[object]) -> Document:
    """Return the document in a row of `COLUMNS`."""
    doc_id, fingerprint, first_seen, sketch, key = row
    return Document(doc_id, fingerprint & _WORD, first_seen, sketch & _WORD, key & _WORD)  # type: ignore[arg-type, operator]


def segment_sql(drawer: Drawer) -> str:
    """Return the SQL expression for a drawer's segment."""
    return " | ".join(f"(((fingerprint >> {right}) & {mask}) << {left})" for right, mask, left in drawer.moves)


def near_sql(query: str, distance: str) -> str:
    """Return an SQL condition that is true if a fingerprint is within a distance of the query."""
    return f"bit_count((fingerprint # {query})::bit(64)) <= {distance}"


@dataclass(frozen=True, eq=False)
class Tables:
    """An index's tables and statements; parameters are $1, $2 and so on."""

    address: DatabaseAddress
    record: Record

    def named(self, suffix: str = "") -> str:
        """Return a table's name, quoted, with its schema."""
        return table_name(self.address, suffix)

    @property
    def documents(self) -> str:
        """The table of documents."""
        return self.named()

    @property
    def fingerprints(self) -> str:
        """The table of fingerprints."""
        return self.named("_fingerprints")

    @property
    def key_columns(self) -> list[str]:
        """The columns with the segments of a key's parts; none in format 2, which uses an expression instead."""
        keying = self.record.keying
        return [] if keying is Keying.WHOLE else [f"key_{number + 1}" for number in range(keying.most_parts)]

    def key_segments(self, keys: Uint64s) -> Int64s:
        """Return the column values for keys of shape (n,): shape (n, columns)."""
        parts = self.record.keying.parts(keys)
        return np.where(parts != 0, (parts >> np.uint64(32)).astype(np.int64), -1)[:, : len(self.key_columns)]

    def key_values(self, key: int) -> list[object]:
        """Return the parameters with which `near` finds the documents with a key; no parameters for a key of 0."""
        segments = [int.from_bytes(prefix[:SEGMENT_BYTES], "big") for prefix in self.record.key_prefixes(key)]
        if not segments:
            return []
        return [np.array(segments, np.int64)] if self.key_columns else [*segments, signed_word(key)]

    def indexes(self) -> dict[str, str]:
        """Return the statements that create the drawers and the other indexes, except for primary keys, by name.

        If one of these indexes is missing, queries are slow but correct.
        """
        table = self.address.table
        made = {
            f"{table}_drawer_{drawer.number}": f"{self.fingerprints} (({segment_sql(drawer)})) INCLUDE (fingerprint)"
            for drawer in self.record.layout.drawers
        }
        made[f"{table}_listing"] = f"{self.documents} (fingerprint, doc_id)"
        for column in self.key_columns:
            made[f"{table}_{column}"] = f"{self.documents} ({column}) INCLUDE (fingerprint) WHERE {column} >= 0"
        if self.record.has_signatures and not self.key_columns:
            made[f"{table}_key"] = f"{self.documents} (({KEY_SEGMENT})) INCLUDE (fingerprint, key) WHERE key <> 0"
        return {name: f'CREATE INDEX "{name}" ON {what}' for name, what in made.items()}

    @property
    def key_rows(self) -> str:
        """The statement that reads the rows that other stores keep in the key drawer."""
        if not self.key_columns:
            return f"SELECT DISTINCT {KEY_SEGMENT}, fingerprint FROM {self.documents} WHERE key <> 0"
        return " UNION ".join(
            f"SELECT {column}, fingerprint FROM {self.documents} WHERE {column} >= 0" for column in self.key_columns
        )

    def definitions(self) -> list[str]:
        """Return the statements that create the tables and their indexes."""
        return [
            f'CREATE TABLE {self.documents} (doc_id text COLLATE "C" PRIMARY KEY, fingerprint bigint NOT NULL, '
            "first_seen bigint NOT NULL, sketch bigint NOT NULL DEFAULT 0, key bigint NOT NULL DEFAULT 0"
            f"{''.join(f', {column} bigint NOT NULL DEFAULT -1' for column in self.key_columns)})",
            f"CREATE TABLE {self.fingerprints} (fingerprint bigint PRIMARY KEY)",
            f"CREATE TABLE {self.named('_record')} (name text PRIMARY KEY, value text NOT NULL)",
            *self.indexes().values(),
        ]

    @lru_cache  # noqa: B019 (an index has few kinds of queries)
    def near(self, flags: tuple[int, ...], many: tuple[bool, ...], *, has_key: bool, has_most: bool) -> str:
        """Return a whole query as one statement: it reads buckets, near documents, and documents with the query's key.

        $1 is the fingerprint, $2 is the distance and, with `has_most`, $3 is the maximum number of rows. One parameter
        per flag follows: a segment or, if its `many` is true, an array of segments. With `has_key`, the values of
        `key_values` follow. With `has_most`, the first row contains only nulls if that many fingerprints were found in
        the buckets; others may then be missing.
        """
        first, limit = (4, " LIMIT $3") if has_most else (3, "")
        arms = [
            f"(SELECT fingerprint FROM {self.fingerprints} WHERE ({self._segment(flag)}) = "
            f"{f'ANY(${place})' if is_many else f'${place}'} AND {near_sql('$1', '$2')}{limit})"
            for place, (flag, is_many) in enumerate(zip(flags, many, strict=True), start=first)
        ]
        documents = f"SELECT {COLUMNS} FROM {self.documents} WHERE"
        near = f"ARRAY({' UNION ALL '.join(arms)})"
        place = len(flags) + first
        asked = f"= ANY(${place})" if self.key_columns else f"= ${place} AND key = ${place + 1}"
        keyed = f" UNION ALL {self._keyed(COLUMNS, asked)}" if has_key else ""
        if not has_most:
            return f"{documents} fingerprint = ANY({near}){keyed}"
        return (
            f"WITH near AS MATERIALIZED (SELECT {near} AS found) "
            f"SELECT {', '.join('NULL' for _ in COLUMNS.split(', '))} FROM near WHERE cardinality(found) >= $3 "
            f"UNION ALL {documents} fingerprint = ANY((SELECT found FROM near)::bigint[]){keyed} LIMIT $3"
        )

    @lru_cache  # noqa: B019
    def buckets(self, flags: tuple[int, ...], *, is_ranges: bool, most: int | None = None) -> str:
        """Return the statement that reads buckets: one row per flag, with the flag and its rows' bytes.

        For each flag, the parameters are an array of segments or, with `is_ranges`, two arrays with the starts and ends
        of ranges. With `most`, at most that many rows of each bucket are read, and rows of key buckets may repeat.
        """
        return " UNION ALL ".join(self._arm(flag, number, is_ranges, most) for number, flag in enumerate(flags))

    def _arm(self, flag: int, number: int, is_ranges: bool, most: int | None) -> str:
        segment, rows = "" if self._is_key(flag) else f"({self._segment(flag)})", "int8send(fingerprint)"
        if most is not None:
            every = f"SELECT fingerprint FROM {self.fingerprints} WHERE {segment} = asked"
            if self._is_key(flag):
                every = f"SELECT fingerprint FROM ({self._keyed('fingerprint', '= asked')}) AS keyed"
            first = f"{every} LIMIT {most}"
            head = "int8send(asked) || " if self._is_key(flag) else ""
            return (
                f"SELECT {flag}, string_agg({head}{rows}, '') "
                f"FROM unnest(${number + 1}::bigint[]) AS asked, LATERAL ({first}) AS first"
            )
        if is_ranges:
            source = f"unnest(${2 * number + 1}::bigint[], ${2 * number + 2}::bigint[]) AS range (low, high)"
            return (
                f"SELECT {flag}, string_agg({rows}, '') FROM {source} JOIN {self.fingerprints} "
                f"ON {segment} >= low AND {segment} < high"
            )
        if self._is_key(flag):
            keyed = self._keyed("{segment} AS segment, fingerprint", f"= ANY(${number + 1})")
            distinct = f"SELECT DISTINCT segment, fingerprint FROM ({keyed}) AS keyed"
            return f"SELECT {flag}, string_agg(int8send(segment) || {rows}, '') FROM ({distinct}) AS keyed"
        return f"SELECT {flag}, string_agg({rows}, '') FROM {self.fingerprints} WHERE {segment} = ANY(${number + 1})"

    def _keyed(self, columns: str, asked: str) -> str:
        """Return the statement that reads columns of the documents whose key has a requested segment."""
        segments = {column: f"{column} >= 0" for column in self.key_columns} or {f"({KEY_SEGMENT})": "key <> 0"}
        return " UNION ALL ".join(
            f"SELECT {columns.replace('{segment}', segment)} FROM {self.documents} WHERE {there} AND {segment} {asked}"
            for segment, there in segments.items()
        )

    def _is_key(self, flag: int) -> bool:
        return self.record.has_signatures and flag == KEY_FLAG

    def _segment(self, flag: int) -> str:
        return segment_sql(self.record.layout.drawers[flag - 1])

    def rowkeys(self, found: Sequence[tuple[int, bytes | None]]) -> Uint8s:
        """Return the rowkeys that the rows of `buckets` represent: shape (m, 13), uint8."""
        prefixes, fingerprints = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        for flag, packed in found:
            words = np.frombuffer(packed or b"", ">u8").astype(np.uint64)
            if self._is_key(flag):
                segments, words = words[::2], words[1::2]
            else:
                segments = self.record.layout.drawers[flag - 1].segments(words).astype(np.uint64)
            prefixes.append(segments << np.uint64(8) | np.uint64(flag))
            fingerprints.append(words)
        return rowkeys_of(np.concatenate(prefixes), np.concatenate(fingerprints))

    def ranges_of(self, ranges: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[int, Int64s, Int64s]]:
        """Yield each drawer's number, with the half-open ranges of segments for ranges of prefixes."""
        edges = np.array([[int.from_bytes(edge[:PREFIX_BYTES], "big") for edge in one] for one in ranges], np.int64)
        for drawer in self.record.layout.drawers:
            lows, highs = -(-(edges.reshape(-1, 2) - drawer.number) // _FLAGS).T
            yield drawer.number, lows, highs


def table_name(address: DatabaseAddress, suffix: str = "") -> str:
    """Return the quoted name of one of an index's tables, with its schema."""
    return f'"{address.schema}"."{address.table}{suffix}"'


def made_sql(address: DatabaseAddress) -> str:
    """Return the statement that reads what identifies an index: its `identity` if it has one, layout and profile."""
    names = "'identity', 'layout', 'profile'"
    return f"SELECT string_agg(value, '' ORDER BY name) FROM {table_name(address, '_record')} WHERE name IN ({names})"


def lock_number(address: DatabaseAddress) -> int:
    """Return the number of the advisory lock for an index's writers."""
    digest = blake2b(f"hsimhash writes {address.full_table}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def segments_by_flag(prefixes: Sequence[bytes]) -> Mapping[int, Int64s]:
    """Return the segments of prefixes, grouped by flag."""
    words = np.frombuffer(b"".join(prefixes), np.uint8).reshape(-1, PREFIX_BYTES)
    segments = np.ascontiguousarray(words[:, :SEGMENT_BYTES]).view(">u4").ravel().astype(np.int64)
    flags = words[:, SEGMENT_BYTES]
    return {int(flag): segments[flags == flag] for flag in sorted_distinct(flags)}
