"""What sketches and keys add: `python -m tests.bench.bench_signatures [--data DIR]`.

Measures precision, recall and F1 of all pairs within k bits, for `auto-2`, `auto-3` and PyPI `simhash`; ours are also
measured with only the pairs that have similar sketches, and with the pairs that share a key added. Then measures false
pairs among unrelated texts, texts in traditional characters, and how many edited pages are found, by kind of edit.
`auto-3` uses weights of general text.

A pair of labelled texts is right if both are in the same cluster. *Far* pairs are found pairs with a Jaccard similarity
below .3 (the sets list all pairs above). Pages to edit have at least 300 words or 800 characters; each is from a
different cluster.
"""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash.calibrate.edits import EDITS, sentences
from hsimhash.fingerprint import TOO_SHORT, VOTED, Profile, Signatures
from hsimhash.fingerprint.normalize import simplify, to_codes
from hsimhash.fingerprint.signature import FAR, MAX_SKETCH
from tests.bench.pypi_simhash import by_pypi_simhash
from tests.support.fingerprint_sets import han_count, read_clusters, read_documents
from tests.support.labelled_pairs import Score
from tests.support.programs import data_file, options, print_bar, print_conditions

LABELLED = {
    "lctt-zh-revisions": "pairs.tsv",
    "zh-laws": "pairs.tsv",
    "debian-install-guide": "pairs.tsv.gz",
    "licence-texts": "pairs.tsv.gz",
}
VARIANTS, UNRELATED = "zh-script-variants", ("zh-wiki-paragraphs", "plag-articles")
PYPI = "PyPI simhash"
PROFILES = ("auto-2", "auto-3", PYPI)
K, K_LISTED = 3, (1, 2, 3, 4, 6, 8, 10)
FAR_JACCARD = 0.3
EDITED = {"zh": ("lctt-zh-revisions", "zh-laws"), "en": ("debian-install-guide", "licence-texts")}
LEAST, MOST = {"zh": 800, "en": 300}, {"zh": 8_000, "en": 5_000}  # characters; words
PAGES = 400
REPEATED = {"tag repeated": "<p>", "name repeated": " Harbour News "}  # after each sentence

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pairs:
    """How the two texts of each pair differ: bits of fingerprints and of sketches, and whether they share a key."""

    distances: NDArray[np.uint8]
    sketches: NDArray[np.uint8]
    shares_key: Bools

    @classmethod
    def between(cls, first: Signatures, second: Signatures) -> Pairs:
        """Compare the signatures at the same positions."""
        has_value = (first.kinds != TOO_SHORT) & (second.kinds != TOO_SHORT)
        distances = np.bitwise_count(first.fingerprints ^ second.fingerprints)
        shares_key = first.keying.shared(first.keys, second.keys) & has_value
        return cls(np.where(has_value, distances, 255), np.bitwise_count(first.sketches ^ second.sketches), shares_key)

    def found(self, k: int, *, by_key: bool = False, by_sketch: bool = False) -> Bools:
        """Return which pairs are found within k bits or, if asked, by key; with `by_sketch`, only similar ones."""
        near = (self.distances <= k) | (self.shares_key if by_key else False)
        if not by_sketch:
            return near
        return near & (self.sketches + np.maximum(0, self.distances.astype(np.int64) - FAR) <= MAX_SKETCH)


WAYS: Mapping[str, Mapping[str, bool]] = {
    "": {},
    ", sketch": {"by_sketch": True},
    ", key": {"by_key": True},
    ", key, sketch": {"by_key": True, "by_sketch": True},
}


def made(name: str, texts: Sequence[str]) -> Signatures:
    """Return the signatures of texts by a profile, or by PyPI `simhash`, which has only fingerprints."""
    if name != PYPI:
        return Profile.named(name).signatures(texts)
    none = np.zeros(len(texts), np.uint64)
    return Signatures(by_pypi_simhash(texts), none, none, np.full(len(texts), VOTED, np.uint8))


def ways(name: str) -> Iterator[tuple[str, Mapping[str, bool]]]:
    """Yield the ways to find pairs with a profile."""
    yield from ((f"{name}{way}", rule) for way, rule in WAYS.items() if name != PYPI or not rule)


