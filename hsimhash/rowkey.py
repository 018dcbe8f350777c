"""Rowkeys, the 13 bytes that identify a row in every store; and validation of documents.

| offset | bytes | meaning |
|---|---|---|
| 0 | 4 | segment: the drawer's chosen bits, left-justified, then zeros |
| 4 | 1 | flag: drawer 1 to 251; 0 documents, 252 log of orphans, 253 key drawer, 254 register, 255 index record |
| 5 | 8 | fingerprint |

In the *key drawer*, the segment is the first 32 bits of one part of the key of a document with the fingerprint. A key
of the kind *whole* has itself as its only part (`fingerprint/keys.py`). In the *log of orphans*, the segment is an
hour, counted from 1970, and the fingerprint is one that a document left in that hour.

All numbers are big-endian and unsigned. The first 5 bytes are the *prefix*; the rows with one prefix are a *bucket*.
Example: layout `4`, fingerprint 0123456789abcdef, drawer 2: `45670000 02 0123456789abcdef`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

import mmh3
import numpy as np

from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s, sorted_distinct
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import AnySignatures, Signature, Signatures, as_signature, as_signatures
from hsimhash.layout import Layout

SEGMENT_BYTES = 4
FINGERPRINT_BYTES = 8
PREFIX_BYTES = SEGMENT_BYTES + 1
ROWKEY_BYTES = PREFIX_BYTES + FINGERPRINT_BYTES

DOCUMENTS_FLAG = 0  # on disk: never reuse
ORPHANS_FLAG = 252  # on disk: never reuse; format 1 also uses it for a drawer
KEY_FLAG = 253  # on disk: never reuse; format 1 uses it for a drawer
REGISTER_FLAG = 254  # on disk: never reuse
RECORD_FLAG = 255  # on disk: never reuse

RECORD_ROWKEY = bytes(SEGMENT_BYTES) + bytes([RECORD_FLAG]) + bytes(FINGERPRINT_BYTES)
# Reads rows of 13 bytes as numbers in place. Copying the bytes together first would take ten times as long.
_ROWS = np.dtype(
    {
        "names": ["beginning", "fingerprint"],
        "formats": [">u8"] * 2,
        "offsets": [0, PREFIX_BYTES],
        "itemsize": ROWKEY_BYTES,
    }
)
_BUCKET_END = b"\xff" * FINGERPRINT_BYTES + b"\x00"
DOC_ID_BYTES = 2048  # maximum length of a document id
MAX_REGIONS = 1 << 16
_NO_TIME = "first_seen must be in whole ms since 1970: one value for all documents, or one per document"


def encode(layout: Layout, fingerprints: Uint64s) -> Uint8s:
    """Return the drawer rowkeys of fingerprints of shape (n,): shape (n, drawers, 13), uint8."""
    rowkeys = np.empty((len(fingerprints), len(layout.drawers), ROWKEY_BYTES), np.uint8)
    rowkeys[:, :, :PREFIX_BYTES] = layout.prefix_array(fingerprints)
    rowkeys[:, :, PREFIX_BYTES:] = fingerprint_bytes(fingerprints)[:, None, :]
    return rowkeys


def fingerprint_bytes(fingerprints: Uint64s) -> Uint8s:
    """Return fingerprints of shape (n,) as their big-endian bytes, shape (n, 8), uint8."""
    return fingerprints.astype(">u8").view(np.uint8).reshape(-1, FINGERPRINT_BYTES)


def fingerprints_of(rowkeys: Uint8s) -> Uint64s:
    """Return the fingerprints of rowkeys of shape (m, 13): shape (m,), uint64, native byte order."""
    return rowkeys.view(_ROWS)["fingerprint"].astype(np.uint64).ravel()


def prefix_numbers_of(rowkeys: Uint8s) -> Uint64s:
    """Return the prefixes of rowkeys of shape (m, 13) as 40-bit numbers: shape (m,), uint64."""
    return rowkeys.view(_ROWS)["beginning"].astype(np.uint64).ravel() >> np.uint64(8 * (8 - PREFIX_BYTES))


def prefix_numbers(prefixes: Uint8s) -> Uint64s:
    """Return prefixes of shape (n, 5) as 40-bit numbers: shape (n,), uint64."""
    wide = np.zeros((len(prefixes), 8), np.uint8)
    wide[:, 8 - PREFIX_BYTES :] = prefixes
    return wide.view(">u8").ravel().astype(np.uint64)


def prefixes_of(numbers: Uint64s) -> list[bytes]:
    """Return the bytes of prefixes that are given as 40-bit numbers."""
    words = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
    return words[:, 8 - PREFIX_BYTES :].copy().view(f"V{PREFIX_BYTES}").ravel().tolist()


def key_prefix(part: int) -> bytes:
    """Return the prefix under which the key drawer stores fingerprints of documents whose key has this part."""
    return (part >> 32).to_bytes(SEGMENT_BYTES, "big") + bytes([KEY_FLAG])


def key_prefixes(keying: Keying, key: int) -> list[bytes]:
    """Return the prefixes under which the key drawer stores fingerprints of documents with a key; none for 0."""
    return [key_prefix(part) for part in keying.parts_of(key)]


def key_rows(keying: Keying, keys: Uint64s, fingerprints: Uint64s) -> tuple[Uint64s, Uint64s]:
    """Return the documents' rows in the key drawer, as prefixes (40-bit numbers) and fingerprints.

    They are in the order of the documents and may repeat.
    """
    parts = keying.parts(keys)
    place, column = np.nonzero(parts)
    return key_numbers(parts[place, column]), fingerprints[place]


def key_rowkeys(signatures: Signatures) -> Uint8s:
    """Return the signatures' distinct rows in the key drawer, in order: shape (m, 13), uint8."""
    return rowkeys_of(*distinct_rows(*key_rows(signatures.keying, signatures.keys, signatures.fingerprints)))


