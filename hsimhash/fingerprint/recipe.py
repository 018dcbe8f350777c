"""What a profile is made of: its fields, which values they may have, and the built-in ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from hsimhash.fingerprint.english import ENGLISH_NAME
from hsimhash.fingerprint.hashes import HASH_NAME, SEED_LIMIT
from hsimhash.fingerprint.normalize import NORMALIZE_NAME, SIMPLIFIED_NAME
from hsimhash.fingerprint.segment import IDF_NAME, IDF_SHA256, SEGMENTER_NAME
from hsimhash.fingerprint.sketch import MOST_SHINGLE
from hsimhash.fingerprint.vote import EXACT_LIMIT, SCALE
from hsimhash.fingerprint.wordlists import WordLists

DEFAULT_PROFILE = "auto-2"  # of new indexes

_TOKENS = {"jieba": ("tfidf", "tfidf-float"), "words": ("count",), "script": ("tfidf+count",)}  # and their weights
_FIXED = {"segmenter": SEGMENTER_NAME, "hash": HASH_NAME, "tie": "zero"}
_LEAST = {
    "n": 1,
    "char_n": 1,
    "word_unit": 1,
    "char_unit": 1,
    "top": 1,
    "cap": 1,
    "min_features": 1,
    "seed": 0,
    "sketch": 1,
    "key": 1,
}
_MOST = {
    "n": 64,
    "char_n": 64,
    "word_unit": 1 << 20,
    "char_unit": 1 << 20,
    "seed": SEED_LIMIT - 1,
    "sketch": MOST_SHINGLE,
    "key": 64,
}
_OPTIONAL = ("top", "cap", "sketch", "key")
OWN = "own"  # an idf table of one's own
_OF_SCRIPT = {"han": (SIMPLIFIED_NAME,), "english": (ENGLISH_NAME, OWN)}  # or None; for tokens "script"
_TOP = re.compile(r"top=([1-9][0-9]{0,6})")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The fields of a profile.

    Args:
        name: yours for your own; a built-in name stands for that profile only.
        normalize: "nfkc-casefold-1"; "none" for "tfidf-float".
        tokens: "jieba": words as jieba cuts them; "words": shingles of words; "script": each script in its own way.
        weights: "tfidf": rint(tf · idf · 4096) for jieba's words; "count": how often, times the unit, for shingles;
            "tfidf+count": both, for "script"; "tfidf-float": as `jieba.analyse.extract_tags` returns them.
        n: words to a shingle.
        char_n: characters to a shingle, in scripts without spaces.
        word_unit: what a shingle of words weighs each time it occurs.
        char_unit: the same for a shingle of characters.
        top: only so many of the heaviest features vote; for "tfidf-float".
        cap: no feature weighs more than 1/cap of the document's total; None: no cap.
        min_features: with fewer, the fingerprint is the hash of the normalised text.
        idf: the table of inverse document frequencies: jieba's, or "own".
        idf_sha256: of its content.
        segmenter: what cuts Chinese words.
        hash: of a feature's UTF-8.
        seed: of the hash.
        tie: "zero": an even vote gives 0.
        han: "simplified-1": traditional characters count as simplified ones; None: as they are. For "script".
        english: "english-1": words of English texts weigh by this table, one by one; "own": words of all languages with
            spaces by the own idf table; None: shingles. For "script".
        sketch: how many words or characters are in a shingle of the sketch; None: there is none.
        key: how many of the heaviest features make the key; None: there is none.
        words: SHA-256 of the list of words that the segmenter knows beside its own; None: there is none.
        stops: SHA-256 of the list of words that are no features, beside jieba's stop words; None: there is none.
    """

    name: str
    normalize: str = NORMALIZE_NAME
    tokens: str = "script"
    weights: str = "tfidf+count"
    n: int = 2
    char_n: int = 3
    # So a sentence moves a page alike in any script, character for character: measured at 5 to 95 % Han
    # (tests/bench/bench_quality.py). In tf · idf a pair of words is worth 14.5, three characters 5.5.
    word_unit: int = 29 * SCALE // 2
    char_unit: int = 11 * SCALE // 2
    top: int | None = None
    cap: int | None = 16
    min_features: int = 16
    idf: str = IDF_NAME
    idf_sha256: str = IDF_SHA256
    segmenter: str = SEGMENTER_NAME
    hash: str = HASH_NAME
    seed: int = 0
    tie: str = "zero"
    han: str | None = None
    english: str | None = None
    sketch: int | None = None
    key: int | None = None
    words: str | None = None
    stops: str | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_choices(self)
        _check_name(self)

    @property
    def makes_signatures(self) -> bool:
        """Whether it gives sketches or keys beside fingerprints."""
        return self.sketch is not None or self.key is not None

    @staticmethod
    def named(name: str) -> Recipe:
        """Return the built-in recipe of that name, such as "auto-2", "auto-2:sketch=off" or "jieba-topn-1:top=100"."""
        known = _stands_for(name)
        if known is None:
            names = ", ".join([*_BUILT_IN, "auto-2:sketch=off", "jieba-topn-1:top=N"])
            raise ValueError(f"no profile {name!r}; known are {names}")
        base = _BUILT_IN[name.partition(":")[0]]
        return base if known == _fields(base) else Recipe(name, **known)

    @property
    def lists(self) -> WordLists:
        """The lists of words that it goes by."""
        return WordLists(self.idf_sha256, self.words, self.stops)

    @property
    def is_plain(self) -> bool:
        """Whether it fingerprints as jieba's `extract_tags` and a plain loop do."""
        return self.weights == "tfidf-float"