def far_pairs(path: Path, ids: Sequence[str]) -> Bools:
    """Return which pairs, in the order of `triu_indices`, are not listed as similar."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = csv.DictReader(io.StringIO(content.decode()), delimiter="\t")
    place, is_far = {one: at for at, one in enumerate(ids)}, np.ones((len(ids), len(ids)), np.bool_)
    for row in rows:
        if float(row["jaccard"]) >= FAR_JACCARD:
            pair = place[row["id1"]], place[row["id2"]]
            is_far[min(pair), max(pair)] = False
    return is_far[np.triu_indices(len(ids), 1)]


def measure_labelled(data: Path, name: str) -> dict[tuple[str, int], tuple[Score, int]]:
    """Print a table for one set; return the score and the number of far pairs by way and distance."""
    documents = read_documents(data / name / "docs.jsonl.gz")
    ids, cluster_of = [document["id"] for document in documents], read_clusters(data / name / "clusters.tsv")
    cluster = np.unique([cluster_of[one] for one in ids], return_inverse=True)[1]
    first, second = np.triu_indices(len(ids), 1)
    same = cluster[first] == cluster[second]
    is_far = far_pairs(data / name / LABELLED[name], ids) if name in LABELLED else np.zeros(len(same), np.bool_)
    print(f"\n{name}: {len(ids):,} texts, {int(same.sum()):,} pairs to be found; precision recall F1 far pairs at k =")
    print(" " * 22 + "".join(f"{k:^26}" for k in K_LISTED))
    results = {}
    for profile in PROFILES:
        signatures = made(profile, [document["text"] for document in documents])
        pairs = Pairs.between(signatures[first], signatures[second])
        for way, rule in ways(profile):
            cells = []
            for k in K_LISTED:
                found = pairs.found(k, **rule)
                score = Score(int(found.sum()), int((found & same).sum()), int(same.sum()))
                far = int((found & is_far).sum())
                results[way, k] = score, far
                cells.append(f"{score.precision:.3f} {score.recall:.3f} {score.f1:.3f} {far:>6}")
            print(f"{way:22}" + "  ".join(cells), flush=True)
    return results


def measure_unrelated(data: Path) -> dict[tuple[str, int], int]:
    """Print how many pairs of unrelated texts are found; return them by way and distance."""
    sets = {name: [one["text"] for one in read_documents(data / name / "docs.jsonl.gz")] for name in UNRELATED}
    sets |= {
        name: [one["text"] for one in read_documents(data / name / "docs.jsonl.gz")]
        for name in ("lctt-zh-revisions", "zh-laws", "debian-install-guide")
    }
    results: dict[tuple[str, int], int] = {}
    compared = 0
    for profile in PROFILES:
        signatures = {name: made(profile, texts) for name, texts in sets.items()}
        compared = 0
        for one, other in [(UNRELATED[0], UNRELATED[0]), *combinations(sets, 2)]:
            grid = np.indices((len(sets[one]), len(sets[other]))).reshape(2, -1)
            grid = grid[:, grid[0] < grid[1]] if one == other else grid
            compared += grid.shape[1]
            pairs = Pairs.between(signatures[one][grid[0]], signatures[other][grid[1]])
            for way, rule in ways(profile):
                for k in K_LISTED:
                    results[way, k] = results.get((way, k), 0) + int(pairs.found(k, **rule).sum())
    print(f"\n{compared:,} pairs of unrelated texts, of {UNRELATED[0]} and between five sets; found at k =")
    print(" " * 22 + "".join(f"{k:>7}" for k in K_LISTED))
    for way in dict.fromkeys(way for way, _ in results):
        print(f"{way:22}" + "".join(f"{results[way, k]:7}" for k in K_LISTED))
    return results


def measure_traditional(data: Path) -> float:
    """Print and return the share of texts in simplified characters found by the same text in traditional ones."""
    codes = np.arange(0x110000, dtype=np.uint32)
    simplified = simplify(codes)
    changed = np.flatnonzero(simplified != codes)[::-1]
    back = codes.copy()
    back[simplified[changed]] = changed
    texts = [one["text"] for one in read_documents(data / "lctt-zh-revisions" / "docs.jsonl.gz")]
    traditional = [back[to_codes(text)].astype("<u4").tobytes().decode("utf-32-le") for text in texts]
    print(f"\nlctt-zh-revisions in traditional characters, found at k = {K}:", end="")
    share = 0.0
    for profile in PROFILES[:2]:
        share = float(Pairs.between(made(profile, texts), made(profile, traditional)).found(K).mean())
        print(f"  {profile} {share:.1%}", end="")
    print()
    return share


def pages(data: Path, language: str) -> list[str]:
    """Return pages of a language, one per cluster, in random order."""
    chosen: dict[str, str] = {}
    for name in EDITED[language]:
        cluster_of = read_clusters(data / name / "clusters.tsv")
        for document in read_documents(data / name / "docs.jsonl.gz"):
            text = document["text"]
            is_chinese = han_count(text) > 0.3 * len(text)
            size = len(text) if language == "zh" else len(text.split())
            if is_chinese == (language == "zh") and LEAST[language] <= size <= MOST[language]:
                chosen.setdefault(cluster_of[document["id"]], text)
    found = list(chosen.values())
    random.Random(7).shuffle(found)
    return found[:PAGES]


def measure_edits(data: Path, language: str) -> dict[tuple[str, str], float]:
    """Print the shares of edited pages that are found; return them by way and kind of edit."""
    originals = pages(data, language)
    cut = [sentences(page, language) for page in originals]
    edited = {
        kind: [edit(random.Random(at), page, language, originals) for at, page in enumerate(cut)]
        for kind, edit in EDITS.items()
    } | {kind: [token.join(page) + token for page in cut] for kind, token in REPEATED.items()}
    print(f"\n{language}: found of {len(originals)} edited pages")
    print(" " * 30 + "".join(f"{kind:>16}" for kind in edited))
    results = {}
    for profile in PROFILES:
        base = made(profile, originals)
        pairs = {kind: Pairs.between(base, made(profile, texts)) for kind, texts in edited.items()}
        for way, rule in ways(profile):
            for k in (K, 2 * K):
                found = {kind: float(one.found(k, **rule).mean()) for kind, one in pairs.items()}
                print(f"{way:22}, k = {k} " + "".join(f"{share:16.3f}" for share in found.values()), flush=True)
                results |= {(f"{way} {k}", kind): share for kind, share in found.items()}
    return results


def main() -> None:
    """Measure, and print the bars."""
    data: Path | None = options(__doc__, has_data=True).data
    names = [*LABELLED, VARIANTS, *UNRELATED]
    if data is None or None in [data_file(data, f"{name}/docs.jsonl.gz") for name in names]:
        return
    packages = ("rjieba", "jieba", "mmh3", "simhash")
    print_conditions("Quality of signatures", packages=packages, k=K, max_sketch=MAX_SKETCH, pages=PAGES)
    labelled = {name: measure_labelled(data, name) for name in (*LABELLED, VARIANTS)}
    unrelated = measure_unrelated(data)
    traditional = measure_traditional(data)
    edits = {language: measure_edits(data, language) for language in EDITED}
    print()
    ours = "auto-3, key, sketch"
    for name, bar in zip(LABELLED, (0.95, 0.73, 0.94, 0.34), strict=True):
        score, far = labelled[name][ours, K]
        print_bar(f"{ours}, {name}, F1 at k = {K}", score.f1, at_least=bar)
        if name == "licence-texts":  # a licence and its variants have the same rare words
            continue
        print_bar(f"{ours}, {name}, pairs with a Jaccard below {FAR_JACCARD} at k = {K}", far, at_most=5)
        best = max(labelled[name][PYPI, k][0].f1 for k in K_LISTED if k <= K)
        print_bar(f"{name}, F1 of {ours} at k = {K}, over the best of {PYPI}", score.f1 - best, at_least=0)
    lctt = labelled["lctt-zh-revisions"][ours, 2 * K][0]
    print_bar(f"{ours}, lctt-zh-revisions, precision at k = {2 * K}", lctt.precision, at_least=0.995)
    print_bar(f"{ours}, unrelated pairs at k = {2 * K}: fish of one genus", unrelated[ours, 2 * K], at_most=2)
    print_bar("auto-3, sketch, unrelated pairs at k = 8", unrelated["auto-3, sketch", 8], at_most=0)
    print_bar(f"{ours}, zh-script-variants, recall at k = {K}", labelled[VARIANTS][ours, K][0].recall, at_least=0.95)
    print_bar(f"auto-3, traditional characters, found at k = {K}", traditional, at_least=0.95)
    bars = {
        "1 word in 100": 0.98,
        "sentence in": 0.97,
        "header, footer": 0.97,
        "reformatted": 1,
        "tag repeated": 0.97,
        "name repeated": 0.95,
    }
    for kind, bar in bars.items():
        for language, found in edits.items():
            print_bar(f"{ours}, {language}, {kind}, found at k = {K}", found[f"{ours} {K}", kind], at_least=bar)


if __name__ == "__main__":
    main()
