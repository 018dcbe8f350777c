"""Find near-duplicates among texts in memory, without files or an index: `duplicates`."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, NamedTuple, TypeVar, get_args, overload

import numpy as np

from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile, Signatures
from hsimhash.fingerprint.bits import Floats, Int64s, whole_number
from hsimhash.fingerprint.signature import similarities
from hsimhash.fingerprint.texts import LongEnough, as_column, as_texts, is_missing
from hsimhash.pairs.clusters import star
from hsimhash.pairs.keep_policies import Policy, rank
from hsimhash.pairs.pair_blocks import PairBlock, Pairs
from hsimhash.pairs.search import find_pairs

Id = TypeVar("Id", bound=Hashable)
Keep = Literal["first", "last", "longest"]
FoundBy = Literal["distance", "key"]


class Pair(NamedTuple, Generic[Id]):
    """A pair of near-duplicate texts, by their ids; `left` comes first in the input."""

    left: Id
    right: Id
    distance: int  # differing bits of the fingerprints; 0 for equal texts, and for some that are nearly equal
    similarity: float | None  # estimated share of common word sequences, 0 to 1; None without sketches
    found_by: FoundBy  # "key": farther apart than `distance`, but with the same heaviest words


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClusterPairs(Sequence[Pair[Id]]):
    """Near pairs in order of (left, right), each made when accessed, because n near texts have n² / 2 pairs."""

    ids: Sequence[Id]
    block: PairBlock  # by their places in `ids`
    similarity: Floats  # NaN without sketches
    max_distance: int

    @overload
    def __getitem__(self, place: int) -> Pair[Id]: ...

    @overload
    def __getitem__(self, place: slice) -> ClusterPairs[Id]: ...

    def __getitem__(self, place: int | slice) -> Pair[Id] | ClusterPairs[Id]:
        left, right, distance = self.block.left[place], self.block.right[place], self.block.distance[place]
        if isinstance(place, slice):
            return replace(self, block=PairBlock(left, right, distance), similarity=self.similarity[place])
        bits, alike = int(distance), float(self.similarity[place])
        found_by: FoundBy = "distance" if bits <= self.max_distance else "key"
        return Pair(self.ids[int(left)], self.ids[int(right)], bits, None if math.isnan(alike) else alike, found_by)

    def __len__(self) -> int:
        return len(self.similarity)

    def __repr__(self) -> str:
        least, most = self.block.distance.min(initial=64), self.block.distance.max(initial=0)
        bits = f"{least}" if least >= most else f"{least} to {most}"
        return f"<{_plural(len(self), 'pair')}, differing in {bits} bits>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cluster(Generic[Id]):
    """Near-duplicate texts, and the one to keep."""

    kept: Id
    members: tuple[Id, ...]  # in the order of the input, with `kept`
    pairs: ClusterPairs[Id]  # all near pairs of members, but of equal texts each is paired with the first one only

    @property
    def dropped(self) -> tuple[Id, ...]:
        """The members to drop: all except `kept`."""
        return tuple(member for member in self.members if member != self.kept)

    def __repr__(self) -> str:
        return f"Cluster(kept={self.kept!r}, members={reprlib.repr(self.members)}, pairs={self.pairs!r})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Duplicates(Sequence[Cluster[Id]]):
    """The result of `duplicates`: a sequence of clusters, with the ids to keep and to drop."""

    clusters: tuple[Cluster[Id], ...]  # in the order of their first members
    keep: list[Id]  # one id of each cluster, and every text without a near-duplicate, in the order of the input
    drop: list[Id]  # all other ids, in the order of the input
    too_short: list[Id]  # kept without being compared, because the text is too short for a fingerprint

    @overload
    def __getitem__(self, place: int) -> Cluster[Id]: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Cluster[Id]]: ...

    def __getitem__(self, place: int | slice) -> Cluster[Id] | Sequence[Cluster[Id]]:
        return self.clusters[place]

    def __len__(self) -> int:
        return len(self.clusters)

    def __repr__(self) -> str:
        texts, short = len(self.keep) + len(self.drop), len(self.too_short)
        return (
            f"<Duplicates: {_plural(texts, 'text')}, {len(self.keep):,} to keep, {len(self.drop):,} to drop, "
            f"{_plural(len(self), 'cluster')}{f', {short:,} too short to compare' if short else ''}>"
        )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


@overload
def duplicates(
    texts: Iterable[str],
    *,
    ids: None = None,
    distance: int = ...,
    profile: Profile | str = ...,
    keep: Keep = ...,
) -> Duplicates[int]: ...


@overload
def duplicates(
    texts: Iterable[str],
    *,
    ids: Iterable[Id],
    distance: int = ...,
    profile: Profile | str = ...,
    keep: Keep = ...,
) -> Duplicates[Id]: ...


def duplicates(
    texts: Iterable[str],
    *,
    ids: Iterable[Id] | None = None,
    distance: int = DEFAULT_DISTANCE,
    profile: Profile | str = DEFAULT_PROFILE,
    keep: Keep = "first",
) -> Duplicates[Id] | Duplicates[int]:
    """Find the near-duplicates among texts, and choose which of them to keep.

    `hsimhash dedup` gives the same result for the same texts. Every text to drop is a near-duplicate of the text that
    is kept in its place.

        found = hsimhash.duplicates(frame["text"])
        frame = frame.iloc[found.keep]

    Args:
        texts: a list, a column of a data frame, or any other iterable with a fixed order; without missing values.
        ids: one distinct, hashable id for each text; by default its position, from 0.
        distance: at most so many bits of two fingerprints differ; texts with the same heaviest words are near too.
            Greater values find more, and more of what is not a duplicate.
        profile: how texts become fingerprints: a profile or its name.
        keep: which text of a cluster to keep: the first, the last, or the longest (of equally long ones the first).

    Raises:
        TypeError: an element of `texts` is not a `str`; the message gives its position.
        ValueError: another argument is out of range, or an id occurs twice.
    """
    if keep not in get_args(Keep):
        raise ValueError(f"keep must be one of {', '.join(map(repr, get_args(Keep)))}, got {keep!r:.80}")
    distance = whole_number(distance, "distance")
    profile = Profile.named(profile) if isinstance(profile, str) else profile
    listed = as_texts(texts)
    if ids is None:
        return _found(listed, range(len(listed)), distance, profile, keep)
    return _found(listed, _checked_ids(ids, len(listed)), distance, profile, keep)


def _checked_ids(ids: Iterable[Id], count: int) -> Sequence[Id]:
    """Return the ids, one for each of `count` texts; raise `ValueError` or `TypeError` for wrong ones."""
    listed: Sequence[Id] = as_column(ids, "ids")
    if len(listed) != count:
        raise ValueError(f"ids must have one value for each of the {count} texts, got {len(listed)}")
    known: dict[Id, int] = {}
    for place, name in enumerate(listed):
        if is_missing(name) or type(name).__hash__ is None:
            raise TypeError(f"ids[{place}] must be a hashable value, got {name!r:.80}")
        if (first := known.setdefault(name, place)) != place:
            raise ValueError(f"ids must be distinct, but ids[{first}] and ids[{place}] are both {name!r:.80}")
    return listed


def _found(texts: Sequence[str], ids: Sequence[Id], distance: int, profile: Profile, keep: Keep) -> Duplicates[Id]:
    """Return what `duplicates` does; `ids` has one id for each text."""
    profile.verify()
    known = LongEnough(profile.signatures(texts))
    own, compared = known.of(ids, "ids"), known.of(texts, "texts")
    pairs = find_pairs(known.signatures, max_distance=distance)
    policies = [Policy(keep)] if keep != "longest" else [Policy(keep), Policy("first")]
    ranks = rank(policies, compared, lengths=list(map(len, compared)))
    kept = star(known.signatures.fingerprints, pairs, ranks).kept
    drop = {own[place] for place in np.flatnonzero(kept != np.arange(len(kept))).tolist()}
    return Duplicates(
        tuple(_clusters(own, kept, ClusterPairs(own, *_near(pairs, known.signatures, kept), distance))),
        [name for name in ids if name not in drop],
        [name for name in ids if name in drop],
        known.others(ids),
    )


def _near(pairs: Pairs, signatures: Signatures, kept: Int64s) -> tuple[PairBlock, Floats]:
    """Return the near pairs within clusters and their similarities, those of one cluster together."""
    left, right, distance = pairs.brief()
    inside = np.flatnonzero(kept[left] == kept[right])
    inside = inside[np.argsort(kept[left[inside]], kind="stable")]
    block = PairBlock(left[inside], right[inside], distance[inside])
    return block, similarities(signatures.sketches[block.left], signatures.sketches[block.right])


def _clusters(own: Sequence[Id], kept: Int64s, near: ClusterPairs[Id]) -> Iterator[Cluster[Id]]:
    """Yield the clusters in the order of their first members; `own` has the ids of the places in `kept`."""
    members: dict[int, list[Id]] = {}
    among = np.flatnonzero(np.bincount(kept, minlength=1)[kept] > 1)
    for place, centre in zip(among.tolist(), kept[among].tolist(), strict=True):
        members.setdefault(centre, []).append(own[place])
    centres = np.array(list(members), np.int64)
    starts, stops = (np.searchsorted(kept[near.block.left], centres, side).tolist() for side in ("left", "right"))
    for (centre, names), start, stop in zip(members.items(), starts, stops, strict=True):
        yield Cluster(own[centre], tuple(names), near[start:stop])
