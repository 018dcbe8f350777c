"""Rarity tables: how rare each feature is in a collection, learnt from an unlabelled sample of the collection.

A feature that occurs in d of n documents has the rarity ln((n + 1) / d) / ln(n + 1), in steps of 1/255. That is 255 for
a feature in one document, and near 0 for a feature in all documents. A table lists up to `MOST_FEATURES` features,
those that occur in the most documents. Every other feature has the table's *default* rarity. Features are identified by
the leading 32 bits of their hashes, so one table of at most 2 MB covers words, pairs of words and characters in every
language.

The content is ASCII, so that every store can keep it in the same way as a list of words:

    hsimhash rarity 1 documents=20000 default=200
    base64 of: how many features begin with each 16 bits (65,536 times 2 bytes), the 16 bits after them in ascending
    order (2 bytes each), and the rarities in the same order (1 byte each); numbers are little-endian
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hsimhash.errors import ProfileMismatchError
from hsimhash.fingerprint.bits import (
    Floats,
    Int32s,
    Int64s,
    Uint8s,
    Uint32s,
    Uint64s,
    are_in,
    sorted_distinct,
    starts_of,
)
from hsimhash.fingerprint.sketch import shingle_hashes
from hsimhash.fingerprint.vote import SCALE as VOTE_SCALE
from hsimhash.fingerprint.wordlists import RARITY_TABLE, kept_list

FIT_AUTO, FIT_OFF = "auto", "off"  # a table fitted to the inputs, or the table of general text
MOST_FEATURES = 400_000
SCALE = 255  # the rarity of a feature in one document
# Rarity of unlisted features. It is lower than the rarity of a feature in one document, because an unlisted feature is
# more often an edit than something that two versions share.
DEFAULT = 200

_HEAD = re.compile(r"hsimhash rarity 1 documents=([0-9]{1,12}) default=([0-9]{1,3})\n")
_HEAD_BYTES = 64
GENERAL_FILE = "general.rarity"  # this package's table for many languages, made by schema/make_rarity_table.py
GENERAL_SHA256 = "6ed163fe1ca611a2b5e9e5376b649072fd93ad07cd921fb314b7518f3a6f9c70"
_HALF_SATURATED = 3  # number of occurrences at which a feature reaches half of its maximum weight in the key
OFTEN = 4  # minimum number of occurrences for a name to be treated as repeated
# A word is treated as a name if its text has at most this many distinct features per occurrence of the word. The first
# limit applies if another word occurs equally often, the second in any case.
_MOST_TO_A_NAME, _MOST_TO_A_WORD = 32, 5
_NAME_PARTS = 4  # divides the weight of a word in such a name: it votes with 1/4 of its weight
_BUCKETS = 1 << 16
_TAG_BITS = 32
_LEADING = 20  # leading bits of a tag that serve as an index; usually at most one listed feature has the same bits
_ENTRY_BYTES = 3
_MOST_BYTES = 2_000_000


@dataclass(frozen=True)
class RarityTable:
    """Ascending tags of features, and their rarities. The last entry is the greatest tag, with the default rarity."""

    tags: Uint32s
    rarities: Uint8s
    documents: int  # number of documents in the sample

    @cached_property
    def _first(self) -> Int32s:
        """The position of the first tag for each value of the leading bits; 4 MB, which fit in L3 caches."""
        return starts_of(self.tags[:-1] >> np.uint32(_TAG_BITS - _LEADING), 1 << _LEADING).astype(np.int32)

    @cached_property
    def _entries(self) -> Uint64s:
        """Each tag, followed by its rarity in the lowest 8 bits."""
        return self.tags.astype(np.uint64) << np.uint64(8) | self.rarities

    @staticmethod
    def of(tags: Uint32s, rarities: Uint8s, documents: int, default: int = DEFAULT) -> RarityTable:
        """Return a table of the given tags, which must ascend."""
        ended = np.append(tags, np.uint32((1 << _TAG_BITS) - 1)), np.append(rarities, np.uint8(default))
        return RarityTable(*ended, documents)

    @property
    def default(self) -> int:
        """The rarity of features that are not listed."""
        return int(self.rarities[-1])

    def __len__(self) -> int:
        return len(self.tags) - 1

    def find(self, hashes: Uint64s) -> Int64s:
        """Return the rarity of the feature with each hash."""
        wanted = hashes >> np.uint64(64 - _TAG_BITS)
        place = self._first[wanted >> np.uint64(_TAG_BITS - _LEADING)]
        entry, wanted = self._entries[place], wanted << np.uint64(8)
        left = np.flatnonzero(entry < wanted)
        while len(left):  # usually a few steps for a few features; a binary search takes ten times as long
            place[left] += 1
            entry[left] = self._entries[place[left]]
            left = left[entry[left] < wanted[left]]
        rarity: Int64s = (entry - wanted).astype(np.int64)
        rarity[rarity > SCALE] = self.default  # the next tag is at least 256 more
        return rarity

    def content(self) -> bytes:
        """Serialise the table for `read`."""
        tags, rarities = self.tags[:-1], self.rarities[:-1]
        sizes = np.bincount(tags >> np.uint32(16), minlength=_BUCKETS)
        packed = sizes.astype("<u2").tobytes() + tags.astype("<u2").tobytes() + rarities.tobytes()
        head = f"hsimhash rarity 1 documents={self.documents} default={self.default}\n"
        return head.encode() + base64.b64encode(packed) + b"\n"

    @staticmethod
    def read(content: bytes) -> RarityTable:
        """Parse a table's content; raise `ValueError` if it is invalid."""
        head = _HEAD.match(content[:_HEAD_BYTES].decode("ascii", "replace"))
        if head is None:
            raise ValueError("it does not begin with 'hsimhash rarity 1'; create a table with 'hsimhash fit'")
        try:
            packed = base64.b64decode(content[head.end() :].rstrip(b"\n"), validate=True)
        except binascii.Error as error:
            raise ValueError(f"it is damaged: {error}") from error
        sizes = np.frombuffer(packed[: 2 * _BUCKETS].ljust(2 * _BUCKETS, b"\0"), "<u2").astype(np.int64)
        count = int(sizes.sum())
        default = int(head[2])
        is_whole = len(packed) == 2 * _BUCKETS + _ENTRY_BYTES * count
        if not is_whole or count > MOST_FEATURES or not 1 <= default <= SCALE:
            raise ValueError("it is damaged or truncated")
        lows = np.frombuffer(packed, "<u2", count, 2 * _BUCKETS).astype(np.uint32)
        tags = np.repeat(np.arange(_BUCKETS, dtype=np.uint32) << 16, sizes) | lows
        rarities = np.frombuffer(packed, np.uint8, count, 2 * (_BUCKETS + count))
        if (tags[1:] <= tags[:-1]).any() or (rarities == 0).any():
            raise ValueError("it is damaged: its features are out of order, or one has a rarity of 0")
        return RarityTable.of(tags, rarities, int(head[1]), default)

    @staticmethod
    def joined(tables: Sequence[RarityTable], documents: int) -> RarityTable:
        """Merge tables: each feature gets its lowest rarity; beyond `MOST_FEATURES`, the rarest are dropped."""
        tags = np.concatenate([one.tags[:-1] for one in tables])
        rarities = np.concatenate([one.rarities[:-1] for one in tables])
        order = np.lexsort((rarities, tags))
        tags, rarities = tags[order], rarities[order]
        is_least = np.append(True, tags[1:] != tags[:-1])[: len(tags)]
        tags, rarities = tags[is_least], rarities[is_least]
        kept = np.sort(np.lexsort((tags, rarities))[:MOST_FEATURES])
        return RarityTable.of(tags[kept], rarities[kept], documents)

    @staticmethod
    def fitted(documents: Iterable[Uint64s]) -> RarityTable:
        """Fit a table to documents, each given as the hashes of its distinct features, in any order."""
        listed = list(documents)
        tags = np.concatenate([np.empty(0, np.uint64), *listed]) >> np.uint64(64 - _TAG_BITS)
        ordered = np.sort(tags.astype(np.uint32))  # not `np.unique`: see `sorted_distinct`
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        counts = np.diff(starts, append=len(ordered))
        found, counts = ordered[starts[counts > 1]], counts[counts > 1]
        if len(found) > MOST_FEATURES:
            kept = np.sort(np.lexsort((found, -counts))[:MOST_FEATURES])
            found, counts = found[kept], counts[kept]
        different = sorted_distinct(counts.astype(np.uint64)).astype(np.int64)
        rarity = np.array([_rarity(one, len(listed)) for one in different.tolist()], np.uint8)
        return RarityTable.of(found, rarity[np.searchsorted(different, counts)], len(listed))