FIELDS = tuple(entry.name for entry in fields(Recipe))
ADDED_FIELDS = {2: ("han", "english", "sketch", "key"), 3: ("words", "stops")}  # by version


def _check_numbers(recipe: Recipe) -> None:
    for name, least in _LEAST.items():
        value = getattr(recipe, name)
        if value is None and name in _OPTIONAL:
            continue
        if type(value) is not int or not least <= value <= _MOST.get(name, EXACT_LIMIT):
            raise ValueError(f"profile {recipe.name!r}: {name} is a number from {least} on, not {value!r}")


def _check_choices(recipe: Recipe) -> None:
    for name, only in _FIXED.items():
        if getattr(recipe, name) != only:
            raise ValueError(f"profile {recipe.name!r}: {name} can only be {only!r}, not {getattr(recipe, name)!r}")
    if recipe.weights not in _TOKENS.get(recipe.tokens, ()):
        known = "; ".join(f"{tokens} with {' or '.join(weights)}" for tokens, weights in _TOKENS.items())
        wrong = f"tokens {recipe.tokens!r} with weights {recipe.weights!r}"
        raise ValueError(f"profile {recipe.name!r}: {wrong} do not go together; use {known}")
    if recipe.normalize != ("none" if recipe.is_plain else NORMALIZE_NAME):
        raise ValueError(f"profile {recipe.name!r}: normalize is 'none' for tfidf-float, else {NORMALIZE_NAME!r}")
    if recipe.is_plain and (recipe.cap is not None or recipe.min_features != 1):
        raise ValueError(f"profile {recipe.name!r}: tfidf-float goes with cap=None and min_features=1")
    for name, values in _OF_SCRIPT.items():
        value = getattr(recipe, name)
        if value is not None and (value not in values or recipe.tokens != "script"):
            wanted = " or ".join(map(repr, values))
            raise ValueError(f"profile {recipe.name!r}: {name} can be {wanted}, for tokens 'script', not {value!r}")
    _check_lists(recipe)
    if recipe.is_plain and (recipe.sketch is not None or recipe.key is not None):
        raise ValueError(f"profile {recipe.name!r}: tfidf-float makes no sketch and no key")
    if recipe.top is not None and not recipe.is_plain:
        raise ValueError(f"profile {recipe.name!r}: top goes with tfidf-float only")


def _check_lists(recipe: Recipe) -> None:
    if recipe.idf not in (IDF_NAME, OWN):
        raise ValueError(f"profile {recipe.name!r}: idf is {IDF_NAME!r} or {OWN!r}, not {recipe.idf!r}")
    if recipe.english == OWN and recipe.idf != OWN:
        raise ValueError(f"profile {recipe.name!r}: english {OWN!r} goes with idf {OWN!r}")
    for name in ("idf_sha256", "words", "stops"):
        value = getattr(recipe, name)
        if value is not None and not _SHA256.fullmatch(str(value)):
            raise ValueError(f"profile {recipe.name!r}: {name} is a SHA-256 in 64 hexadecimal digits, not {value!r}")
    if (recipe.idf == OWN or recipe.words or recipe.stops) and recipe.tokens == "words":
        raise ValueError(
            f"profile {recipe.name!r}: an idf table, words and stop words of one's own go with jieba's words"
        )


def _check_name(recipe: Recipe) -> None:
    known = _stands_for(recipe.name)
    if known is None and not _NAME.fullmatch(recipe.name):
        raise ValueError(f"a profile's name is up to 64 of a-z, 0-9, '.', '_' and '-', not {recipe.name!r}")
    if known not in (None, _fields(recipe)):
        raise ValueError(f"the name {recipe.name!r} stands for the built-in profile; give yours another")


def _fields(recipe: Recipe) -> dict[str, Any]:
    return {name: getattr(recipe, name) for name in FIELDS if name != "name"}


def _stands_for(name: str) -> dict[str, Any] | None:
    """Return the fields that a built-in name stands for."""
    base, _, option = name.partition(":")
    if base not in _BUILT_IN:
        return None
    known, top = _fields(_BUILT_IN[base]), _TOP.fullmatch(option)
    if base == "jieba-topn-1" and top:
        return known | {"top": int(top[1])}
    if (base, option) == ("auto-2", "sketch=off"):
        return known | {"sketch": None, "key": None}
    return None if option else known


_BUILT_IN: dict[str, Recipe] = {}
_BUILT_IN |= {
    recipe.name: recipe
    for recipe in (
        Recipe("auto-2", han=SIMPLIFIED_NAME, english=ENGLISH_NAME, sketch=MOST_SHINGLE, key=6),
        Recipe("auto-1"),
        Recipe("zh-1", tokens="jieba", weights="tfidf"),
        Recipe("words-1", tokens="words", weights="count"),
        Recipe("jieba-topn-1", "none", "jieba", "tfidf-float", top=20, cap=None, min_features=1),
    )
}
