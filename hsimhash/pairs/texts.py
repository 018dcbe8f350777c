"""Find near-duplicates among texts in memory, without files or an index: `duplicates`."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar, get_args, overload

import numpy as np

from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.errors import plural
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile, Signatures
from hsimhash.fingerprint.bits import Int64s, whole_number
from hsimhash.fingerprint.fit import fitted_to
from hsimhash.fingerprint.signature import similarities
from hsimhash.fingerprint.texts import LongEnough, as_column, as_texts, is_missing
from hsimhash.pairs.clusters import KeyCheck, star
from hsimhash.pairs.keep_policies import Policy, rank
from hsimhash.pairs.search import find_crowded
from hsimhash.pairs.shared_shingles import SharedShingles

Id = TypeVar("Id", bound=Hashable)
Keep = Literal["first", "last", "longest"]
Fitting = Literal["auto", "off"]
FoundBy = Literal["distance", "key"]


class Pair(NamedTuple, Generic[Id]):
    """A text to drop and the text kept in its place, by their ids; `left` comes first in the input."""

    left: Id
    right: Id
    distance: int  # differing bits of the fingerprints; 0 for equal texts and some nearly equal ones
    similarity: float | None  # estimated share of common word sequences, 0 to 1; None without sketches
    found_by: FoundBy  # "key": the distance exceeds the limit, but the texts share a key


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cluster(Generic[Id]):
    """Near-duplicate texts, and the one to keep."""

    kept: Id
    members: tuple[Id, ...]  # in input order, including `kept`
    pairs: tuple[Pair[Id], ...]  # each dropped member with `kept`

    @property
    def dropped(self) -> tuple[Id, ...]:
        """The members to drop: all except `kept`."""
        return tuple(member for member in self.members if member != self.kept)

    def __repr__(self) -> str:
        bits = [pair.distance for pair in self.pairs]
        said = f"{min(bits)}" if min(bits) == max(bits) else f"{min(bits)} to {max(bits)}"
        return f"<Cluster: keep {self.kept!r}, members {reprlib.repr(self.members)}, differing in {said} bits>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Duplicates(Sequence[Cluster[Id]]):
    """The result of `duplicates`: a sequence of clusters, with the ids to keep and to drop."""

    clusters: tuple[Cluster[Id], ...]  # in the order of their first members
    keep: list[Id]  # one id from each cluster, and every text without a near-duplicate, in input order
    drop: list[Id]  # all other ids, in input order
    too_short: list[Id]  # kept without comparison, because the text is too short for a fingerprint

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
            f"<Duplicates: {plural(texts, 'text')}, {len(self.keep):,} to keep, {len(self.drop):,} to drop, "
            f"{plural(len(self), 'cluster')}{f', {short:,} too short to compare' if short else ''}>"
        )


@overload
def duplicates(
    texts: Iterable[str],
    *,
    ids: None = None,
    distance: int = ...,
    profile: Profile | str = ...,
    fit: Fitting = ...,
    keep: Keep = ...,
) -> Duplicates[int]: ...


@overload
def duplicates(
    texts: Iterable[str],
    *,
    ids: Iterable[Id],
    distance: int = ...,
    profile: Profile | str = ...,
    fit: Fitting = ...,
    keep: Keep = ...,
) -> Duplicates[Id]: ...


def duplicates(
    texts: Iterable[str],
    *,
    ids: Iterable[Id] | None = None,
    distance: int = DEFAULT_DISTANCE,
    profile: Profile | str = DEFAULT_PROFILE,
    fit: Fitting = "auto",
    keep: Keep = "first",
) -> Duplicates[Id] | Duplicates[int]:
    """Find the near-duplicates among texts, and choose which of them to keep.

    `hsimhash dedup` produces the same result for the same texts. Every text to drop is a near-duplicate of the text
    that is kept in its place.

        found = hsimhash.duplicates(frame["text"])
        frame = frame.iloc[found.keep]

    Args:
        texts: A list, a column of a data frame, or any other iterable with a fixed order, without missing values.
        ids: One distinct, hashable id for each text; the default is its position, starting at 0.
        distance: Maximum number of bits in which two fingerprints differ. Greater values find more duplicates, but also
            more false positives. Texts that share a key (with auto-3, three of their five heaviest words) are also
            near, if at least half of the dropped text's shingles occur in the kept text.
        profile: Profile, or the name of one, that turns texts into fingerprints.
        fit: "auto" learns word weights from the texts, if the profile weights words by rarity and there are at least
            100 texts; "off" uses the weights of general text.
        keep: Which text in a cluster to keep: the first, the last, or the longest (the first of equally long texts).

    Raises:
        TypeError: an element of `texts` is not a `str`; the message gives its position.
        ValueError: another argument is out of range, or an id occurs twice.
    """
    if keep not in get_args(Keep):
        raise ValueError(f"keep must be one of {', '.join(map(repr, get_args(Keep)))}, got {keep!r:.80}")
    if fit not in get_args(Fitting):
        raise ValueError(f"fit must be one of {', '.join(map(repr, get_args(Fitting)))}, got {fit!r:.80}")
    distance = whole_number(distance, "distance")
    profile = Profile.named(profile) if isinstance(profile, str) else profile
    listed = as_texts(texts)
    profile = fitted_to(listed, profile) if fit == "auto" else profile
    if ids is None:
        return _found(listed, range(len(listed)), distance, profile, keep)
    return _found(listed, _checked_ids(ids, len(listed)), distance, profile, keep)


def _checked_ids(ids: Iterable[Id], count: int) -> Sequence[Id]:
    """Return the ids, one for each of `count` texts; raise `ValueError` or `TypeError` for invalid ones."""
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
    """Find the near-duplicates for `duplicates`; `ids` has one id for each text."""
    profile.verify()
    known = LongEnough(profile.signatures(texts))
    own, compared = known.of(ids, "ids"), known.of(texts, "texts")
    crowded = find_crowded(known.signatures, max_distance=distance)
    policies = [Policy(keep)] if keep != "longest" else [Policy(keep), Policy("first")]
    ranks = rank(policies, compared, lengths=list(map(len, compared)))
    with SharedShingles(
        profile, lambda numbers: ((number, compared[number]) for number in numbers.tolist())
    ) as shingles:
        check = None if profile.sketch is None else KeyCheck(distance, shingles.too_few)
        kept = star(known.signatures.fingerprints, crowded, ranks, check).kept
    dropped = np.flatnonzero(kept != np.arange(len(kept)))
    drop = {own[place] for place in dropped.tolist()}
    return Duplicates(
        tuple(_clusters(own, kept, _pairs(own, known.signatures, dropped, kept[dropped], distance))),
        [name for name in ids if name not in drop],
        [name for name in ids if name in drop],
        known.others(ids),
    )


def _pairs(
    own: Sequence[Id], signatures: Signatures, dropped: Int64s, centres: Int64s, max_distance: int
) -> Iterator[Pair[Id]]:
    """Yield each dropped text with the text kept in its place."""
    some, others = signatures[dropped], signatures[centres]
    distances = np.bitwise_count(some.fingerprints ^ others.fingerprints)
    alike = similarities(some.sketches, others.sketches)
    left, right = np.minimum(dropped, centres), np.maximum(dropped, centres)
    for first, second, bits, similarity in zip(*(one.tolist() for one in (left, right, distances, alike)), strict=True):
        found_by: FoundBy = "distance" if bits <= max_distance else "key"
        yield Pair(own[first], own[second], bits, None if math.isnan(similarity) else similarity, found_by)


def _clusters(own: Sequence[Id], kept: Int64s, pairs: Iterator[Pair[Id]]) -> Iterator[Cluster[Id]]:
    """Yield the clusters in the order of their first members.

    `own` has the ids for the positions in `kept`; `pairs` has one pair for each position that is dropped.
    """
    members: dict[int, list[Id]] = {}
    among = np.flatnonzero(np.bincount(kept, minlength=1)[kept] > 1)
    of_centre: dict[int, list[Pair[Id]]] = {}
    for place, centre in zip(among.tolist(), kept[among].tolist(), strict=True):
        members.setdefault(centre, []).append(own[place])
        if place != centre:
            of_centre.setdefault(centre, []).append(next(pairs))
    for centre, names in members.items():
        yield Cluster(own[centre], tuple(names), tuple(of_centre[centre]))
