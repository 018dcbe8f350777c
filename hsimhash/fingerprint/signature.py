"""Signatures: a fingerprint finds a text, a sketch confirms the match, and a key finds it in a different page frame.

See `sketch` and `keys` for details. A sketch or key of 0 means that it is missing.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import (
    LIMIT,
    AnyFingerprints,
    Bools,
    Floats,
    Uint8s,
    Uint64s,
    as_fingerprint,
    as_fingerprints,
    format_fingerprint,
)
from hsimhash.fingerprint.keys import Keying

MAX_SKETCH = 20  # default limit on the bits in which two sketches differ; queries skip documents above it
# A shared key finds texts at any distance. Beyond this distance, their sketches must agree in more bits.
FAR = 16
SKETCH_BITS = 64
VOTED, EXACT, TOO_SHORT = range(3)  # kinds of fingerprints


class Signature(NamedTuple):
    """The signature of one text: three unsigned 64-bit numbers. A missing sketch or key is 0."""

    fingerprint: int
    sketch: int = 0
    key: int = 0

    def to_json(self) -> dict[str, str]:
        """Return the parts by name, as 16 hexadecimal digits each; omit sketch and key if both are missing."""
        names = self._fields if self.sketch or self.key else self._fields[:1]
        return {name: format_fingerprint(getattr(self, name)) for name in names}


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of texts, in order: uint64 `fingerprints`, `sketches` and `keys`, and `kinds`, shape (n,) each.

    Kinds are those of `Fingerprints`. A sketch or key is 0 if the profile does not make one, or could not make one for
    this text. `keying` defines when two signatures share a key.
    """

    fingerprints: Uint64s
    sketches: Uint64s
    keys: Uint64s
    kinds: Uint8s
    keying: Keying = Keying.WHOLE

    @staticmethod
    def of(
        fingerprints: AnyFingerprints,
        sketches: Uint64s | None = None,
        keys: Uint64s | None = None,
        *,
        keying: Keying = Keying.WHOLE,
    ) -> Signatures:
        """Return signatures for fingerprints of the kind `VOTED`, by default without sketches and keys."""
        values = as_fingerprints(fingerprints)
        none = np.zeros(len(values), np.uint64)
        sketches, keys = (none if given is None else given for given in (sketches, keys))
        return Signatures(values, sketches, keys, none.astype(np.uint8), keying)

    @staticmethod
    def collected(rows: Iterable[Signature]) -> Signatures:
        """Collect single signatures into arrays."""
        columns = list(zip(*rows, strict=True)) or [()] * 3  # building arrays from rows takes numpy four times as long
        return Signatures.of(*(np.array(column, np.uint64) for column in columns))

    @staticmethod
    def joined(parts: Iterable[Signatures]) -> Signatures:
        """Concatenate signatures."""
        none, listed = np.empty(0, np.uint64), list(parts)
        keying = listed[0].keying if listed else Keying.WHOLE
        listed = [Signatures(none, none, none, np.empty(0, np.uint8)), *listed]
        return Signatures(
            np.concatenate([part.fingerprints for part in listed]),
            np.concatenate([part.sketches for part in listed]),
            np.concatenate([part.keys for part in listed]),
            np.concatenate([part.kinds for part in listed]),
            keying,
        )

    @property
    def key_parts(self) -> Uint64s:
        """The parts of the keys, shape (n, 1) or (n, 5); see `Keying.parts`."""
        return self.keying.parts(self.keys)

    @property
    def is_plain(self) -> bool:
        """Whether they are bare fingerprints, without any sketch or key."""
        return not (self.sketches.any() or self.keys.any())

    def __len__(self) -> int:
        return len(self.fingerprints)

    def __getitem__(self, places: slice | Sequence[int] | NDArray[np.generic]) -> Signatures:
        """Return the signatures at the given indices (anything that indexes a NumPy array)."""
        return Signatures(
            self.fingerprints[places], self.sketches[places], self.keys[places], self.kinds[places], self.keying
        )

    def at(self, place: int) -> Signature:
        """Return the signature at an index."""
        return Signature(int(self.fingerprints[place]), int(self.sketches[place]), int(self.keys[place]))

    def __iter__(self) -> Iterator[Signature]:
        rows = zip(self.fingerprints.tolist(), self.sketches.tolist(), self.keys.tolist(), strict=True)
        return (Signature(*row) for row in rows)


AnySignatures = Signatures | Sequence[Signature | int] | Uint64s


def similarity(sketch: int, other: int) -> float | None:
    """Estimate the similarity of two texts from their sketches: the Jaccard index of their shingles, 0 to 1.

    Returns None if either sketch is 0, which means that it is missing.
    """
    if not (sketch and other):
        return None
    return max(0.0, 1 - 2 * (sketch ^ other).bit_count() / SKETCH_BITS)


