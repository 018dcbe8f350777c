"""A text's signature: its fingerprint, which finds; a sketch, which confirms; a key, which finds through a frame.

What a sketch and a key are: `sketch`. Either is 0 where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Uint8s, Uint64s


class Signature(NamedTuple):
    """Of one text: three unsigned 64-bit numbers; a sketch or a key of 0 is none."""

    fingerprint: int
    sketch: int = 0
    key: int = 0


@dataclass(frozen=True, slots=True)
class Signatures:
    """Of texts, in the order given: uint64 `fingerprints`, `sketches` and `keys`, and `kinds`, shape (n,) each.

    Kinds are those of `Fingerprints`. A sketch or a key is 0 where the profile makes none, or has none for the text.
    """

    fingerprints: Uint64s
    sketches: Uint64s
    keys: Uint64s
    kinds: Uint8s

    @staticmethod
    def joined(parts: Iterable[Signatures]) -> Signatures:
        """Return signatures one after the other."""
        none = np.empty(0, np.uint64)
        parts = [Signatures(none, none, none, np.empty(0, np.uint8)), *parts]
        return Signatures(
            np.concatenate([part.fingerprints for part in parts]),
            np.concatenate([part.sketches for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.kinds for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.fingerprints)

    def __iter__(self) -> Iterator[Signature]:
        rows = zip(self.fingerprints.tolist(), self.sketches.tolist(), self.keys.tolist(), strict=True)
        return (Signature(*row) for row in rows)
