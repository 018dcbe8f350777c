"""Profiles: frozen, named and versioned settings that fully determine a text's fingerprint.

An index is tied to its profile. The results of a built-in profile never change; improvements get a new name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hsimhash.errors import ProfileMismatchError, TextTooShortError
from hsimhash.fingerprint.bits import Uint64s, format_fingerprint, parse_fingerprint
from hsimhash.fingerprint.cppjieba import FILES, WHENCE
from hsimhash.fingerprint.custom_features import OwnFeatures, weighted_hashes
from hsimhash.fingerprint.document_fields import join_fields
from hsimhash.fingerprint.features import (
    Fingerprints,
    find_features,
    normalized_words,
    signature_batch,
    sketch_shingles,
)
from hsimhash.fingerprint.long_texts import LONG_CHARACTERS, is_long, long_shingles, long_signature
from hsimhash.fingerprint.native import signs_natively
from hsimhash.fingerprint.normalize import CHINESE_ONLY_NAME
from hsimhash.fingerprint.profile_grammar import name_with_lists, split_lists
from hsimhash.fingerprint.rarity import RarityTable, read_table
from hsimhash.fingerprint.recipe import ADDED_FIELDS, BY_RARITY, DEFAULTS, FIELDS, OWN, Recipe
from hsimhash.fingerprint.signature import TOO_SHORT, Signature, Signatures
from hsimhash.fingerprint.texts import as_text, as_texts
from hsimhash.fingerprint.vote import capped, vote, vote_in_order
from hsimhash.fingerprint.wordlists import IDF, RARITY_TABLE, STOPS, WORDS, keep_list, kept_lists, read_list

_ADDED_IN = {name: version for version, names in ADDED_FIELDS.items() for name in names}
_FIELDS_OF = {
    version: tuple(name for name in FIELDS if _ADDED_IN.get(name, 1) <= version) for version in (1, *ADDED_FIELDS)
}
BATCH_DOCUMENTS = 256  # the arrays for this many pages fit in the L2 cache; 1,024 took 1.5 times as long
NATIVE_DOCUMENTS = 1024  # larger batches mean fewer calls, and each call waits for the GIL
BATCH_CHARACTERS = 1 << 19
PIECES_BATCH_CHARACTERS = 1 << 16  # if a piece begins at every character; larger batches take twice as long

_JAPANESE = "これはテストのためのひらがなとカタカナです。"
# Contains every kind of feature. `Profile.verify` compares its fingerprint with the one recorded in the profile.
PROBE_TEXT = (
    "近似重复的网页在互联网上非常普遍，搜索引擎需要快速识别它们。我们把每个文档的特征词加权求和，得到六十四位的指纹；"
    "两个指纹的汉明距离越小，文档内容就越相似。北京大学的研究人员在２０１９年发表了论文。"
    "Near-duplicate pages are common on the web, and a search engine doesn't like them: Node.js, C++ and "
    "apt-get are words too. Быстрая коричневая лиса прыгает через ленивую собаку. 지문은 문서의 내용을 요약한다. "
    f"{_JAPANESE}ภาษาไทยไม่มีช่องว่างระหว่างคำ"
)
PROBE_WITHOUT_JAPANESE = PROBE_TEXT.replace(_JAPANESE, "")  # `simplified-2` treats Han next to kana as Japanese
PROBE_FEATURES = (
    '{"指纹": 3, "fingerprint": 0.75, "feature": 1, "weight": 0.5, "hash": 2}'  # probe for profiles of given features
)


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of a text, with its weight in the vote and its hash."""

    text: str
    weight: int | float
    hash: int


