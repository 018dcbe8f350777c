"""Join several fields of a document into one text, in the profile's order, separated by U+001F (unit separator).

A document with fields can then be used wherever a text can: in batches, processes and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from hsimhash.fingerprint.bits import Floats

FIELD_SEPARATOR = "\x1f"


def join_fields(values: Iterable[str]) -> str:
    """Join the texts of a document's fields; separators within them become spaces."""
    return FIELD_SEPARATOR.join([value.replace(FIELD_SEPARATOR, " ") for value in values])


def split_fields(texts: Sequence[str], weights: Mapping[str, int]) -> tuple[list[str], Floats]:
    """Return the fields of all documents in one list, and the weight of each.

    A text with a different number of fields is treated as one field of weight 1, followed by empty fields.
    """
    parts: list[str] = []
    heavy: list[int] = []
    for text in texts:
        own = text.split(FIELD_SEPARATOR)
        is_whole = len(own) == len(weights)
        parts += own if is_whole else [text, *[""] * (len(weights) - 1)]
        heavy += weights.values() if is_whole else [1] * len(weights)
    return parts, np.array(heavy, np.float64)
