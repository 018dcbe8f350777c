"""Check texts that callers pass in, and match signatures with the values that accompany the texts."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar, overload

import numpy as np

from hsimhash.fingerprint.signature import TOO_SHORT, Signatures

T = TypeVar("T")
Scalar = TypeVar("Scalar", int, None)

_MISSING = {"NoneType", "NAType", "NaTType"}  # what data frames use for missing values, in addition to NaN


def as_text(text: object, name: str = "text") -> str:
    """Return `text` if it is a `str`; otherwise raise a `TypeError` that refers to it as `name`."""
    if isinstance(text, str):
        return text
    kind = type(text).__name__
    got = "None" if text is None else f"{kind} {reprlib.repr(text)}"
    remedy = "; drop missing texts first, or replace them with ''" if is_missing(text) else ""
    raise TypeError(f"{name} must be a str, got {got}{remedy}")


def is_missing(value: object) -> bool:
    """Whether data frames use this value for missing values: None, NaN, `pandas.NA` or `pandas.NaT`."""
    return type(value).__name__ in _MISSING or (isinstance(value, float) and math.isnan(value))


def as_texts(texts: Iterable[str], name: str = "texts") -> Sequence[str]:
    """Return texts as a sequence of `str`.

    Args:
        texts: A list, a generator, a NumPy array, a column of a pandas, Polars or Arrow table, or any other iterable
            with a fixed order.
        name: Name for `texts` in error messages.

    Raises:
        TypeError: `texts` is not such an iterable, or one of its elements is not a `str`.
    """
    listed: Sequence[str] = as_column(texts, name)
    if not set(map(type, listed)) <= {str}:
        for place, text in enumerate(listed):
            as_text(text, f"{name}[{place}]")
    return listed


def as_column(values: Iterable[Any], name: str) -> Sequence[Any]:
    """Return the values of a list, array, table column or other ordered iterable; otherwise raise `TypeError`."""
    if isinstance(values, (list, tuple)):
        return values
    kind = type(values).__name__
    if isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"{name} must be a list or another iterable, got a single {kind}: {reprlib.repr(values)}")
    if isinstance(values, (Mapping, Set)):
        raise TypeError(f"{name} must have a fixed order, got a {kind}; pass a list")
    if len(getattr(values, "shape", (0,))) != 1:
        raise TypeError(f"{name} must have one dimension, got a {kind} of shape {values.shape}; pass one column")  # type: ignore[attr-defined]
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list or another iterable, got {kind} {reprlib.repr(values)}")
    unwrap = getattr(values, "to_pylist", None) or getattr(values, "tolist", None)  # Arrow; NumPy and pandas
    return unwrap() if unwrap else list(values)


class LongEnough:
    """The signatures of the texts that are long enough to have one, aligned with the caller's other columns.

    Args:
        signatures: Signatures of all texts, as returned by `Profile.signatures`.
    """

    def __init__(self, signatures: Signatures) -> None:
        self._count = len(signatures)
        self._places: list[int] = np.flatnonzero(signatures.kinds != TOO_SHORT).tolist()
        self.signatures = signatures[self._places]

    @overload
    def of(self, values: Iterable[T], name: str) -> list[T]: ...

    @overload
    def of(self, values: Scalar, name: str) -> Scalar: ...

    def of(self, values: Iterable[T] | Scalar, name: str) -> list[T] | Scalar:
        """Return the values that belong to the texts with a signature; return a single value or None unchanged.

        Raises:
            ValueError, TypeError: `values` does not have one value for each text.
        """
        if not isinstance(values, Iterable):
            return values
        listed = as_column(values, name)
        if len(listed) != self._count:
            raise ValueError(f"{name} must have one value for each of the {self._count} texts, got {len(listed)}")
        return [listed[place] for place in self._places]

    def others(self, values: Sequence[T]) -> list[T]:
        """Return the values that belong to the texts without a signature."""
        return [values[place] for place in sorted({*range(self._count)} - {*self._places})]

    def spread(self, answers: Iterable[T]) -> list[T | None]:
        """Return one value for each text: its answer, or None if the text does not have a signature."""
        spread: list[T | None] = [None] * self._count
        for place, answer in zip(self._places, answers, strict=True):
            spread[place] = answer
        return spread