@dataclass(frozen=True, slots=True)
class Profile(Recipe):
    """Determines the fingerprints of texts. Make your own: `replace(Profile.named("words-1"), name="mine-1", n=3)`."""

    probe: int | None = field(init=False, default=None, compare=False)  # as recorded in JSON; compared by `verify`

    @staticmethod
    def named(name: str) -> Profile:
        """Return a built-in profile such as "auto-1", or a variant such as "words-1:n=3,hash=fnv-1a-64".

        The name may include your own lists, read from files: "auto-2:idf=pages.idf,words=terms.txt,stops=stops.txt".
        """
        plain, lists = split_lists(name)
        recipe = Recipe.named(plain)
        profile = Profile(*(getattr(recipe, name) for name in FIELDS))
        try:
            profile = profile.with_lists(**lists, name=None) if lists else profile
            if profile.lacks_lists:
                raise ValueError(f"it requires cppjieba's lists; use {recipe.name}:{FILES}; {WHENCE}")
            return profile
        except OSError as error:
            raise ValueError(f"profile {name!r:.80}: {error.filename}: {error.strerror}") from error
        except ValueError as error:
            raise ValueError(f"profile {name!r:.80}: {error}") from error

    @property
    def is_known_by_name(self) -> bool:
        """Whether `named` can recreate this profile from its name; False with your own lists or your own name."""
        try:
            return Profile.named(self.name) == self
        except ValueError:
            return False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the profile together with its lists, so that another process can recreate it."""
        values = tuple(getattr(self, name) for name in FIELDS)
        return _remade, (values, self.probe, kept_lists(filter(None, self.lists)))

    def with_lists(
        self,
        *,
        idf: Path | None = None,
        words: Path | None = None,
        stops: Path | None = None,
        rarity: Path | None = None,
        name: str | None = None,
    ) -> Profile:
        """Return this profile with your own lists, read from UTF-8 files.

        Args:
            idf: File with a word and its inverse document frequency on each line, as written by `fit_idf`. Words that
                are not listed get the median. Space-separated words in every language are then also weighted by this
                table, individually.
            words: File with one word per line to add to the segmenter's dictionary, optionally followed by its
                frequency and its tag.
            stops: File with one word per line to exclude from the features, in addition to jieba's stop words.
            rarity: Table written by `hsimhash fit`, for a profile with weights "rarity".
            name: Name of the new profile. The default identifies the lists by their hashes, as in auto-2-idf-64953954.

        Raises:
            ValueError: a file is not a valid list (the message names the line), or the profile cannot use it.
        """
        if rarity and self.weights != BY_RARITY:
            raise ValueError(
                f"profile {self.name} cannot use {rarity}: a rarity table requires weights=rarity; use auto-3"
            )
        given = {"idf": (IDF, idf), "words": (WORDS, words), "stops": (STOPS, stops), "rarity": (RARITY_TABLE, rarity)}
        hashes = {
            option: keep_list(_content_of(self, kind, path, _mark_of(path)))
            for option, (kind, path) in given.items()
            if path
        }
        changes: dict[str, Any] = dict(hashes)
        if idf:
            changes |= {"idf": OWN, "idf_sha256": hashes["idf"]} | ({"english": OWN} if self.tokens == "script" else {})
        return replace(self, name=name or name_with_lists(self.name, hashes), **changes)

    def fitted(self, table: RarityTable) -> Profile:
        """Return this profile with the given rarity table."""
        sha256 = keep_list(table.content())
        return replace(self, name=name_with_lists(self.name, {"rarity": sha256}), rarity=sha256)

    def _normalized(self, words: Sequence[str]) -> list[str]:
        return list(words) if self.is_plain else normalized_words(self, words)

    def fingerprint(self, text: str) -> int:
        """Return the fingerprint of a text; raise `TextTooShortError` if the text is too short to have one."""
        return self._one(self._signed([as_text(text)], has_sketches=False), text).fingerprint

    def fingerprints(self, texts: Iterable[str]) -> Fingerprints:
        """Return the fingerprints of texts, in order. A fingerprint depends only on its own text."""
        found = self._signed(texts, has_sketches=False)
        return Fingerprints(found.fingerprints, found.kinds)

    def signature(self, text: str) -> Signature:
        """Return the signature of a text; raise `TextTooShortError` if the text is too short to have one."""
        return self._one(self.signatures([as_text(text)]), text)

    def signatures(self, texts: Iterable[str]) -> Signatures:
        """Return the signatures of texts, in order. A signature depends only on its own text."""
        return self._signed(texts, has_sketches=True)

    def _one(self, found: Signatures, text: str) -> Signature:
        if found.kinds[0] == TOO_SHORT:
            raise TextTooShortError(
                f"text too short: profile {self.name} finds nothing to fingerprint in {text[:40]!r}"
            )
        return found.at(0)

    def _signed(self, texts: Iterable[str], *, has_sketches: bool) -> Signatures:
        return Signatures.joined(
            long_signature(self, batch[0], has_sketches=has_sketches)
            if is_long(self, batch)
            else signature_batch(self, batch, has_sketches=has_sketches)
            for batch in self.batches(as_texts(texts))
        )

    def shingles(self, texts: Iterable[str]) -> Iterator[Uint64s]:
        """Yield the hashes of each text's distinct shingles, ascending; the text's sketch is made from them.

        Raises:
            ValueError: the profile does not make sketches.
        """
        n = self.sketch
        if n is None:
            raise ValueError(f"profile {self.name} does not make sketches, so its texts do not have shingles")
        for batch in split_batch(as_texts(texts)):
            if is_long(self, batch):
                yield long_shingles(self, batch[0], n)
            else:
                yield from sketch_shingles(self, batch, n)

    def batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        """Split texts into batches of an efficient size for signing."""
        most = PIECES_BATCH_CHARACTERS if self.is_counted else BATCH_CHARACTERS
        return split_batch(texts, most, NATIVE_DOCUMENTS if signs_natively(self) else BATCH_DOCUMENTS)

    def document(self, fields: Mapping[str, str]) -> str:
        """Join the texts of a document's fields into one text for the other methods; a missing field is empty.

        Raises:
            ValueError: the profile does not have fields, or does not have one of the given fields.
        """
        known = self.field_weights
        if wrong := [name for name in fields if name not in known]:
            raise ValueError(
                f"profile {self.name} does not have a field {wrong[0]!r:.80}; available: {', '.join(known) or 'none'}"
            )
        return join_fields(as_text(fields.get(name, ""), f"field {name!r}") for name in known)

    def fingerprint_features(self, features: OwnFeatures) -> int:
        """Return the fingerprint of your own features, with this profile's hash, seed, cap and tie rule.

        With fewer than `cap` features, the cap reduces the differences between their weights. For a handful of
        features, use a profile with `cap=None`.

        Args:
            features: Features with their weights. A feature is a string, or an unsigned 64-bit number that serves as
                its own hash. A weight is finite and is rounded to steps of 1/4096; features of weight 0 do not vote.
                The weights of a repeated feature add up. There is no minimum number of features.

        Raises:
            TextTooShortError: none of the features has a vote.
            ValueError: a weight or a number is out of range.
        """
        summed = weighted_hashes(self, features)
        if not summed:
            raise TextTooShortError("nothing to fingerprint: expected at least one feature with a weight above 0")
        doc, hashes = np.zeros(len(summed), np.int64), np.array(list(summed), np.uint64)
        weights = capped(doc, np.array(list(summed.values()), np.float64), self.cap, 1)
        return int((vote_in_order if self.is_plain else vote)(doc, hashes, weights, 1, self.tie)[0])

    def features(self, text: str) -> list[Feature]:
        """Return the text's features with their weights in the vote (cap applied), heaviest first.

        If there are fewer than `min_features`, they do not vote: the fingerprint is the hash of the normalised text.
        """
        found = find_features(self, as_text(text))
        weights = found.weights.tolist() if self.is_plain else found.weights.astype(np.int64).tolist()
        listed = map(Feature, found.texts(), weights, found.hashes.tolist())
        return sorted(listed, key=lambda feature: -feature.weight)

    def verify(self) -> None:
        """Raise `ProfileMismatchError` unless the probe text still yields the profile's recorded fingerprint."""
        found, promised = _probe(self), self._promised_probe()
        if found != promised:
            raise ProfileMismatchError(
                f"profile {self.name} returns {format_fingerprint(found)} for its probe text, expected "
                f"{format_fingerprint(promised)}: the segmenter or a dictionary has changed; install the versions that "
                "the profile was made with"
            )

    def _promised_probe(self) -> int:
        """Return the recorded fingerprint of the probe, else the pinned one, else the current one (custom profiles)."""
        return self.probe if self.probe is not None else _PROBES.get(self.name) or _probe(self)

    def to_json(self) -> dict[str, object]:
        """Return the profile as values for `json.dumps`, including the fingerprint of its probe."""
        version = max((added for name, added in _ADDED_IN.items() if getattr(self, name) != DEFAULTS[name]), default=1)
        fields = {name: getattr(self, name) for name in _FIELDS_OF[version]}
        return {"version": version, **fields, "probe": format_fingerprint(self._promised_probe())}

    @classmethod
    def from_json(cls, data: object) -> Profile:
        """Return the profile that `to_json` wrote; raise `ValueError` for an unknown version or unexpected fields."""
        if not isinstance(data, Mapping) or data.get("version") not in _FIELDS_OF:
            raise ValueError(f"not a profile of version {' or '.join(map(str, _FIELDS_OF))}: {data!r:.200}")
        names = _FIELDS_OF[data["version"]]
        if wrong := sorted(data.keys() ^ {"version", *names, "probe"}):
            raise ValueError(
                f"profile of version {data['version']} has missing or unexpected fields: {', '.join(wrong)}"
            )
        profile = cls(**{name: data[name] for name in names})
        object.__setattr__(profile, "probe", parse_fingerprint(str(data["probe"]), format="hex"))
        return profile