def filed_rowkeys(layout: Layout, signatures: Iterable[Signature], keying: Keying = Keying.WHOLE) -> Uint8s:
    """Return the distinct rowkeys of signatures in every drawer and the key drawer: shape (m, 13), uint8."""
    several = replace(Signatures.collected(signatures), keying=keying)
    rows = encode(layout, sorted_distinct(several.fingerprints)).reshape(-1, ROWKEY_BYTES)
    return np.concatenate([rows, key_rowkeys(several)])


def key_numbers(parts: Uint64s) -> Uint64s:
    """Return the prefixes under which the key drawer stores parts of keys, as 40-bit numbers."""
    return parts >> np.uint64(32) << np.uint64(8) | np.uint64(KEY_FLAG)


def distinct_rows(prefixes: Uint64s, fingerprints: Uint64s) -> tuple[Uint64s, Uint64s]:
    """Return the distinct rows, in order, of rows given as prefixes (40-bit numbers) and fingerprints."""
    order = np.lexsort((fingerprints, prefixes))
    prefixes, fingerprints = prefixes[order], fingerprints[order]
    is_new = np.append(True, (prefixes[1:] != prefixes[:-1]) | (fingerprints[1:] != fingerprints[:-1]))[: len(order)]
    return prefixes[is_new], fingerprints[is_new]


def rowkeys_of(prefixes: Uint64s, fingerprints: Uint64s) -> Uint8s:
    """Return the rowkeys of prefixes (40-bit numbers) and fingerprints of shape (m,): shape (m, 13), uint8."""
    rows = np.empty((len(prefixes), ROWKEY_BYTES), np.uint8)
    rows[:, :PREFIX_BYTES] = fingerprint_bytes(prefixes)[:, FINGERPRINT_BYTES - PREFIX_BYTES :]
    rows[:, PREFIX_BYTES:] = fingerprint_bytes(fingerprints)
    return rows


def listing_rowkeys(fingerprints: Uint64s) -> Uint8s:
    """Return the rowkeys of the rows that list the documents of fingerprints of shape (n,): shape (n, 13), uint8."""
    return rowkeys_of(fingerprints >> np.uint64(32) << np.uint64(8) | np.uint64(DOCUMENTS_FLAG), fingerprints)


def register_rowkeys(segments: Uint64s, rests: Uint64s) -> Uint8s:
    """Return the rowkeys of register rows, from the result of `register_numbers`: shape (n, 13), uint8."""
    return rowkeys_of(segments << np.uint64(8) | np.uint64(REGISTER_FLAG), rests)


def documents_rowkey(fingerprint: int) -> bytes:
    """Return the rowkey of the row that lists a fingerprint's documents."""
    packed = fingerprint.to_bytes(FINGERPRINT_BYTES, "big")
    return packed[:SEGMENT_BYTES] + bytes([DOCUMENTS_FLAG]) + packed


def orphans_rowkey(hour: int, fingerprint: int) -> bytes:
    """Return the rowkey in the log of orphans for a fingerprint that documents left in an hour (counted from 1970)."""
    packed = fingerprint.to_bytes(FINGERPRINT_BYTES, "big")
    return hour.to_bytes(SEGMENT_BYTES, "big") + bytes([ORPHANS_FLAG]) + packed


def register_rowkey(doc_id: bytes) -> bytes:
    """Return the rowkey of the register row of a document id (UTF-8): 12 bytes of its murmur3-x64-128 digest."""
    digest = mmh3.mmh3_x64_128_digest(doc_id, 0)
    return digest[:SEGMENT_BYTES] + bytes([REGISTER_FLAG]) + digest[SEGMENT_BYTES : SEGMENT_BYTES + FINGERPRINT_BYTES]


def register_numbers(doc_ids: Iterable[bytes]) -> tuple[Uint64s, Uint64s]:
    """Return the parts of register rowkeys before and after the flag, for document ids: two arrays (n,), uint64."""
    digests = np.frombuffer(b"".join([mmh3.mmh3_x64_128_digest(one, 0) for one in doc_ids]), ">u4").reshape(-1, 4)
    numbers = digests.astype(np.uint64)
    return numbers[:, 0], numbers[:, 1] << np.uint64(32) | numbers[:, 2]


