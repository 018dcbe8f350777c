"""A profile: everything that decides a text's fingerprint, frozen, named and versioned.

An index is tied to its profile. What a built-in profile gives never changes; better ideas get a new name.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import ProfileMismatchError, TextTooShortError
from hsimhash.fingerprint.bits import LIMIT, format_fingerprint
from hsimhash.fingerprint.features import TOO_SHORT, find_features, fingerprint_batch
from hsimhash.fingerprint.formats import parse_fingerprint
from hsimhash.fingerprint.hashes import HASH_NAME, SEED_LIMIT, murmur64
from hsimhash.fingerprint.idf import IDF_NAME, IDF_SHA256
from hsimhash.fingerprint.normalize import NORMALIZE_NAME
from hsimhash.fingerprint.segment import SEGMENTER_NAME
from hsimhash.fingerprint.vote import EXACT_LIMIT, vote, vote_in_order
from hsimhash.fingerprint.weights import SCALE, capped

PROFILE_VERSION = 1
BATCH_DOCUMENTS = 256  # the arrays of so many pages stay in the second-level cache; 1,024 took 1.5 times as long
BATCH_CHARACTERS = 1 << 19

# Something of every kind of feature; its fingerprint is compared with the profile's own at first use.
PROBE_TEXT = (
    "近似重复的网页在互联网上非常普遍，搜索引擎需要快速识别它们。我们把每个文档的特征词加权求和，得到六十四位的指纹；"
    "两个指纹的汉明距离越小，文档内容就越相似。北京大学的研究人员在２０１９年发表了论文。"
    "Near-duplicate pages are common on the web, and a search engine doesn't like them: Node.js, C++ and "
    "apt-get are words too. Быстрая коричневая лиса прыгает через ленивую собаку. 지문은 문서의 내용을 요약한다. "
    "これはテストのためのひらがなとカタカナです。ภาษาไทยไม่มีช่องว่างระหว่างคำ"
)

_TOKENS = {"jieba": ("tfidf", "tfidf-float"), "words": ("count",), "script": ("tfidf+count",)}  # and their weights
_FIXED = {"idf": IDF_NAME, "segmenter": SEGMENTER_NAME, "hash": HASH_NAME, "tie": "zero"}
_LEAST = {"n": 1, "char_n": 1, "word_unit": 1, "char_unit": 1, "top": 1, "cap": 1, "min_features": 1, "seed": 0}
_MOST = {"n": 64, "char_n": 64, "word_unit": 1 << 20, "char_unit": 1 << 20, "seed": SEED_LIMIT - 1}
_OPTIONAL = ("top", "cap")
_TOP_OF = re.compile(r"jieba-topn-1:top=([1-9][0-9]{0,6})")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Fingerprints of texts, in the order given: `values` uint64 and `kinds` uint8, shape (n,) each.

    A kind is `VOTED`; `EXACT`: too few features, so the hash of the normalised text; or `TOO_SHORT`: nothing to
    fingerprint, the value is 0 and must not be indexed.
    """

    values: NDArray[np.uint64]
    kinds: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of a text, what it weighs in the vote, and its hash."""

    text: str
    weight: int | float
    hash: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What decides a fingerprint; make your own by `replace(Profile.named("words-1"), name="mine-1", n=3)`.

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
        idf: the table of inverse document frequencies.
        idf_sha256: of its content.
        segmenter: what cuts Chinese words.
        hash: of a feature's UTF-8.
        seed: of the hash.
        tie: "zero": an even vote gives 0.
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
    probe: int | None = field(init=False, default=None, compare=False)  # as recorded in JSON; `verify` compares

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_choices(self)
        _check_name(self)

    @classmethod
    def named(cls, name: str) -> Profile:
        """Return the built-in profile of that name, such as "auto-1" or "jieba-topn-1:top=100"."""
        top = _TOP_OF.fullmatch(name)
        if top and int(top[1]) != _BUILT_IN["jieba-topn-1"].top:
            return dataclasses.replace(_BUILT_IN["jieba-topn-1"], name=name, top=int(top[1]))
        known = _BUILT_IN.get("jieba-topn-1" if top else name)
        if known is None:
            raise ValueError(f"no profile {name!r}; known are {', '.join(_BUILT_IN)}, jieba-topn-1:top=N")
        return known

    @property
    def is_plain(self) -> bool:
        """Whether it fingerprints as jieba's `extract_tags` and a plain loop do."""
        return self.weights == "tfidf-float"

    def fingerprint(self, text: str) -> int:
        """Return a text's fingerprint; `TextTooShortError` when there is nothing to fingerprint."""
        found = self.fingerprints([text])
        if found.kinds[0] == TOO_SHORT:
            raise TextTooShortError(f"nothing to fingerprint by {self.name} in {text[:40]!r}")
        return int(found.values[0])

    def fingerprints(self, texts: Sequence[str]) -> Fingerprints:
        """Return the texts' fingerprints; which texts come together changes none of them."""
        if isinstance(texts, str):
            raise TypeError("fingerprints takes a sequence of texts; for one text there is fingerprint")
        parts = [fingerprint_batch(self, batch) for batch in split_batch(texts)]
        values = [np.empty(0, np.uint64), *(values for values, _ in parts)]
        return Fingerprints(np.concatenate(values), np.concatenate([np.empty(0, np.uint8), *(k for _, k in parts)]))

    def fingerprint_features(self, features: Mapping[str | int, float] | Iterable[tuple[str | int, float]]) -> int:
        """Return the fingerprint of your own features, with this profile's hash, seed, cap and tie rule.

        The cap levels the weights of fewer than `cap` features: for a handful take a profile with `cap=None`.

        Args:
            features: each a string, or an unsigned 64-bit number that is its own hash, and its weight: finite, counted
                in steps of 1/4096; one that weighs 0 has no vote. The weights of a repeated feature add up; there is no
                least number.

        Raises:
            TextTooShortError: there are none with a vote.
            ValueError: a weight or a number is outside its range.
        """
        summed: dict[int, float] = {}
        for feature, weight in features.items() if isinstance(features, Mapping) else features:
            key = _feature_hash(feature, self.seed)
            if weight == 0:
                continue
            summed[key] = summed.get(key, 0) + _feature_weight(feature, weight, in_steps=not self.is_plain)
        if not summed:
            raise TextTooShortError("no features, so no fingerprint")
        if sum(summed.values()) >= EXACT_LIMIT:
            raise ValueError(f"the features' weights sum to over {EXACT_LIMIT // SCALE}; divide them all by the same")
        doc, hashes = np.zeros(len(summed), np.int64), np.array(list(summed), np.uint64)
        weights = capped(doc, np.array(list(summed.values()), np.float64), self.cap, 1)
        return int((vote_in_order if self.is_plain else vote)(doc, hashes, weights, 1)[0])

    def features(self, text: str) -> list[Feature]:
        """Return the text's features with the weights that vote (cap applied), heaviest first.

        With fewer than `min_features` they do not vote: the fingerprint is the hash of the normalised text.
        """
        found = find_features(self, text)
        weights = found.weights.tolist() if self.is_plain else found.weights.astype(np.int64).tolist()
        listed = map(Feature, found.texts(), weights, found.hashes.tolist())
        return sorted(listed, key=lambda feature: -feature.weight)

    def verify(self) -> None:
        """Raise `ProfileMismatchError` unless the built-in probe text still gets the profile's own fingerprint."""
        expected = _PROBES.get(self.name) if self.probe is None else self.probe
        if expected is not None and _probe(self) != expected:
            raise ProfileMismatchError(
                f"profile {self.name} gives {format_fingerprint(_probe(self))} for its probe text, not "
                f"{format_fingerprint(expected)}: a segmenter or dictionary changed; install those it was made with"
            )

    def to_json(self) -> dict[str, object]:
        """Return the profile as what `json.dumps` takes, its probe's fingerprint included."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        expected = _PROBES.get(self.name) if self.probe is None else self.probe
        probe = _probe(self) if expected is None else expected
        return {"version": PROFILE_VERSION, **fields, "probe": format_fingerprint(probe)}

    @classmethod
    def from_json(cls, data: object) -> Profile:
        """Return the profile that `to_json` wrote; `ValueError` if it is of another version or has other fields."""
        if not isinstance(data, Mapping) or data.get("version") != PROFILE_VERSION:
            raise ValueError(f"not a profile of version {PROFILE_VERSION}: {data!r:.200}")
        if wrong := sorted(data.keys() ^ {"version", *_FIELDS, "probe"}):
            raise ValueError(f"a profile of version {PROFILE_VERSION} has not exactly these fields: {', '.join(wrong)}")
        profile = cls(**{name: data[name] for name in _FIELDS})
        object.__setattr__(profile, "probe", parse_fingerprint(str(data["probe"]), format="hex"))
        return profile


_FIELDS = tuple(entry.name for entry in dataclasses.fields(Profile) if entry.init)


def split_batch(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return the texts in rows of at most `BATCH_DOCUMENTS`, and of `BATCH_CHARACTERS` unless one has more."""
    start = characters = 0
    for index, text in enumerate(texts):
        full = index - start == BATCH_DOCUMENTS or characters + len(text) > BATCH_CHARACTERS
        if full and index > start:
            yield texts[start:index]
            start, characters = index, 0
        characters += len(text)
    if start < len(texts):
        yield texts[start:]