def _rarity(count: int, documents: int) -> int:
    """Return the rarity of a feature in `count` documents: at least 1, so that every feature has a vote."""
    share = math.log((documents + 1) / min(count, documents)) / math.log(documents + 1)
    return max(1, min(SCALE, round(SCALE * share)))


def read_table(path: Path) -> bytes:
    """Return the content of a table file; raise `ValueError` if it is invalid."""
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes: a rarity table has at most {_MOST_BYTES:,}")
    content = path.read_bytes()
    try:
        RarityTable.read(content)
    except ValueError as error:
        raise ValueError(f"{path} is not a rarity table: {error}") from error
    return content


@cache
def rarity_table(sha256: str | None) -> RarityTable:
    """Return the table whose content has this SHA-256; for None, a table in which all features are equally rare.

    Raises:
        ProfileMismatchError: this process has not loaded the table.
    """
    if sha256 is None:
        return RarityTable.of(np.empty(0, np.uint32), np.empty(0, np.uint8), 0)
    if sha256 == GENERAL_SHA256:
        return RarityTable.read(_general())
    return RarityTable.read(kept_list(RARITY_TABLE, sha256))


class Learnt(NamedTuple):
    """What a fitted table was learnt from; `str` returns a description."""

    documents: int  # number of documents in the sample
    common: int  # number of features whose rarity is below half of the default here, but not in general text

    @staticmethod
    def of(sha256: str) -> Learnt:
        """Describe the table with that SHA-256; raise `ProfileMismatchError` if this process has not loaded it."""
        table, general = rarity_table(sha256), rarity_table(GENERAL_SHA256)
        is_common = 2 * table.rarities[:-1].astype(np.int64) < table.default
        is_general = are_in(table.tags[:-1][is_common], general.tags[:-1][general.rarities[:-1] < general.default / 2])
        return Learnt(table.documents, int(np.count_nonzero(~is_general)))

    def __str__(self) -> str:
        return (
            f"learnt from {self.documents:,} documents; words and word pairs that are common there, but not in general "
            f"text: {self.common:,}"
        )


