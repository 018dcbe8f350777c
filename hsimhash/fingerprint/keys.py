"""Keys: hashes of a text's heaviest features, which stay the same when the page frame changes.

There are two kinds of keys, and a profile makes one of them. Both have 64 bits; 0 means no key.

*Whole*: the hash of the set of the heaviest features. Two texts share a key if their keys are equal.

*In parts*: a 12-bit *tag* for each of the five heaviest features, heaviest first, preceded by the number of tags. A
*part* is a set of three tags: any three of the first four, or the first two and the fifth. Two texts share a key if a
part of one key equals a part of the other. A text with three features or fewer has one part, with all its tags.

A store files a document under each part of its key.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from hsimhash.fingerprint.bits import Bools, Floats, Int64s, Uint64s
from hsimhash.fingerprint.murmur3 import mix, mix_one
from hsimhash.fingerprint.sketch import heaviest_features, present

TAGS = 5
TAG_BITS = 12
COUNT_SHIFT = TAGS * TAG_BITS
SHIFTS = range(COUNT_SHIFT - TAG_BITS, -1, -TAG_BITS)  # shift of each tag
TAG_MASK = (1 << TAG_BITS) - 1
PART_TAGS = 3
# Indices of tags in each part. A text always has the first part, and any other part for which it has all the tags.
PARTS = ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3), (0, 1, 4))
_PARTS_BY_COUNT = [[part for part in PARTS if part == PARTS[0] or count > part[-1]] for count in range(1 << 4)]


class Keying(Enum):
    """The kinds of keys, by their names in profiles."""

    WHOLE = "whole"
    IN_PARTS = "in-parts"

    def make(self, doc: Int64s, hashes: Uint64s, weights: Floats, count: int, documents: int) -> Uint64s:
        """Return the keys of documents. If features have equal weights, those with the lower hash are used.

        Args:
            doc: Document of each feature, 0 to `documents` - 1, in any order; shape (m,).
            hashes: Hash of each feature, distinct within a document; shape (m,).
            weights: Weight of each feature; shape (m,).
            count: Number of heaviest features in a key, at least 1; a document with fewer uses all of them.
            documents: Number of documents; those without a feature do not get a key.
        """
        chosen = heaviest_features(doc, hashes, weights, count, documents)
        if self is Keying.WHOLE:
            sums = np.zeros(documents, np.uint64)
            np.add.at(sums, doc[chosen], mix(hashes[chosen]))
            return present(mix(sums), np.bincount(doc, minlength=documents) > 0)
        return _packed(doc[chosen], weights[chosen], hashes[chosen], documents)

    @property
    def most_parts(self) -> int:
        """The maximum number of parts of a key."""
        return 1 if self is Keying.WHOLE else len(PARTS)

    def parts(self, keys: Uint64s) -> Uint64s:
        """Return the distinct parts of keys of shape (n,), shape (n, 1) or (n, 5); 0 where there is none."""
        if self is Keying.WHOLE:
            return keys[:, None]
        tags = [keys >> np.uint64(shift) & np.uint64(TAG_MASK) for shift in SHIFTS]
        counts = keys >> np.uint64(COUNT_SHIFT)
        found = np.zeros((len(keys), len(PARTS)), np.uint64)
        for column, places in enumerate(PARTS):
            part = _part(np.minimum(counts, np.uint64(PART_TAGS)), *(tags[place] for place in places))
            is_there = counts > np.uint64(places[-1]) if column else keys != 0
            for earlier in found.T[:column]:  # tags may be equal
                is_there &= part != earlier
            found[is_there, column] = part[is_there]
        return found

    def parts_of(self, key: int) -> tuple[int, ...]:
        """Return the parts of one key; empty if the key is 0."""
        if self is Keying.WHOLE or not key:
            return (key,) if key else ()
        count = key >> COUNT_SHIFT
        tags, head = [key >> shift & TAG_MASK for shift in SHIFTS], min(count, PART_TAGS) << PART_TAGS * TAG_BITS
        found = dict[int, None]()
        for one, other, third in _PARTS_BY_COUNT[count]:
            low, middle, high = sorted((tags[one], tags[other], tags[third]))
            found[mix_one(head | low << 2 * TAG_BITS | middle << TAG_BITS | high) or 1] = None  # tags may be equal
        return tuple(found)

    def is_shared(self, key: int, other: int) -> bool:
        """Whether two texts with these keys share a key."""
        if self is Keying.WHOLE or key == other:
            return 0 != key == other
        return not set(self.parts_of(key)).isdisjoint(self.parts_of(other))

    def sharing(self, parts: Uint64s, key: int) -> Bools:
        """Return which texts, given the parts of their keys, share a key with `key`: shape (n,)."""
        found = np.zeros(len(parts), np.bool_)
        for part in self.parts_of(key):
            for column in parts.T:
                found |= column == np.uint64(part)
        return found

    def shared(self, some: Uint64s, others: Uint64s) -> Bools:
        """Return whether two texts share a key, for each pair of keys as broadcast by NumPy."""
        found: Bools
        if self is Keying.WHOLE:
            found = (some == others) & (others != 0)
            return found
        some, others = (self.parts(one.ravel()).reshape(*one.shape, self.most_parts) for one in (some, others))
        found = np.zeros(np.broadcast_shapes(some.shape, others.shape)[:-1], np.bool_)
        for place in range(self.most_parts):
            part = some[..., place]
            for other in range(self.most_parts):
                found |= (part == others[..., other]) & (part != 0)
        return found


def _part(count: Uint64s, *tags: Uint64s) -> Uint64s:
    """Return one part of each key: a hash of the number of its tags and the tags in any order."""
    (one, other, third), shift = tags, np.uint64(TAG_BITS)
    low, high = np.minimum(np.minimum(one, other), third), np.maximum(np.maximum(one, other), third)
    packed = count
    for tag in (low, one ^ other ^ third ^ low ^ high, high):
        packed = packed << shift | tag
    part: Uint64s = np.maximum(mix(packed), np.uint64(1))
    return part


def _packed(doc: Int64s, weights: Floats, hashes: Uint64s, documents: int) -> Uint64s:
    """Return the number of features of each document and their tags, packed; the heaviest is in the highest bits."""
    order = np.lexsort((hashes, -weights, doc))
    doc, tags = doc[order], mix(hashes[order]) >> np.uint64(64 - TAG_BITS)
    counts = np.bincount(doc, minlength=documents)
    rank = np.arange(len(doc)) - np.searchsorted(doc, doc)
    packed = counts.astype(np.uint64) << np.uint64(COUNT_SHIFT)
    np.bitwise_or.at(packed, doc, tags << np.array(SHIFTS, np.uint64)[rank])
    return packed
