"""How well fingerprints separate real texts: `python -m tests.bench.bench_quality [--data DIR]`.

Precision, recall and F1 of all pairs within k bits, for each profile and for PyPI `simhash`. A pair is right if both
documents are in the same cluster; all pairs of each cluster count as those to be found (this definition gives .77 for
the prototype of zh-1 on lctt). Texts too short for a fingerprint are in no pair.

Then the script mix: pages composed of Chinese and English sentences, into which a sentence of either script and of the
same length is inserted; how often that moves the fingerprint by more than 3 bits.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from simhash import Simhash

from hsimhash.fingerprint import TOO_SHORT, Profile
from hsimhash.fingerprint.fit import Fit
from tests.support.fingerprint_sets import read_clusters, read_documents
from tests.support.programs import data_file, options, print_bar, print_conditions

LABELLED = ("lctt-zh-revisions", "debian-install-guide", "zh-laws", "licence-texts")
FITTED = "debian-install-guide"
WEIGHED = "auto-3"
UNRELATED = "zh-wiki-paragraphs"
ENGLISH = "plag-articles"
PROFILES = ("auto-1", "zh-1", "words-1", "jieba-topn-1", "jieba-topn-1:top=100")
K = 3
K_LISTED = range(1, 9)
SEED = 2007
HAN_SHARES = (0.05, 0.2, 0.5, 0.8, 0.95)
PAGES = 2_000  # for each share: the standard error of a difference is then 1.5 points
PAGE_LETTERS = (600, 2_400)
SENTENCE_CHARACTERS = (30, 120)  # Chinese and English alike: few English ones are shorter

Fingerprinter = Callable[[Sequence[str]], tuple[NDArray[np.uint64], NDArray[np.bool_]]]


class PypiSimhash(Simhash):  # type: ignore[misc]
    """PyPI `simhash` 2.1.2, but that a weight above 255 overflows its uint8 arrays with numpy 2."""

    @staticmethod
    def _bitarray_from_bytes(packed: bytes) -> NDArray[np.int64]:
        return np.unpackbits(np.frombuffer(packed, np.uint8)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Score:
    """Pairs found, those of them that are right, and those to be found."""

    found: int
    right: int
    wanted: int

    def __add__(self, other: Score) -> Score:
        return Score(self.found + other.found, self.right + other.right, self.wanted + other.wanted)

    @property
    def precision(self) -> float:
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.wanted

    @property
    def f1(self) -> float:
        return 2 * self.right / (self.found + self.wanted)


def by_profile(profile: Profile) -> Fingerprinter:
    """Return what fingerprints texts by a profile, and says which have a fingerprint."""

    def fingerprint(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        found = profile.fingerprints(texts)
        return found.values, found.kinds != TOO_SHORT

    return fingerprint


def by_pypi_simhash(texts: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Fingerprint texts as `Simhash(text)` does."""
    return np.array([PypiSimhash(text).value for text in texts], np.uint64), np.ones(len(texts), np.bool_)


