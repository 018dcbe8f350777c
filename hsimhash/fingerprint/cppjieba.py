"""Extract keywords like cppjieba 5, as used by yanyiwu/simhash: cut the text, count and weight words, keep the top N.

The user supplies cppjieba's dictionary, idf table and stop words. Texts are cut as in cppjieba, not as in jieba:

* rjieba finds the words in the dictionary by their frequencies. Before that, the text is only split at blanks, `，` and
`。`.
* Everything between these words, including punctuation and letters, goes through the hidden Markov model as one piece.
The model's table is jieba's, rounded to six digits.
* Keywords of equal weight are chosen and ordered as by `std::partial_sort` in the GNU C++ library, so the fingerprints
are those of cppjieba built with GCC.

Sums of logarithms that should be equal may differ in the last digit. This affects 2 of 5,000 documents: both get a
different word, and one of them a different fingerprint.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hsimhash.errors import ProfileMismatchError
from hsimhash.fingerprint.segment import rjieba_class
from hsimhash.fingerprint.wordlists import IDF, STOPS, WORDS, WordLists, list_entries

if TYPE_CHECKING:
    import rjieba

FILES = "idf=idf.utf8,words=jieba.dict.utf8,stops=stop_words.utf8"
WHENCE = "find them in the dict folder of github.com/yanyiwu/cppjieba or of the pyjieba package"
_BREAKS, _BREAK = " \t\n，。", "\n"
_LEAST_TOP, _MOST_TOP, _BYTES_A_KEYWORD = 5, 200, 120
_PARTS = re.compile(r"[a-zA-Z][a-zA-Z0-9]*(?:\.[0-9]+)?|[0-9][0-9a-zA-Z]*(?:\.[0-9]+)?|[\x00-\x7f]|[^\x00-\x7f]+")
_STATES, _END, _SINGLE = "BEMS", 1, 3  # begin, end, middle of a word, single; states that end a word have odd numbers
_NEVER = -3.14e100
_RUNS = 1 << 17  # maximum number of cached runs between words in the dictionary


class _Left(dict[str, str]):
    """Maps a token to the text that is left for the model: the token, or a break if it is in the dictionary."""

    def __missing__(self, token: str) -> str:
        return token


class _Extractor:
    """cppjieba's segmenter and the weights of its keywords."""

    def __init__(self, lists: WordLists) -> None:
        if lists.words is None or lists.stops is None:
            raise ProfileMismatchError(f"cppjieba's keywords require its lists, {FILES}; {WHENCE}")
        frequencies = {word: int(rest[0]) for word, *rest in list_entries(WORDS, lists.words)}
        self._words = frozenset(word for word in frequencies if len(word) > 1)
        self._left = _Left(dict.fromkeys([*self._words, *_BREAKS], _BREAK))
        self._segmenter = _segmenter(frequencies)
        self._idf = {word: float(idf) for word, idf in list_entries(IDF, lists.idf)}
        self._mean = float(np.cumsum(list(self._idf.values()))[-1]) / len(self._idf)  # summed one by one, in this order
        self._stops = frozenset(line[0] for line in list_entries(STOPS, lists.stops))

    def counts(self, text: str) -> dict[str, int]:
        """Count each word of more than one character."""
        tokens = self._segmenter.cut(text, False)
        found = Counter[str]()
        for run, often in Counter("".join(map(self._left.__getitem__, tokens)).split(_BREAK)).items():
            for word in _hidden_words(run):
                found[word] += often
        found.update(token for token in tokens if token in self._words)
        return found

    def keywords(self, text: str, top: int | None) -> list[tuple[str, float]]:
        """Return the heaviest words with their weights; by default, as many as the library's `getTopN` returns."""
        counts = self.counts(text)
        words = sorted(counts.keys() - self._stops)
        weights = [counts[word] * self._idf.get(word, self._mean) for word in words]
        if top is None:
            top = max(_LEAST_TOP, min(_MOST_TOP, len(text.encode()) // _BYTES_A_KEYWORD))
        return [(words[at], weights[at]) for at in partially_sorted(weights, top)]


@functools.lru_cache(maxsize=4)
def extractor(lists: WordLists) -> _Extractor:
    """Return the extractor for the lists."""
    return _Extractor(lists)


def _segmenter(frequencies: dict[str, int]) -> rjieba.Jieba:
    """Return a segmenter with only these words, plus their characters, which get at least the lowest frequency."""
    segmenter, least = rjieba_class().empty(), min(frequencies.values())
    for word in dict.fromkeys([*frequencies, *"".join(frequencies)]):
        segmenter.add_word(word, frequencies.get(word, least), None)
    return segmenter


@functools.lru_cache(maxsize=_RUNS)
def _hidden_words(run: str) -> tuple[str, ...]:
    """Return the words of more than one character in a run between words in the dictionary."""
    parts = (part if part.isascii() else _likely_words(part) for part in _PARTS.findall(run))
    return tuple(word for part in parts for word in ([part] if isinstance(part, str) else part) if len(word) > 1)


@functools.cache
def _model() -> tuple[list[float], list[list[float]], list[dict[str, float]]]:
    """Return the log probabilities of initial states, transitions and emissions: jieba's, rounded as in cppjieba."""
    spec = importlib.util.find_spec("jieba")
    if spec is None or not spec.submodule_search_locations:
        raise ProfileMismatchError(
            "jieba is not installed: its model is needed for words outside the dictionary; pip install jieba==0.42.1"
        )

    def table(name: str) -> Any:
        path = Path(spec.submodule_search_locations[0], "finalseg", f"prob_{name}.py")  # type: ignore[index]
        return ast.literal_eval(path.read_text("utf-8").partition("P=")[2])

    start, following, emitted = table("start"), table("trans"), table("emit")
    return (
        [start[state] for state in _STATES],
        [[following[state].get(other, _NEVER) for other in _STATES] for state in _STATES],
        [{one: round(value, 6) for one, value in emitted[state].items()} for state in _STATES],
    )


def _likely_words(run: str) -> list[str]:
    """Return the words of the most likely sequence of states (Viterbi); ties go to the first state, as in cppjieba."""
    start, following, emitted = _model()
    states = range(len(_STATES))
    weights = [start[state] + emitted[state].get(run[0], _NEVER) for state in states]
    came_from = []
    for character in run[1:]:
        likely, before = [_NEVER] * len(states), [_END] * len(states)
        for state in states:
            emission = emitted[state].get(character, _NEVER)
            for previous in states:
                weight = weights[previous] + following[previous][state] + emission
                if weight > likely[state]:
                    likely[state], before[state] = weight, previous
        weights = likely
        came_from.append(before)
    row = [_END if weights[_END] >= weights[_SINGLE] else _SINGLE]
    for before in reversed(came_from):
        row.append(before[row[-1]])
    ends = [at + 1 for at, state in enumerate(reversed(row)) if state in (_END, _SINGLE)]
    return [run[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def partially_sorted(weights: Sequence[float], top: int) -> list[int]:
    """Return the positions of the `top` greatest weights, in the order of `std::partial_sort` in the GNU C++ library.

    That order, including the order of ties, follows from its heap: the least of the kept weights is on top, and a
    greater weight replaces it.
    """
    heap, top = list(range(len(weights))), min(top, len(weights))
    for hole in range((top - 2) // 2, -1, -1):
        _sift(heap, hole, top, heap[hole], weights)
    for at in range(top, len(weights)):
        if weights[at] > weights[heap[0]]:
            _sift(heap, 0, top, at, weights)
    for last in range(top - 1, 0, -1):
        moved, heap[last] = heap[last], heap[0]
        _sift(heap, 0, last, moved, weights)
    return heap[:top]


def _sift(heap: list[int], hole: int, size: int, moved: int, weights: Sequence[float]) -> None:
    """Put an index into the hole of a heap: sift the hole to the bottom, then the index up (`__adjust_heap`)."""
    top = hole
    while (child := 2 * hole + 1) < size:
        if child + 1 < size and not weights[heap[child + 1]] > weights[heap[child]]:
            child += 1
        heap[hole], hole = heap[child], child
    while hole > top and weights[heap[parent := (hole - 1) // 2]] > weights[moved]:
        heap[hole], hole = heap[parent], parent
    heap[hole] = moved
