"""Cut text into words like jieba, using rjieba; return them, or number them in a memo and look up their weights.

rjieba is 15 to 20 times as fast as jieba. It cuts text into the same words, except for two differences that are
corrected here:

* rjieba keeps ASCII compounds (`node.js`, `apt-get`) whole; jieba splits them unless they are in its dictionary.
* rjieba makes words of Han characters beyond U+9FD5, which end a word in jieba. They are replaced with spaces here,
  because single characters are not features.

jieba's table of inverse document frequencies, `idf.txt`, is read from the installed jieba without importing it, because
the import takes seconds and trusts a cache file that any local user can write. A profile may have its own table, words
that are kept whole, and stop words in addition to jieba's.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hsimhash.errors import ProfileMismatchError
from hsimhash.fingerprint.bits import Floats, Int64s, Uint64s, counts_before
from hsimhash.fingerprint.murmur3 import HASH_NAME
from hsimhash.fingerprint.named_hashes import HASHES
from hsimhash.fingerprint.tokens import Spans, sorted_hashes
from hsimhash.fingerprint.wordlists import IDF, STOPS, WORDS, WordLists, list_entries

if TYPE_CHECKING:
    import rjieba

IDF_NAME = "jieba-0.42.1"
IDF_SHA256 = "501b70ec56c34d90f3f590f1918ca4b1bd617d5b46cd99bd6d17c7de6e4f80ed"
_DICTIONARY_SHA256 = "7197c3211ddd98962b036cdf40324d1ea2bfaa12bd028e68faa70111a88e12a8"
_TWICE = "B超 3 n\n".encode()  # jieba's dictionary has this line twice, rjieba's once; otherwise they are equal
SEGMENTER_NAME = "rjieba-0.2/jieba-0.42.1"
SEPARATOR = "\0"  # the segmenter makes it a token of its own and always cuts there
MEMO_LIMIT = 1_000_000  # maximum number of words; a larger memo is replaced by an empty one

# jieba.analyse.TFIDF.STOP_WORDS of jieba 0.42.1.
STOP_WORDS = frozenset(
    (
        "the", "of", "is", "and", "to", "in", "that", "we", "for", "an", "are", "by", "be", "as", "on", "with", "can",
        "if", "from", "which", "you", "it", "this", "then", "at", "have", "all", "not", "one", "has", "or",
    )
)  # fmt: skip
_RARE_HAN = re.compile("[\u3400-\u4dbf\u9fd6-\u9fff\uf900-\ufaff\U00020000-\U0002ebef\U0002f800-\U0002fa1f]")
_COMPOUND = re.compile(r"[a-zA-Z0-9+#&._%\-]+")
_COMPOUND_PARTS = re.compile(r"([a-zA-Z0-9]+(?:\.\d+)?%?)")  # jieba.finalseg.re_skip
_DICTIONARY_COMPOUNDS = frozenset(("AT&T", "C#", "C++", "c#", "c++"))  # all compounds in jieba's dict.txt

_BETWEEN = "\1"  # between words that are joined; it does not occur in normalised text
_CHARACTER_BYTES = 4  # at most, in UTF-8; two Han characters have at least six
_PART_CHARACTERS = 1 << 13  # documents are cut together until they have this many characters
_NO_FEATURE, _BREAK, _FIRST = 0, 1, 2  # word numbers


@functools.cache
def load_idf(sha256: str) -> tuple[dict[str, float], float]:
    """Return the idf of each word, and the median, which is used for unlisted words.

    Raises:
        ProfileMismatchError: the table is not available, or jieba's file is missing or has different content.
    """
    fields = (
        jieba_idf().split() if sha256 == IDF_SHA256 else [field for line in list_entries(IDF, sha256) for field in line]
    )
    weights = {text: float(text) for text in set(fields[1::2])}  # few distinct values, each shared by many words
    table = dict(zip(fields[::2], map(weights.__getitem__, fields[1::2]), strict=True))
    return table, sorted(table.values())[len(table) // 2]


def jieba_idf() -> str:
    """Return the content of jieba's idf.txt."""
    return _jieba_file(IDF_SHA256, "analyse", "idf.txt").decode()


