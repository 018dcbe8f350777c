"""Recipes for profiles: their fields, the valid values, and the built-in recipes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from hsimhash.fingerprint.feature_weights import ENGLISH_NAME
from hsimhash.fingerprint.keys import TAGS, Keying
from hsimhash.fingerprint.murmur3 import HASH_NAME, SEED_LIMIT
from hsimhash.fingerprint.named_hashes import HASHES
from hsimhash.fingerprint.normalize import (
    CHINESE_ONLY_NAME,
    LAYOUT_FREE_NAME,
    NORMALIZE_NAME,
    NORMALIZE_NAMES,
    SIMPLIFIED_NAME,
)
from hsimhash.fingerprint.pieces import BETWEEN_SPACES, NORMALIZERS, OUTSIDE_MATCHES, WORDS_AND_LINKS
from hsimhash.fingerprint.profile_grammar import (
    LISTS,
    MOST_OWN_NAME,
    field_weights,
    nearest,
    read_options,
    write_fields,
    write_options,
)
from hsimhash.fingerprint.rarity import GENERAL_SHA256, Learnt
from hsimhash.fingerprint.segment import IDF_NAME, IDF_SHA256, SEGMENTER_NAME
from hsimhash.fingerprint.sketch import MOST_SHINGLE
from hsimhash.fingerprint.vote import EXACT_LIMIT, SCALE, TIES
from hsimhash.fingerprint.wordlists import IDF, RARITY_TABLE, STOPS, WORDS, WordLists

DEFAULT_PROFILE = "auto-3"  # for new indexes
FEATURES_PROFILE = "features-1"  # for features given by the caller

BY_RARITY = "rarity"  # weights features by rarity; each feature votes once

_COUNTED = ("count", "binary", "log")
_NORMAL, _AS_IT_IS, _ANY = NORMALIZE_NAMES, ("none",), (*NORMALIZE_NAMES, *NORMALIZERS)
_TOKENS = {  # the `weights` and `normalize` values that each value of `tokens` supports
    "script": (("tfidf+count", BY_RARITY), _NORMAL),
    "jieba": (("tfidf", "tfidf-float", *_COUNTED, "log-idf"), _NORMAL),
    "words": (_COUNTED, _NORMAL),
    "stop-words": (_COUNTED, _NORMAL),
    "chars": (_COUNTED, _ANY),
    "bytes": (_COUNTED, _ANY),
    "regex": (_COUNTED, _ANY),
    "clickhouse-words": (_COUNTED, _AS_IT_IS),
    "trafilatura-words": (_COUNTED, _AS_IT_IS),
    "text-dedup-grams": (_COUNTED, _AS_IT_IS),
    "cppjieba": (("tfidf-float",), _NORMAL),
    "features": (("given",), _AS_IT_IS),
}
_KEYINGS = tuple(one.value for one in Keying)
_FIXED = {"segmenter": SEGMENTER_NAME}
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
    "least": 1,
}
_MOST = {
    "n": 64,
    "char_n": 64,
    "word_unit": 1 << 20,
    "char_unit": 1 << 20,
    "seed": SEED_LIMIT - 1,
    "sketch": MOST_SHINGLE,
    "key": 64,
    "least": 64,
}
_OPTIONAL = ("top", "cap", "sketch", "key")
OWN = "own"  # the user's own idf table
_OF_SCRIPT = {
    "han": (SIMPLIFIED_NAME, CHINESE_ONLY_NAME),
    "english": (ENGLISH_NAME, OWN),
}  # valid values other than None; they require tokens="script"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MOST_FIELDS = 16
_NAME = re.compile(f"[a-z0-9][a-z0-9._-]{{0,{MOST_OWN_NAME - 1}}}")
_MOST_NAME = 512  # maximum length of a name in characters, including options


@dataclass(frozen=True, slots=True)
class Recipe:
    """The fields of a profile.

    Args:
        name: Name of the profile. A built-in name is reserved for that profile; use a different name for your own.
        normalize: "nfkc-casefold-1" or "nfkc-casefold-2". It must be "none" with weights "tfidf-float" or "given", and
            with the tokens of other libraries. Tokens "chars", "bytes" and "regex" also accept any of `NORMALIZERS`.
        tokens: How texts are split into features. "jieba": words as segmented by jieba; "words": shingles of words;
            "script": a method that depends on the script; "stop-words": shingles that contain a stop word; "chars",
            "bytes": every n adjacent characters or bytes; "regex": shingles of the matches of `pattern`; "features":
            the text is JSON that lists features and weights; all other values: as in the library of that name.
        weights: "tfidf": rint(tf · idf · 4096), for jieba's words; "count": occurrences times the unit, for shingles;
            "binary": the unit, regardless of occurrences; "log": (1 + ln(occurrences)) times the unit; "log-idf":
            (1 + ln(occurrences)) times the idf; "tfidf+count": "tfidf" for jieba's words and "count" for shingles, with
            tokens "script"; "rarity": the unit times the rarity, regardless of occurrences but reduced for repeated
            names, with tokens "script"; "tfidf-float": as in `jieba.analyse.extract_tags` or cppjieba; "given": the
            weights listed with the features.
        n: Words per shingle, or characters or bytes per piece.
        char_n: Characters per shingle, in scripts without spaces.
        word_unit: Weight of one occurrence of a shingle of words.
        char_unit: Weight of one occurrence of a shingle of characters.
        top: Number of heaviest features that vote. Ties go to the lower hash, except with "tfidf-float". None: all
            features vote; with tokens "cppjieba", one feature for each 120 bytes of text, at least 5 and at most 200.
        cap: No feature has more than 1/cap of the document's total weight; None: no cap.
        min_features: Minimum number of features for a vote. With fewer, the fingerprint is the hash of the normalised
            text.
        idf: Table of inverse document frequencies: the name of jieba's table, or "own".
        idf_sha256: SHA-256 of that table's content.
        segmenter: Segmenter for Chinese words.
        hash: Hash function for the UTF-8 of a feature, one of `HASHES`.
        seed: Seed of the hash function.
        tie: Value of a bit whose vote is tied: "zero" or "one".
        han: "simplified-1": traditional characters are converted to simplified characters; "simplified-2": the same
            conversion, except that Han characters in Japanese texts are treated as kana; None: no conversion. Requires
            tokens "script".
        english: "english-1": words in English texts are weighted individually, by this table; "own": words in all
            languages with spaces are weighted individually, by your own idf table; None: shingles are used instead of
            words. Requires tokens "script".
        sketch: Words or characters per shingle of the sketch; None: no sketch.
        key: Number of heaviest features from which the key is made; None: no key.
        words: SHA-256 of the list of words added to the segmenter's dictionary; None: no list.
        stops: SHA-256 of the list of words excluded from the features, in addition to jieba's stop words; None: no
            list.
        least: Minimum number of characters, bytes or words; a shorter text does not have features. Only for tokens that
            do not depend on the script.
        fields: Fields of a document, each with a factor for the weights of its features, such as "title^3+body"; None:
            a document is a single text.
        pattern: Regular expression for tokens "regex", without capturing groups.
        keying: Kind of key, one of `Keying`; "in-parts" requires key=5.
        rarity: SHA-256 of the rarity table, for weights "rarity"; None: all features are equally rare.
    """

    name: str
    normalize: str = NORMALIZE_NAME
    tokens: str = "script"
    weights: str = "tfidf+count"
    n: int = 2
    char_n: int = 3
    # With these units, adding a sentence changes a page's fingerprint by the same amount per character in any script
    # (measured once, on pages with 5 to 95 % Han). A pair of words weighs as much as a word with a tf · idf of 14.5;
    # three characters weigh as much as a word with a tf · idf of 5.5.
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
    least: int = 1
    fields: str | None = None
    pattern: str | None = None
    rarity: str | None = None
    keying: str = Keying.WHOLE.value

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_choices(self)
        _check_parts(self)
        _check_name(self)

    @property
    def makes_signatures(self) -> bool:
        """Whether it makes sketches or keys in addition to fingerprints."""
        return self.sketch is not None or self.key is not None

    @property
    def key_kind(self) -> Keying:
        """The kind of key that it makes."""
        return Keying(self.keying)

    @staticmethod
    def named(name: str) -> Recipe:
        """Return a built-in recipe such as "auto-3", or a variant such as "words-1:n=3,hash=fnv-1a-64"."""
        base_name, colon, written = name.partition(":")
        if base_name not in _BUILT_IN:
            raise ValueError(f"unknown profile {name!r:.80}; {nearest(base_name, _BUILT_IN)}")
        base = _BUILT_IN[base_name]
        if not colon:
            return base
        try:
            changed = _changed(base, written)
        except ValueError as error:
            raise ValueError(f"profile {name!r:.80}: {error}") from error
        known = _values(base)
        return base if changed == known else Recipe(_name_of(base, changed), **changed)

    @property
    def lists(self) -> WordLists:
        """The word lists that it uses."""
        return WordLists(self.idf_sha256, self.words, self.stops, self.rarity)

    @property
    def own_lists(self) -> dict[str, str]:
        """The user's lists that it uses: the kind of each list by its SHA-256."""
        return own_lists({name: getattr(self, name) for name in FIELDS})

    @property
    def has_own_rarity(self) -> bool:
        """Whether it uses the user's own rarity table."""
        return self.rarity not in (None, GENERAL_SHA256)

    @property
    def can_be_fitted(self) -> bool:
        """Whether a table fitted to the user's texts would replace its own table of general text."""
        return self.weights == BY_RARITY and not self.has_own_rarity

    @property
    def learnt(self) -> Learnt | None:
        """What its rarity table was learnt from, or None if it does not use the user's own table."""
        return Learnt.of(self.rarity) if self.rarity is not None and self.has_own_rarity else None

    @property
    def lacks_lists(self) -> bool:
        """Whether it needs user lists that are missing."""
        return self.tokens == "cppjieba" and (self.idf != OWN or self.words is None or self.stops is None)

    @property
    def is_plain(self) -> bool:
        """Whether it weights words like jieba's `extract_tags`, and adds up their votes in floats, in order."""
        return self.weights == "tfidf-float"

    @property
    def is_normal(self) -> bool:
        """Whether its texts are normalised by `normalize`, in arrays."""
        return self.normalize in NORMALIZE_NAMES

    @property
    def has_own_pattern(self) -> bool:
        """Whether it splits texts by a pattern that is not built in, which can take unbounded time."""
        return self.pattern is not None and self.pattern not in OUTSIDE_MATCHES

    @property
    def is_counted(self) -> bool:
        """Whether each occurrence of a shingle or piece has the same vote, up to the cap."""
        is_simple = self.top is None and self.key is None and self.fields is None
        return self.weights == "count" and self.tokens != "jieba" and is_simple

    @property
    def field_weights(self) -> dict[str, int]:
        """The weights of a document's fields by name, in order; empty if a document is a single text."""
        return field_weights(self.fields) if self.fields else {}

    @property
    def warning(self) -> str:
        """A warning for users who choose this profile; usually empty."""
        bits = HASHES[self.hash].bits
        if bits == 64:
            return ""
        return (
            f"profile {self.name}: {self.hash} has {bits} bits, so the upper {64 - bits} bits of a fingerprint are "
            "always the same; many rows share a bucket, and the distances between unrelated texts are smaller"
        )