@functools.cache
def _probe(profile: Profile) -> int:
    return profile.fingerprint(PROBE_TEXT)


def _feature_hash(feature: str | int, seed: int) -> int:
    if isinstance(feature, str):
        return murmur64(feature, seed)
    number = operator.index(feature)
    if not 0 <= number < LIMIT:
        raise ValueError(f"a feature is a string or a number of at least 0 and below 2**64, not {feature!r}")
    return number


def _feature_weight(feature: str | int, weight: float, *, in_steps: bool) -> float:
    if not (math.isfinite(weight) and weight * SCALE >= 1):
        raise ValueError(f"feature {feature!r} weighs {weight}; a weight is 0, or finite and at least 1/{SCALE}")
    return round(weight * SCALE) if in_steps else weight


def _check_numbers(profile: Profile) -> None:
    for name, least in _LEAST.items():
        value = getattr(profile, name)
        if value is None and name in _OPTIONAL:
            continue
        if type(value) is not int or not least <= value <= _MOST.get(name, EXACT_LIMIT):
            raise ValueError(f"profile {profile.name!r}: {name} is a number from {least} on, not {value!r}")


def _check_choices(profile: Profile) -> None:
    for name, only in _FIXED.items():
        if getattr(profile, name) != only:
            raise ValueError(f"profile {profile.name!r}: {name} can only be {only!r}, not {getattr(profile, name)!r}")
    if profile.weights not in _TOKENS.get(profile.tokens, ()):
        known = "; ".join(f"{tokens} with {' or '.join(weights)}" for tokens, weights in _TOKENS.items())
        wrong = f"tokens {profile.tokens!r} with weights {profile.weights!r}"
        raise ValueError(f"profile {profile.name!r}: there are no {wrong}; there are {known}")
    if profile.normalize != ("none" if profile.is_plain else NORMALIZE_NAME):
        raise ValueError(f"profile {profile.name!r}: normalize is 'none' for tfidf-float, else {NORMALIZE_NAME!r}")
    if profile.is_plain and (profile.cap is not None or profile.min_features != 1):
        raise ValueError(f"profile {profile.name!r}: tfidf-float goes with cap=None and min_features=1")
    if profile.top is not None and not profile.is_plain:
        raise ValueError(f"profile {profile.name!r}: top goes with tfidf-float only")