def learnt_json(learnt: Learnt | None) -> dict[str, object]:
    """Return the entry for a job's summary, as values for `json.dumps`; empty if nothing was learnt."""
    return {"word_weights": learnt._asdict()} if learnt else {}


def _general() -> bytes:
    content = Path(__file__).with_name(GENERAL_FILE).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != GENERAL_SHA256:
        raise ProfileMismatchError(
            f"{GENERAL_FILE} in this installation has SHA-256 {found[:16]}…, expected {GENERAL_SHA256[:16]}…: "
            f"fingerprints would differ from the stored ones; reinstall hsimhash"
        )
    return content


def vote_weights(weights: Floats, counts: Int64s, alike: Int64s, different: Int64s | int) -> Floats:
    """Return the weights of features in the vote: independent of their counts, but reduced for repeated names.

    All words in a site's name or a watermark occur equally often. A frequent word usually keeps its weight if no other
    word occurs equally often: it may be the subject of the page, and the only difference from other pages that were
    made from the same template.

    Args:
        weights: Weight of each feature by its rarity; shape (m,).
        counts: Occurrences of each feature; shape (m,).
        alike: Number of features of the same text with the same count; shape (m,). Ignored for counts below `OFTEN`.
        different: Number of distinct features of the text; shape (m,) or one number.
    """
    is_name = (alike > 1) & (_MOST_TO_A_NAME * counts >= different) | (_MOST_TO_A_WORD * counts >= different)
    return np.where(is_name & (counts >= OFTEN), np.maximum(weights // _NAME_PARTS, 1), weights)


def key_weights(unit: int, rarities: Floats, counts: Int64s) -> Floats:
    """Return the weights of features in the key. They grow with the count, up to 4 times the weight of one occurrence.

    They grow with the square root of the rarity, so a word that occurs throughout a text is in the key even if other
    words are rarer.
    """
    return np.rint(unit * VOTE_SCALE * np.sqrt(SCALE * rarities) * counts / (counts + _HALF_SATURATED))


def pair_hashes(words: Uint64s, start: Int64s, stop: Int64s) -> tuple[Int64s, Uint64s]:
    """Return the index of the first word and the hash of each row of two words; skip rows of one word."""
    is_pair = stop - start == 2
    start, stop = start[is_pair], stop[is_pair]
    return start, shingle_hashes(words, start, stop)
