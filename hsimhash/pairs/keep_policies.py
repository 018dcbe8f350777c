"""Keep policies: an ordered list of preferences that determines which document in a cluster to keep."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hsimhash.durations import milliseconds_of
from hsimhash.fingerprint.bits import Floats, Int64s

PLAIN = ("first", "last", "longest", "shortest-id", "https")
WITH_FIELD = ("newest", "highest")
POLICY_FORMS = (*PLAIN, *(f"{kind}:FIELD" for kind in WITH_FIELD))

VALUE_PARTS = 4  # number of floats whose sum is a value: enough for integers of 64 digits

_NUMBER = re.compile(r"\s*([+-]?\d{1,400})(\.\d*)?([eE][+-]?\d{1,4})?\s*", re.ASCII)


class DocIds(Protocol):
    """Ids in order: a list, or an object that reads them from a file."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Policy:
    """A preference for documents, such as the first or the longest."""

    kind: str  # `first`, `last`, `longest` (text), `shortest-id`, `https` (in the id), or one of WITH_FIELD
    field: str = ""  # field whose `newest` or `highest` value is preferred

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Parse a policy: its kind, or `newest:FIELD`, `highest:FIELD`."""
        kind, colon, field = text.partition(":")
        if kind in PLAIN and not colon:
            return cls(kind)
        if kind in WITH_FIELD and field:
            return cls(kind, field)
        if kind in WITH_FIELD:
            raise ValueError(f"keep policy {text!r} requires a field; write {kind}:FIELD, such as {kind}:date")
        raise ValueError(f"unknown keep policy {text!r}; use {', '.join(POLICY_FORMS)}")

    def value_of(self, value: object) -> float | None:
        """Return a field's value for this policy, with whole numbers exact; None if it is missing or invalid.

        For `newest`: a number, or an ISO 8601 time as ms since 1970 (UTC unless it names a zone). For `highest`: a
        number.
        """
        number = _number(value)
        if number is None and self.kind == "newest" and isinstance(value, str):
            return milliseconds_of(value.strip())
        return number

    def parts_of(self, value: object) -> tuple[float, ...]:
        """Return `value_of` as VALUE_PARTS floats that sort like the values; the first is NaN if there is no value.

        Each float is the one nearest to the value minus the floats before it. Their sum is exact for integers of up to
        64 digits.
        """
        left = self.value_of(value)
        if left is None:
            return math.nan, *(0.0,) * (VALUE_PARTS - 1)
        parts = [float(left)]
        while len(parts) < VALUE_PARTS:
            left = left - int(parts[-1]) if left != parts[-1] else 0
            parts.append(float(left))
        return tuple(parts)

    def __str__(self) -> str:
        return f"{self.kind}:{self.field}" if self.field else self.kind


def needed_fields(policies: Iterable[Policy]) -> tuple[str, ...]:
    """Return the record fields that the policies need, each once, in order."""
    return tuple(dict.fromkeys(policy.field for policy in policies if policy.field))


def needs_lengths(policies: Iterable[Policy]) -> bool:
    """Whether the policies need the lengths of texts."""
    return any(policy.kind == "longest" for policy in policies)


def needs_places(policies: Iterable[Policy]) -> bool:
    """Whether the policies leave ties, to be broken by document id."""
    return not any(policy.kind in ("first", "last") for policy in policies)


def rank(
    policies: Sequence[Policy],
    doc_ids: DocIds,
    *,
    lengths: Int64s | Sequence[int] | None = None,
    values: Mapping[Policy, Sequence[Floats]] | None = None,
    places: Int64s | Sequence[int] | None = None,
) -> Int64s:
    """Return each document's rank, 0 for the document to keep first.

    Two documents are ordered by the first policy that distinguishes them. Ties are broken by document id, then by
    position.

    Args:
        policies: Policies, the most important first.
        doc_ids: Ids of all documents, in input order.
        lengths: Lengths of the texts, required if `needs_lengths`.
        values: For each policy with a field, the columns of `Policy.parts_of` for every document. At least the first
            column is required; trailing columns of zeros may be omitted.
        places: Positions in the order of ids, required if `needs_places`; arbitrary for documents that are never
            compared.
    """
    missing = [str(policy) for policy in policies if policy.field and not (values or {}).get(policy)]
    missing += ["lengths"] if needs_lengths(policies) and lengths is None else []
    missing += ["places"] if needs_places(policies) and places is None else []
    if missing:
        raise ValueError(f"missing columns that the keep policies require: {', '.join(missing)}")
    keys: list[Int64s | Floats] = []
    for policy in policies:
        keys += [-part for part in (values or {})[policy]] if policy.field else [_key(policy, doc_ids, lengths)]
        if len(keys[-1]) != len(doc_ids):
            raise ValueError(
                f"keep policy {policy}: expected one value for each of {len(doc_ids)} documents, got {len(keys[-1])}"
            )
    if needs_places(policies):
        keys.append(np.asarray(places, np.int64))
    ranks = np.empty(len(doc_ids), np.int64)
    ranks[np.lexsort(keys[::-1])] = np.arange(len(doc_ids))
    return ranks


def _key(policy: Policy, doc_ids: DocIds, lengths: Int64s | Sequence[int] | None) -> Int64s:
    """Return numbers to sort the documents by, preferred documents first."""
    match policy.kind:
        case "first":
            return np.arange(len(doc_ids))
        case "last":
            return -np.arange(len(doc_ids))
        case "longest":
            return -np.asarray(lengths, np.int64)
        case "shortest-id":
            return np.fromiter(map(len, doc_ids), np.int64, len(doc_ids))
        case _:  # https
            return np.fromiter((doc_id[:8].lower() != "https://" for doc_id in doc_ids), np.int64, len(doc_ids))


def _number(value: object) -> float | None:
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        if match is None:
            return None
        return float(value) if match[2] or match[3] else int(match[1])
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return value if isinstance(value, float) and not math.isnan(value) else None
