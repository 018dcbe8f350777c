"""Human judgements of which documents are near: a table of pairs, or of clusters.

| tab-separated columns | meaning |
|---|---|
| id, id, 1 or 0, … | whether two documents are near; by default they are |
| id, cluster, … under a header `id<TAB>cluster` | documents in the same cluster are near, all other pairs are not |

The first line is a header if its third column is neither 1 nor 0, and its ids are not those of documents. Further
columns are ignored. `.gz` and `.zst` files are decompressed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Bools, Int64s
from hsimhash.inputs.lines import DamagedInputError, InputFile, blocks_of, packing_of, text_in
from hsimhash.pairs.pair_blocks import pair_words

UNRELATED = 0.2  # two texts that share less of their shingles (Jaccard index) are not near, unless labelled as near
_HEADER = ("id", "cluster")
_SAYS = {"1": True, "0": False}

Verdicts = NDArray[np.int8]  # one per pair: NEAR, UNLIKE or OPEN
NEAR, UNLIKE, OPEN = 1, 0, -1


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels by document id: pairs that are near or not, or the cluster of each document."""

    pairs: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    rejects: tuple[str, ...] = ()  # invalid lines, with their locations and reasons
    header: tuple[str, ...] = ()  # ids in the first line if it is a header, unless a document has one of these ids
    header_reject: str = ""  # its location, and why it is invalid if it is not a header

    @property
    def doc_ids(self) -> set[str]:
        """All labelled ids."""
        return {doc_id for pair in self.pairs for doc_id in pair} | set(self.clusters)

    @property
    def are_one_sided(self) -> bool:
        """Whether the labels name near pairs only."""
        return bool(self.pairs) and all(self.pairs.values())

    def rejects_among(self, doc_ids: Iterable[str]) -> tuple[str, ...]:
        """Return the invalid lines, given the ids of the documents."""
        is_header = set(self.header).isdisjoint(doc_ids)
        return self.rejects if is_header else (self.header_reject, *self.rejects)


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """The known pairs of a sample, by the positions of their documents."""

    near: Int64s  # near pairs, as ascending words
    unlike: Int64s  # pairs that are not near, as ascending words; those of clusters are not listed
    cluster: Int64s  # cluster of each document; -1 if it is unknown

    @staticmethod
    def of(labels: Labels, doc_ids: Sequence[str]) -> Truth:
        """Return the labels of the documents in the sample; labels of other documents are ignored."""
        place = {doc_id: at for at, doc_id in enumerate(doc_ids)}
        near: list[tuple[int, ...]] = []
        unlike: list[tuple[int, ...]] = []
        for pair, is_near in labels.pairs.items():
            if place.keys() >= set(pair):
                (near if is_near else unlike).append((place[pair[0]], place[pair[1]]))
        members: dict[str, list[int]] = {}
        for doc_id, cluster in labels.clusters.items():
            if doc_id in place:
                members.setdefault(cluster, []).append(place[doc_id])
        own = np.full(len(doc_ids), -1)
        for number, places in enumerate(members.values()):
            own[places] = number
            near += combinations(sorted(places), 2)
        ends, others = (np.array(one, np.int64).reshape(-1, 2).T for one in (near, unlike))
        return Truth(np.sort(pair_words(ends[0], ends[1])), np.sort(pair_words(others[0], others[1])), own)

    @property
    def left(self) -> Int64s:
        """Positions of near pairs."""
        return self.near >> 32

    @property
    def right(self) -> Int64s:
        """Positions of the other documents of near pairs, each greater than `left`."""
        return self.near & 0xFFFFFFFF

    def labelled(self, left: Int64s, right: Int64s) -> Verdicts:
        """Return what the labels say about each pair; OPEN if they do not mention it."""
        words = pair_words(left, right)
        found = np.full(len(words), OPEN, np.int8)
        found[_are_among(words, self.unlike)] = UNLIKE
        is_clustered = (self.cluster[left] >= 0) & (self.cluster[right] >= 0)
        found[is_clustered & (self.cluster[left] != self.cluster[right])] = UNLIKE
        found[_are_among(words, self.near)] = NEAR
        return found

    def are_unlike(self, left: Int64s, right: Int64s) -> Bools:
        """Return which pairs are labelled as not near."""
        found: Bools = self.labelled(left, right) == UNLIKE
        return found


def _are_among(words: Int64s, ascending: Int64s) -> Bools:
    """Return which words are among others. np.isin would sort the others in each call."""
    if not len(ascending):
        return np.zeros(len(words), np.bool_)
    place = np.minimum(np.searchsorted(ascending, words), len(ascending) - 1)
    found: Bools = ascending[place] == words
    return found


def read_labels(path: Path) -> Labels:
    """Read a file of labels; invalid lines and contradictory pairs are skipped and listed in `rejects`.

    Raises:
        ValueError: The file does not name a near pair, or is a damaged compressed file.
    """
    rejects: list[str] = []
    rows = list(_rows(path, rejects))
    if rows and tuple(rows[0][1][:2]) == _HEADER:
        return Labels(clusters={row[0]: row[1] for _, row in rows[1:]}, rejects=tuple(rejects))
    header: tuple[tuple[str, ...], str] = (), ""
    if rows and len(rows[0][1]) > 2 and rows[0][1][2] not in _SAYS:
        number, row = rows.pop(0)
        header = tuple(row[:2]), _says_nothing(path, number, row[2])
    pairs: dict[tuple[str, str], bool] = {}
    disputed = set[tuple[str, str]]()
    for number, row in rows:
        pair, says = (min(row[:2]), max(row[:2])), row[2] if len(row) > 2 else "1"
        if pair[0] == pair[1]:
            rejects.append(f"{path}:{number}: {pair[0]!r} is paired with itself")
        elif says not in _SAYS:
            rejects.append(_says_nothing(path, number, says))
        elif pairs.setdefault(pair, _SAYS[says]) != _SAYS[says]:
            rejects.append(f"{path}:{number}: {pair[0]!r} and {pair[1]!r} are near in one line but not in another")
            disputed.add(pair)
    kept = {pair: is_near for pair, is_near in pairs.items() if pair not in disputed}
    if not any(kept.values()):
        reason = next((f" ({one})" for one in (*rejects, header[1]) if one), "")
        raise ValueError(f"{path} does not contain any near pair{reason}: expected lines such as id<TAB>id<TAB>1")
    return Labels(kept, {}, tuple(rejects), *header)


def _says_nothing(path: Path, number: int, says: str) -> str:
    return f"{path}:{number}: the third column must be 1 (near) or 0 (not near), got {says!r:.40}"


def _rows(path: Path, rejects: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the non-blank lines as columns, with their line numbers."""
    for number, line in _lines(path):
        try:
            row = text_in(line).rstrip("\r").split("\t")
            if len(row) > 1 and row[0] and row[1]:
                yield number, row
            elif line.strip():
                raise ValueError(f"expected two ids, or an id and its cluster, separated by a tab, got {row[0]!r:.80}")
        except ValueError as error:
            rejects.append(f"{path}:{number}: {error}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with InputFile(str(path), packing_of(str(path))) as file:
        try:
            for block in blocks_of(file.read):
                yield from enumerate(block.lines(), block.first)
        except DamagedInputError as error:
            raise ValueError(f"{path}: {error}") from error
