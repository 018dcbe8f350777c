"""The format of a part's documents in a folder of tables: an immutable memory-mapped file.

The part's base has the drawers.

| from | contents |
|---|---|
| 0 | `HEADER_BYTES`: the magic bytes, the length and the CRC-32 of the JSON that follows, then zeros |
| `HEADER_BYTES` | each document (`PLAIN`, 16 bytes; `SIGNED`, 32), by (fingerprint, id), and the end of the ids |
| then | the number of each fingerprint's first document, and the number of documents (4 bytes each) |
| then | for each *bucket* of ids, the start of its numbers, and the end of the last bucket (4 bytes each) |
| then | the numbers of documents, bucket by bucket (4 bytes each) |
| then | the ids, one after the other, in UTF-8 |
| then | the CRC-32 of each block of `BLOCK_BYTES` from `HEADER_BYTES` up to here (4 bytes each) |

An id's bucket is the first `bucket_bits` bits of its digest, so a look-up compares only a few ids. A fingerprint has
the same position here and in the first drawer of the base. The header has the CRC-32 of the checksums, which is
verified when the file is opened. A block's CRC-32 is verified when the block is first read. Numbers are little-endian.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from hsimhash.store.base_files.base_format import BLOCK_BYTES, HEADER_BYTES, header_fields, packed_header

PLAIN = np.dtype([("id_start", "<u8"), ("first_seen", "<i8")])
SIGNED = np.dtype([*PLAIN.descr, ("sketch", "<u8"), ("key", "<u8")])
NUMBER = np.dtype("<u4")
BUCKET_DOCUMENTS = 2  # minimum average number of documents per bucket
MOST_DOCUMENTS = (1 << 32) - 1  # maximum number of documents in a part
MAGIC = b"hsimdocs"
VERSION = 1


@dataclass(frozen=True, slots=True)
class DocumentsHeader:
    """The contents of a documents file and their positions."""

    documents: int
    fingerprints: int
    has_signatures: bool
    bucket_bits: int
    id_bytes: int
    tail: int  # the CRC-32 of the checksums

    @property
    def record(self) -> np.dtype[np.void]:
        """The dtype of a document's stored fields, except its id."""
        return SIGNED if self.has_signatures else PLAIN

    @property
    def sections(self) -> tuple[int, int, int, int, int, int]:
        """The offsets of documents, fingerprints, buckets, numbers, ids and the end, counted from the header's end."""
        sizes = (
            (self.documents + 1) * self.record.itemsize,
            (self.fingerprints + 1) * NUMBER.itemsize,
            ((1 << self.bucket_bits) + 1) * NUMBER.itemsize,
            self.documents * NUMBER.itemsize,
            self.id_bytes,
        )
        first, second, third, fourth, fifth = np.cumsum(sizes).tolist()
        return 0, first, second, third, fourth, fifth

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return -(-self.sections[-1] // BLOCK_BYTES)

    @property
    def file_bytes(self) -> int:
        """The size of the file in bytes."""
        return HEADER_BYTES + self.sections[-1] + self.blocks * NUMBER.itemsize

    def packed(self) -> bytes:
        """Return the header's bytes."""
        return packed_header(MAGIC, VERSION, asdict(self))

    @classmethod
    def unpack(cls, packed: bytes) -> DocumentsHeader:
        """Return the header in these bytes; raise `DamagedBaseError` if they are not a valid header."""
        return cls(**header_fields(packed, MAGIC, VERSION))