def jieba_dictionary() -> bytes:
    """Return the words in rjieba's dictionary, one per line with frequency and tag, in UTF-8."""
    return _jieba_file(_DICTIONARY_SHA256, "dict.txt").replace(_TWICE, b"", 1)


def _jieba_file(sha256: str, *names: str) -> bytes:
    """Return the content of a file in the installed jieba; raise `ProfileMismatchError` if it is missing or differs."""
    spec = importlib.util.find_spec("jieba")
    if spec is None or not spec.submodule_search_locations:
        raise ProfileMismatchError(
            f"jieba is not installed: its {names[-1]} is needed for Chinese words; pip install jieba==0.42.1"
        )
    content = Path(spec.submodule_search_locations[0], *names).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ProfileMismatchError(
            f"the installed jieba's {names[-1]} has SHA-256 {found[:16]}…, but the profile requires {sha256[:16]}…: "
            "fingerprints would differ from the stored ones; pip install jieba==0.42.1"
        )
    return content


@functools.cache
def stop_words(sha256: str | None) -> frozenset[str]:
    """Return jieba's stop words and the words in a list."""
    return STOP_WORDS.union(line[0] for line in list_entries(STOPS, sha256)) if sha256 else STOP_WORDS


class Vocabulary(dict[str, int]):
    """Maps each word seen to its number: 0 if it is not a feature, 1 for the separator, negative for a compound.

    Look-ups are plain dictionary reads; only a new word takes the lock. Arrays are replaced, never changed under a
    reader, and a number is published only after its entry is written.
    """

    def __init__(self, lists: WordLists, seed: int, hash_name: str = HASH_NAME) -> None:
        super().__init__({SEPARATOR: _BREAK})
        self.hashes = np.zeros(1 << 14, np.uint64)
        self.words = [""] * _FIRST
        self.compounds: list[tuple[int, ...]] = []
        self._idf_name, self._idf = lists.idf, np.empty(0)
        self._stops = stop_words(lists.stops)
        self.own_list, self._own_words = lists.words, _segmenter(lists.words)[1]
        self._hash, self._seed = HASHES[hash_name].one, seed
        self._lock = threading.RLock()

    @property
    def idf(self) -> Floats:
        """The inverse document frequency of each word. The first read loads the table, which not all profiles need."""
        if not len(self._idf):
            with self._lock:
                of, median = load_idf(self._idf_name)
                found = np.zeros(len(self.hashes))
                found[_FIRST : len(self.words)] = [of.get(word, median) for word in self.words[_FIRST:]]
                self._idf = found
        return self._idf

    def __missing__(self, word: str) -> int:
        with self._lock:
            number = self.get(word)
            if number is None:
                self[word] = number = self._number(word)
            return number

    def _number(self, word: str) -> int:
        parts = [word] if word in self._own_words else split_compound(word)
        if len(parts) > 1:
            self.compounds.append(tuple(map(self.__getitem__, parts)))
            return -len(self.compounds)
        if len(word.strip()) < 2 or word.lower() in self._stops:
            return _NO_FEATURE
        number = len(self.words)
        if number == len(self.hashes):
            self.hashes = np.concatenate((self.hashes, np.zeros_like(self.hashes)))
            self._idf = np.concatenate((self._idf, np.zeros_like(self._idf)))
        self.hashes[number] = self._hash(word.encode(), self._seed)
        if len(self._idf):
            of, median = load_idf(self._idf_name)
            self._idf[number] = of.get(word, median)
        self.words.append(word)
        return number


def split_compound(word: str) -> list[str]:
    """Split a compound that rjieba keeps whole into the words that jieba makes of it."""
    if len(word) > 1 and not word.isalnum() and _COMPOUND.fullmatch(word) and word not in _DICTIONARY_COMPOUNDS:
        return [part for part in _COMPOUND_PARTS.split(word) if part]
    return [word]


_memo: dict[tuple[WordLists, int, str], Vocabulary] = {}
# A fork may copy the memo while another thread holds its lock.
os.register_at_fork(after_in_child=_memo.clear)


def vocabulary(lists: WordLists, seed: int, hash_name: str = HASH_NAME, *, most_words: int = MEMO_LIMIT) -> Vocabulary:
    """Return this process's memo of words. Callers keep the memo they use, so replacing it does not affect them."""
    key = lists, seed, hash_name
    found = _memo.get(key)
    if found is None or len(found) > most_words:
        found = _memo[key] = Vocabulary(*key)
    return found


