"""Keep policies: which document of a cluster to keep, as an ordered list of preferences → a rank."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hsimhash.fingerprint.bits import Int64s
from hsimhash.times import milliseconds_of

PLAIN = ("first", "last", "longest", "shortest-id", "https")
WITH_FIELD = ("newest", "highest")
POLICY_FORMS = (*PLAIN, *(f"{kind}:FIELD" for kind in WITH_FIELD))

_NUMBER = re.compile(r"\s*([+-]?\d{1,400})(\.\d*)?([eE][+-]?\d{1,4})?\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Policy:
    """One preference."""

    kind: (
        str  # `first` or `last` in the input; `longest` text; `shortest-id`; `https` before other ids; or of WITH_FIELD
    )
    field: str = ""  # whose `newest` or `highest` value counts

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Return the policy that `text` writes: its kind, or `newest:FIELD`, `highest:FIELD`."""
        kind, colon, field = text.partition(":")
        if kind in PLAIN and not colon:
            return cls(kind)
        if kind in WITH_FIELD and field:
            return cls(kind, field)
        if kind in WITH_FIELD:
            raise ValueError(f"keep policy {text!r} names no field; write {kind}:FIELD, such as {kind}:date")
        raise ValueError(f"unknown keep policy {text!r}; use {', '.join(POLICY_FORMS)}")

    def value_of(self, value: object) -> float | None:
        """Return what a field's value counts as, whole numbers exactly; None where it is missing or none that counts.

        For `newest` a number, or an ISO 8601 time as ms since 1970, UTC where it names no zone; for `highest` a number.
        """
        number = _number(value)
        if number is None and self.kind == "newest" and isinstance(value, str):
            return milliseconds_of(value.strip())
        return number

    def __str__(self) -> str:
        return f"{self.kind}:{self.field}" if self.field else self.kind


def needed_fields(policies: Iterable[Policy]) -> tuple[str, ...]:
    """Return the records' fields that the policies ask for, each once, in order."""
    return tuple(dict.fromkeys(policy.field for policy in policies if policy.field))


def needs_lengths(policies: Iterable[Policy]) -> bool:
    """Whether the policies ask for the texts' lengths."""
    return any(policy.kind == "longest" for policy in policies)


def rank(
    policies: Sequence[Policy],
    doc_ids: Sequence[str],
    *,
    lengths: Int64s | Sequence[int] | None = None,
    fields: Mapping[str, Sequence[object]] | None = None,
) -> Int64s:
    """Return each document's rank, 0 for the one to keep first, by the first policy that tells two apart.

    Ties are broken by document id, then by position.

    Args:
        policies: in order of weight.
        doc_ids: of all documents, in the order of the input.
        lengths: of the texts, where `needs_lengths`.
        fields: for each of `needed_fields` its value of every document, None where it has none: those rank last.
    """
    missing = [field for field in needed_fields(policies) if field not in (fields or {})]
    missing += ["lengths"] if needs_lengths(policies) and lengths is None else []
    if missing:
        raise ValueError(f"the keep policies need columns that were not given: {', '.join(missing)}")
    keys = []
    for policy in policies:
        keys.append(_key(policy, doc_ids, lengths, fields or {}))
        if len(keys[-1]) != len(doc_ids):
            raise ValueError(f"keep policy {policy}: {len(keys[-1])} values for {len(doc_ids)} documents")
    if not any(policy.kind in ("first", "last") for policy in policies):  # they leave no ties
        keys.append(_order(doc_ids))
    ranks = np.empty(len(doc_ids), np.int64)
    ranks[np.lexsort(keys[::-1])] = np.arange(len(doc_ids))
    return ranks


def _key(
    policy: Policy,
    doc_ids: Sequence[str],
    lengths: Int64s | Sequence[int] | None,
    fields: Mapping[str, Sequence[object]],
) -> Int64s:
    """Return numbers by which the documents are sorted, the preferred first."""
    match policy.kind:
        case "first":
            return np.arange(len(doc_ids))
        case "last":
            return -np.arange(len(doc_ids))
        case "longest":
            return -np.asarray(lengths, np.int64)
        case "shortest-id":
            return np.array([len(doc_id) for doc_id in doc_ids], np.int64)
        case "https":
            return np.array([doc_id[:8].lower() != "https://" for doc_id in doc_ids], np.int64)
        case _:
            return _descending([policy.value_of(value) for value in fields[policy.field]])


def _descending(values: list[float | None]) -> Int64s:
    """Return each value's place from the greatest down, equal ones the same, None last. Exact for whole numbers."""
    distinct = sorted({value for value in values if value is not None}, reverse=True)
    place: dict[float | None, int] = {value: at for at, value in enumerate(distinct)}
    return np.array([place.get(value, len(distinct)) for value in values], np.int64)


def _order(doc_ids: Sequence[str]) -> Int64s:
    """Return each document's place in the order of ids, equal ones by position."""
    place = np.empty(len(doc_ids), np.int64)
    place[sorted(range(len(doc_ids)), key=doc_ids.__getitem__)] = np.arange(len(doc_ids))
    return place


def _number(value: object) -> float | None:
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        if match is None:
            return None
        return float(value) if match[2] or match[3] else int(match[1])
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return value if isinstance(value, float) and not math.isnan(value) else None
