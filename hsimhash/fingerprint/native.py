"""Sign texts with the package hsimhash-native where it is installed: the same bits in a fraction of the time.

It knows the profile `auto-3` and those that differ from it in the rarity table alone. `HSIMHASH_NATIVE=0` turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from hsimhash.fingerprint.bits import Uint8s, Uint64s
from hsimhash.fingerprint.normalize import CHINESE_ONLY_NAME, LAYOUT_FREE_NAME, SEPARATOR, native_tables, normalize
from hsimhash.fingerprint.rarity import rarity_table
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signatures

if TYPE_CHECKING:
    from hsimhash.fingerprint.recipe import Recipe

PACKAGE = "hsimhash_native"
_NOT_NORMALIZED = 3  # the kind of a text with code points that join what stands before them
_MOST_UNIT = 257  # times a rarity it fits into 16 bits
_KNOWN = {
    "normalize": LAYOUT_FREE_NAME,
    "tokens": "script",
    "weights": "rarity",
    "han": CHINESE_ONLY_NAME,
    "english": None,
    "hash": "murmur3-x64-128-low64",
    "seed": 0,
    "tie": "zero",
    "top": None,
    "cap": None,
    "sketch": 3,
    "words": None,
    "stops": None,
    "fields": None,
}


def is_active() -> bool:
    """Return whether texts are signed by the package."""
    return os.environ.get("HSIMHASH_NATIVE") != "0" and find_spec(PACKAGE) is not None


def native_signatures(recipe: Recipe, texts: Sequence[str]) -> Signatures | None:
    """Return the signatures of texts; None if this is not active, or does not know the recipe."""
    if not (_knows(recipe) and is_active()):
        return None
    signer = _signer(recipe.rarity, recipe.word_unit, recipe.char_unit, recipe.char_n, recipe.key, recipe.min_features)
    try:
        columns = signer.signatures(texts)
    except UnicodeEncodeError:  # lone surrogates
        return _of_normalized(recipe, signer, texts)
    left = np.flatnonzero(columns[3] == _NOT_NORMALIZED)
    if len(left):
        found = _of_normalized(recipe, signer, [texts[place] for place in left.tolist()])
        for column, values in zip(columns, (found.fingerprints, found.sketches, found.keys, found.kinds), strict=True):
            column[left] = values
    return Signatures(*columns, recipe.key_kind)


def _knows(recipe: Recipe) -> bool:
    return (
        all(getattr(recipe, name) == value for name, value in _KNOWN.items())
        and recipe.key_kind is Keying.IN_PARTS
        and recipe.key is not None
        and max(recipe.word_unit, recipe.char_unit) <= _MOST_UNIT
    )


def _of_normalized(recipe: Recipe, signer: Any, texts: Sequence[str]) -> Signatures:
    codes = normalize(texts, recipe.normalize)
    columns: tuple[Uint64s, Uint64s, Uint64s, Uint8s] = signer.signatures_of_codes(
        codes, np.flatnonzero(codes == SEPARATOR)
    )
    return Signatures(*columns, recipe.key_kind)


@cache
def _signer(rarity: str | None, word_unit: int, char_unit: int, char_n: int, key: int, min_features: int) -> Any:
    import hsimhash_native

    table = rarity_table(rarity)
    rarities = table.tags[:-1], table.rarities[:-1], table.default
    return hsimhash_native.Signer(*native_tables(), *rarities, (word_unit, char_unit), char_n, key, min_features)