def bucket_range(prefix: bytes) -> tuple[bytes, bytes]:
    """Return the half-open rowkey range [start, stop) of the bucket under `prefix`."""
    return prefix, prefix + _BUCKET_END


def splits(layout: Layout, regions: int, *, sample: Uint64s | None = None) -> list[bytes]:
    """Return the `regions - 1` keys, 4 bytes each and ascending, at which to split a table.

    Without a sample, the whole range of segments is split evenly. With a sample, it is split at the quantiles of the
    segments that the sample's fingerprints have in all drawers, so that every region gets the same number of rows.

    Raises:
        ValueError: `regions` is not 1 to 65,536, or the sample has too few distinct segments.
    """
    if not 1 <= regions <= MAX_REGIONS:
        raise ValueError(f"regions must be 1 to {MAX_REGIONS}, got {regions}")
    if sample is None:
        cuts = [(number << 32) // regions for number in range(1, regions)]
    else:
        segments = np.sort(layout.segments(sample), axis=None)
        if not len(segments):
            raise ValueError("cannot choose splits from an empty sample: it must have at least one fingerprint")
        cuts = segments[[len(segments) * number // regions for number in range(1, regions)]].tolist()
        if len({0, *cuts}) < regions:
            raise ValueError(
                f"the sample has too few distinct segments for {regions} regions; use fewer regions or a larger sample"
            )
    return [cut.to_bytes(SEGMENT_BYTES, "big") for cut in cuts]


def check_doc_id(doc_id: object) -> bytes:
    """Return a document id's UTF-8 bytes; raise `TypeError` or `ValueError` if it is invalid.

    An id has 1 to 2,048 bytes of UTF-8 and no control characters (U+0000 to U+001F, U+007F to U+009F).
    """
    if not isinstance(doc_id, str):
        raise TypeError(f"a document id must be a str, got {type(doc_id).__name__}: {doc_id!r:.80}")
    try:
        encoded = doc_id.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"document id {doc_id!r:.80} is not valid Unicode: {error.reason}") from error
    if not 1 <= len(encoded) <= DOC_ID_BYTES:
        raise ValueError(f"a document id must have 1 to {DOC_ID_BYTES} UTF-8 bytes, got {len(encoded)}: {doc_id!r:.80}")
    if not doc_id.isprintable() and any(char < " " or "\x7f" <= char <= "\x9f" for char in doc_id):
        raise ValueError(f"document id {doc_id!r:.80} must not contain control characters")
    return encoded


def check_document(signature: Signature | int, doc_id: str, first_seen: int) -> tuple[Signature, bytes, int]:
    """Check one document as `check_documents` does, in a quarter of the time."""
    if not isinstance(first_seen, (int, np.integer)) or isinstance(first_seen, bool) or not 0 <= first_seen < 1 << 63:
        raise ValueError(_NO_TIME)
    return as_signature(signature), check_doc_id(doc_id), int(first_seen)


def check_documents(
    signatures: AnySignatures,
    doc_ids: Sequence[str],
    first_seen: Sequence[int] | Int64s | int,
) -> tuple[Signatures, list[bytes], Int64s]:
    """Return signatures, ids as UTF-8, and times; raise `ValueError` or `TypeError` if one is invalid."""
    for name, given in (("signatures", signatures), ("doc_ids", doc_ids)):
        if isinstance(given, Set):
            raise TypeError(f"{name} must have a fixed order, got a {type(given).__name__}; pass a list")
    values, encoded = as_signatures(signatures), check_doc_ids(doc_ids)
    if len(values) != len(encoded):
        raise ValueError(f"expected one document id per signature, got {len(values)} signatures for {len(encoded)} ids")
    return values, encoded, _as_times(first_seen, len(values))


def check_doc_ids(doc_ids: Sequence[str]) -> list[bytes]:
    """Return document ids as UTF-8; raise `ValueError` or `TypeError` if one is invalid."""
    if isinstance(doc_ids, (str, bytes)):
        raise TypeError(
            f"document ids must be a sequence of str, got a single {type(doc_ids).__name__}: {doc_ids!r:.80}"
        )
    return list(map(check_doc_id, doc_ids))


def _as_times(first_seen: Sequence[int] | Int64s | int, count: int) -> Int64s:
    times = np.broadcast_to(np.asarray(first_seen), (count,))
    if count and (times.dtype.kind not in "iu" or int(times.min()) < 0 or int(times.max()) >= 1 << 63):
        raise ValueError(_NO_TIME)
    return times.astype(np.int64)


def last_occurrences(doc_ids: Sequence[bytes]) -> list[int]:
    """Return the position of the last occurrence of each id, ascending."""
    return sorted({doc_id: position for position, doc_id in enumerate(doc_ids)}.values())
