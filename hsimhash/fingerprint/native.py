"""Sign texts with the package hsimhash-native where it is installed: the same bits in a fraction of the time.

It knows the profile `auto-3` and those that differ from it in the rarity table alone. `HSIMHASH_NATIVE=0` turns it off.
While it signs, other threads run, so threads do what otherwise takes worker processes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import hsimhash_native
except ImportError:
    hsimhash_native = None

from hsimhash.fingerprint.bits import Uint8s, Uint64s
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.normalize import CHINESE_ONLY_NAME, LAYOUT_FREE_NAME, SEPARATOR, native_tables, normalize
from hsimhash.fingerprint.rarity import rarity_table
from hsimhash.fingerprint.signature import Signatures

if TYPE_CHECKING:
    from hsimhash.fingerprint.recipe import Recipe

SWITCH = "HSIMHASH_NATIVE"
_INTERFACE = 1  # of the package: what its functions take and return
_NOT_NORMALIZED = 3  # the kind of a text with code points that join what stands before them
_MOST_UNIT = 257  # times a rarity it fits into 16 bits
_MAKING = threading.Lock()  # of signers: one takes half a second
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


def signs_natively(recipe: Recipe) -> bool:
    """Return whether the package signs texts by this recipe."""
    return _knows(recipe) and os.environ.get(SWITCH) != "0" and _is_usable()


def signer_name() -> str:
    """Return what signs texts: the package and its version, or numpy and why."""
    if hsimhash_native is None:
        return "numpy"
    name = f"hsimhash-native {hsimhash_native.__version__}"
    if not _is_usable():
        return f"numpy ({name} does not fit this release; reinstall it)"
    return f"numpy ({name} is turned off by {SWITCH}=0)" if os.environ.get(SWITCH) == "0" else name


def _is_usable() -> bool:
    return getattr(hsimhash_native, "INTERFACE", None) == _INTERFACE


def native_signatures(recipe: Recipe, texts: Sequence[str]) -> Signatures | None:
    """Return the signatures of texts; None if the package does not sign by this recipe."""
    if not signs_natively(recipe):
        return None
    with _MAKING:
        signer = _signer(
            recipe.rarity, recipe.word_unit, recipe.char_unit, recipe.char_n, recipe.key, recipe.min_features
        )
    try:
        columns: Any = signer.signatures(texts)
    except UnicodeEncodeError:  # lone surrogates
        return _of_normalized(recipe, signer, texts)
    left = np.flatnonzero(columns[3] == _NOT_NORMALIZED)
    if len(left):
        found = _of_normalized(recipe, signer, [texts[place] for place in left.tolist()])
        for column, values in zip(columns, (found.fingerprints, found.sketches, found.keys, found.kinds), strict=True):
            column[left] = values
    return Signatures(columns[0], columns[1], columns[2], columns[3], recipe.key_kind)


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
    return Signatures(columns[0], columns[1], columns[2], columns[3], recipe.key_kind)


@cache
def _signer(rarity: str | None, word_unit: int, char_unit: int, char_n: int, key: int, min_features: int) -> Any:
    table = rarity_table(rarity)
    rarities = table.tags[:-1], table.rarities[:-1], table.default
    return hsimhash_native.Signer(*native_tables(), *rarities, (word_unit, char_unit), char_n, key, min_features)
