"""Sign texts with the hsimhash-native package if it is installed: the same signatures in a fraction of the time.

The package supports the `auto-*` and `words-1` profiles, and your own profiles that differ from them only in numbers or
in the rarity table. It releases the GIL while it signs, so threads are as fast as processes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Floats, Int64s, Uint8s, Uint32s, Uint64s
from hsimhash.fingerprint.feature_weights import ENGLISH_NAME, MOST_COMMON, english
from hsimhash.fingerprint.murmur3 import HASH_NAME
from hsimhash.fingerprint.normalize import NORMALIZE_NAMES, SEPARATOR, native_tables, normalize
from hsimhash.fingerprint.rarity import rarity_table
from hsimhash.fingerprint.segment import IDF_NAME, jieba_dictionary, jieba_idf
from hsimhash.fingerprint.signature import Signatures
from hsimhash.native_package import native_package

if TYPE_CHECKING:
    from hsimhash.fingerprint.recipe import Recipe

_NOT_NORMALIZED = 3  # the kind of a text that the package cannot normalise: some of its code points may join others
_MAKING = threading.Lock()  # held while a signer is created
_WEIGHTS = {"script": ("tfidf+count", "rarity"), "words": ("count",)}  # by value of `tokens`
_KNOWN = {
    "hash": (HASH_NAME,),
    "normalize": NORMALIZE_NAMES,
    "english": (None, ENGLISH_NAME),
    "idf": (IDF_NAME,),
    "top": (None,),
    "words": (None,),
    "stops": (None,),
    "fields": (None,),
}


class _Words(NamedTuple):
    """The table of English words."""

    hashes: Uint64s
    weights: Floats
    median: float
    most_common: int


class _Rarities(NamedTuple):
    """A rarity table."""

    tags: Uint32s
    rarities: Uint8s
    default: int


class _SignerTables(NamedTuple):
    """The tables that `hsimhash_native.Signer` needs in addition to a recipe; documented there."""

    classes: Uint8s
    normal: Uint32s
    many_start: Int64s
    many_codes: Uint32s
    hyphened: Uint8s
    is_layout_free: bool
    simplified: Uint32s | None
    marks: list[tuple[int, int]]
    rarity: _Rarities | None
    english: _Words | None
    chinese: Callable[[], tuple[Any, str]]


def signs_natively(recipe: Recipe) -> bool:
    """Return whether the package supports this recipe."""
    return native_package() is not None and _knows(recipe)


def native_signatures(recipe: Recipe, texts: Sequence[str]) -> Signatures | None:
    """Return the signatures of texts; None if the package does not support this recipe."""
    if not signs_natively(recipe):
        return None
    signer = _signer_of(recipe)
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


def native_features(recipe: Recipe, texts: Sequence[str]) -> list[tuple[Uint64s, int, int]] | None:
    """Return the feature hashes, the key and the sketch of each text, to fit a rarity table.

    Returns None if the package does not support this recipe.
    """
    if not (recipe.weights == "rarity" and recipe.sketch and recipe.key and signs_natively(recipe)):
        return None
    return _listed(recipe, texts, "features")


def native_shingles(recipe: Recipe, texts: Sequence[str]) -> list[Uint64s] | None:
    """Return the hashes of the distinct shingles of each text's sketch, ascending.

    Returns None if the package does not support this recipe.
    """
    if not (recipe.sketch and signs_natively(recipe)):
        return None
    return [hashes for hashes, _, _ in _listed(recipe, texts, "shingles")]


def _listed(recipe: Recipe, texts: Sequence[str], name: str) -> list[tuple[Uint64s, int, int]]:
    """Call the signer's method named `name`; return the hashes, the key and the sketch of each text."""
    signer = _signer_of(recipe)
    of_texts, of_codes = getattr(signer, name), getattr(signer, f"{name}_of_codes")
    try:
        hashes, ends, keys, sketches, is_read = of_texts(texts)
    except UnicodeEncodeError:  # lone surrogates
        hashes, ends, keys, sketches, is_read = of_codes(*_codes_of(recipe, texts))
    found = list(zip(np.split(hashes, ends[:-1]), keys.tolist(), sketches.tolist(), strict=False))
    for place in np.flatnonzero(is_read == 0).tolist():
        own, _, (key,), (sketch,), _ = of_codes(*_codes_of(recipe, [texts[place]]))
        found[place] = own, int(key), int(sketch)
    return found


def _signer_of(recipe: Recipe) -> Any:
    with _MAKING:
        return _signer(recipe)


def _knows(recipe: Recipe) -> bool:
    is_known = all(getattr(recipe, name) in values for name, values in _KNOWN.items())
    has_cap = recipe.cap is not None and recipe.weights == "rarity"
    return is_known and recipe.weights in _WEIGHTS.get(recipe.tokens, ()) and not has_cap


def _codes_of(recipe: Recipe, texts: Sequence[str]) -> tuple[Uint32s, Int64s]:
    """Return the code points of normalised texts, and the positions of their separators."""
    codes = normalize(texts, recipe.normalize)
    return codes, np.flatnonzero(codes == SEPARATOR)


def _of_normalized(recipe: Recipe, signer: Any, texts: Sequence[str]) -> Signatures:
    columns: tuple[Uint64s, Uint64s, Uint64s, Uint8s] = signer.signatures_of_codes(*_codes_of(recipe, texts))
    return Signatures(columns[0], columns[1], columns[2], columns[3], recipe.key_kind)


@lru_cache(maxsize=8)  # each signer has tens of MB of tables
def _signer(recipe: Recipe) -> Any:
    return native_package().Signer(recipe, _tables(recipe))


def _tables(recipe: Recipe) -> _SignerTables:
    return _SignerTables(
        *native_tables(recipe.normalize, is_simplified=recipe.han is not None),
        rarity=_rarities(recipe.rarity) if recipe.weights == "rarity" else None,
        english=_english(recipe.seed) if recipe.english else None,
        chinese=lambda: (_dictionary(recipe.seed), "" if recipe.weights == "rarity" else jieba_idf()),
    )


@lru_cache(maxsize=1)  # almost all profiles use the same seed
def _dictionary(seed: int) -> Any:
    return native_package().Dictionary(jieba_dictionary(), seed)


def _rarities(sha256: str | None) -> _Rarities:
    table = rarity_table(sha256)
    return _Rarities(table.tags[:-1], table.rarities[:-1], table.default)


def _english(seed: int) -> _Words:
    table = english(seed)
    return _Words(table.hashes[:-1], table.weights[:-1], table.median, MOST_COMMON)