def similarities(some: Uint64s, others: Uint64s) -> Floats:
    """Return `similarity` for each pair of sketches; NaN if either of them is missing."""
    index = np.maximum(0, 1 - 2 * np.bitwise_count(some ^ others).astype(np.float64) / SKETCH_BITS)
    return np.where((some != 0) & (others != 0), index, np.nan)


def most_differing(max_sketch: int, distance: int) -> int:
    """Return the maximum number of differing bits: `max_sketch`, minus one for each bit of distance beyond `FAR`."""
    return max(0, max_sketch - max(0, distance - FAR))


def are_alike(some: Uint64s | np.uint64, others: Uint64s, max_sketch: int | None, distances: Uint8s) -> Bools:
    """Return whether the sketches of each pair differ in few enough bits, or one of them is missing.

    Args:
        some: Shape (n,), or a single sketch to compare with all others.
        others: Shape (n,).
        max_sketch: Limit as for `most_differing`; with None, all pairs are alike.
        distances: Distances of the fingerprints, shape (n,).
    """
    if max_sketch is None:
        return np.ones(distances.shape, np.bool_)
    beyond = np.maximum(distances, np.uint8(FAR)) - np.uint8(FAR)
    differing = np.bitwise_count(some ^ others)
    alike: Bools = (differing + beyond <= max_sketch) | (differing == 0) | (some == 0) | (others == 0)
    return alike


def check_max_sketch(bits: int | None) -> None:
    """Raise `ValueError` or `TypeError` unless `bits` is None or a number of bits from 0 to 64."""
    if bits is None:
        return
    if not isinstance(bits, int) or isinstance(bits, bool):
        raise TypeError(f"max_sketch must be an int or None, got {type(bits).__name__}: {bits!r:.80}")
    if not 0 <= bits <= SKETCH_BITS:
        raise ValueError(f"max_sketch must be 0 to {SKETCH_BITS}, or None to ignore sketches, got {bits}")


def max_sketch_in(text: str) -> int | None:
    """Parse a limit for sketches: a number of bits, or `off`, for which the result is None."""
    if text == "off":
        return None
    with suppress(ValueError):
        if 0 <= (bits := int(text)) <= SKETCH_BITS:
            return bits
    raise ValueError(f"must be a number from 0 to {SKETCH_BITS}, or off")


def as_signature(given: Signature | int) -> Signature:
    """Return a signature or a bare fingerprint as a signature; raise `ValueError` or `TypeError` if it is invalid."""
    if type(given) is int and 0 <= given < LIMIT:  # the usual case
        return Signature(given)
    _refuse_text(given)
    return Signature(*map(as_fingerprint, given if isinstance(given, Signature) else (given,)))


def as_signatures(given: AnySignatures) -> Signatures:
    """Return signatures or bare fingerprints as `Signatures`; raise `ValueError` or `TypeError` for invalid values."""
    if isinstance(given, Signatures):
        return _checked(given)
    if isinstance(given, Signature):
        raise TypeError(f"expected a list of signatures, got a single signature: {given}")
    if isinstance(given, np.ndarray) and given.dtype.kind not in "OU":
        return Signatures.of(given)
    listed = list(given)
    if any(issubclass(kind, str) for kind in set(map(type, listed))):
        _refuse_text(next(one for one in listed if isinstance(one, str)))
    plain = [one for one in listed if not isinstance(one, Signature)]
    if len(plain) == len(listed):
        return Signatures.of(plain)
    return Signatures.collected(map(as_signature, listed))


def _refuse_text(given: object) -> None:
    """Raise `TypeError` for a `str`, which is usually the text itself."""
    if isinstance(given, str):
        raise TypeError(
            f"expected a signature or a fingerprint, got str: {reprlib.repr(given)}; pass a text to add_text, "
            f"query_text or claim_text (several texts to add_texts, query_texts, claim_texts or hsimhash.duplicates), "
            f"or parse a fingerprint with hsimhash.parse_fingerprint"
        )


def _checked(given: Signatures) -> Signatures:
    """Return valid signatures; raise `ValueError` or `TypeError` if a column is invalid or a text was too short."""
    columns = [as_fingerprints(column) for column in (given.fingerprints, given.sketches, given.keys)]
    if len({len(given.kinds), *map(len, columns)}) > 1:
        raise ValueError(
            f"fingerprints, sketches, keys and kinds must have the same length, got {len(columns[0])} fingerprints, "
            f"{len(columns[1])} sketches and {len(columns[2])} keys"
        )
    if len(short := np.flatnonzero(given.kinds == TOO_SHORT)):
        raise ValueError(
            f"text {short[0] + 1} of {len(given)} is too short for a fingerprint; leave out texts of kind TOO_SHORT"
        )
    return Signatures(columns[0], columns[1], columns[2], given.kinds, given.keying)