@functools.cache
def _segmenter(words: str | None) -> tuple[rjieba.Jieba, frozenset[str]]:
    """Return a separate segmenter with the words in a list; words added to rjieba's shared one do not affect it."""
    segmenter, lines = rjieba_class()(), list_entries(WORDS, words) if words else []
    for word, *frequency in lines:
        segmenter.add_word(word, int(frequency[0]) if frequency else None, None)
    return segmenter, frozenset(line[0] for line in lines)


def rjieba_class() -> type[rjieba.Jieba]:
    """Return rjieba's class without importing its package, which would load the dictionary into a shared segmenter."""
    name = "rjieba.rjieba"
    if name not in sys.modules:
        package = importlib.util.find_spec("rjieba")
        places = package.submodule_search_locations if package else None
        spec = importlib.machinery.PathFinder.find_spec(name, places) if places else None
        if spec is None or spec.loader is None:
            name = "rjieba"
            importlib.import_module(name)
        else:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules.setdefault(name, module)
    found: type[rjieba.Jieba] = sys.modules[name].Jieba
    return found


def plain_text(text: str) -> str:
    """Replace separators with spaces in a text that is cut without normalisation."""
    return text.replace(SEPARATOR, " ")


def _cut(text: str, own_list: str | None) -> list[str]:
    words: list[str] = _segmenter(own_list)[0].cut(text if text.isascii() else _RARE_HAN.sub(" ", text))
    return words


def han_words(runs: str, lists: WordLists) -> Spans:
    """Cut runs of Han characters, see `han_runs`, into words; return the words that are features, in order.

    The words are not looked up one by one: they are joined and found again in the UTF-8 of all of them.
    """
    buffer = _BETWEEN.join(_BETWEEN.join(_cut(part, lists.words)) for part in _parts(runs)).encode()
    octets = np.frombuffer(buffer, np.uint8)
    marks = np.flatnonzero(octets == ord(_BETWEEN))
    starts, ends = np.concatenate(([0], marks + 1)), np.append(marks, len(octets))
    kept = np.flatnonzero(ends - starts > _CHARACTER_BYTES)
    starts, ends = starts[kept], ends[kept]
    words = Spans(buffer, starts, ends, counts_before(starts, np.flatnonzero(octets == ord(SEPARATOR))))
    if lists.stops is None:  # jieba's own stop words are English
        return words
    return words.of(~words.are_among(_stop_hashes(lists.stops)))


def _parts(runs: str) -> Iterator[str]:
    """Split a batch into parts of a few documents. The words of one part are freed before the next part is cut."""
    end = 0
    while end < len(runs):
        start, end = end, runs.find(SEPARATOR, end + _PART_CHARACTERS) + 1 or len(runs)
        yield runs[start:end]


@functools.cache
def _stop_hashes(sha256: str) -> Uint64s:
    return sorted_hashes(stop_words(sha256))


def number_words(joined: str, known: Vocabulary) -> tuple[Int64s, Int64s]:
    """Cut documents, each followed by `SEPARATOR`, into words; return the words that are features, in order.

    Returns:
        Two arrays of shape (m,): the document of each word, and the number of the word in `known`.
    """
    words = _cut(joined, known.own_list)
    numbers = _expand(np.fromiter(map(known.__getitem__, words), np.int64, len(words)), known)
    doc = np.cumsum(numbers == _BREAK)
    kept = np.flatnonzero(numbers >= _FIRST)
    return doc[kept], numbers[kept]


def _expand(numbers: Int64s, known: Vocabulary) -> Int64s:
    """Replace each compound's number with the numbers of its parts."""
    at = np.flatnonzero(numbers < 0)
    if not len(at):
        return numbers
    parts = [known.compounds[-number - 1] for number in numbers[at]]
    repeats = np.ones(len(numbers), np.int64)
    repeats[at] = [len(part) for part in parts]
    expanded = np.repeat(numbers, repeats)
    expanded[np.repeat(numbers < 0, repeats)] = list(chain.from_iterable(parts))
    return expanded