FIELDS = tuple(entry.name for entry in fields(Recipe))
ADDED_FIELDS = {  # fields that each version of the JSON added
    2: ("han", "english", "sketch", "key"),
    3: ("words", "stops"),
    4: ("least", "fields", "pattern"),
    5: ("rarity", "keying"),
}
DEFAULTS = {entry.name: entry.default for entry in fields(Recipe)}
_LISTED = ("name", "idf", "idf_sha256", "segmenter", "words", "stops", "rarity")  # not options; `with_lists` sets them
_OPTIONS = tuple(name for name in FIELDS if name not in _LISTED)


def own_lists(fields: Mapping[str, object]) -> dict[str, str]:
    """Return the user's lists among the fields of a profile: the kind of each list by its SHA-256."""
    kinds = {"words": WORDS, "stops": STOPS}
    kinds |= {"idf_sha256": IDF} if fields.get("idf") == OWN else {}
    kinds |= {"rarity": RARITY_TABLE} if fields.get("rarity") != GENERAL_SHA256 else {}
    return {str(fields[name]): kind for name, kind in kinds.items() if fields.get(name)}


def _check_numbers(recipe: Recipe) -> None:
    for name, least in _LEAST.items():
        value, most = getattr(recipe, name), _MOST.get(name, EXACT_LIMIT)
        if value is None and name in _OPTIONAL:
            continue
        if type(value) is not int or not least <= value <= most:
            valid = f"from {least} to {most}" if name in _MOST else f"of at least {least}"
            raise ValueError(f"profile {recipe.name!r}: {name} must be a whole number {valid}, got {value!r}")


