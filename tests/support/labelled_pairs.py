"""Labelled sets of texts, and the scores of the pairs that a method finds in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.support.fingerprint_sets import read_clusters, read_documents


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Texts with labels: two texts with the same label are a pair to be found."""

    name: str
    path: Path  # JSON lines with id, text and lang
    ids: list[str]
    texts: list[str]
    labels: NDArray[np.int64]

    @classmethod
    def read(cls, folder: Path) -> LabelledSet:
        """Read docs.jsonl.gz and clusters.tsv. A text without a label belongs to no pair."""
        path = folder / "docs.jsonl.gz"
        documents, label_of = read_documents(path), read_clusters(folder / "clusters.tsv")
        ids = [one["id"] for one in documents]
        names = [("label", label_of[one]) if one in label_of else ("id", one) for one in ids]
        number = {name: at for at, name in enumerate(dict.fromkeys(names))}
        labels = np.array([number[name] for name in names], np.int64)
        return cls(folder.name, path, ids, [one["text"] for one in documents], labels)


@dataclass(frozen=True, slots=True)
class Found:
    """The pairs that a method finds, as positions of texts; how close each is; and the CPU time to find them."""

    pairs: NDArray[np.int64]  # (n, 2)
    closeness: NDArray[np.float64]  # (n,), higher is closer
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Score:
    """The numbers of pairs found, of right ones among them, and of pairs to be found."""

    found: int
    right: int
    wanted: int

    @property
    def precision(self) -> float:
        """Return the share of the found pairs that are right; 1 if no pairs are found."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """Return the share of the pairs to be found that are found; 1 if there are no pairs to be found."""
        return self.right / self.wanted if self.wanted else 1.0

    @property
    def f1(self) -> float:
        """Return the harmonic mean of precision and recall."""
        return 2 * self.right / (self.found + self.wanted) if self.found + self.wanted else 1.0


def pairs_to_find(labels: NDArray[np.int64]) -> int:
    """Return how many pairs of texts have the same label."""
    sizes = np.unique(labels, return_counts=True)[1].astype(np.int64)
    return int((sizes * (sizes - 1) // 2).sum())


def scores(found: Found, labels: NDArray[np.int64], cutoffs: Iterable[float]) -> dict[float, Score]:
    """Score the pairs at least as close as each cutoff.

    A pair counts once, in whatever order and however often it was found. A text with itself is not a pair.
    """
    order = np.argsort(-found.closeness, kind="stable")
    low, high = np.sort(found.pairs[order], axis=1).T
    place = np.unique((low * len(labels) + high)[low < high], return_index=True)[1]
    low, high, closeness = (one[low < high][place] for one in (low, high, found.closeness[order]))
    is_right, wanted = labels[low] == labels[high], pairs_to_find(labels)
    near = {cutoff: closeness >= cutoff for cutoff in cutoffs}
    return {cutoff: Score(int(one.sum()), int((one & is_right).sum()), wanted) for cutoff, one in near.items()}
