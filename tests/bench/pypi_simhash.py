"""PyPI `simhash` in its usual form, which several benchmarks compare with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from simhash import Simhash


class PypiSimhash(Simhash):  # type: ignore[misc]
    """PyPI `simhash` 2.1.2, fixed for numpy 2, where a weight above 255 overflows its uint8 arrays."""

    @staticmethod
    def _bitarray_from_bytes(packed: bytes) -> NDArray[np.int64]:
        return np.unpackbits(np.frombuffer(packed, np.uint8)).astype(np.int64)


def by_pypi_simhash(texts: Sequence[str]) -> NDArray[np.uint64]:
    """Fingerprint texts as `Simhash(text)` does."""
    return np.array([PypiSimhash(text).value for text in texts], np.uint64)