def _check_choices(recipe: Recipe) -> None:
    for name, only in _FIXED.items():
        if getattr(recipe, name) != only:
            raise ValueError(f"profile {recipe.name!r}: {name} must be {only!r}, got {getattr(recipe, name)!r}")
    known = {
        "keying": tuple(one.value for one in Keying),
        "normalize": _ANY,
        "tokens": tuple(_TOKENS),
        "hash": tuple(HASHES),
        "tie": TIES,
    }
    for name, values in known.items():
        value = getattr(recipe, name)
        if value not in values:
            near = nearest(str(value), values)
            raise ValueError(f"profile {recipe.name!r}: {name} {value!r} is unknown; {near}")
    weights, normalizers = _TOKENS[recipe.tokens]
    if recipe.weights not in weights:
        wrong = f"tokens {recipe.tokens!r} and weights {recipe.weights!r}"
        near = nearest(str(recipe.weights), weights)
        raise ValueError(f"profile {recipe.name!r}: {wrong} are incompatible; {near}")
    normalizers = _AS_IT_IS if recipe.is_plain else normalizers
    if recipe.normalize not in normalizers:
        goes = f"tokens {recipe.tokens!r} with weights {recipe.weights!r}"
        raise ValueError(f"profile {recipe.name!r}: normalize must be {' or '.join(map(repr, normalizers))} for {goes}")
    for name, values in _OF_SCRIPT.items():
        value = getattr(recipe, name)
        if value is not None and (value not in values or recipe.tokens != "script"):
            wanted = " or ".join(map(repr, values))
            raise ValueError(
                f"profile {recipe.name!r}: {name} must be None, or {wanted} with tokens 'script', got {value!r}"
            )
    _check_lists(recipe)