def _check_name(profile: Profile) -> None:
    top = _TOP_OF.fullmatch(profile.name)
    base = _BUILT_IN.get("jieba-topn-1" if top else profile.name)
    if base is None:
        if not _NAME.fullmatch(profile.name):
            raise ValueError(f"a profile's name is up to 64 of a-z, 0-9, '.', '_' and '-', not {profile.name!r}")
        return
    fixed = {name: getattr(base, name) for name in _FIELDS if name != "name"}
    if top:
        fixed["top"] = int(top[1])
    if any(getattr(profile, name) != value for name, value in fixed.items()):
        raise ValueError(f"the name {profile.name!r} stands for the built-in profile; give yours another")


_BUILT_IN: dict[str, Profile] = {}
_BUILT_IN |= {
    profile.name: profile
    for profile in (
        Profile("auto-1"),
        Profile("zh-1", tokens="jieba", weights="tfidf"),
        Profile("words-1", tokens="words", weights="count"),
        Profile("jieba-topn-1", "none", "jieba", "tfidf-float", top=20, cap=None, min_features=1),
    )
}
# Pinned for ever: what the built-in profiles give for PROBE_TEXT.
_PROBES = {
    "auto-1": 0xA9A3669B168E67C0,
    "zh-1": 0x8D38E7E7A27433C6,
    "words-1": 0x2CE20A1B2323D446,
    "jieba-topn-1": 0xD5586F67A2E03984,
    "jieba-topn-1:top=100": 0xDD48E76FA2743382,
}