@functools.lru_cache(maxsize=8)
def _content_of(profile: Profile, kind: str, path: Path, _: tuple[int, ...]) -> bytes:
    """Return a list's content; cached, because commands need it repeatedly, and half a million words take a second."""
    if kind == RARITY_TABLE:
        return read_table(path)
    return read_list(kind, path, profile._normalized, is_exact=profile.tokens == "cppjieba")


def _mark_of(path: Path) -> tuple[int, ...]:
    """Return values that change whenever the file changes."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _remade(values: tuple[Any, ...], probe: int | None, lists: Mapping[str, bytes]) -> Profile:
    for content in lists.values():
        keep_list(content)
    profile = Profile(*values)
    object.__setattr__(profile, "probe", probe)
    return profile


def split_batch(
    texts: Sequence[str], most_characters: int = BATCH_CHARACTERS, most_documents: int = BATCH_DOCUMENTS
) -> Iterator[Sequence[str]]:
    """Split texts into batches of bounded count and size; a long text gets a batch of its own."""
    start = characters = 0
    for index, text in enumerate(texts):
        is_long = len(text) > LONG_CHARACTERS
        size = max(len(text), most_characters + 1) if is_long else len(text)
        full = index - start == most_documents or characters + size > most_characters
        if full and index > start:
            yield texts[start:index]
            start, characters = index, 0
        characters += size
    if start < len(texts):
        yield texts[start:]


@functools.cache
def _probe(profile: Profile) -> int:
    if profile.tokens == "features":
        return profile.fingerprint(PROBE_FEATURES)
    return profile.fingerprint(PROBE_WITHOUT_JAPANESE if profile.han == CHINESE_ONLY_NAME else PROBE_TEXT)


# Pinned for ever: the fingerprints of the probe texts under the built-in profiles.
_PROBES = {
    "auto-3": 0x9D29E6E9BA1C23C2,
    "auto-3:sketch=off": 0x9D29E6E9BA1C23C2,
    "auto-2": 0x9929E24ABA1527C0,
    "auto-2:sketch=off": 0x9929E24ABA1527C0,
    "auto-1": 0xA9A3669B168E67C0,
    "zh-1": 0x8D38E7E7A27433C6,
    "words-1": 0x2CE20A1B2323D446,
    "jieba-topn-1": 0xD5586F67A2E03984,
    "jieba-topn-1:top=100": 0xDD48E76FA2743382,
    "chars-1": 0x57772C8CB0843D0C,
    "features-1": 0xC41BA07436E63422,
    "1e0ng-1": 0x94340BC9AF292E8C,
    "seomoz-1": 0xC0869043A3C32613,
    "data-juicer-1": 0x952A8F2006931086,
    "text-dedup-1": 0xA18470D8AAB1C138,
    "text-dedup-chars-1": 0x72B208E2D159C99C,
    "trafilatura-1": 0x4958992897E46F4B,
    "clickhouse-1": 0x000000002B4D60AC,
    "clickhouse-ngram-1": 0x000000006F5A22DB,
    "java-ik-1": 0x08568F07B51A43E3,
    "mfonda-1": 0x98D8CF186BABB6BD,
}