def _check_parts(recipe: Recipe) -> None:
    """Raise `ValueError` if fields contradict each other."""
    is_regex, is_given = recipe.tokens == "regex", recipe.tokens == "features"
    wrong = {
        "tfidf-float requires cap=None and min_features=1": recipe.is_plain
        and (recipe.cap is not None or recipe.min_features != 1),
        "tfidf-float does not support sketches or keys": recipe.is_plain and recipe.makes_signatures,
        f"a sketch requires normalize={' or '.join(NORMALIZE_NAMES)}": recipe.sketch is not None
        and not recipe.is_normal,
        f"english requires hash={HASH_NAME}": recipe.english is not None and recipe.hash != HASH_NAME,
        f"hash {recipe.hash} does not use a seed; set seed=0": recipe.seed != 0 and not HASHES[recipe.hash].has_seed,
        "tokens 'regex' requires a pattern, and vice versa": is_regex != (recipe.pattern is not None),
        "tokens 'features' requires min_features=1 and does not support fields": is_given
        and (recipe.min_features != 1 or recipe.fields is not None),
        "tfidf-float does not support fields": recipe.is_plain and recipe.fields is not None,
        f"keying={Keying.IN_PARTS.value} requires key={TAGS}": recipe.keying == Keying.IN_PARTS.value
        and recipe.key not in (TAGS, None),
        "a rarity table requires weights=rarity": recipe.rarity is not None and recipe.weights != BY_RARITY,
        "weights=rarity requires english=off and does not support an idf table": recipe.weights == BY_RARITY
        and (recipe.english is not None or recipe.idf == OWN),
    }
    for reason, is_wrong in wrong.items():
        if is_wrong:
            raise ValueError(f"profile {recipe.name!r}: {reason}")
    try:
        if recipe.pattern is not None and re.compile(recipe.pattern).groups:
            raise ValueError("capturing groups are not supported; use (?:…)")
    except (re.error, ValueError) as error:
        raise ValueError(f"profile {recipe.name!r}: invalid pattern {recipe.pattern!r:.80}: {error}") from error
    if len(recipe.field_weights) > _MOST_FIELDS:
        raise ValueError(
            f"profile {recipe.name!r}: {len(recipe.field_weights)} fields, but at most {_MOST_FIELDS} are supported"
        )


def _check_lists(recipe: Recipe) -> None:
    if recipe.idf not in (IDF_NAME, OWN):
        raise ValueError(f"profile {recipe.name!r}: idf must be {IDF_NAME!r} or {OWN!r}, got {recipe.idf!r}")
    if recipe.english == OWN and recipe.idf != OWN:
        raise ValueError(f"profile {recipe.name!r}: english {OWN!r} requires idf {OWN!r}")
    for name in ("idf_sha256", "words", "stops", "rarity"):
        value = getattr(recipe, name)
        if value is not None and not _SHA256.fullmatch(str(value)):
            raise ValueError(f"profile {recipe.name!r}: {name} must be a SHA-256 of 64 hex digits, got {value!r}")
    has_words = recipe.idf == OWN or recipe.words is not None or recipe.stops is not None
    if has_words and recipe.tokens not in ("jieba", "script", "cppjieba"):
        raise ValueError(
            f"profile {recipe.name!r}: a custom idf table, word list or stop word list works only with jieba's tokens"
        )


