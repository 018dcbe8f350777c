"""Fit a table of inverse document frequencies to the user's texts: `fit_idf`.

The words are those that a profile weighs: jieba's words of Chinese, and space-separated words. Counts beyond a memory
limit go to sorted runs on disk, which are merged at the end, so the table does not depend on the limit.
"""

from __future__ import annotations

import heapq
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import BinaryIO

from hsimhash.fingerprint.features import document_words
from hsimhash.fingerprint.long_texts import is_long, long_text_words
from hsimhash.fingerprint.profile import Profile, split_batch
from hsimhash.fingerprint.stream import RefusedText, worked
from hsimhash.fingerprint.wordlists import list_content

# What a word in every document weighs. Without it the rare words, which an edit brings in, decide: on labelled texts
# with a table fitted to their other half F1 at 3 bits is .83 for 0, .84 for 1 (auto-2's), .85 for 2, and the precision
# falls beyond it.
LEAST_IDF = 2.0


@dataclass(frozen=True, slots=True)
class FitLimits:
    """Limits on the size of a table.

    Args:
        min_documents: words in fewer documents are left out, and weigh the median, as words do that nobody has seen.
        max_share: words in a larger share of the documents weigh nothing.
        most_words: only so many are listed, those in the most documents.
        words_in_memory: with more the counts go to disk; one takes about 150 bytes.
    """

    min_documents: int = 2
    max_share: float = 1.0
    most_words: int = 500_000
    words_in_memory: int = 1_000_000

    def __post_init__(self) -> None:
        if min(self.min_documents, self.most_words, self.words_in_memory) < 1 or not 0 < self.max_share <= 1:
            raise ValueError(f"limits must be at least 1, and max_share above 0 and at most 1, got {self}")


FIT_LIMITS = FitLimits()


@dataclass(frozen=True, slots=True)
class FittedIdf:
    """A table for `Profile.with_lists`, its number of words, and the number of documents behind it."""

    content: bytes
    words: int
    documents: int


def fit_idf(
    batches: Iterable[Sequence[str]],
    profile: Profile,
    limits: FitLimits = FIT_LIMITS,
    *,
    workers: int = 1,
    on_refused: Callable[[int, str], None] | None = None,
) -> FittedIdf:
    """Fit a table to texts: a word in d of n documents gets ln(n / d) + 2.

    Args:
        batches: texts, read once.
        profile: whose words; one that weighs by idf.
        limits: see there.
        workers: how many processes; 1 works in this one.
        on_refused: called with the place among all texts, from 0, and the reason of each text whose words cannot be
            counted; it does not count as a document.

    Raises:
        ValueError: the profile weighs nothing by idf, or no word is in enough documents.
    """
    if profile.tokens not in ("jieba", "script"):
        raise ValueError(
            f"profile {profile.name} counts {profile.tokens}, and weighs nothing by idf; use auto-2 or zh-1"
        )
    documents, counts = 0, Counter[str]()
    with ExitStack() as files:
        runs = list[BinaryIO]()
        for texts, words in _without_refused(worked(profile, batches, workers, _counted), on_refused):
            documents += texts
            counts.update(words)
            if len(counts) > limits.words_in_memory:
                runs.append(_run(files.enter_context(tempfile.TemporaryFile()), counts))
                counts.clear()
        found = heapq.merge(sorted(counts.items()), *map(_read_run, runs))
        summed = ((sum(count for _, count in same), word) for word, same in groupby(found, itemgetter(0)))
        listed = heapq.nlargest(limits.most_words, (one for one in summed if one[0] >= limits.min_documents))
    if not listed:
        raise ValueError(
            f"no word is in {limits.min_documents} of {documents:,} documents; give more texts, or ask for fewer"
        )
    most = limits.max_share * documents
    idf = {word: math.log(documents / count) + LEAST_IDF if count <= most else 0.0 for count, word in listed}
    return FittedIdf(list_content({word: f"{value:.6f}" for word, value in sorted(idf.items())}), len(idf), documents)


def _without_refused(
    batches: Iterable[Sequence[tuple[int, Counter[str]] | RefusedText]], on_refused: Callable[[int, str], None] | None
) -> Iterator[tuple[int, Counter[str]]]:
    place = 0
    for parts in batches:
        for part in parts:
            if not isinstance(part, RefusedText):
                yield part
                place += part[0]
                continue
            if on_refused is not None:
                on_refused(place, part.reason)
            place += 1


def _counted(profile: Profile, texts: Sequence[str]) -> tuple[int, Counter[str]]:
    counts = Counter[str]()
    for part in split_batch(texts):
        counts.update(long_text_words(profile, part[0]) if is_long(profile, part) else document_words(profile, part))
    return len(texts), counts


def _run(file: BinaryIO, counts: Counter[str]) -> BinaryIO:
    file.writelines(f"{word} {count}\n".encode() for word, count in sorted(counts.items()))
    file.seek(0)
    return file


def _read_run(file: BinaryIO) -> Iterator[tuple[str, int]]:
    for line in file:
        word, count = line.decode().split(" ")
        yield word, int(count)