def pair_distances(values: NDArray[np.uint64], has_value: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the distance of every pair, in the order of `triu_indices`; 255 where one has no fingerprint."""
    distances = np.bitwise_count(values[:, None] ^ values[None, :])
    distances[~has_value] = 255
    distances[:, ~has_value] = 255
    return distances[np.triu_indices(len(values), 1)]


def score(distances: NDArray[np.uint8], same: NDArray[np.bool_], k: int) -> Score:
    """Score the pairs within k bits."""
    found = distances <= k
    return Score(int(found.sum()), int((found & same).sum()), int(same.sum()))


def labelled(data: Path, name: str) -> tuple[list[str], NDArray[np.int64]]:
    """Return the texts of one corpus, and the number of each one's cluster."""
    documents, cluster_of = read_documents(data / name / "docs.jsonl.gz"), read_clusters(data / name / "clusters.tsv")
    cluster = np.unique([cluster_of[document["id"]] for document in documents], return_inverse=True)[1]
    return [document["text"] for document in documents], cluster


def pairs_of(cluster: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether both texts of a pair are in the same cluster, in the order of `pair_distances`."""
    return (cluster[:, None] == cluster[None, :])[np.triu_indices(len(cluster), 1)]


def measure_fitted(data: Path) -> tuple[Score, Score]:
    """Print how a rarity table fitted to half of the clusters of `FITTED` scores on the other, either way.

    Returns:
        The scores of the table and of the profile without it, of both ways together.
    """
    texts, cluster = labelled(data, FITTED)
    own, usual, plain = Score(0, 0, 0), Score(0, 0, 0), Profile.named(WEIGHED)
    with tempfile.TemporaryDirectory() as folder:
        for half in (0, 1):
            known, others = (np.flatnonzero(cluster % 2 == side) for side in (half, 1 - half))
            fit, table = Fit(plain), Path(folder, "table.rarity")
            fit.add([texts[place] for place in known])
            table.write_bytes(fit.table().content())
            same, given = pairs_of(cluster[others]), [texts[place] for place in others]
            fitted = plain.with_lists(rarity=table, name="fitted")
            own += score(pair_distances(*by_profile(fitted)(given)), same, K)
            usual += score(pair_distances(*by_profile(plain)(given)), same, K)
    print(f"\n{FITTED}, a rarity table of one half of the clusters on the other, either way, at k = {K}: ", end="")
    print(f"precision recall F1 {_three(own)}; {WEIGHED} without one {_three(usual)}")
    return own, usual


def measure_labelled(data: Path, name: str, fingerprinters: dict[str, Fingerprinter]) -> dict[str, Score]:
    """Print a table for one corpus; return each fingerprinter's score at K."""
    texts, cluster = labelled(data, name)
    same = pairs_of(cluster)
    print(f"\n{name}: {len(texts):,} texts, {int(same.sum()):,} pairs to be found; precision recall F1 at k =")
    print(" " * 21 + "".join(f"{k:^13}" for k in K_LISTED))
    at_k = {}
    for label, fingerprint in fingerprinters.items():
        distances = pair_distances(*fingerprint(texts))
        scores = {k: score(distances, same, k) for k in K_LISTED}
        cells = "  ".join(_three(scores[k]) for k in K_LISTED)
        print(f"{label:21}{cells}", flush=True)
        at_k[label] = scores[K]
    return at_k


def _three(result: Score) -> str:
    numbers = (result.precision, result.recall, result.f1)
    return " ".join("1.0" if number > 0.995 else f"{number:.2f}"[1:] for number in numbers)


def measure_unrelated(data: Path, fingerprinters: dict[str, Fingerprinter]) -> dict[str, int]:
    """Print how many pairs of unrelated paragraphs are near; return each fingerprinter's number within 6 bits."""
    texts = [document["text"] for document in read_documents(data / UNRELATED / "docs.jsonl.gz")]
    print(
        f"\n{UNRELATED}: {len(texts):,} texts, {len(texts) * (len(texts) - 1) // 2:,} unrelated pairs; near ones at k ="
    )
    print(" " * 21 + "".join(f"{k:>6}" for k in K_LISTED))
    within_6 = {}
    for label, fingerprint in fingerprinters.items():
        distances = pair_distances(*fingerprint(texts))
        print(f"{label:21}" + "".join(f"{int((distances <= k).sum()):6}" for k in K_LISTED), flush=True)
        within_6[label] = int((distances <= 6).sum())
    return within_6


def han_count(text: str) -> int:
    """Return how many characters are Han."""
    return sum("\u4e00" <= char <= "\u9fff" for char in text)


def chinese_sentences(data: Path) -> list[str]:
    """Return sentences of the Chinese paragraphs that are mostly Han."""
    texts = [document["text"] for document in read_documents(data / UNRELATED / "docs.jsonl.gz")]
    least, most = SENTENCE_CHARACTERS
    cut = {sentence for text in texts for sentence in re.findall(r"[^。！？]+[。！？]", text)}
    return sorted(s for s in cut if least <= len(s) <= most and han_count(s) > 0.8 * len(s))


def english_sentences(data: Path) -> list[str]:
    """Return sentences of the English news."""
    texts = [document["text"] for document in read_documents(data / ENGLISH / "docs.jsonl.gz")]
    cut = {sentence for text in texts for sentence in re.findall(r"[^.!?]+[.!?] ", text)}
    least, most = SENTENCE_CHARACTERS
    return sorted(s for s in cut if least <= len(s) <= 3 * most and s.isascii())


def compose_page(chance: random.Random, chinese: list[str], english: list[str], share: float) -> list[str]:
    """Return the sentences of a page whose letters are Han by about that share, in random order."""
    page, han, latin = [], 0, 0
    size = chance.randint(*PAGE_LETTERS)
    while han + latin < size:
        sentence = chance.choice(chinese if han < share * (han + latin + 30) else english)
        page.append(sentence)
        han += han_count(sentence)
        latin += sum(char.isascii() and char.isalpha() for char in sentence)
    chance.shuffle(page)
    return page


def near_length(chance: random.Random, pool: list[str], length: int, unit: Callable[[str], int]) -> str:
    """Return a sentence of nearly that length."""
    return min(chance.sample(pool, 100), key=lambda sentence: abs(unit(sentence) - length))


def utf8_length(text: str) -> int:
    """Return a text's length in bytes."""
    return len(text.encode())


def moved_shares(fingerprint: Fingerprinter, chinese: list[str], english: list[str], share: float) -> list[float]:
    """Return how often, in percent, an inserted sentence moves a page beyond K.

    The sentences: Chinese; English of as many characters; English of as many bytes.
    """
    chance = random.Random(SEED + round(share * 100))
    versions: list[list[str]] = [[], [], [], []]
    for _ in range(PAGES):
        page = compose_page(chance, chinese, english, share)
        at = chance.randrange(len(page) + 1)
        first = chance.choice(chinese)
        others = [near_length(chance, english, unit(first), unit) for unit in (len, utf8_length)]
        for texts, sentence in zip(versions, ["", first, *others], strict=True):
            texts.append("".join([*page[:at], sentence, *page[at:]]))
    base = fingerprint(versions[0])[0]
    return [100 * float((np.bitwise_count(base ^ fingerprint(texts)[0]) > K).mean()) for texts in versions[1:]]


def measure_script_mix(data: Path, name: str) -> float:
    """Print how pages of mixed scripts move; return by how many points the other script's sentence moves them more."""
    chinese, english = chinese_sentences(data), english_sentences(data)
    print(f"\nscript mix, {name}: pages moved by more than {K} bits by one more sentence, in % of {PAGES} pages")
    print("Han share   Chinese   English of as many characters   English of as many bytes")
    worst = -100.0
    for share in HAN_SHARES:
        han, by_characters, by_bytes = moved_shares(by_profile(Profile.named(name)), chinese, english, share)
        print(f"{share:9.0%}{han:10.1f}{by_characters:32.1f}{by_bytes:27.1f}", flush=True)
        if share <= 0.5:  # mostly English: Chinese is the other script; at half, either is
            worst = max(worst, han - by_characters)
        if share >= 0.5:
            worst = max(worst, by_characters - han)
    return worst


def main() -> None:
    """Measure, and print the bars."""
    data: Path | None = options(__doc__, has_data=True).data
    needed = [data_file(data, f"{name}/docs.jsonl.gz") for name in (*LABELLED, UNRELATED, ENGLISH)]
    if data is None or None in needed:
        return
    packages = ("rjieba", "jieba", "mmh3", "simhash")
    print_conditions("Quality of fingerprints", packages=packages, k=K, pages=PAGES, seed=SEED)
    print("PyPI simhash is Simhash(text), patched: with numpy 2 a weight above 255 overflows in it")
    fingerprinters = {name: by_profile(Profile.named(name)) for name in PROFILES} | {"PyPI simhash": by_pypi_simhash}
    scores = {name: measure_labelled(data, name, fingerprinters)[PROFILES[0]] for name in LABELLED}
    within_6 = measure_unrelated(data, fingerprinters)[PROFILES[0]]
    fitted, usual = measure_fitted(data)
    worst = measure_script_mix(data, PROFILES[0])
    print()
    lctt, laws = scores["lctt-zh-revisions"], scores["zh-laws"]
    print_bar(f"{PROFILES[0]} on lctt-zh-revisions, precision at k = {K}", lctt.precision, at_least=0.99)
    print_bar(f"{PROFILES[0]} on lctt-zh-revisions, F1 at k = {K}", lctt.f1, at_least=0.75)
    print_bar(f"{PROFILES[0]} on zh-laws, precision at k = {K}", laws.precision, at_least=0.8)
    print_bar(f"{PROFILES[0]} on zh-laws, F1 at k = {K}", laws.f1, at_least=0.57)
    print_bar(f"{PROFILES[0]} on {UNRELATED}, pairs within 6 bits", within_6, at_most=0)
    print_bar(
        f"a fitted rarity table on {FITTED}, F1 at k = {K}, by {WEIGHED}'s without one",
        fitted.f1 / usual.f1,
        at_least=1,
    )
    print_bar(f"a fitted rarity table on {FITTED}, precision at k = {K}", fitted.precision, at_least=0.99)
    print_bar("a sentence of the other script moves a page more often by, points", worst, at_most=5)


if __name__ == "__main__":
    main()