def _check_name(recipe: Recipe) -> None:
    base_name, colon, written = recipe.name.partition(":")
    if base_name not in _BUILT_IN or len(recipe.name) > _MOST_NAME:
        if not _NAME.fullmatch(recipe.name):
            raise ValueError(
                "a profile's name must begin with a-z or 0-9 and have at most 64 characters, all of them a-z, 0-9, "
                f"'.', '_' or '-', got {recipe.name!r:.80}"
            )
        return
    base = _BUILT_IN[base_name]
    if (_changed(base, written) if colon else _values(base)) != _values(recipe):
        raise ValueError(f"the name {recipe.name!r} is reserved for the built-in profile; choose another name")


def _values(recipe: Recipe) -> dict[str, Any]:
    return {name: getattr(recipe, name) for name in FIELDS if name != "name"}


def _changed(base: Recipe, written: str) -> dict[str, Any]:
    """Return the fields of a built-in recipe, changed by the options written after its name."""
    given = read_options(written)
    for option in given:
        if option not in _OPTIONS:
            raise ValueError(f"unknown option {option!r:.80}; {nearest(option, (*_OPTIONS, *LISTS))}")
    if given.get("fields") is not None:
        given["fields"] = write_fields(field_weights(str(given["fields"])))
    if given.get("sketch", "") is None:  # a variant without a sketch does not have a key either
        given.setdefault("key", None)
    return _values(base) | given


def _name_of(base: Recipe, changed: dict[str, Any]) -> str:
    """Return the name of a recipe that differs from a built-in one."""
    known = _values(base)
    different = {option: changed[option] for option in _OPTIONS if changed[option] != known[option]}
    if different.get("sketch", "") is None and different.get("key", "") is None:
        del different["key"]
    return f"{base.name}:{write_options(different)}"


def _peer(name: str, normalize: str, tokens: str, n: int, hash: str, **others: Any) -> Recipe:
    """Return a recipe that reproduces another library.

    By default, each feature votes once per occurrence, without a cap or a minimum number of features.
    """
    return Recipe(
        name, normalize, tokens, **{"weights": "count", "cap": None, "min_features": 1, **others}, n=n, hash=hash
    )


_BUILT_IN: dict[str, Recipe] = {}
_BUILT_IN |= {
    recipe.name: recipe
    for recipe in (
        Recipe("auto-2", han=SIMPLIFIED_NAME, english=ENGLISH_NAME, sketch=MOST_SHINGLE, key=6),
        Recipe(
            "auto-3",
            normalize=LAYOUT_FREE_NAME,
            weights=BY_RARITY,
            word_unit=3,
            char_unit=2,
            cap=None,
            min_features=1,
            han=CHINESE_ONLY_NAME,
            sketch=MOST_SHINGLE,
            key=TAGS,
            rarity=GENERAL_SHA256,
            keying=Keying.IN_PARTS.value,
        ),
        Recipe("auto-1"),
        Recipe("zh-1", tokens="jieba", weights="tfidf"),
        Recipe("words-1", tokens="words", weights="count"),
        Recipe("chars-1", tokens="chars", weights="count", n=3),
        Recipe("jieba-topn-1", "none", "jieba", "tfidf-float", top=20, cap=None, min_features=1),
        Recipe("cppjieba-1", "none", "cppjieba", "tfidf-float", cap=None, min_features=1, hash="jenkins-lookup3"),
        Recipe(FEATURES_PROFILE, "none", "features", "given", cap=None, min_features=1),
        _peer("1e0ng-1", "lower-word-characters", "chars", 4, "md5-last"),
        _peer("seomoz-1", "none", "chars", 4, "md5-first", least=4),
        _peer("data-juicer-1", "lower", "regex", 6, "md5-first", pattern=BETWEEN_SPACES, least=6),
        _peer("text-dedup-1", "lower", "regex", 3, "xxh3-64", pattern=r"\w+", weights="binary", seed=42, least=5),
        _peer("text-dedup-chars-1", "none", "text-dedup-grams", 3, "xxh3-64", weights="binary"),
        _peer("trafilatura-1", "none", "trafilatura-words", 1, "blake2b-64", tie="one"),
        _peer("clickhouse-1", "none", "clickhouse-words", 3, "crc32c"),
        _peer("clickhouse-ngram-1", "none", "bytes", 3, "crc32c"),
        _peer("java-ik-1", NORMALIZE_NAME, "jieba", 1, "fnv-1-64-utf16", tie="one"),
        _peer("mfonda-1", "lower", "regex", 1, "fnv-1-64", pattern=WORDS_AND_LINKS, tie="one"),
    )
}
BUILT_IN_NAMES = tuple(_BUILT_IN)
