"""Keys: what a text's heaviest features are, whatever a page has around them; and when two texts share a key.

There are two kinds, of which a profile makes one. Both are 64 bits; 0 is none.

*Whole*: the hash of the set of the heaviest features. Two texts share it if it is equal.

*Three of four*: of each of the four heaviest features a *tag* of 15 bits, in ascending order, and above them how many
there are. Two texts share it if they have three of the tags in common. So it has four *parts*, each of which leaves out
a tag: a part that is equal in both tells. A text of fewer features has one part, all of its tags.

A store files a document under each part of its key.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from hsimhash.fingerprint.bits import Bools, Floats, Int64s, Uint64s
from hsimhash.fingerprint.murmur3 import mix, mix_one
from hsimhash.fingerprint.sketch import heaviest_features, present

TAGS = 4
_TAG_BITS = 15
_COUNT_SHIFT = TAGS * _TAG_BITS
_TAGS_MASK = (1 << _COUNT_SHIFT) - 1
_ALL_BUT_ONE = (TAGS - 1) << _COUNT_SHIFT


class Keying(Enum):
    """The kinds of keys, by the name that a profile has for them."""

    WHOLE = "whole"
    THREE_OF_FOUR = "three-of-four"

    def make(self, doc: Int64s, hashes: Uint64s, weights: Floats, count: int, documents: int) -> Uint64s:
        """Return the keys of documents; of features with equal weights the lower hash counts.

        Args:
            doc: shape (m,), the document of each feature, 0 to `documents` - 1, in any order.
            hashes: shape (m,), no two of a document equal.
            weights: shape (m,).
            count: how many of the heaviest features a key is made of, at least 1; of documents with fewer, all.
            documents: how many; those without a feature have no key.
        """
        chosen = heaviest_features(doc, hashes, weights, count, documents)
        if self is Keying.WHOLE:
            sums = np.zeros(documents, np.uint64)
            np.add.at(sums, doc[chosen], mix(hashes[chosen]))
            return present(mix(sums), np.bincount(doc, minlength=documents) > 0)
        return _packed(doc[chosen], mix(hashes[chosen]) >> np.uint64(64 - _TAG_BITS), documents)

    @property
    def most_parts(self) -> int:
        """How many parts a key may have."""
        return 1 if self is Keying.WHOLE else TAGS

    def parts(self, keys: Uint64s) -> Uint64s:
        """Return the parts of keys of shape (n,): shape (n, 1) or (n, 4); 0 where there is none, each once a key."""
        if self is Keying.WHOLE:
            return keys[:, None]
        columns = [
            keys & np.uint64((1 << low) - 1)
            | (keys & np.uint64(_TAGS_MASK)) >> np.uint64(low + _TAG_BITS) << np.uint64(low)
            | np.uint64(_ALL_BUT_ONE)
            for low in range(0, _COUNT_SHIFT, _TAG_BITS)
        ]
        left_out = np.stack(columns, axis=1)
        is_full = keys >> np.uint64(_COUNT_SHIFT) == TAGS
        left_out[~is_full, 0] = keys[~is_full]
        is_there = np.ones(left_out.shape, np.bool_)
        is_there[:, 1:] = is_full[:, None] & (left_out[:, 1:] != left_out[:, :-1])  # equal tags are side by side
        is_there[:, 0] = keys != 0
        parts: Uint64s = np.where(is_there, np.maximum(mix(left_out), np.uint64(1)), np.uint64(0))
        return parts

    def parts_of(self, key: int) -> tuple[int, ...]:
        """Return the parts of one key; none where it is 0."""
        if self is Keying.WHOLE:
            return (key,) if key else ()
        if key >> _COUNT_SHIFT != TAGS:
            return (mix_one(key) or 1,) if key else ()
        left_out = (
            key & (1 << low) - 1 | (key & _TAGS_MASK) >> low + _TAG_BITS << low | _ALL_BUT_ONE
            for low in range(0, _COUNT_SHIFT, _TAG_BITS)
        )
        return tuple(mix_one(one) or 1 for one in dict.fromkeys(left_out))

    def is_shared(self, key: int, other: int) -> bool:
        """Whether the texts of two keys share a key."""
        if self is Keying.WHOLE or key == other:
            return 0 != key == other
        return not set(self.parts_of(key)).isdisjoint(self.parts_of(other))

    def sharing(self, parts: Uint64s, key: int) -> Bools:
        """Return which texts, by the parts of their keys, share a key with one: shape (n,)."""
        found = np.zeros(len(parts), np.bool_)
        for part in self.parts_of(key):
            for column in parts.T:
                found |= column == np.uint64(part)
        return found

    def shared(self, some: Uint64s, others: Uint64s) -> Bools:
        """Return for each pair of keys, as numpy pairs arrays of their shapes, whether two texts share a key."""
        found: Bools
        if self is Keying.WHOLE:
            found = (some == others) & (others != 0)
            return found
        some, others = (self.parts(one.ravel()).reshape(*one.shape, TAGS) for one in (some, others))
        found = np.zeros(np.broadcast_shapes(some.shape, others.shape)[:-1], np.bool_)
        for place in range(TAGS):
            part = some[..., place]
            for other in range(TAGS):
                found |= (part == others[..., other]) & (part != 0)
        return found


def check_whole(keying: str, what: str) -> None:
    """Raise `ValueError` where a kind of key is not whole: `what` cannot work with others yet."""
    if keying != Keying.WHOLE.value:
        raise ValueError(f"{what} cannot work with keys of the kind {keying} yet, as auto-3 makes them; use auto-2")


def _packed(doc: Int64s, tags: Uint64s, documents: int) -> Uint64s:
    """Return the number of tags of each document, and its tags in ascending order from the highest bits down."""
    order = np.lexsort((tags, doc))
    doc, tags = doc[order], tags[order]
    counts = np.bincount(doc, minlength=documents)
    rank = np.arange(len(doc)) - np.searchsorted(doc, doc)
    packed = counts.astype(np.uint64) << np.uint64(_COUNT_SHIFT)
    shift = (_TAG_BITS * (counts[doc] - 1 - rank)).astype(np.uint64)
    np.bitwise_or.at(packed, doc, tags << shift)
    return packed
